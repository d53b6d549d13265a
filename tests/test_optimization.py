"""The optimizers agree with a recording of the published code and with NumPy, and their ops run in order."""

import collections
import json

from helpers import DATA, Recording, ancestors, comparable, initialize
import numpy as np
from numpy.testing import assert_allclose
import pytest
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import bert_config
from bertlib.estimator import step_config
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import native as native_kernels
import modeling
import optimization

pytestmark = pytest.mark.usefixtures("graph")


# --- Learning rate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", json.loads((DATA / "schedule.json").read_text()),
                         ids=lambda case: f"{case['num_train_steps']}-{case['num_warmup_steps']}")
def test_learning_rates_are_the_recorded_ones(recorded, session):
    rates = recorded.pop("lr")
    step = tf.placeholder(tf.int64, [])
    rate = optimization.linear_schedule(step, **recorded)
    computed = [session.run(rate, {step: index}) for index in range(len(rates))]
    assert_allclose(computed, rates, rtol=1e-6, atol=0)


def done(step, warmup):
    return min(max(step - warmup, 0) / (20 - warmup), 1)


@pytest.mark.parametrize("num_warmup_steps", [None, 0, 5])
@pytest.mark.parametrize("name, decay", [
    ("cosine", lambda step, warmup: (1 + np.cos(np.pi * done(step, warmup))) / 2),
    ("exponential", lambda step, warmup: 0.01 ** done(step, warmup)),
    ("constant", lambda step, warmup: 1)])
def test_schedules(name, decay, num_warmup_steps, session):
    warmup = num_warmup_steps or 0
    expected = [0.3 * (step / warmup if step < warmup else decay(step, warmup)) for step in range(25)]
    step = tf.placeholder(tf.int64, [])
    rate = optimization.LR_SCHEDULES[name](step, 0.3, 20, num_warmup_steps)
    assert rate.dtype == tf.float32
    computed = [session.run(rate, {step: index}) for index in range(25)]
    assert_allclose(computed, expected, rtol=2e-6, atol=1e-8)


# --- The recorded training ----------------------------------------------------------------------------------


def test_twenty_training_steps_are_the_recorded_ones(session):
    recording = Recording("gelu")
    global_step = tf.train.get_or_create_global_step()
    _, loss = recording.build_loss(recording.build_model())
    train_op = optimization.create_optimizer(loss, use_tpu=False, **recording.optimizer)
    losses = []
    recording.load_weights(session)
    for step in range(20):
        # The published code reads the global step and increments it in no fixed order. The recorded
        # losses show that each step read the value after the increment. Here, a step reads it before.
        global_step.load(step + 1, session)
        losses.append(session.run([loss, train_op])[0])
    after = session.run({variable.op.name: variable for variable in tf.trainable_variables()})
    assert_allclose(losses, recording.arrays["out/losses"], rtol=1e-4, atol=0)
    recorded = recording.group("after20")
    assert set(after) == set(recorded)
    for variable, values in comparable(recorded).items():
        assert_allclose(after[variable], values, rtol=0, atol=1e-6, err_msg=variable)


# --- A problem with changing gradients, and the same in NumPy --------------------------------------------

WEIGHTS = {
    "dense/kernel": np.array([[1.0, -2.0], [0.5, 3.0]]),
    "dense/bias": np.array([0.25, -0.5]),
    "block/LayerNorm/gamma": np.array([1.0, 1.5]),
    "layer_norm_1/beta": np.array([0.1, -0.1]),
    "table": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "block/kernel": np.linspace(-1.0, 1.0, 12).reshape(2, 3, 2),
    "zero/kernel": np.zeros([2, 2]),
}
NOT_DECAYED = ("dense/bias", "block/LayerNorm/gamma", "layer_norm_1/beta")
IDS = [0, 2, 2]  # row 2 occurs twice, so its gradient has two slices; row 1 has no gradient
ROWS = np.array([[1.0, -1.0], [2.0, 0.5], [0.25, 2.0]])
CURVES = {name: np.linspace(-0.5, 1.5, values.size).reshape(values.shape) for name, values in WEIGHTS.items()}
# The factors of the losses of the micro-batches in 12 steps. In steps with small factors, the gradient norm
# is below the clipping norm.
FACTORS = [[size, 2.0 * size, 0.5 * size] for size in (1.0, 0.7, 0.01, 1.3, 0.02, 2.0, 0.9, 1e-4, 0.5, 1.1,
                                                       0.03, 0.8)]
SCHEDULE = dict(init_lr=0.1, num_train_steps=10, num_warmup_steps=2)


def build_problem(use_resource=None):
    """Returns (loss, placeholder of its factor).

    The loss is the sum of curve · (w²/2 + w) over all variables. For the table, the sum is over the rows that
    are looked up, and ROWS is the curve.
    """
    factor = tf.placeholder_with_default(1.0, [])
    loss = 0.0
    for name, values in WEIGHTS.items():
        variable = tf.get_variable(name, initializer=values.astype(np.float32), use_resource=use_resource)
        value, curve = (tf.gather(variable, IDS), ROWS) if name == "table" else (variable, CURVES[name])
        loss += tf.reduce_sum(curve * (value**2 / 2 + value))
    return loss * factor, factor


def clipped_gradients(weights, factors, clip_norm):
    """Returns ({name: gradient} of one step, whether the gradients were clipped to this global norm).

    As in the published code, the norm uses each slice of the table's gradient, not the sums of the slices.
    """
    gradient_of = {name: CURVES[name] * (values + 1) * np.mean(factors) for name, values in weights.items()}
    rows = [ROWS * (weights["table"][IDS] + 1) * factor / len(factors) for factor in factors]
    gradient_of["table"] = np.zeros_like(weights["table"])
    for each in rows:
        np.add.at(gradient_of["table"], IDS, each)
    norm = np.sqrt(sum((gradient**2).sum() for gradient in
                       [*rows, *(gradient for name, gradient in gradient_of.items() if name != "table")]))
    scale = min(1.0, clip_norm / norm)
    return {name: gradient * scale for name, gradient in gradient_of.items()}, scale < 1


def rate_at(step):
    """Returns the learning rate of `SCHEDULE`."""
    return 0.1 * step / 2 if step < 2 else 0.1 * (1 - min(step, 10) / 10)


def train_in_numpy(rule, factors, rate=rate_at, clip_norm=1.0, decay=0.01):
    """Takes steps of an optimizer.

    Args:
      rule: function that updates a weight, such as `adamw`.
      factors: for each step, the list of the factors of its micro-batches.
      rate: function of the step that returns the learning rate.

    Returns:
      ({name: array} of the variables and slots, list of bool: whether the gradients of a step were clipped).
    """
    weights, clipped = dict(WEIGHTS), []
    slots = {name: collections.defaultdict(float) for name in WEIGHTS}
    for step, of_step in enumerate(factors):
        gradient_of, was_clipped = clipped_gradients(weights, of_step, clip_norm)
        clipped.append(was_clipped)
        for name, gradient in gradient_of.items():
            weights[name] = rule(weights[name], gradient, slots[name], rate(step), step + 1,
                                 0.0 if name in NOT_DECAYED else decay)
    return {**weights, **{f"{name}/{slot}": values for name in slots
                          for slot, values in slots[name].items()}}, clipped


def train(train_op, factor, factors):
    """Takes steps with TensorFlow. Returns {name: value} of all variables."""
    with tf.Session() as session:
        initialize(session)
        for *others, last in factors:
            for size in others:
                accumulation, = tf.get_collection(optimization.GRADIENT_ACCUMULATION)
                session.run(accumulation.accumulate_op, {factor: size})
            session.run(train_op, {factor: last})
        return session.run({variable.op.name: variable for variable in tf.global_variables()})


def assert_same(computed, expected):
    for name, values in expected.items():
        moved = np.abs(values - WEIGHTS.get(name, 0.0)).max()
        # The kernel computes 1 − β₂ in float32. The result is 0.001 · (1 − 1.3e-5), and not 0.001.
        assert_allclose(computed[name], values, rtol=2e-5, atol=2e-5 * moved, err_msg=name)


@pytest.mark.parametrize("clip_norm, limit", [(0.5, 0.5), (0, np.inf)])
def test_weight_decay_and_clipping_can_be_chosen(clip_norm, limit):
    loss, factor = build_problem()
    tf.get_variable("unused", initializer=7.0)
    computed = train(optimization.create_optimizer(
        loss, use_tpu=False, step_config=StepConfig(weight_decay=0.1, clip_norm=clip_norm), **SCHEDULE),
        factor, [[1.0]] * 3)
    assert computed["unused"] == 7 and "unused/adam_m" not in computed  # it has no gradient
    assert_same(computed, train_in_numpy(adamw, [[1.0]] * 3, clip_norm=limit, decay=0.1)[0])


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_a_fork_may_clip_itself_and_call_apply_gradients(use_resource):
    loss, factor = build_problem(use_resource)
    tvars, global_step = tf.trainable_variables(), tf.train.get_or_create_global_step()
    optimizer = optimization.AdamWeightDecayOptimizer(
        learning_rate=0.05, weight_decay_rate=0.1, exclude_from_weight_decay=[
            "LayerNorm", "layer_norm", "bias"])
    assert isinstance(optimizer, tf.train.Optimizer)
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=0.5)
    update = optimizer.apply_gradients([*zip(grads, tvars), (None, tvars[0])], global_step=global_step,
                                       name="update")
    computed = train(tf.group(update, global_step.assign(global_step + 1)), factor, [[1.0]] * 4)
    assert computed["global_step"] == 4  # as published, the caller increments the step
    assert update.name == "update"
    assert_same(computed, train_in_numpy(adamw, [[1.0]] * 4, lambda step: 0.05, clip_norm=0.5, decay=0.1)[0])


def test_tpus_are_refused():
    with pytest.raises(ValueError, match="use_tpu=True.*use_tpu=False"):
        optimization.create_optimizer(tf.constant(1.0), 0.1, 10, 1, use_tpu=True)


# --- Every optimizer -------------------------------------------------------------------------------------


def adam_moments(slots, prefix, gradient):
    slots[f"{prefix}_m"] = 0.9 * slots[f"{prefix}_m"] + 0.1 * gradient
    slots[f"{prefix}_v"] = 0.999 * slots[f"{prefix}_v"] + 0.001 * gradient**2
    return slots[f"{prefix}_m"], slots[f"{prefix}_v"]


def adamw(weight, gradient, slots, rate, step, decay):
    m, v = adam_moments(slots, "adam", gradient)
    return weight - rate * (m / (np.sqrt(v) + 1e-6) + decay * weight)


def corrected_adamw(weight, gradient, slots, rate, step, decay):
    m, v = adam_moments(slots, "adam", gradient)
    correction = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return weight - rate * (correction * m / (np.sqrt(v) + 1e-6) + decay * weight)


def lamb(weight, gradient, slots, rate, step, decay):
    m, v = adam_moments(slots, "lamb", gradient)
    update = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6) + decay * weight
    ratio = np.linalg.norm(weight) / np.linalg.norm(update) if decay and np.any(weight) else 1.0
    return weight - rate * ratio * update


def adafactor(weight, gradient, slots, rate, step, decay):
    keep = 1 - step**-0.8
    squares = gradient**2 + 1e-30

    def average(slot, value):
        slots[slot] = keep * slots[slot] + (1 - keep) * value
        return slots[slot]

    if weight.ndim == 2:
        row = average("adafactor_row", squares.mean(axis=1))
        column = average("adafactor_column", squares.mean(axis=0))
        update = gradient / np.sqrt(np.outer(row, column) / row.mean())
    else:
        update = gradient / np.sqrt(average("adafactor_v", squares))
    update /= max(1.0, np.sqrt((update**2).mean()))
    return weight - rate * (update + decay * weight)


def sgdm(weight, gradient, slots, rate, step, decay):
    slots["momentum"] = 0.9 * slots["momentum"] + gradient
    return weight - rate * (slots["momentum"] + decay * weight)


RULES = {"adamw": adamw, "lamb": lamb, "adafactor": adafactor, "sgdm": sgdm}


@pytest.mark.parametrize("optimizer, rule, options, use_resource, steps, compiled", [
    *((name, rule, {}, *way) for name, rule in RULES.items()
      for way in ((True, 3, "native"), (False, 3, None))),
    # There is a C++ kernel for adamw.
    ("adamw", adamw, {}, True, 1, None), ("adamw", adamw, {}, True, 3, "no compiler"),
    ("adamw", corrected_adamw, {"adam_bias_correction": True}, True, 3, "native")])
def test_twelve_steps_of_an_optimizer_are_its_formula(optimizer, rule, options, use_resource, steps, compiled,
                                                      monkeypatch):
    loss, factor = build_problem(use_resource)
    if compiled == "no compiler":
        monkeypatch.setattr(native_kernels, "load_ops", lambda: None)
    if compiled:
        monkeypatch.setattr(optimization, "_WORTH_ONE_PASS", 1)
    config = StepConfig(optimizer=optimizer, lr_schedule="constant", gradient_accumulation_steps=steps,
                        compile_kernels=bool(compiled), **options)
    train_op = optimization.create_optimizer(loss, 0.03, 12, 0, False, step_config=config)
    if optimizer == "adamw" and use_resource:
        ops = {op.type for op in tf.get_default_graph().get_operations()}
        assert ops & {"ResourceApplyAdam", "BertAdamW", "StatefulPartitionedCall"} == {
            "BertAdamW" if compiled and native_kernels.load_ops() else "ResourceApplyAdam"}
    factors = [of_step[:steps] for of_step in FACTORS]
    expected, clipped = train_in_numpy(rule, factors, lambda step: 0.03)
    assert 3 <= sum(clipped) <= 9
    computed = train(train_op, factor, factors)
    assert computed.pop("global_step") == 12
    assert_same(computed, expected)
    shapes = {name: values.shape for name, values in WEIGHTS.items()}
    assert {name: values.shape for name, values in computed.items()} == {
        **shapes, **optimization.slot_shapes(shapes, optimizer)}


def test_the_table_of_flags_has_the_names_that_the_model_and_the_optimizer_know():
    assert set(step_config.OPTIMIZERS) == set(optimization.OPTIMIZERS) == set(RULES), (
        "a new optimizer belongs into both tables, and its formula into `RULES`")
    slots = [slot for optimizer in optimization.OPTIMIZERS.values() for slot in optimizer.SLOTS]
    assert len(slots) == len(set(slots)), f"optimizers share names of `SLOTS`: {slots}"
    assert set(step_config.LR_SCHEDULES) == set(optimization.LR_SCHEDULES), (
        "a new schedule belongs into both tables")
    assert set(step_config.PRECISIONS) == set(modeling.PRECISIONS)
    assert set(bert_config.ACTIVATIONS) == set(modeling._ACTIVATIONS)


@pytest.mark.parametrize("options, message", [
    (dict(optimizer="adam"), f"Unknown optimizer='adam'; known: {', '.join(optimization.OPTIMIZERS)}."),
    (dict(lr_schedule="step"), f"Unknown lr_schedule='step'; known: {', '.join(optimization.LR_SCHEDULES)}."),
    (dict(optimizer="lamb", adam_bias_correction=True), "adam_bias_correction=True with optimizer='lamb'")])
def test_unknown_choices_are_refused_before_anything_is_built(options, message):
    with pytest.raises(ValueError, match=message):
        optimization.create_optimizer(tf.constant(1.0), 0.1, 10, 1, False, StepConfig(**options))
    assert tf.train.get_global_step() is None


# --- Order: nothing is left to the scheduler ----------------------------------------------------------------


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_the_global_step_is_counted_after_every_update_and_everything_that_reads_it(use_resource):
    global_step = tf.get_variable("global_step", shape=[], dtype=tf.int64, initializer=tf.zeros_initializer(),
                                  trainable=False, use_resource=use_resource,
                                  collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP])
    train_op = optimization.create_optimizer(build_problem(use_resource)[0], use_tpu=False, **SCHEDULE)
    graph = tf.get_default_graph()
    handle = graph.get_operation_by_name(global_step.op.name)
    counting = [op for op in graph.get_operations()
                if op.type in ("AssignAddVariableOp", "AssignAdd") and op.inputs[0].op is handle]
    assert len(counting) == 1
    before = ancestors(counting[0])
    assert sum(op.type in ("ResourceApplyAdam", "ApplyAdam") for op in before) == len(WEIGHTS)
    rate = graph.get_operation_by_name("learning_rate").inputs[0].op
    assert rate in before
    assert counting[0] is train_op or counting[0] in ancestors(train_op)
