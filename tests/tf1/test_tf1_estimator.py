"""`import tf1 as tf`: tf.estimator without the Estimator itself, tf.contrib.tpu, predictors, logging, tf.app.

test_estimator.py tests the Estimator, and test_names.py the rest of `tf`. test_forks.py runs whole programs.
"""

import itertools
import operator
import os
import time

from graphs import run
from helpers import read_batches
import numpy as np
from numpy.testing import assert_array_equal
import pytest
from small_models import counting_model, endless

import tf1 as tf

estimator = tf.estimator
tpu = tf.contrib.tpu
# --- A model ----------------------------------------------------------------------------------------------


def scheduled_model(features, labels, mode, params):
    """Counts its steps in `total`, and predicts x + total.

    The loss of an evaluation is params["losses"][step].
    """
    spec = counting_model(features, labels, mode, {})
    outputs = {"sum": spec.predictions["sum"]}
    loss = spec.loss * 0.0  # must depend on the input: otherwise, training would never end
    if mode == estimator.ModeKeys.EVAL:
        loss += tf.gather(tf.constant(params["losses"]), tf.train.get_global_step())
    return spec._replace(
        predictions=outputs, loss=loss, eval_metric_ops={},
        export_outputs={"serving_default": estimator.export.PredictOutput(outputs),
                        "doubled": estimator.export.PredictOutput({"twice": outputs["sum"] * 2})})


def once():
    return tf.data.Dataset.from_tensors({"x": [1.0, 2.0]})


def estimator_in(directory, warm_start_from=None):
    config = estimator.RunConfig(save_checkpoints_steps=1, log_step_count_steps=None,
                                 save_summary_steps=None)
    params = {"losses": [0.0, 5.0, 3.0, 4.0, 2.0, 2.5]}
    return estimator.Estimator(scheduled_model, str(directory), config, params,
                               warm_start_from=warm_start_from)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An Estimator after 2 steps. Tests share it, so they must not train it."""
    return estimator_in(tmp_path_factory.mktemp("trained")).train(endless, steps=2)


def raw_receiver():
    return estimator.export.build_raw_serving_input_receiver_fn({"x": tf.zeros([1])})()


def parsing_receiver():
    return estimator.export.build_parsing_serving_input_receiver_fn(
        {"x": tf.FixedLenFeature([], tf.float32)})()


def totals_in(directory):
    """Returns the numbers that the exports in a directory add to x, the oldest export first.

    The number is the number of steps for which the export was trained.
    """
    return [float(tf.contrib.predictor.from_saved_model(str(path))({"x": [0.0]})["sum"][0])
            for path in sorted(directory.iterdir(), key=lambda path: int(path.name))]


# --- Training and evaluating in turns ---------------------------------------------------------------------


def train_and_evaluate(model, max_steps, throttle_secs=0, hooks=None, input_fn=endless, **options):
    return estimator.train_and_evaluate(
        model, estimator.TrainSpec(input_fn, max_steps, hooks),
        estimator.EvalSpec(once, None, throttle_secs=throttle_secs, **options))


@pytest.mark.parametrize("throttle_secs, steps", [(0, [1, 2, 3]), (600, [3])])
def test_train_and_evaluate_evaluates_after_checkpoints_and_at_the_end(tmp_path, throttle_secs, steps):
    model = estimator_in(tmp_path)
    metrics, exports = train_and_evaluate(model, 3, throttle_secs)
    assert metrics == {"loss": 4.0, "global_step": 3} and exports == []
    history = tf.contrib.estimator.read_eval_metrics(model.eval_dir())
    assert list(history) == steps and history[3]["loss"] == 4.0
    assert train_and_evaluate(model, 3) == (None, [])
    metrics, _ = train_and_evaluate(model, 5, throttle_secs, name="later")
    assert metrics == {"loss": 2.5, "global_step": 5}
    assert list(tf.contrib.estimator.read_eval_metrics(model.eval_dir("later"))) == (
        [4, 5] if throttle_secs == 0 else [5])


class Recorder(estimator.Exporter):
    """Records the steps at which it is called, and whether a call is the last one."""

    name = "recorder"

    def __init__(self):
        self.asked = []

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        self.asked.append((int(checkpoint_path.split("-")[-1]), is_the_final_export))
        return export_path


@pytest.mark.parametrize("ending, throttle_secs, asked", [
    ("max_steps", 0, [(1, False), (2, True)]), ("input", 0, [(1, False), (2, False)]),
    ("hook", 600, [(2, True)])])
def test_the_final_exporter_exports_the_last_step_once(tmp_path, ending, throttle_secs, asked):
    limits = {"max_steps": dict(max_steps=2),
              "input": dict(max_steps=None, input_fn=lambda: once().repeat(2)),
              "hook": dict(max_steps=5, hooks=[tf.train.StopAtStepHook(2)])}[ending]
    model = estimator_in(tmp_path)
    recorder = Recorder()
    exporters = [estimator.FinalExporter("final", raw_receiver), recorder]
    metrics, exports = train_and_evaluate(model, throttle_secs=throttle_secs, **limits, exporters=exporters)
    assert metrics["global_step"] == 2 and recorder.asked == asked
    assert totals_in(tmp_path / "export" / "final") == [2]
    assert os.fsdecode(exports[0]).startswith(str(tmp_path / "export" / "final"))
    assert exports[1:] == [str(tmp_path / "export" / "recorder")]


def test_the_latest_exporter_keeps_the_newest(tmp_path):
    exporter = estimator.LatestExporter("latest", raw_receiver, exports_to_keep=2)
    train_and_evaluate(estimator_in(tmp_path), 3, exporters=[exporter])
    assert totals_in(tmp_path / "export" / "latest") == [2, 3]


@pytest.mark.parametrize("settings, steps", [
    ({}, [1, 2, 4]),
    pytest.param(dict(compare_fn=lambda best_eval_result, current_eval_result: (
        current_eval_result["loss"] > best_eval_result["loss"])), [1], marks=pytest.mark.slow(
            reason="trains and exports once more, for a comparison of one's own")),
    pytest.param(dict(event_file_pattern=None, exports_to_keep=2), [4, 5], marks=pytest.mark.slow(
        reason="trains and exports a third time, for two further settings"))])
def test_the_best_exporter_knows_what_was_best_before_it(tmp_path, settings, steps):
    for max_steps in (3, 4, 5):  # losses 5, 3, 4; then 2; then 2.5
        time.sleep(1 - time.time() % 1)  # the name of an event file contains the second
        # A new exporter, as in a new process.
        exporter = estimator.BestExporter("best", raw_receiver, **settings)
        train_and_evaluate(estimator_in(tmp_path), max_steps, exporters=[exporter])
    assert totals_in(tmp_path / "export" / "best") == steps


# --- Early stopping ---------------------------------------------------------------------------------------

HISTORY = {10: 0.5, 20: 0.9, 30: 0.7, 40: 0.8, 50: 0.93}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """An Estimator with evaluations of five steps, in two event files."""
    model = estimator_in(tmp_path_factory.mktemp("evaluated"))
    for steps in ((10, 20), (30, 40, 50)):
        with tf.summary.FileWriter(model.eval_dir(), filename_suffix=f".{steps[0]}") as writer:
            for step in steps:
                writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="f1", simple_value=HISTORY[step])]),
                                   step)
    return model


def stops(hook):
    """Returns whether a hook ends a session after a step."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step().assign_add(1)
        with tf.train.SingularMonitoredSession(hooks=[hook]) as session:
            session.run(step)
            return session.should_stop()


@pytest.mark.parametrize("name, limit, options, expected", [
    ("stop_if_higher", 0.85, {}, True), ("stop_if_higher", 0.95, {}, False),
    ("stop_if_lower", 0.6, {}, True), ("stop_if_lower", 0.6, dict(min_steps=20), False),
    ("stop_if_no_increase", 20, {}, True), ("stop_if_no_increase", 21, {}, False),
    ("stop_if_no_increase", 10, dict(eval_dir="nowhere"), False),
    ("stop_if_no_decrease", 40, {}, True), ("stop_if_no_decrease", 41, {}, False)])
def test_early_stopping(evaluated, name, limit, options, expected):
    assert hasattr(tf.contrib.estimator, f"{name}_hook")
    hook = getattr(estimator.experimental, f"{name}_hook")(
        evaluated, "f1", limit, **options, run_every_secs=None, run_every_steps=1)
    assert stops(hook) == expected


class Fetches(tf.train.SessionRunHook):
    """Fetches the global step, and keeps the values."""

    def __init__(self, fetches):
        self._make, self.found = fetches, []

    def begin(self):
        self._fetches = self._make()

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        self.found.append(run_values.results)


@pytest.mark.parametrize("fetches", [
    tf.train.get_global_step, lambda: "global_step:0",
    lambda: tf.get_default_graph().as_graph_element(tf.train.get_global_step())])
def test_a_hook_fetches_the_step_after_its_increment(fetches, tmp_path):
    hook = Fetches(lambda: {"step": [fetches()], "op": tf.no_op()})
    estimator_in(tmp_path).train(endless, hooks=[hook], max_steps=2)
    assert [found["step"] for found in hook.found] == [[1], [2]]


def test_a_hook_asks_as_often_as_it_is_told(evaluated, tmp_path):
    asked = []
    hook = estimator.experimental.make_early_stopping_hook(
        evaluated, lambda: asked.append(None) or len(asked) == 3, run_every_secs=None, run_every_steps=2)
    model = estimator_in(tmp_path).train(endless, hooks=[hook], max_steps=9)
    assert model.get_variable_value("total") == 5  # called at steps 1, 3 and 5
    for timing in (dict(run_every_secs=None), dict(run_every_secs=60, run_every_steps=1)):
        with pytest.raises(ValueError, match="every_secs"):
            tf.contrib.estimator.stop_if_higher_hook(evaluated, "f1", 0.5, **timing)


# --- Inputs -----------------------------------------------------------------------------------------------


def batches(input_fn):
    """Returns all batches of an input_fn."""
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        return read_batches(input_fn(), 50)


class Frame(dict):
    """A fake DataFrame with the methods that pandas_input_fn needs."""

    columns = property(dict.keys)


X, Y = np.arange(10), np.arange(10) * 2


def test_each_prediction_with_dropout_has_new_masks_that_can_be_repeated(tmp_path):
    def model_fn(features, labels, mode):
        outputs = tf.nn.dropout(features, keep_prob=0.5)
        return counting_model(features, labels, mode, {})._replace(predictions={"outputs": outputs})

    def input_fn():
        return tf.data.Dataset.from_tensors(np.ones([40], np.float32)).repeat(2).batch(1)

    def passes():
        model = estimator.Estimator(model_fn, str(tmp_path)).train(input_fn, max_steps=1)
        return [row["outputs"].tolist() for _ in range(3) for row in model.predict(input_fn)]

    rows = passes()
    assert len(set(map(tuple, rows))) == len(rows) == 6
    assert passes() == rows


def test_a_run_config_keeps_what_a_script_adds_to_it(tmp_path):
    config = estimator.RunConfig(model_dir=str(tmp_path), save_checkpoints_steps=5)
    config.my_setting = 3
    copied = estimator.Estimator(lambda features: None, config=config).config
    assert copied.my_setting == 3 and copied.save_checkpoints_steps == 5
    assert config.replace(save_checkpoints_secs=9).save_checkpoints_steps is None
    with pytest.raises(TypeError, match="no setting 'other'"):
        config.replace(other=1)


@pytest.mark.parametrize("config, settings", [
    (estimator.RunConfig, dict(save_checkpoints_steps=0)),
    (tpu.RunConfig, dict(save_checkpoints_secs=0)),
    (estimator.RunConfig, dict(save_checkpoints_steps=None, save_checkpoints_secs=None))])
def test_a_run_can_save_no_checkpoints(config, settings, tmp_path):
    config = config(**settings, save_summary_steps=0, keep_checkpoint_max=0, log_step_count_steps=0)
    model = estimator.Estimator(scheduled_model, str(tmp_path), config.replace(tf_random_seed=1), {})
    model.train(endless, steps=2)
    assert model.latest_checkpoint() is None and not list(tmp_path.glob("model.ckpt*"))


def test_the_directory_of_a_checkpoint_means_its_newest(trained, tmp_path):
    directory = trained.model_dir + "/"
    assert trained.evaluate(once, checkpoint_path=directory)["global_step"] == 2
    assert next(trained.predict(once, checkpoint_path=directory))["sum"] == 3
    with pytest.raises(ValueError, match="is a directory without a checkpoint"):
        trained.evaluate(once, checkpoint_path=str(tmp_path))


def test_numpy_input_fn_shuffles_each_pass_by_the_graphs_seed():
    input_fn = estimator.inputs.numpy_input_fn(X, Y, 10, num_epochs=2, shuffle=True)
    first, second = batches(input_fn)
    assert sorted(first[0]) == X.tolist() and (first[0] * 2 == first[1]).all()
    assert not (first[0] == second[0]).all() and not (first[0] == X).all()
    assert_array_equal(batches(input_fn), [first, second])


def test_pandas_input_fn_gives_columns():
    (features, labels), = batches(estimator.inputs.pandas_input_fn(Frame(a=X, b=-X), Y, shuffle=False))
    assert_array_equal([features["a"], features["b"], labels], [X, -X, Y])
    (_, labels), = batches(estimator.inputs.pandas_input_fn(Frame(a=X), Frame(first=Y), shuffle=False))
    assert_array_equal(labels["first"], Y)


# --- Serving, predictors, warm start ----------------------------------------------------------------------


def serialized(*values):
    return [tf.train.Example(features=tf.train.Features(feature={
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[value]))})).SerializeToString()
            for value in values]


@pytest.mark.parametrize("way, receiver, request_of", [
    ("from_saved_model", raw_receiver, lambda *values: {"x": values}),
    ("from_estimator", parsing_receiver, lambda *values: {"examples": serialized(*values)})])
def test_a_predictor_of_what_was_trained(trained, tmp_path, way, receiver, request_of):
    def predictor(key=None):
        if way == "from_estimator":
            return tf.contrib.predictor.from_estimator(trained, receiver, key)
        return tf.contrib.predictor.from_saved_model(trained.export_saved_model(
            str(tmp_path / "exports [1]"), receiver).decode(), key)
    predict = predictor()
    assert predict(request_of(1.0, 5.0))["sum"].tolist() == [3, 7]
    assert predict(request_of(4.0))["sum"].tolist() == [6]
    assert predictor("doubled")(request_of(1.0))["twice"].tolist() == [6]
    with pytest.raises(ValueError, match=rf"no input y; its inputs are {next(iter(request_of(1.0)))}\."):
        predict({"y": [1.0]})
    with pytest.raises(ValueError, match="has no signature 'third'; its signatures are .*doubled, "
                                         "serving_default"):
        predictor("third")


def test_a_raw_receiver_fixes_the_batch_size_if_asked(graph):
    receive = estimator.export.build_raw_serving_input_receiver_fn({"x": tf.ones([7, 3])}, 2)
    assert receive().receiver_tensors["x"].shape.as_list() == [2, 3]


@pytest.mark.parametrize("settings, total", [
    (lambda directory: directory, 3), (lambda directory: estimator.WarmStartSettings(directory), 3),
    (lambda directory: estimator.WarmStartSettings(directory, vars_to_warm_start="nothing"), 1)])
def test_a_warm_start_takes_weights_but_not_the_step(trained, tmp_path, settings, total):
    model = estimator_in(tmp_path, warm_start_from=settings(trained.model_dir)).train(endless, steps=1)
    assert model.get_variable_value("total") == total and model.get_variable_value("global_step") == 1
    model.train(endless, steps=1)  # now starts from its own checkpoint
    assert model.get_variable_value("total") == total + 1


# --- TPUs -------------------------------------------------------------------------------------------------


def test_a_tpu_spec_keeps_the_order_of_its_fields(graph):
    scaffold, hooks = tf.train.Scaffold(), [[tf.train.StopAtStepHook(1)] for _ in range(3)]
    called = []
    spec = tpu.TPUEstimatorSpec(
        "train", {"x": 1}, tf.constant(2.0), tf.no_op(), None, {"out": 3}, lambda: scaffold,
        (lambda step: called.append(step) or tf.no_op(), [4]), *hooks)
    assert (spec.predictions, spec.export_outputs, spec.scaffold) == ({"x": 1}, {"out": 3}, scaffold)
    assert [spec.training_hooks, spec.evaluation_hooks, spec.prediction_hooks] == hooks and called == [4]
    assert spec.as_estimator_spec() is spec


# --- Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, message", [
    (lambda: estimator.LatestExporter("latest", raw_receiver, exports_to_keep=0), "exports_to_keep is 0"),
    (lambda: estimator.BestExporter(), "needs a serving_input_receiver_fn"),
    (lambda: estimator.inputs.numpy_input_fn(X, Y), "Pass shuffle=True"),
    (lambda: estimator.inputs.numpy_input_fn({"x": X}, Y[:9], shuffle=False), r"same number of "
     r"examples; found \[9, 10\]"),
    (lambda: estimator.inputs.pandas_input_fn(Frame(x=X, z=X[:3]), shuffle=False), r"\[3, 10\]"),
    (lambda: tpu.TPUEstimator(scheduled_model, use_tpu=True, train_batch_size=2),
     "use_tpu=True: TPUs are not"),
    (lambda: tpu.RunConfig(cluster=object()),
     "RunConfig.cluster=.*TPUs are not supported.*CPU or GPU")])
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- Logging, tf.app, the list of names ------------------------------------------------------------------


PROGRAM = """
import tf1 as tf
from absl import logging as absl_logging
flags = tf.flags
flags.DEFINE_string("word", None, "A word.")

def main(argv):
    tf.logging.info("information %s", flags.FLAGS.word)
    absl_logging.info("information of the project")
    tf.logging.debug("detail")
    tf.to_float(1)  # TensorFlow warns of this function
    print(argv[1:])
    raise SystemExit(3)

for name, theirs in (("DEBUG", "DEBUG"), ("WARN", "WARNING"), ("FATAL", "FATAL")):
    for level in (getattr(tf.logging, name), "ERROR", name):
        tf.logging.set_verbosity(level)
    assert tf.logging.get_verbosity() == getattr(tf.logging, name)
    assert absl_logging.get_verbosity() == getattr(absl_logging, theirs)
tf.logging.set_verbosity(tf.logging.INFO)
tf.logging.info("before the run")
if __name__ == "__main__":
    flags.mark_flag_as_required("word")
    tf.app.run(main)
"""


def test_app_run_parses_flags_and_shows_each_message_once(scripts, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = scripts.run(path, "--word=heard", "--wrod=seen", "--qqq", "rest", cwd=tmp_path)
    assert (done.code, done.out) == (3, "['--wrod=seen', '--qqq', 'rest']\n"), done.err
    for message in ("before the run", "information heard", "information of the project",
                    "no flag --wrod. It is ignored.", "no flag --qqq. It is ignored."):
        assert done.err.count(message) == 1, done.err
    assert "detail" not in done.err and "deprecated" not in done.err


def test_tf1_lists_its_names(scripts, tmp_path):
    """The list is printed like by `python -m tf1`, which runs this file."""
    done = scripts.run("tf1/__main__.py", "--names", cwd=tmp_path)
    done.assert_success()
    listed = {line.split()[0]: line for line in done.out.splitlines()}
    assert len(listed) == len(done.out.splitlines())
    for name in ("tf.nn.dropout", "tf.contrib.crf.crf_decode", "tf.estimator.train_and_evaluate"):
        assert listed[name] == f"{name}  (tf1)"
    assert {"tf.matmul", "tf.train.Saver", "tf.layers.dense"} <= set(listed.values())
    ours = scripts.run("tf1/__main__.py", "--names", "--ours", cwd=tmp_path).out.splitlines()
    assert ours == [line for line in listed.values() if line.endswith("  (tf1)")]
    for line in ours:
        assert operator.attrgetter(line.split()[0].removeprefix("tf."))(tf) is not None


# --- Cases from real forks ------------------------------------------------------------------------------


def test_the_dropout_of_cells_in_a_loop_depends_on_the_round_and_the_step():
    def build():
        cell = tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.LSTMCell(300), output_keep_prob=0.5)
        return tf.nn.dynamic_rnn(cell, tf.ones([1, 3, 2]), dtype=tf.float32)[0]
    first, later = run(build), run(build, step=1)
    assert_array_equal(first, run(build, times=2))
    for one, other in itertools.combinations([*(first[0] == 0), *(later[0] == 0)], 2):
        assert 0.35 < (one == other).mean() < 0.65


@pytest.mark.parametrize("constant", [None, 0.1, 2.7182817])
def test_the_metrics_of_glues_regression(session, constant):
    """The correlation of a constant prediction is 0, and not NaN."""
    predictions, labels = np.random.RandomState(3).normal(size=[2, 1500]).astype(np.float32)
    weights = abs(labels)
    if constant is not None:
        predictions[:] = constant
    places = [tf.placeholder(tf.float32, [None]) for _ in range(3)]
    pearson, update = tf.contrib.metrics.streaming_pearson_correlation(*places)
    everything, concat_update = tf.contrib.metrics.streaming_concat(places[0])
    session.run(tf.local_variables_initializer())
    for part in np.split(np.stack([predictions, labels, weights]), 30, axis=1):
        session.run([update, concat_update], dict(zip(places, part)))
    found, values = session.run([pearson, everything])
    (xx, xy), (_, yy) = np.cov(predictions, labels, aweights=weights)
    assert found == (0 if constant else pytest.approx(xy / np.sqrt(xx * yy), rel=1e-4))
    assert_array_equal(values, predictions)
