"""tf.contrib.rnn: recorded results and names of variables of each cell, and layers of cells."""

from graphs import names, normal, run
from helpers import DATA
import numpy as np
from numpy.testing import assert_allclose
import pytest

import tf1 as tf

rnn = tf.contrib.rnn
UNITS, DEPTH = 3, 4


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, atol=1e-5)


def values_of(scope, peepholes):
    """Returns {name: random value} of the variables of an LSTM."""
    return {f"{scope}/kernel": normal(DEPTH + UNITS, 4 * UNITS), f"{scope}/bias": normal(4 * UNITS),
            **({f"{scope}/w_{gate}_diag": normal(UNITS) for gate in "ifo"} if peepholes else {})}


# --- Cells --------------------------------------------------------------------------------------------------

CELLS = {
    "layer-norm": lambda: rnn.LayerNormBasicLSTMCell(UNITS, forget_bias=0.5),
    "no-layer-norm": lambda: rnn.LayerNormBasicLSTMCell(UNITS, forget_bias=0.5, layer_norm=False),
    "coupled": lambda: rnn.CoupledInputForgetGateLSTMCell(UNITS),
    "coupled-peepholes": lambda: rnn.CoupledInputForgetGateLSTMCell(
        UNITS, True, tf.truncated_normal_initializer()),
    "simple": lambda: rnn.SRUCell(DEPTH),
    "searched": lambda: rnn.NASCell(UNITS),
    "block": lambda: rnn.LSTMBlockCell(UNITS),
    "block-peepholes-clip": lambda: rnn.LSTMBlockCell(UNITS, use_peephole=True, cell_clip=0.3)}


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_has_the_recorded_variables_outputs_and_states(name):
    """The recorded values agreed with the formulas of the papers that tf1/_contrib/rnn.py names."""
    with np.load(DATA / "rnn_cells.npz") as file:
        recorded = {key.removeprefix(f"{name}/"): file[key] for key in file if key.startswith(f"{name}/")}
    values = {key.removeprefix("variable/"): value for key, value in recorded.items() if "variable/" in key}

    def build():
        found = tf.nn.dynamic_rnn(CELLS[name](), tf.constant(normal(2, 5, DEPTH)), dtype=tf.float32)
        assert {variable.op.name: tuple(variable.shape) for variable in tf.trainable_variables()} == {
            name: value.shape for name, value in values.items()}
        return tf.nest.flatten(found)
    found = run(build, values=values)
    assert_same(found, [recorded[f"result/{index}"] for index in range(len(recorded) - len(values))])


def test_the_dropout_of_a_layer_norm_lstm_depends_on_the_step():
    """test_tf1_estimator.py has the dropout of other cells in each round of a loop."""
    def build():
        cell = rnn.LayerNormBasicLSTMCell(40, layer_norm=False, dropout_keep_prob=0.5)
        with tf.variable_scope("", initializer=tf.ones_initializer()):
            return cell(tf.ones([1, 2]), [tf.zeros([1, 40])] * 2)[0]
    first = run(build, step=7)
    assert 0.3 < (first == 0).mean() < 0.7 and (run(build, step=8) != first).mean() > 0.3


@pytest.mark.parametrize("peepholes, lengths, backwards", [(True, None, True), (False, [0, 4], False)])
def test_a_fused_lstm_computes_what_a_block_cell_computes(peepholes, lengths, backwards):
    x, values = normal(2, 5, DEPTH), values_of("lstm_fused_cell", peepholes)
    options = dict(use_peephole=peepholes, cell_clip=0.6)

    def build():
        cell = rnn.LSTMBlockFusedCell(UNITS, **options)
        cell = rnn.TimeReversedFusedRNN(cell) if backwards else cell
        outputs, state = cell(rnn.transpose_batch_time(tf.constant(x)), dtype=tf.float32,
                              sequence_length=lengths)
        assert set(names(tf.trainable_variables())) == set(values)
        return tf.transpose(outputs, [1, 0, 2]), *state

    def expect():
        inputs = x[:, ::-1] if backwards else x
        outputs, state = tf.nn.dynamic_rnn(rnn.LSTMBlockCell(UNITS, **options), tf.constant(inputs), lengths,
                                           dtype=tf.float32)
        return outputs[:, ::-1] if backwards else outputs, *state
    assert_same(run(build, values=values), run(expect, values=values_of("rnn/lstm_cell", peepholes)))


def test_a_fused_lstm_is_reversed_within_the_lengths():
    def build():
        cell, inputs = rnn.LSTMBlockFusedCell(UNITS), normal(5, 2, DEPTH)
        backwards = rnn.TimeReversedFusedRNN(cell)(inputs, sequence_length=[5, 2])[0]
        return backwards[:2, 1], cell(inputs[1::-1, 1:])[0][::-1, 0]
    assert_same(*([value] for value in run(build)))


# --- Layers of cells ----------------------------------------------------------------------------------------


def test_layers_in_both_directions():
    def build():
        cells = [[rnn.LSTMCell(UNITS) for _ in range(2)] for _ in range(2)]
        options = dict(dtype=tf.float32, sequence_length=[5, 3])
        inputs = tf.constant(normal(2, 5, DEPTH))
        found = rnn.stack_bidirectional_dynamic_rnn(*cells, inputs, **options)
        states = []
        for layer, pair in enumerate(zip(*cells)):  # the cells keep their variables
            with tf.variable_scope(f"stack_bidirectional_rnn/cell_{layer}", reuse=True):
                outputs, state = tf.nn.bidirectional_dynamic_rnn(*pair, inputs, **options)
            inputs = tf.concat(outputs, 2)
            states.append(state)
        assert set(names(tf.trainable_variables())) == {
            f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/lstm_cell/{kind}"
            for layer in (0, 1) for way in ("fw", "bw") for kind in ("kernel", "bias")}
        return tf.nest.flatten(found), tf.nest.flatten([inputs, *zip(*states)])
    assert_same(*run(build))


def stacked(**changes):
    arguments = dict(cells_fw=[rnn.LSTMCell(2)], cells_bw=[rnn.LSTMCell(2)],
                     inputs=tf.ones([1, 2, 3]), dtype=tf.float32)
    return rnn.stack_bidirectional_dynamic_rnn(**{**arguments, **changes})


@pytest.mark.parametrize("build, message", [
    (lambda: stacked(cells_fw=[], cells_bw=[]), "Their lengths are 0, 0, 0, 0"),
    (lambda: stacked(initial_states_fw=[1, 2]), "must have one element for each layer.* are 1, 1, 2, 1"),
    (lambda: rnn.CoupledInputForgetGateLSTMCell(2, state_is_tuple=False), "state_is_tuple=False is not"),
    (lambda: rnn.SRUCell(3)(tf.ones([1, 4]), tf.ones([1, 3])),
     "num_units is 3, but the last dimension of the inputs is 4")])
def test_what_cells_and_layers_do_not_do_is_refused(graph, build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("cell, scope", [
    ("LSTMBlockCell", "lstm_cell"), ("SRUCell", "sru_cell"), ("NASCell", "nas_cell"),
    ("LSTMBlockFusedCell", "lstm_fused_cell")])
def test_a_second_cell_gets_a_scope_with_a_number(graph, cell, scope):
    for _ in range(2):
        made = getattr(rnn, cell)(UNITS)
        for _ in range(2):  # a cell keeps its variables
            if "Fused" in cell:
                made(tf.ones([1, 2, UNITS]))
            else:
                made(tf.ones([2, UNITS]), made.zero_state(2, tf.float32))
    assert {name.split("/")[0] for name in names(tf.global_variables())} == {scope, f"{scope}_1"}
