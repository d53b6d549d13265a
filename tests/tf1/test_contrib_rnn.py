"""tf.contrib.rnn agrees with the formulas of its papers in NumPy: results, gradients, names of variables."""

from graphs import names, normal, run
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest

import tf1 as tf

rnn = tf.contrib.rnn
UNITS, DEPTH = 3, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_norm(x, gamma, beta):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * gamma + beta


def over_time(step, x, width=UNITS, lengths=None):
    """Computes a recurrent layer in NumPy from `step`, a function of x, c and h for one time step.

    Returns the outputs [B, T, width] and the last states c and h.
    """
    c, h = np.zeros([len(x), UNITS]), np.zeros([len(x), width])
    lengths = np.full(len(x), x.shape[1]) if lengths is None else np.array(lengths)
    outputs = []
    for t in range(x.shape[1]):
        inside = (t < lengths)[:, None]
        new_c, new_h = step(x[:, t], c, h)
        c, h = np.where(inside, new_c, c), np.where(inside, new_h, h)
        outputs.append(np.where(inside, new_h, 0))
    return np.stack(outputs, 1), c, h


def run_cell(make, shapes, x, scope, states=tuple):
    """Runs a cell over sequences, with random values of its variables.

    Args:
      make: function that returns the cell.
      shapes: {name of a variable in the scope: shape}.
      x: float [B, T, D].
      scope: scope of the variables, below rnn.
      states: function that takes the last state and returns a list of tensors.

    Returns:
      [arrays of the variables, outputs, *states].
    """
    values = {f"rnn/{scope}/{name}": normal(*shape) + index
              for index, (name, shape) in enumerate(shapes.items())}

    def build():
        outputs, state = tf.nn.dynamic_rnn(make(), tf.constant(x), dtype=tf.float32)
        assert set(names(tf.trainable_variables())) == set(values)
        return outputs, *states(state)
    return list(values.values()), *run(build, values=values)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-5)


# --- Cells --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalizes", [False, True])
def test_a_layer_norm_lstm(normalizes):
    gates = ["input", "transform", "forget", "output", "state"]
    shapes = {"kernel": [DEPTH + UNITS, 4 * UNITS], **(
        {f"{gate}/{name}": [UNITS] for gate in gates for name in ("gamma", "beta")} if normalizes
        else {"bias": [4 * UNITS]})}
    x = normal(2, 5, DEPTH)
    variables, *found = run_cell(lambda: rnn.LayerNormBasicLSTMCell(
        UNITS, forget_bias=0.5, layer_norm=normalizes), shapes, x, "layer_norm_basic_lstm_cell")
    norms = {gate: variables[1 + 2 * at:3 + 2 * at] for at, gate in enumerate(gates)} if normalizes else {}

    def normalized(value, gate):
        return layer_norm(value, *norms[gate]) if normalizes else value

    def step(x, c, h):
        values = np.concatenate([x, h], 1) @ variables[0] + (0 if normalizes else variables[1])
        i, j, f, o = (normalized(part, gate) for part, gate in zip(np.split(values, 4, 1), gates))
        c = normalized(c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j), "state")
        return c, np.tanh(c) * sigmoid(o)
    assert_same(found, over_time(step, x))


def test_the_norms_of_a_lstm_start_where_they_are_told():
    cell = rnn.LayerNormBasicLSTMCell

    def build():
        cell(UNITS, norm_gain=2.0, norm_shift=-1.0)(tf.ones([1, DEPTH]), [tf.zeros([1, UNITS])] * 2)
        return {variable.op.name.split("/", 1)[1]: variable for variable in tf.trainable_variables()
                if "kernel" not in variable.op.name}
    found = run(build)
    assert len(found) == 10
    for name, value in found.items():
        assert_array_equal(value, np.full(UNITS, 2.0 if "gamma" in name else -1.0))


def test_the_dropout_of_a_layer_norm_lstm_depends_on_the_step_and_its_round():
    def build():
        cell = rnn.LayerNormBasicLSTMCell(40, layer_norm=False, dropout_keep_prob=0.5)
        with tf.variable_scope("", initializer=tf.ones_initializer()):
            return tf.nn.dynamic_rnn(cell, tf.ones([1, 3, 2]), dtype=tf.float32)[1].c[0]
    first = run(build, step=7)
    assert_array_equal(run(build, step=7), first)
    # The state of a unit depends on the time steps in which the unit was dropped. An eighth of the units is
    # dropped in all three time steps. More than three different values show that the masks of the time steps
    # differ.
    assert len(np.unique(np.round(first, 5))) > 3 and (run(build, step=8) != first).mean() > 0.3


@pytest.mark.parametrize("peepholes, projection, as_tuple", [
    (False, None, False), (True, None, True), (True, 2, False), (False, 2, True)])
def test_a_coupled_lstm(peepholes, projection, as_tuple):
    width = projection or UNITS
    shapes = {"W": [DEPTH + width, 3 * UNITS], "B": [3 * UNITS]}
    shapes |= {"W_F_diag": [UNITS], "W_O_diag": [UNITS]} if peepholes else {}
    shapes |= {"W_P": [UNITS, projection]} if projection else {}
    x = normal(2, 5, DEPTH)
    variables, *found = run_cell(lambda: rnn.CoupledInputForgetGateLSTMCell(
        UNITS, peepholes, tf.truncated_normal_initializer(), projection, 0.4 if projection else None,
        state_is_tuple=as_tuple), shapes, x, "coupled_input_forget_gate_lstm_cell",
        tuple if as_tuple else lambda state: tf.split(state, [UNITS, width], 1))
    weights = dict(zip(shapes, variables))

    def step(x, c, h):
        j, f, o = np.split(np.concatenate([x, h], 1) @ weights["W"] + weights["B"], 3, 1)
        forget = sigmoid(f + 1 + weights.get("W_F_diag", 0) * c)
        c = forget * c + (1 - forget) * np.tanh(j)
        h = sigmoid(o + weights.get("W_O_diag", 0) * c) * np.tanh(c)
        return c, np.clip(h @ weights["W_P"], -0.4, 0.4) if projection else h
    assert_same(found, over_time(step, x, width))


def test_a_simple_recurrent_unit():
    x = normal(2, 5, UNITS)
    (kernel, bias), *found = run_cell(
        lambda: rnn.SRUCell(UNITS), {"kernel": [UNITS, 3 * UNITS], "bias": [2 * UNITS]}, x,
        "sru_cell", lambda state: [state])

    def step(x, c, h):
        new, f, r = np.split(x @ kernel, 3, 1)
        f, r = (sigmoid(gate + part) for gate, part in zip((f, r), np.split(bias, 2)))
        c = f * c + (1 - f) * new
        return c, r * np.tanh(c) + (1 - r) * x
    outputs, c, _ = over_time(step, x)
    assert_same(found, [outputs, c])
    with pytest.raises(ValueError, match="num_units is 3, but the last dimension of the inputs is 4"):
        run(lambda: rnn.SRUCell(3)(tf.ones([1, 4]), tf.ones([1, 3])))


@pytest.mark.parametrize("projection, biased", [(None, False), (2, True)])
def test_a_cell_of_architecture_search(projection, biased):
    width, x = projection or UNITS, normal(2, 5, DEPTH)
    shapes = {"recurrent_kernel": [width, 8 * UNITS], "kernel": [DEPTH, 8 * UNITS],
              **({"bias": [8 * UNITS], "projection_weights": [UNITS, 2]} if projection else {})}
    (recurrent, kernel, *more), *found = run_cell(
        lambda: rnn.NASCell(UNITS, projection, biased), shapes, x, "nas_cell")
    bias, weights = more or (0, np.eye(UNITS))

    def step(x, c, h):
        sums = np.split(x @ kernel + h @ recurrent + bias, 8, 1)
        product = np.split((x @ kernel) * (h @ recurrent + bias), 8, 1)[3]
        a, b, d, f, g, i, j = (function(sums[at]) for at, function in (
            (0, sigmoid), (1, lambda v: np.maximum(v, 0)), (2, sigmoid), (4, np.tanh), (5, sigmoid),
            (6, np.tanh), (7, sigmoid)))
        c = np.tanh(np.tanh(a * b) + c) * np.tanh(d + np.maximum(product, 0))
        return c, np.tanh(c * np.tanh(np.tanh(f * g) + sigmoid(i + j))) @ weights
    assert_same(found, over_time(step, x, width))


def block_lstm(weights, x, lengths=None, clip=np.inf):
    kernel, bias, in_gate, forget_gate, out_gate = [*weights, 0, 0, 0][:5]

    def step(x, c, h):
        i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, 1)
        c = sigmoid(f + 1 + forget_gate * c) * c + sigmoid(i + in_gate * c) * np.tanh(j)
        c = np.clip(c, -clip, clip)
        return c, sigmoid(o + out_gate * c) * np.tanh(c)
    return over_time(step, x, lengths=lengths)


def block_shapes(peepholes):
    return {"kernel": [DEPTH + UNITS, 4 * UNITS], "bias": [4 * UNITS],
            **({f"w_{gate}_diag": [UNITS] for gate in "ifo"} if peepholes else {})}


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_a_block_lstm_cell(peepholes, clip):
    x = normal(2, 5, DEPTH)
    variables, *found = run_cell(lambda: rnn.LSTMBlockCell(
        UNITS, use_peephole=peepholes, cell_clip=clip), block_shapes(peepholes), x, "lstm_cell")
    assert_same(found, block_lstm(variables, x, clip=clip or np.inf))


@pytest.mark.parametrize("peepholes, lengths, backwards", [
    (False, None, False), (True, None, True), (True, [5, 2], False), (False, [5, 2], True),
    (False, [0, 4], False), (True, [0, 4], True)])
def test_a_fused_lstm(peepholes, lengths, backwards):
    x = normal(2, 5, DEPTH)
    shapes = block_shapes(peepholes)
    values = {f"lstm_fused_cell/{name}": normal(*shape) for name, shape in shapes.items()}

    def build():
        cell = rnn.LSTMBlockFusedCell(UNITS, use_peephole=peepholes, cell_clip=0.6)
        cell = rnn.TimeReversedFusedRNN(cell) if backwards else cell
        inputs = rnn.transpose_batch_time(tf.constant(x))
        outputs, state = cell(inputs, dtype=tf.float32, sequence_length=lengths)
        assert set(names(tf.trainable_variables())) == set(values)
        assert outputs.shape.as_list() == [5, 2, UNITS]
        assert None not in tf.gradients(outputs, tf.trainable_variables())
        listed, _ = cell(tf.unstack(inputs), dtype=tf.float32, sequence_length=lengths)  # the same variables
        return tf.transpose(outputs, [1, 0, 2]), *state, tf.stack(listed, 1)

    def turned(rows):
        rows = rows.copy()
        for row, length in zip(rows, lengths or [5, 5]):
            row[:length] = row[:length][::-1]
        return rows
    *found, listed = run(build, values=values)
    outputs, c, h = block_lstm(list(values.values()), turned(x) if backwards else x, lengths, 0.6)
    assert_same(found, [turned(outputs) if backwards else outputs, c, h])
    assert_same([listed], found[:1])


# --- Layers of cells ----------------------------------------------------------------------------------------


def test_layers_in_both_directions():
    x, lengths = normal(2, 5, DEPTH), [5, 3]
    values = {}
    for layer, depth in enumerate([DEPTH, 2 * UNITS]):
        for way in ("fw", "bw"):
            scope = f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/lstm_cell"
            values[f"{scope}/kernel"] = normal(depth + UNITS, 4 * UNITS) + layer * (way == "bw")
            values[f"{scope}/bias"] = normal(4 * UNITS)

    def build():
        outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(
            *([rnn.LSTMCell(UNITS) for _ in range(2)] for _ in range(2)), tf.constant(x),
            dtype=tf.float32, sequence_length=lengths)
        assert set(names(tf.trainable_variables())) == set(values)
        return outputs, [state.h for state in forward], [state.h for state in backward]

    def turned(rows):
        return np.stack([np.concatenate([row[:length][::-1], row[length:]])
                         for row, length in zip(rows, lengths)])
    inputs, weights, last = x, list(values.values()), ([], [])
    for layer in range(2):
        forward, _, h = block_lstm(weights[4 * layer:4 * layer + 2], inputs, lengths)
        last[0].append(h)
        backward, _, h = block_lstm(weights[4 * layer + 2:4 * layer + 4], turned(inputs), lengths)
        last[1].append(h)
        inputs = np.concatenate([forward, turned(backward)], -1)
    outputs, *states = run(build, values=values)
    assert_same([outputs, *states[0], *states[1]], [inputs, *last[0], *last[1]])


@pytest.mark.parametrize("change, error, message", [
    (dict(cells_fw=[]), ValueError, "cells_fw must have one element"),
    (dict(cells_bw=[]), ValueError, "cells_fw has 1, cells_bw has 0"),
    (dict(cells_bw=3), TypeError, "cells_bw must be a list, not int"),
    (dict(initial_states_fw=[1, 2]), ValueError, "initial_states_fw has 2")])
def test_layers_in_both_directions_refuse(graph, change, error, message):
    arguments = dict(cells_fw=[rnn.LSTMCell(2)], cells_bw=[rnn.LSTMCell(2)],
                     inputs=tf.ones([1, 2, 3]), dtype=tf.float32)
    with pytest.raises(error, match=message):
        rnn.stack_bidirectional_dynamic_rnn(**{**arguments, **change})


def test_a_coupled_lstm_refuses_what_it_does_not_do():
    with pytest.raises(ValueError, match="num_unit_shards, num_proj_shards and layer_norm are not supported"):
        rnn.CoupledInputForgetGateLSTMCell(2, layer_norm=True)


@pytest.mark.parametrize("cell, scope", [
    ("LSTMBlockCell", "lstm_cell"), ("SRUCell", "sru_cell"), ("GRUCell", "gru_cell"), ("NASCell", "nas_cell"),
    ("LSTMCell", "lstm_cell"), ("LSTMBlockFusedCell", "lstm_fused_cell")])
def test_a_second_cell_gets_a_scope_with_a_number(cell, scope):
    with tf.Graph().as_default():
        for _ in range(2):
            made = getattr(tf.contrib.rnn, cell)(UNITS)
            for _ in range(2):  # a cell keeps its variables
                if "Fused" in cell:
                    made(tf.ones([1, 2, UNITS]), dtype=tf.float32)
                else:
                    made(tf.ones([2, UNITS]), made.zero_state(2, tf.float32))
        assert {variable.op.name.split("/")[0] for variable in tf.global_variables()} == {scope, f"{scope}_1"}
        assert "Fused" in cell or made.trainable_weights
