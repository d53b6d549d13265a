"""The modules of tf.contrib that a training uses: .training, .opt, .mixed_precision, .estimator, .summary."""

import json
import pathlib

from graphs import names, run
from helpers import events_in
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest

import tf1 as tf

opt = tf.contrib.opt
# --- HParams ------------------------------------------------------------------------------------------------


def hparams(**others):
    return tf.contrib.training.HParams(rate=0.1, layers=2, name="a", train=True, sizes=[1, 2], none=None,
                                       **others)


def test_hparams_are_attributes_that_keep_their_types():
    found = hparams()
    assert (found.rate, found.layers, found.name, found.train, found.sizes) == (0.1, 2, "a", True, [1, 2])
    found.set_hparam("rate", 3)
    found.set_hparam("none", "anything")
    found.add_hparam("more", (1.5, 2.5))
    assert type(found.rate) is float and found.values() == dict(
        rate=3.0, layers=2, name="a", train=True, sizes=[1, 2], none="anything", more=(1.5, 2.5))
    found.del_hparam("more")
    assert "more" not in found and "rate" in found
    copy = tf.contrib.training.HParams(found.to_proto())
    copy.set_hparam("rate", 9)
    assert found.rate == 3 and found.get("sizes") == [1, 2] and found.get("no_such", "x") == "x"
    assert repr(tf.contrib.training.HParams(b=1, a="x")) == "HParams([('a', 'x'), ('b', 1)])"


def test_hparams_parse_a_text():
    found = hparams().parse("rate=1e-2, layers=3,name= b c ,train=false,sizes=[3,4, 5]")
    assert found.values() == dict(rate=0.01, layers=3, name="b c", train=False, sizes=[3, 4, 5], none=None)
    assert [hparams().parse(f"train={text}").train for text in ("True", "0", "1")] == [True, False, True]


def test_hparams_as_json():
    found = hparams(function=len)
    assert json.loads(found.to_json()) == hparams().values()
    assert found.to_json(indent=1, sort_keys=True).startswith('{\n "layers"')
    assert found.parse_json('{"rate": 2, "sizes": [7]}').sizes == [7]


@pytest.mark.parametrize("change, error, message", [
    (lambda found: found.add_hparam("rate", 1), ValueError, "already has an attribute rate"),
    (lambda found: found.add_hparam("empty", []), ValueError, "hyperparameter empty is an empty list"),
    (lambda found: found.set_hparam("rat", 1), KeyError, "rat; the known ones are layers, name, none, rate"),
    (lambda found: found.set_hparam("layers", 1.5), ValueError, "'layers' must have the type int; the value "
                                                                "1.5 cannot"),
    (lambda found: found.set_hparam("sizes", 1), ValueError, "pass a list for .* sizes"),
    (lambda found: found.parse("layers"), ValueError, "cannot be read: 'layers' does not begin"),
    (lambda found: found.parse("layers=1,layers=2"), ValueError, "'layers' occurs more than once"),
    (lambda found: found.parse("depth=1"), ValueError, "Unknown hyperparameter depth; the known ones are "
                                                       "layers"),
    (lambda found: found.parse("layers=a"), ValueError, "'layers' must have the type int; found 'a'"),
    (lambda found: tf.contrib.training.HParams("text"), ValueError, "hparam_def")])
def test_hparams_refuse(change, error, message):
    with pytest.raises(error, match=message):
        change(hparams())


# --- Optimizers ---------------------------------------------------------------------------------------------

START = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]], np.float32)
OTHER = np.array([2.0, 3.0], np.float32)


def trained(optimizer, sparse=False, **arguments):
    """Returns (table, other weights) after a step with the loss Σ table² + Σ other².

    If `sparse` is true, the loss uses only the rows 0, 2 and 2 of the table.
    """
    def build():
        table = tf.get_variable("table", initializer=START)
        other = tf.get_variable("other", initializer=OTHER)
        rows = tf.nn.embedding_lookup(table, [0, 2, 2]) if sparse else table
        step = optimizer().minimize(tf.reduce_sum(rows ** 2) + tf.reduce_sum(other ** 2),
                                    tf.train.get_global_step(), **{key: choose([table, other])
                                                                   for key, choose in arguments.items()})
        with tf.control_dependencies([step]):
            return [value.read_value() for value in (
                table, other, tf.train.get_global_step())]
    *found, steps = run(build)
    assert steps == 1
    return found


OPTIMIZERS = {
    "AdamW": (lambda: opt.AdamWOptimizer(lambda: tf.constant(0.01), 0.1), tf.train.AdamOptimizer),
    "extended": (lambda: opt.extend_with_decoupled_weight_decay(tf.train.MomentumOptimizer)(
        tf.constant(0.01), 0.1, momentum=0.9), lambda rate: tf.train.MomentumOptimizer(rate, 0.9))}


@pytest.mark.parametrize("name, arguments, decay_of_rows, decay_of_other", [
    ("AdamW", {}, 0.01, 0.01), ("extended", {}, 0.01, 0.01),
    ("AdamW", dict(decay_var_list=lambda pair: pair[:1]), 0.01, 0.0),
    ("AdamW", dict(sparse=True), [[0.01], [0.0], [0.01]], 0.01)], ids=["AdamW", "extended", "listed", "rows"])
def test_weights_decay_before_their_update(name, arguments, decay_of_rows, decay_of_other):
    """Only listed variables decay, and only rows that were looked up."""
    optimizer, plain = OPTIMIZERS[name]
    table, other = trained(optimizer, **arguments)
    rows, others = trained(lambda: plain(0.1), "sparse" in arguments)
    assert_allclose(table, rows - decay_of_rows * START, rtol=1e-5)
    assert_allclose(other, others - decay_of_other * OTHER, rtol=1e-5)


def test_the_variables_of_adam_w(graph):
    weight = tf.get_variable("w", [2])
    opt.AdamWOptimizer(0.01).minimize(tf.reduce_sum(weight))
    assert names(tf.global_variables()) == ["w", "beta1_power", "beta2_power", "w/AdamW", "w/AdamW_1"]


def test_lazy_adam_leaves_other_rows_alone():
    lazy, adam = opt.LazyAdamOptimizer, tf.train.AdamOptimizer
    assert_allclose(trained(lambda: lazy(0.1))[0], trained(lambda: adam(0.1))[0])

    def alternating(optimizer, times):
        def build():
            table = tf.get_variable("table", initializer=START)
            step = tf.train.get_global_step()
            rows = tf.cond(tf.equal(step, 0), lambda: [0, 1], lambda: [0, 0])
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, rows) ** 2)
            with tf.control_dependencies([optimizer(0.1).minimize(loss, step)]):
                return table.read_value()
        return run(build, times=times)
    once, thrice = (alternating(adam, times) for times in (1, 3))
    assert_allclose(alternating(lazy, 3), [thrice[0], once[1], START[2]], rtol=1e-5)
    assert abs(thrice[1] - once[1]).min() > 0.01  # Adam also moves rows without a gradient


# --- Mixed precision ----------------------------------------------------------------------------------------


def scales(finite, **options):
    """Returns the loss scale after each step. `finite` says for each step whether its gradients are finite.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(**options)
        given = tf.placeholder(tf.bool, [])
        update, scale = manager.update_loss_scale(given), manager.get_loss_scale()
        assert names(tf.global_variables()) == ["loss_scale", "good_steps", "bad_steps"]
        session.run(tf.global_variables_initializer())
        found = []
        for one in finite:
            session.run(update, {given: one})
            found.append(session.run(scale).item())
        return found


@pytest.mark.parametrize("finite, options, expected", [
    ([1, 1, 1, 1, 1], dict(incr_every_n_steps=2), [8, 16, 16, 32, 32]),
    ([0, 1, 0, 0, 1, 0], dict(incr_every_n_steps=3, decr_ratio=0.5), [8, 8, 4, 4, 4, 2]),
    ([0, 0, 0, 0, 0], dict(incr_every_n_steps=3, decr_every_n_nan_or_inf=1, decr_ratio=0.5), [4, 2, 1, 1, 1]),
    ([1, 1], dict(incr_every_n_steps=1, incr_ratio=1e30), [8e30, 8e30])])
def test_the_scale_grows_and_shrinks(finite, options, expected):
    assert_allclose(scales(map(bool, finite), init_loss_scale=8, **options), expected, rtol=1e-6)


def test_a_step_that_overflows_changes_nothing_but_the_scale():
    def build():
        weight, table = tf.get_variable("w", initializer=[1.0]), tf.get_variable("t", initializer=START)
        step, steps = tf.train.get_global_step(), tf.get_variable("steps", initializer=0)
        factor = tf.where(tf.equal(steps, 1), np.float32(np.inf), 1.0)
        manager = tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager(64, 10, 1, decr_ratio=0.5)
        loss = tf.reduce_sum(weight ** 2) * factor + tf.reduce_sum(tf.nn.embedding_lookup(table, [1]) ** 2)
        train = tf.contrib.mixed_precision.LossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.25), manager).minimize(loss, step)
        with tf.control_dependencies([train]):
            with tf.control_dependencies([steps.assign_add(1)]):
                return [*(variable.read_value() for variable in (weight, table, step)),
                        manager.get_loss_scale()]
    table = START.copy()
    table[1] /= 2
    for times, scale in ((1, 64), (2, 32)):  # the second step overflows
        for found, expected in zip(run(build, times=times), [[0.5], table, 1, scale]):
            assert_array_equal(found, expected)
    assert run(build, times=3)[0] == [0.25]


def test_a_fixed_scale_keeps_small_gradients_in_half_precision():
    precision = tf.contrib.mixed_precision

    def build():
        weight = tf.get_variable("w", initializer=[1.0])
        loss = tf.cast(tf.cast(weight, tf.float16) * np.float16(2e-4) * np.float16(1e-4), tf.float32)[0]
        optimizer = tf.train.GradientDescentOptimizer(1.0)
        scaled = precision.LossScaleOptimizer(optimizer, precision.FixedLossScaleManager(1024))
        return [one.compute_gradients(loss)[0][0] for one in (optimizer, scaled)]
    assert_allclose(run(build), [[0], [2e-8]], rtol=0.05)
    with pytest.raises(ValueError, match="0.5, but it must be at least 1"):
        precision.FixedLossScaleManager(0.5)


# --- In an Estimator ----------------------------------------------------------------------------------------


def model_fn(features, labels, mode, params):
    """A model whose weight equals the step. It has the host_call in `params`."""
    weight, step = tf.get_variable("w", initializer=0.0), tf.train.get_or_create_global_step()
    loss = weight + 0 * tf.reduce_sum(features["x"])
    with tf.control_dependencies([loss]):
        train_op = tf.group(weight.assign_add(1), tf.assign_add(step, 1))
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=(
        params["host_call"], {"steps": tf.reshape(step, [1]), "losses": tf.reshape(loss, [1])}))


def host_call_in(directory):
    """Returns a host_call that writes some summaries in each step, and the others every second step."""
    def host_call(steps, losses):
        summary = tf.contrib.summary
        with summary.create_file_writer(str(directory), max_queue=1000).as_default():
            for name, records in (("always", summary.always_record_summaries()),
                                  ("second", summary.record_summaries_every_n_global_steps(2, steps[0])),
                                  ("never", summary.never_record_summaries())):
                with records:
                    summary.scalar(name, losses[0], step=steps[0])
            return summary.all_summary_ops()
    return host_call


def input_fn(params):
    return tf.data.Dataset.from_tensors({"x": np.ones(2, np.float32)}).repeat()


def estimator_in(directory):
    return tf.contrib.tpu.TPUEstimator(
        model_fn, str(directory / "model"), tf.contrib.tpu.RunConfig(save_checkpoints_steps=1000),
        {"host_call": host_call_in(directory / "events")}, train_batch_size=2, eval_batch_size=2)


def test_a_host_call_writes_its_summaries_and_a_resumed_run_goes_on(tmp_path):
    estimator = estimator_in(tmp_path)
    estimator.train(input_fn, max_steps=3)
    estimator.train(input_fn, max_steps=5)
    assert events_in(tmp_path / "events") == {
        "always": [(step, step) for step in range(5)], "second": [(step, step) for step in (0, 2, 4)]}


def test_an_evaluation_in_memory_sees_the_weights_of_the_training(tmp_path):
    estimator = estimator_in(tmp_path)
    hook = tf.contrib.estimator.InMemoryEvaluatorHook(estimator, input_fn, steps=1, name="memory",
                                                      every_n_iter=2)
    estimator.train(input_fn, hooks=[hook], max_steps=5)
    assert events_in(estimator.eval_dir("memory"))["loss"] == [(step, step) for step in (0, 2, 4, 5)]
    assert sorted(path.name for path in pathlib.Path(estimator.model_dir).glob("*.index")) == [
        "model.ckpt-0.index", "model.ckpt-5.index"]


@pytest.mark.parametrize("arguments, message", [
    ([None, None, None, 0], "every_n_iter is 0, but"), ([], "tf.estimator.Estimator, not str")])
def test_an_evaluation_in_memory_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        tf.contrib.estimator.InMemoryEvaluatorHook("model", input_fn, *arguments)
