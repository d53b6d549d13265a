"""`estimator`: TensorFlow's semantics on tiny models.

`counting_model` counts its steps in a variable, so the value of the variable shows how many steps were
trained. The model of `Stopping` has an optimizer, like the scripts.
"""

import functools
import glob
from logging import WARNING
import os
import pathlib
import re
import shutil
import threading
from unittest import mock

from google.protobuf import text_format
from helpers import events_in, snapshot, tensors_of
import numpy as np
import pytest
from small_models import (
    Stopping,
    count_step,
    counting_estimators,
    counting_model,
    endless,
    foreign_batches,
    replacing,
)
import tensorflow
import tensorflow.compat.v1 as tf
from tensorflow.python.saved_model.model_utils import export_output
import tiny

from bertlib.estimator.estimator import (
    Estimator,
    EstimatorSpec,
    ModeKeys,
    NanLossError,
    RunConfig,
    ServingInputReceiver,
)
import optimization
import tf1

# --- Models and inputs --------------------------------------------------------------------------------


def adding_model(features, labels, mode, params):
    """Adds the loss to `total` in each step."""
    loss = tf.reduce_mean(features["x"])
    _, train_op = count_step(loss, loss)
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def batches(*values):
    """Returns an input_fn. Each value is a batch of the feature x."""
    def input_fn():
        return tf.data.Dataset.from_generator(
            lambda: ({"x": np.float32(value)} for value in values), output_types={"x": tf.float32},
            output_shapes={"x": [None]})
    return input_fn


def steps_of(model_dir):
    """Returns the steps of the checkpoints in a directory."""
    found = [re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in os.listdir(model_dir)]
    return sorted(int(match.group(1)) for match in found if match)


def recorded(calls, name, kind=tf.train.SessionRunHook, returned="before_run.return_value", value=None):
    """Returns a hook or a listener whose calls are recorded in a `mock.Mock`, which several of them share."""
    made = mock.Mock(spec=kind, **{returned: value})
    calls.attach_mock(made, name)
    return made


def listener(calls, stop_at=None):
    """Returns a listener of a saver. It can request a stop at a step."""
    return recorded(calls, "listener", tf.train.CheckpointSaverListener, "after_save.side_effect",
                    lambda session, step: step == stop_at)


def names_of(calls):
    """Returns the names of recorded calls. For the calls of a listener, they end with the step."""
    return [" ".join([name, *map(str, given[1:])]) if name.startswith("listener.") else name
            for name, given, _ in calls.mock_calls]


@pytest.fixture
def log(caplog):
    """Messages logged by absl; `log.text` is all of them."""
    caplog.set_level("INFO", logger="absl")
    return caplog


@pytest.fixture
def counting(tmp_path):
    return counting_estimators(tmp_path / "model")


@pytest.fixture(scope="module")
def trained_dir(tmp_path_factory):
    """The directory of a counting model after 3 steps, with checkpoints at 0, 1, 2 and 3.

    Tests share the directory, so they must not change it.
    """
    path = tmp_path_factory.mktemp("trained")
    Estimator(counting_model, str(path), RunConfig(save_checkpoints_steps=1)).train(endless, steps=3)
    return path


@pytest.fixture
def trained(trained_dir, tmp_path):
    """An Estimator of a counting model after 3 steps, in a new directory for each test."""
    shutil.copytree(trained_dir, tmp_path / "trained")
    return Estimator(counting_model, str(tmp_path / "trained"))


# --- What input_fn and model_fn get and give ----------------------------------------------------------


def test_each_mode_gets_its_batch_size(counting):
    seen = []

    def input_fn(params):
        seen.append(("input", params["batch_size"], params["other"]))
        return tf.data.Dataset.from_tensors({"x": [0.0] * params["batch_size"]})

    def model_fn(features, labels, mode, params):
        seen.append((mode, params["batch_size"], params["other"]))
        return counting_model(features, labels, mode, params)

    params = {"other": "same"}
    model = counting(params, model_fn, dict(train_batch_size=2, eval_batch_size=3, predict_batch_size=4))
    model.train(input_fn, steps=1)
    model.evaluate(input_fn)
    assert len(list(model.predict(input_fn))) == 4
    assert seen == [("input", 2, "same"), ("train", 2, "same"), ("input", 3, "same"), ("eval", 3, "same"),
                    ("input", 4, "same"), ("infer", 4, "same")]
    assert params == model.params == {"other": "same"}


X, Y = np.float32([1, 2]), np.float32([3, 4])


@pytest.mark.parametrize("input_fn, loss", [
    (lambda: tf.data.Dataset.from_tensors({"x": X}), 1.5),
    (lambda: tensorflow.data.Dataset.from_tensors((X, Y)), 5),  # not of compat.v1
    (lambda: {"x": tf.constant(X)}, 1.5), (lambda: [tf.constant(X), {"y": tf.constant(Y)}], 5),
], ids=["dataset", "v2-dataset-labels", "tensors", "list"])
def test_input_fn_gives_a_dataset_or_tensors(counting, input_fn, loss):
    def model_fn(features, labels, mode):
        x = features["x"] if isinstance(features, dict) else features
        y = labels["y"] if isinstance(labels, dict) else labels
        return EstimatorSpec(mode, loss=tf.reduce_mean(x if y is None else x + y))

    assert counting(model_fn=model_fn).evaluate(input_fn, steps=1)["loss"] == loss


@pytest.mark.parametrize("input_fn", [
    lambda params, mode, config: {
        "x": tf.fill([2], params["value"] + (mode != "eval") + config.tf_random_seed - 99)},
    lambda **everything: {"x": tf.fill([2], everything["params"]["value"])},
    functools.partial(lambda size, params: {"x": tf.fill([size], params["value"])}, 2),
], ids=["all", "kwargs", "partial"])
def test_input_fn_gets_the_arguments_that_it_takes(counting, input_fn):
    assert counting({"value": 5.0}, tf_random_seed=99).evaluate(input_fn, steps=1)["loss"] == 5


# --- Hooks and listeners ------------------------------------------------------------------------------


def test_training_hooks_run_in_the_published_order(counting):
    calls = mock.Mock()
    model_fn = replacing(training_hooks=[recorded(calls, "spec")],
                         training_chief_hooks=[recorded(calls, "chief")])
    counting(model_fn=model_fn).train(endless, steps=1,
                                      hooks=[recorded(calls, "user1"), recorded(calls, "user2")],
                                      saving_listeners=[listener(calls)])
    hooks = ["chief", "user1", "user2", "spec"]
    assert names_of(calls) == [
        "listener.begin", *(f"{hook}.begin" for hook in hooks),
        "listener.before_save 0", "listener.after_save 0",
        *(f"{hook}.after_create_session" for hook in hooks),
        *(f"{hook}.before_run" for hook in hooks), *(f"{hook}.after_run" for hook in hooks),
        "listener.before_save 1", "listener.after_save 1", "listener.end 1",
        *(f"{hook}.end" for hook in hooks)]


def test_listeners_hear_of_each_save_and_can_stop_training(counting):
    calls = mock.Mock()
    model = counting(save_checkpoints_steps=2).train(endless, steps=100,
                                                     saving_listeners=[listener(calls, stop_at=4)])
    assert names_of(calls) == ["listener.begin", *(f"listener.{when}_save {step}" for step in (0, 2, 4)
                                                   for when in ("before", "after")), "listener.end 4"]
    assert steps_of(model.model_dir) == [0, 2, 4] and model.get_variable_value("total") == 4


# --- When checkpoints are written ---------------------------------------------------------------------


def test_the_graph_is_written_as_text_and_with_each_checkpoint(trained_dir):
    graph = text_format.Parse((trained_dir / "graph.pbtxt").read_text(), tf.GraphDef())
    for step in range(4):
        content = (trained_dir / f"model.ckpt-{step}.meta").read_bytes()
        assert tf.MetaGraphDef.FromString(content).graph_def == graph
    # Sessions do not check that all variables have values: the saver or `init_op` sets all of them.
    assert not [node.name for node in graph.node if "report_uninitialized" in node.name]


# --- A loss that is not finite ------------------------------------------------------------------------


@pytest.mark.parametrize("save_steps, kept, bad", [(3, [0], float("inf")), (2, [0, 2], float("nan"))])
def test_a_loss_that_is_not_finite_ends_training_and_reaches_no_checkpoint(counting, save_steps, kept, bad):
    model = counting(model_fn=adding_model, save_checkpoints_steps=save_steps)
    with pytest.raises(NanLossError, match=f"The loss of step 3 is {bad}"):
        model.train(batches([1.0], [1.0], [bad], [1.0]), max_steps=4)
    assert steps_of(model.model_dir) == kept
    for step in kept:
        assert tensors_of(f"{model.model_dir}/model.ckpt-{step}") == {
            "total": step, "global_step": step}
    model.train(endless, max_steps=4)
    assert model.get_variable_value("global_step") == 4


def test_a_gradient_that_is_not_finite_under_a_finite_loss_saves_no_weights(tmp_path):
    def root_model(features, labels, mode, params):
        weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
        loss = tf.sqrt(weight) + 0.0 * tf.reduce_mean(features["x"])  # 0, with an infinite slope
        return EstimatorSpec(mode, loss=loss,
                             train_op=optimization.create_optimizer(loss, 0.1, 100, 0, use_tpu=False))

    model = Estimator(root_model, str(tmp_path), RunConfig(save_checkpoints_steps=1))
    with pytest.raises(NanLossError, match="gradient_norm of step 1 is inf"):
        model.train(endless, max_steps=3)
    assert np.isfinite(model.get_variable_value("weight"))


# --- Evaluation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [3, 5, None])
def test_evaluation_gives_the_metrics_the_mean_loss_and_the_step(trained, steps):
    values = [[1.0], [2.0, 2.0, 2.0], [6.0], *[[100.0]] * (steps == 3)]
    assert trained.evaluate(batches(*values), steps) == {
        "loss": pytest.approx(3.0), "mean_x": pytest.approx(13 / 5), "global_step": 3}


def test_evaluation_computes_metrics_of_arrays_from_the_predictions_of_each_batch(trained):
    def model_fn(features, labels, mode, params):
        return EstimatorSpec(mode, loss=tf.reduce_mean(features["x"]), predictions={"x": features["x"]})

    found = Estimator(model_fn, trained.model_dir).evaluate(
        batches([1.0, 5.0], [4.0]), name="arrays", metrics=lambda batches: {
            "largest": float(max(batch["x"].max() for batch in batches))})
    assert found == {"largest": 5.0, "loss": 3.5, "global_step": 3}
    assert events_in(os.path.join(trained.model_dir, "eval_arrays")) == {
        "largest": [(3, 5.0)], "loss": [(3, 3.5)]}


@pytest.mark.parametrize("call", [
    lambda model, path: model.evaluate(batches([1.0]), checkpoint_path=path),
    lambda model, path: list(model.predict(batches([1.0]), checkpoint_path=path))])
def test_a_checkpoint_that_is_named_is_used_whatever_the_directory_lists(trained, call):
    # Some programs rename the best checkpoint in this way.
    for path in sorted(glob.glob(f"{trained.model_dir}/model.ckpt-*")):
        os.rename(path, re.sub(r"ckpt-\d", "ckpt-best", path))
    with pytest.raises(FileNotFoundError, match="names model.ckpt-3"):
        trained.latest_checkpoint()
    assert call(trained, f"{trained.model_dir}/model.ckpt-best")


@pytest.mark.parametrize("call, doing", [
    (lambda model: model.evaluate(batches([1.0]))["global_step"], "evaluating"),
    (lambda model: [row["sum"] for row in model.predict(batches([1.0]))], "predicting")])
def test_without_a_checkpoint_a_warning_names_the_starting_weights(counting, trained_dir, log, call, doing):
    model = counting({"init_checkpoint": str(trained_dir / "model.ckpt-3")})
    assert call(model) == (0 if doing == "evaluating" else [1.0 + 3.0])
    warnings = [message for logger, level, message in log.record_tuples
                if (logger, level) == ("absl", WARNING)]
    assert warnings == [f"There is no checkpoint in {model.model_dir}: {doing} with the starting "
                        "weights (those of --init_checkpoint, if this flag is given)."]
    assert "Starting weights: 1 of 1 variables" in log.text


# --- Prediction ---------------------------------------------------------------------------------------


def test_prediction_yields_examples_or_batches(trained):
    rows = list(trained.predict(batches([1.0, 2.0], [3.0])))
    assert rows == [{"x": 1, "sum": 4}, {"x": 2, "sum": 5}, {"x": 3, "sum": 6}]
    whole = list(trained.predict(batches([1.0, 2.0], [3.0]), yield_single_examples=False))
    assert [batch["sum"].tolist() for batch in whole] == [[4, 5], [6]]
    assert [row["sum"] for row in trained.predict(
        batches([1.0]), checkpoint_path=f"{trained.model_dir}/model.ckpt-1")] == [2]


def test_predict_keys_choose_predictions(trained):
    assert list(trained.predict(batches([1.0]), predict_keys=["sum", "unknown"])) == [{"sum": 4}]
    with pytest.raises(ValueError, match=r"None of predict_keys=\['y'\] is predicted. The predictions "
                       r"are \['sum', 'x'\]"):
        next(trained.predict(batches([1.0]), predict_keys=["y"]))


def test_predictions_of_different_batch_sizes_come_only_as_batches(trained):
    model = Estimator(lambda features, mode: EstimatorSpec(
        mode, predictions={"two": features["x"], "one": features["x"][:1]}), trained.model_dir)
    with pytest.raises(ValueError, match=r"different batch sizes: \{'two': 2, 'one': "
                       r"1\}.*yield_single_examples=False"):
        next(model.predict(batches([1.0, 2.0])))
    batch, = model.predict(batches([1.0, 2.0]), yield_single_examples=False)
    assert batch["two"].tolist() == [1, 2] and batch["one"].tolist() == [1]


# --- Export -------------------------------------------------------------------------------------------


def serving_input():
    x = tf.placeholder(tf.float32, [None], name="requests")
    return ServingInputReceiver({"x": x}, {"x": x})


def load(directory, signature=None):
    """Returns a function that runs a signature of a SavedModel."""
    return tf1.contrib.predictor.from_saved_model(os.fsdecode(directory), signature)


def test_an_export_holds_the_checkpoint_asked_for_and_extra_assets(trained, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    exported = trained.export_saved_model(
        str(tmp_path / "export"), serving_input, {"deep/er.txt": str(tmp_path / "vocab.txt")},
        as_text=True, checkpoint_path=f"{trained.model_dir}/model.ckpt-1")
    directory = exported.decode()
    assert os.listdir(tmp_path / "export") == [os.path.basename(directory)]
    assert sorted(os.listdir(directory)) == ["assets.extra", "saved_model.pbtxt", "variables"]
    assert pathlib.Path(directory, "assets.extra", "deep", "er.txt").read_text() == "[PAD]\n"
    results = load(directory)({"x": [1.0, 2.0]})
    assert {name: value.tolist() for name, value in results.items()} == {"x": [1, 2], "sum": [2, 3]}


def test_export_outputs_and_alternative_receivers_become_signatures(trained, tmp_path):
    def model_fn(features, labels, mode, params):
        spec = counting_model({"x": features}, labels, mode, params)
        return spec._replace(export_outputs={
            "serving_default": export_output.PredictOutput({"y": spec.predictions["sum"]}),
            "other": export_output.PredictOutput({"twice": features * 2})})

    def receiver():
        given = tf.placeholder(tf.float32, [None])
        x = tf.identity(given)
        return ServingInputReceiver(x, given, {"directly": x})

    directory = Estimator(model_fn, trained.model_dir).export_saved_model(str(tmp_path / "export"), receiver)
    assert load(directory)({"input": [1.0]})["y"].tolist() == [4]
    assert load(directory, "directly:other")({"input": [1.0]})["twice"].tolist() == [2]


def test_an_export_that_fails_leaves_nothing(trained, tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match="missing.txt"):
        trained.export_saved_model(str(tmp_path / "export"), serving_input,
                                   {"a": str(tmp_path / "missing.txt")})
    assert list((tmp_path / "export").iterdir()) == []


def test_there_is_no_export_without_a_checkpoint(counting, tmp_path):
    with pytest.raises(ValueError, match="There is no checkpoint in .*model to export. Train first"):
        counting().export_saved_model(str(tmp_path / "export"), serving_input)
    assert not (tmp_path / "export").exists()


# --- Checkpoints and their directory ------------------------------------------------------------------


def test_the_newest_checkpoint_and_its_variables(counting, trained):
    assert trained.latest_checkpoint() == f"{trained.model_dir}/model.ckpt-3"
    assert sorted(trained.get_variable_names()) == ["global_step", "total"]
    assert trained.get_variable_value("total") == 3
    untrained = counting()
    assert untrained.latest_checkpoint() is None
    for call in (untrained.get_variable_names, lambda: untrained.get_variable_value("total")):
        with pytest.raises(ValueError, match="There is no checkpoint in .*model. Train first"):
            call()


def name_absolute_paths(model_dir):
    """Rewrites the file `checkpoint` with absolute paths, like TensorFlow 1 by default."""
    path = pathlib.Path(model_dir, "checkpoint")
    path.write_text(re.sub(r'path(s?): "', rf'path\1: "{model_dir}/', path.read_text()))


@pytest.mark.parametrize("moved_files", ["all", "newest"])
def test_a_copied_directory_resumes_by_itself_and_leaves_the_old_one_alone(trained, tmp_path, moved_files):
    name_absolute_paths(trained.model_dir)
    shutil.copytree(trained.model_dir, tmp_path / "moved", ignore=None if moved_files == "all" else (
        shutil.ignore_patterns("model.ckpt-[012].*")))
    before = snapshot(pathlib.Path(trained.model_dir))
    config = RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=4)
    moved = Estimator(counting_model, str(tmp_path / "moved"), config)
    assert moved.latest_checkpoint() == str(tmp_path / "moved" / "model.ckpt-3")
    moved.train(endless, steps=3)
    assert moved.get_variable_value("total") == 6 and steps_of(moved.model_dir) == [3, 4, 5, 6]
    assert snapshot(pathlib.Path(trained.model_dir)) == before
    assert str(trained.model_dir) not in (tmp_path / "moved" / "checkpoint").read_text()


each_call = pytest.mark.parametrize("call", [
    lambda model: model.train(endless, steps=1),
    lambda model: model.evaluate(endless, steps=1),
    lambda model: next(model.predict(endless)),
    lambda model: model.export_saved_model(f"{model.model_dir}/export", serving_input),
], ids=["train", "evaluate", "predict", "export"])


@each_call
def test_a_checkpoint_of_another_model_is_refused_by_the_names_of_its_variables(trained, call):
    def model_fn(features, labels, mode, params):
        tf.get_variable("added", [2, 3])
        tf.get_variable("total", [7])
        with tf.variable_scope("other"):
            return counting_model(features, labels, mode, params)

    before = snapshot(pathlib.Path(trained.model_dir))
    with pytest.raises(ValueError, match="does not fit the model") as error:
        call(Estimator(model_fn, trained.model_dir))
    for line in ("total: the checkpoint has [], the model [7]",
                 "added: not in the checkpoint; the model has [2, 3]",
                 "other/total: not in the checkpoint; the model has []"):
        assert line in str(error.value)
    assert snapshot(pathlib.Path(trained.model_dir)) == before


def test_a_checkpoint_with_another_type_of_number_is_refused(trained):
    tiny.write_tensorflow(pathlib.Path(trained.latest_checkpoint()), {
        "global_step": np.int64(3), "total": np.float16(3)})
    with pytest.raises(ValueError, match="total has the type float16 in the checkpoint and float32 "
                                         "in the model"):
        trained.train(endless, steps=1)


def damage_data(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF  # the variables are sorted by name, and `total` is the last one
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_data, os.remove])
def test_a_damaged_checkpoint_is_refused_with_a_remedy(trained, damage):
    """test_checkpoint_files.py has the other kinds of damage."""
    damage(pathlib.Path(trained.model_dir, "model.ckpt-3.data-00000-of-00001"))
    before = snapshot(pathlib.Path(trained.model_dir))
    with pytest.raises(ValueError, match="damaged") as error:
        trained.train(endless, steps=1)
    assert f"{trained.model_dir}/model.ckpt-3" in str(error.value)
    assert f"The newest complete checkpoint before it is {trained.model_dir}/model.ckpt-2" in str(error.value)
    after = snapshot(pathlib.Path(trained.model_dir))
    changed = [path for path in before | after if before.get(path) != after.get(path)]
    assert all("tfevents" in path for path in changed)


# --- What is logged -----------------------------------------------------------------------------------


def test_loss_learning_rate_gradient_norm_and_speed_are_logged(tmp_path, log, capfd):
    Stopping(tmp_path, log_step_count_steps=2).model.train(foreign_batches, max_steps=5)
    lines = [message for message in log.messages if message.startswith("step ")]
    assert [line.split()[1] for line in lines] == ["1/5", "2/5", "4/5", "5/5"]
    number = r"\d\S*"
    for line in lines:
        remaining = "" if line is lines[0] else r"  remaining \d+:\d\d:\d\d"  # step 1 includes the start
        assert re.fullmatch(rf"step \d/5  loss {number}  learning_rate {number}  gradient_norm {number}  "
                            rf"global_step/sec {number}  examples/sec {number}  peak_memory_gb {number}"
                            rf"{remaining}", line)
    assert lines[-1].endswith("remaining 0:00:00")
    assert "learning_rate 0.05  " in lines[1]  # halfway through the warm-up
    assert any(re.fullmatch(r"Devices: .*CPU:0.*", message) for message in log.messages)
    assert [step for step, _ in events_in(tmp_path)["examples/sec"]] == [1, 2, 4, 5]
    output = capfd.readouterr()
    assert "training" not in output.err and "\r" not in output.err + output.out  # no progress bar


def test_summaries_and_lines_can_be_switched_off(counting, tmp_path, log):
    counting(save_summary_steps=0, log_step_count_steps=None).train(endless, steps=2)
    assert events_in(tmp_path / "model") == {}
    assert not [message for message in log.messages if message.startswith("step ")]


def test_a_training_closes_its_event_files(counting):
    counting(save_summary_steps=1, log_step_count_steps=1).train(endless, max_steps=2)
    assert not [thread for thread in threading.enumerate() if thread.name == "EventLoggerThread"]


# --- Arguments that are refused -----------------------------------------------------------------------


def test_run_config_defaults_are_the_published_ones_with_a_seed():
    found = dict(vars(RunConfig()))
    assert not found.pop("stop_request").is_set
    assert found.pop("session_config") == tf.ConfigProto(allow_soft_placement=True)
    assert found == dict(
        model_dir=None, tf_random_seed=12345, save_summary_steps=100, save_checkpoints_steps=None,
        save_checkpoints_secs=600, keep_checkpoint_max=5,
        keep_checkpoint_every_n_hours=10000, log_step_count_steps=100, gradient_accumulation_steps=1,
        step_config=None, metrics_history=None)
    assert RunConfig(save_checkpoints_steps=7).save_checkpoints_secs is None


def evaluate_metrics(counting, fields):
    """Evaluates a model whose spec has the fields that the function `fields` returns for x."""
    def model_fn(features, mode):
        loss = tf.reduce_mean(features["x"])
        return EstimatorSpec(mode, loss=loss, **fields(features["x"]))

    counting(model_fn=model_fn).evaluate(endless, steps=1)


@pytest.mark.parametrize("call, message", [
    (lambda create: create().train(endless, steps=1, max_steps=1), "steps or max_steps, not both"),
    (lambda create: create().train(endless, steps=0), "steps is 0"),
    (lambda create: create().evaluate(endless, steps=0), "steps is 0"),
    (lambda create: create({"batch_size": 8}, batch_sizes={"eval_batch_size": 8}),
     "params must not contain batch_size"),
    (lambda create: create(batch_sizes=dict(use_tpu=True)), "TPUs are not supported. Pass use_tpu=False"),
    (lambda create: create().train(lambda: tf.data.Dataset.from_tensors((X, X, X))),
     r"pair \(features, labels\), but it returned 3 items"),
    (lambda create: create(model_fn=lambda features: None).evaluate(lambda: (tf.constant(X), tf.constant(Y))),
     "gives labels, but the model_fn has no argument for them"),
    (lambda create: create(model_fn=lambda features, labels: (1, 2)).train(endless, steps=1),
     "must return an EstimatorSpec; it returned tuple"),
    *[(lambda create, name=name: evaluate_metrics(create, lambda x: dict(
        eval_metric_ops={name: tf.metrics.mean(x)})), f"metric named '{name}'")
      for name in ("loss", "global_step")],
    (lambda create: evaluate_metrics(create, lambda x: dict(
        eval_metrics=(lambda x: {"eval_loss": x}, [x]))),
     "metric 'eval_loss' .* is not a pair .*tf.metrics.mean")])
def test_what_cannot_be_is_refused(counting, call, message):
    with pytest.raises(ValueError, match=message):
        call(counting)


@pytest.mark.parametrize("settings, message", [
    (dict(save_checkpoints_steps=1, save_checkpoints_secs=1), "not both"),
    (dict(save_checkpoints_steps=-1), "save_checkpoints_steps is -1"),
    (dict(save_checkpoints_secs=-1), "save_checkpoints_secs is -1")])
def test_run_config_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        RunConfig(**settings)


@pytest.mark.parametrize("mode, fields, missing", [
    (ModeKeys.TRAIN, [], "no loss and no train_op"), (ModeKeys.EVAL, ["predictions"], "no loss"),
    (ModeKeys.PREDICT, ["loss"], "no predictions")])
def test_a_spec_without_what_its_mode_needs_is_refused(mode, fields, missing):
    with pytest.raises(ValueError, match=f"returned {missing}, which mode '{mode}' needs"):
        EstimatorSpec(mode, **dict.fromkeys(fields, "given"))
    with pytest.raises(ValueError, match="Unknown mode 'test'; known: train, eval, infer"):
        EstimatorSpec("test", loss=1)


# --- Gradient accumulation ----------------------------------------------------------------------------


def test_a_step_whose_input_ends_in_its_middle_is_dropped(tmp_path):
    model = Stopping(tmp_path, micro_batches=4).model.train(lambda: foreign_batches().take(7))
    assert model.get_variable_value("global_step") == 1


def test_a_train_op_that_does_not_accumulate_as_asked_is_refused(tmp_path):
    model = Estimator(counting_model, str(tmp_path), RunConfig(gradient_accumulation_steps=4),
                      train_batch_size=8)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=4, "
                       "but the model_fn's train_op accumulates 1"):
        model.train(endless, steps=1)
