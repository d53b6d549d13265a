"""--eval_every_steps, --keep_best, --early_stopping_evals: best weights, killed runs, replicas and errors."""

import contextlib
import json
import os
import shutil
import signal
import types

import model_directories
import pytest
import tensorflow.compat.v1 as tf
from test_learning_curve import Trainings, assert_same_weights, results_of, table_of

from bertlib.checkpoints import metrics_history
from bertlib.comparison import reproduction
from bertlib.output_directory import best_weights
from bertlib.runs import learning_curve
from bertlib.system import files

_slow = pytest.mark.slow(reason="whole trainings, for what a simulated training shows")
# Ten steps with checkpoints of the steps 0, 4, 8 and 10, and evaluations of the steps 3, 6, 9 and 10.
EVALUATE = "--do_eval=true", "--eval_batch_size=3"  # "loss" is the mean over the batches
EVERY = dict(num_train_epochs=2, save_checkpoints_steps=4, eval_each_checkpoint=None, eval_every_steps=3)


@pytest.fixture(scope="module")
def trainings(scripts, tiny_model, tmp_path_factory):
    return Trainings(scripts, tiny_model, tmp_path_factory.mktemp("trainings"))


@pytest.fixture(scope="module")
def whole(trainings):
    """The output directory of a training that keeps its best weights, and its log."""
    output = trainings.directory / "whole"
    done = trainings.run("classifier", output, **EVERY, keep_best="eval_loss")
    assert done.code == 0, done.err
    return output, done.err


def best_row(output, metric, sign=1):
    rows = [row for row in table_of(output) if int(row["global_step"]) > 0]
    return max(rows, key=lambda row: (sign * float(row[metric]), -int(row["global_step"])))


# --- Whole trainings -------------------------------------------------------------------------------------


def test_evaluations_between_checkpoints_change_no_bit_and_no_checkpoint(trainings, whole, tmp_path):
    output, log = whole
    plain = trainings.finished("classifier", tmp_path / "plain", **EVERY | dict(eval_every_steps=None),
                               do_eval=None)
    assert_same_weights(output, plain, 10)
    assert [sorted(path.name for path in directory.glob("model.ckpt-*.index")) for directory in (
        output, plain)] == [["model.ckpt-0.index", "model.ckpt-10.index", "model.ckpt-4.index",
                             "model.ckpt-8.index"]] * 2
    assert [row["global_step"] for row in table_of(output)] == ["3", "6", "9", "10"]
    assert not (output / "evaluated_weights").exists() and not (plain / "best").exists()
    history = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert {row["step"] for row in history if row.get("evaluation") == "dev"} == {3, 6, 9, 10}
    step = best_row(output, "eval_loss", -1)["global_step"]
    table = log[log.index("Evaluations during the training, in"):].splitlines()[:6]
    assert [line.split()[0] for line in table[1:]] == ["step", "3", "6", "9", "10"]
    assert [line.split()[0] for line in table if line.endswith("  best")] == [step]


def test_the_best_weights_are_those_of_the_best_evaluation(trainings, whole, scripts, tmp_path):
    output, log = whole
    row = best_row(output, "eval_loss", -1)
    kept = json.loads((output / "best" / "best.json").read_text())
    assert (kept["metric"], str(kept["step"]), kept["value"]) == (
        "eval_loss", row["global_step"], float(row["eval_loss"]))
    assert [path.name for path in (output / "best").glob("*.index")] == [
        f"model.ckpt-{row['global_step']}.index"]
    assert json.loads((output / "run.json").read_text())["settings"]["keep_best"] == "eval_loss"

    # The end of the training, an evaluation of the directory, and one of best/ alone use these weights.
    assert f"Weights: {output}/best/model.ckpt-{row['global_step']}, the best weights" in log
    elsewhere = tmp_path / "best"
    (output / "best").rename(elsewhere)
    alone = scripts.run("run_classifier.py", *EVALUATE, f"--output_dir={elsewhere}", cwd=tmp_path)
    elsewhere.rename(output / "best")
    assert alone.code == 0 and "unfinished" not in alone.err, alone.err
    again = scripts.run("run_classifier.py", *EVALUATE, f"--output_dir={output}",
                        f"--results_dir={tmp_path / 'again'}", cwd=tmp_path)
    assert again.code == 0, again.err
    last = scripts.run("run_classifier.py", *EVALUATE, f"--output_dir={output}", "--weights=last",
                       f"--results_dir={tmp_path / 'last'}", cwd=tmp_path)
    for directory in (output, output / "best", tmp_path / "again"):
        found = results_of(directory)
        assert {name: found[name] for name in row} == row
    assert last.code == 0 and results_of(tmp_path / "last")["global_step"] == "10"


def test_predictions_take_the_best_weights(whole, scripts, tmp_path):
    output, _ = whole
    (tmp_path / "texts").write_text("the cat ||| the dog\n")
    answers = []
    for flags in ([f"--model_dir={output}"], [f"--model_dir={output}", "--weights=last"],
                  [f"--model_dir={output / 'best'}"]):
        done = scripts.run("predict.py", *flags, f"--input_file={tmp_path / 'texts'}", cwd=tmp_path)
        assert done.code == 0, done.err
        answers.append((done.out, "the best weights of the training (eval_loss = " in done.err))
    assert [says for _, says in answers] == [True, False, False]
    best = json.loads((output / "best" / "best.json").read_text())["step"]
    assert answers[0][0] == answers[2][0] and (answers[0][0] == answers[1][0]) == (best == 10)


def test_early_stopping_ends_at_the_computed_step_and_stays_finished(trainings, whole, tmp_path):
    rows = table_of(whole[0])
    metric, stop = _find_early_stop(rows)
    changes = {**EVERY, "keep_best": metric, "early_stopping_evals": 1}
    output = tmp_path / "output"
    done = trainings.run("classifier", output, **changes)
    assert done.code == 0 and f"The training ends at step {stop}." in done.err, done.err
    assert table_of(output) == [row for row in rows if int(row["global_step"]) <= stop]
    assert (output / f"model.ckpt-{stop}.index").exists() and not (output / "model.ckpt-10.index").exists()
    assert json.loads((output / "run.json").read_text())["finished_step"] == stop
    before = {path: path.read_bytes() for path in (output / "best").iterdir()}

    again = trainings.run("classifier", output, **changes)
    assert again.code == 0 and "Nothing to train" in again.err, again.err
    assert before == {path: path.read_bytes() for path in (output / "best").iterdir()}


def test_settings_of_the_evaluations_can_change_after_the_last_step(trainings, whole, tmp_path):
    output = tmp_path / "output"
    shutil.copytree(whole[0], output)
    rows = table_of(output)
    rows[-1]["eval_accuracy"] = "0.9"
    (output / "learning_curve.tsv").write_text("".join(
        "\t".join(line) + "\n" for line in [rows[0], *(row.values() for row in rows)]))
    done = trainings.run("classifier", output, **EVERY, keep_best="eval_accuracy")
    assert done.code == 0 and "No step was trained with the new values" not in done.err, done.err
    assert "these settings have changed: keep_best: eval_loss -> eval_accuracy." in done.err
    for directory in (output, output / "best"):
        record = json.loads((directory / "run.json").read_text())
        assert record["settings"]["keep_best"] == "eval_accuracy" and record["finished_step"] in (10, None)
        assert [(change["step"], change["changed"]) for change in record["changes"]] == [
            (10, {"keep_best": ["eval_loss", "eval_accuracy"]})]
    assert best_weights.find(str(output))["step"] == 10 and results_of(output)["global_step"] == "10"
    plan = reproduction.plan(str(output), str(tmp_path / "again"))
    assert not plan.is_whole and plan.notes == [
        "After the last step, these settings were changed: keep_best. So the best weights and the results "
        "are not compared."]


def test_without_best_weights_before_or_now_nothing_is_chosen_again(trainings, whole, tmp_path):
    output = tmp_path / "output"
    shutil.copytree(whole[0], output)
    every = EVERY | dict(eval_each_checkpoint=None)
    done = trainings.run("classifier", output, **every)
    assert done.code == 0 and ("no steps are left to train. Later commands use the last weights, because "
                               "these settings have changed: keep_best: eval_loss -> null."
                               in done.err), done.err
    record = (output / "run.json").read_bytes()
    done = trainings.run("classifier", output, **every | dict(eval_every_steps=None))
    assert done.code == 0 and "have changed" not in done.err, done.err
    assert (output / "run.json").read_bytes() == record


def test_a_training_that_continues_with_another_development_set(trainings, whole, tmp_path):
    output, data = tmp_path / "output", tmp_path / "data"
    shutil.copytree(whole[0], output)
    shutil.copytree(trainings.directory / "data", data)
    lines = (data / "dev.tsv").read_text().splitlines(keepends=True)
    (data / "dev.tsv").write_text("".join(lines[:-1]))
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-8"\n')
    table = (output / "learning_curve.tsv").read_text()
    (output / "learning_curve.tsv").write_text(table.replace("0.7000", "0.1000"))
    done = trainings.run("classifier", output, **EVERY, keep_best="eval_loss", data_dir=data)
    assert done.code == 0, done.err
    record = json.loads((output / "run.json").read_text())
    change, = record["changes"]
    assert change["step"] == 8 and list(change["changed"]) == ["development data"]
    assert record["dev_data"]["examples"] == len(lines) - 2
    assert f"{output}/best is unchanged until the next evaluation." in done.err
    assert best_weights.find(str(output))["step"] in (9, 10)


def _find_early_stop(rows):
    """Returns (metric, step) of a training that --early_stopping_evals=1 ends before its last step."""
    for metric in ("eval_accuracy", "eval_f1", "eval_matthews", "eval_loss"):
        sign, best = (-1 if metric == "eval_loss" else 1), None
        for row in rows[:-1]:
            if best is not None and sign * float(row[metric]) <= best:
                return metric, int(row["global_step"])
            best = sign * float(row[metric])
    raise AssertionError(f"All metrics rise: {rows}")


def test_an_unknown_metric_ends_the_training_and_loses_nothing(trainings, whole, tmp_path):
    output = tmp_path / "output"
    done = trainings.run("classifier", output, **EVERY, keep_best="accuracy")
    complaint = ("--keep_best=accuracy: the evaluation has no such metric. The metrics of this command are "
                 "eval_accuracy, eval_f1, eval_loss")
    assert done.code == 1 and complaint in done.err and "Traceback" not in done.err, done.err
    assert (output / "model.ckpt-3.index").exists()
    refused = trainings.run("classifier", output, **EVERY, keep_best="accuracy")
    assert refused.code == 1 and "the evaluation has no such metric" in refused.err
    trainings.finished("classifier", output, **EVERY, keep_best="eval_loss")
    assert_same_weights(output, whole[0], 10)
    assert table_of(output) == table_of(whole[0])


_METRICS = {"squad": "f1", "ner": "eval_f1", "hub": "eval_loss", "pretraining": "masked_lm_loss"}


@pytest.mark.parametrize("name, metric, every", [
    ("classifier", "eval_loss", None),
    *(pytest.param(name, metric, every, marks=_slow) for name, metric in _METRICS.items()
      for every in (None, 3))])
def test_the_best_of_the_evaluated_checkpoints_is_kept(name, metric, every, trainings, tmp_path):
    """--eval_each_checkpoint alone, and with --eval_every_steps."""
    changes = {**EVERY, "eval_each_checkpoint": True, "eval_every_steps": every, "keep_best": metric}
    if name == "pretraining":
        changes.update(num_train_epochs=None, num_train_steps=10)
    output = trainings.finished(name, tmp_path / "output", **changes)
    steps = [int(row["global_step"]) for row in table_of(output)]
    assert steps == [step for step in range(steps[-1] + 1)
                     if step % 4 == 0 or every and step % every == 0 or step == steps[-1]]
    row = best_row(output, metric, -1 if "loss" in metric else 1)
    kept = json.loads((output / "best" / "best.json").read_text())
    assert (kept["step"], kept["value"]) == (int(row["global_step"]), float(row[metric]))
    assert results_of(output)[metric] == row[metric]


@_slow
@pytest.mark.parametrize("name, metric", list(_METRICS.items()))
def test_all_commands_keep_their_best_weights(name, metric, trainings, tmp_path):
    changes = {**EVERY, "keep_best": metric, "early_stopping_evals": 4}
    if name == "pretraining":
        changes.update(num_train_epochs=None, num_train_steps=10)
    output = trainings.finished(name, tmp_path / "output", **changes)
    row = best_row(output, metric, -1 if "loss" in metric else 1)
    assert [row["global_step"] for row in table_of(output)][-1] == "10" or name == "ner"
    found = results_of(output)
    assert found[metric] == row[metric] and found.get("global_step", row["global_step"]) == row["global_step"]


@_slow
def test_two_replicas_stop_at_the_step_of_one_process(trainings, whole, tmp_path):
    metric, stop = _find_early_stop(table_of(whole[0]))
    changes = {**EVERY, "keep_best": metric, "early_stopping_evals": 1}
    outputs = [trainings.finished("classifier", tmp_path / key, **{**changes, key: 2})
               for key in ("num_replicas", "gradient_accumulation_steps")]
    assert table_of(outputs[0]) == table_of(outputs[1])
    last = int(table_of(outputs[0])[-1]["global_step"])
    assert_same_weights(*outputs, step=last)
    descriptions = [json.loads((output / "best" / "best.json").read_text()) for output in outputs]
    assert [one["step"] for one in descriptions] == [int(best_row(outputs[0], metric)["global_step"])] * 2
    trainings.finished("classifier", outputs[0], **{**changes, "num_replicas": 2})  # already complete


@_slow
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_killed_trainings_end_as_if_they_had_not_been_killed(sign, trainings, whole, tmp_path):
    output = tmp_path / "output"
    changes = {**EVERY, "keep_best": "eval_loss"}
    watched = [output / "evaluated_weights", output / "best" / "checkpoint", output / "model.ckpt-8.index"]
    for path in watched:
        running = trainings.start("classifier", output, **changes)
        while not path.exists() and os.path.exists(f"/proc/{running.pid}"):
            pass
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, sign)
        done = running.wait()
        # The code is -15 if the command did not yet handle signals, and 0 if the training had already ended.
        assert done.code in ({-9} if sign == signal.SIGKILL else {143, -15}) or (
            done.code == 0 and (output / "model.ckpt-10.index").exists()), (
            path, done.code, done.err, sorted(os.listdir(output)))
    trainings.finished("classifier", output, **changes)
    assert_same_weights(output, whole[0], 10)
    for name in ("learning_curve.tsv", "learning_curve.svg"):
        assert (output / name).read_text() == (whole[0] / name).read_text()
    _, expected = (json.loads((path / "best" / "best.json").read_text()) for path in (whole[0], output))
    assert (expected["step"], expected["earlier"]) == (
        int(best_row(output, "eval_loss", -1)["global_step"]), [])


# --- A simulated training, killed at every change of a file ----------------------------------------------


class _Killed(BaseException):
    pass


class _Simulation:
    """A training of 12 steps whose weight equals its step.

    It saves checkpoints every 4 steps, and its evaluations have given results. A test can kill it before any
    change of a file.
    """

    values = {0: 0.9, 2: 0.2, 3: 0.2, 4: 0.1, 6: 0.5, 8: 0.4, 9: 0.7, 10: 0.8, 12: 0.3}

    def __init__(self, directory, values=None, every=3, each_checkpoint=False, patience=None, metric="m"):
        self.directory, self.results = directory, values or self.values
        self.every, self.each, self.patience, self.metric = every, each_checkpoint, patience, metric
        self.using = None

    @contextlib.contextmanager
    def using_weights(self, prefix):
        self.using = prefix
        yield
        self.using = None

    def save(self, session, directory, step):
        os.makedirs(directory, exist_ok=True)
        with tf.Graph().as_default(), tf.Session() as session:
            session.run(tf.raw_ops.SaveV2(
                prefix=f"{directory}/model.ckpt-{step}", tensor_names=["w", "w/adam_m", "global_step"],
                shape_and_slices=[""] * 3, tensors=[tf.constant(float(step)), tf.constant(0.0),
                                                    tf.constant(step, tf.int64)]))
        return f"{directory}/model.ckpt-{step}"

    def publish(self, step):
        self.save(None, self.directory, step)
        files.write_text(f"{self.directory}/checkpoint", f'model_checkpoint_path: "model.ckpt-{step}"\n')

    def run(self):
        """Trains to the end. Returns the last step."""
        def evaluate():
            prefix = self.using or tf.train.latest_checkpoint(self.directory)
            step = int(tf.train.load_variable(prefix, "w"))
            return {"m": self.results[step], "n": -self.results[step], "global_step": step}

        newest = tf.train.latest_checkpoint(self.directory)
        step = int(newest.rpartition("-")[2]) if newest else None
        curve = learning_curve.LearningCurve(self.directory, evaluate, "title", {"m": "M"}, 1.0, self.each,
                                             self.every, self.metric, self.patience)
        last = curve.prepare(self, 12)
        metrics_history.MetricsHistory(self.directory).cut(step)
        if step is None:
            self.publish(step := 0)
            curve.after_save(None, step)
        while step < last and not curve.stops:
            step += 1
            if step % 4 == 0:
                self.publish(step)
                curve.after_save(None, step)
            if curve.is_missing(step):
                curve.evaluate_session(step, self, None)
        if step % 4:
            self.publish(step)
            curve.after_save(None, step)
        curve.finish()
        return step


def make_directory(directory, **settings):
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps(
        model_directories.record(["0", "1"], started="now", settings={"keep_best": "m", **settings})))
    return str(directory)


def content(directory):
    """Returns the results of a training: the table, the history without times, and the weights in best/."""
    rows = [json.loads(line) for line in files.read_text(f"{directory}/metrics.jsonl").splitlines()]
    best = best_weights.find(directory)
    assert os.path.exists(f"{directory}/best/run.json")
    return (files.read_text(f"{directory}/learning_curve.tsv"),
            sorted((row["step"], row["m"]) for row in rows), best["step"], best["value"],
            tf.train.load_variable(best["checkpoint"], "w"), sorted(os.listdir(f"{directory}/best")))


SIMULATED = {"every": {}, "each": dict(every=None, each_checkpoint=True), "both": dict(each_checkpoint=True),
             "often": dict(every=1, values={step: -((step - 7) ** 2) for step in range(13)}),
             "early": dict(patience=1), "early, both": dict(patience=2, each_checkpoint=True)}


@pytest.mark.parametrize("name", SIMULATED)
def test_killed_before_any_change_of_a_file_and_started_again(name, tmp_path, monkeypatch):
    options, left = SIMULATED[name], [None]

    def counting(function):
        def count(*arguments, **keywords):
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise _Killed
            return function(*arguments, **keywords)
        return count

    for module, function in ((os, "replace"), (os, "remove"), (os, "makedirs"), (tf.gfile, "Remove"),
                             (tf.gfile, "DeleteRecursively"), (files, "open_file"),
                             (tf.raw_ops, "SaveV2")):
        monkeypatch.setattr(module, function, counting(getattr(module, function)))
    directory = make_directory(tmp_path / "whole")
    last = _Simulation(directory, **options).run()
    whole = content(directory)
    for number in range(list(SIMULATED).index(name), 1000, 13 if name == "often" else 5):
        directory = make_directory(tmp_path / str(number))
        left[0] = number
        try:
            _Simulation(directory, **options).run()
        except _Killed:
            left[0] = None
            best = best_weights.find(directory)  # the earlier one or the new one, complete
            if best is not None:
                assert tf.train.load_variable(best["checkpoint"], "w") == best["step"]
                assert best["value"] == options.get("values", _Simulation.values)[best["step"]]
            assert _Simulation(directory, **options).run() == last
            assert content(directory) == whole
        else:
            break
    assert number > 20


def test_the_weights_of_the_best_value_are_kept(tmp_path):
    directory = make_directory(tmp_path / "a")
    assert _Simulation(directory).run() == 12
    best = best_weights.find(directory)
    assert (best["step"], best["value"], best["checkpoint"]) == (9, 0.7, f"{directory}/best/model.ckpt-9")
    assert tf.train.list_variables(best["checkpoint"]) == [("global_step", []), ("w", [])]
    # The best evaluation of a metric whose weights are in a checkpoint of the training is found again.
    losses = {0: 0.0, 3: 3.0, 4: 1.0, 6: 2.0, 8: 1.5, 9: 4.0, 12: 5.0}
    directory = make_directory(tmp_path / "b", keep_best="m_loss")
    simulation = _Simulation(directory, losses, each_checkpoint=True, metric=None)
    simulation.run()
    files.write_text(f"{directory}/run.json", files.read_text(f"{directory}/run.json"))
    simulation.metric = "n"
    simulation.run()
    assert best_weights.read(directory)["step"] == 4


def test_values_that_are_not_finite_do_not_count(tmp_path, caplog):
    values = {3: float("nan"), 6: 0.5, 9: float("nan"), 12: 0.4}
    directory = make_directory(tmp_path / "a")
    assert _Simulation(directory, values, patience=2).run() == 12
    assert best_weights.find(directory)["step"] == 6
    assert "the evaluation of step 3 does not count, because m is nan." in caplog.text


def test_another_metric_needs_weights_that_are_kept(tmp_path):
    directory = make_directory(tmp_path / "a")
    simulation = _Simulation(directory)
    simulation.run()
    simulation.metric = "n"
    with pytest.raises(ValueError, match="step 3 has the best evaluation, but the weights of this step"):
        simulation.run()
    assert best_weights.find(directory)["step"] == 9
    # Without the evaluations, it is not known which weights are the best ones.
    table = tmp_path / "a" / "learning_curve.tsv"
    text = table.read_text()
    table.unlink()
    for simulation.metric in ("m", "n"):
        with pytest.raises(ValueError, match="best contains the weights of step 9, the best weights by m, but"
                                             " the table of the evaluations has no finite value of [mn] up"):
            simulation.run()
        assert best_weights.find(directory)["step"] == 9
    table.write_text(text)
    (tmp_path / "a" / "best").rename(tmp_path / "elsewhere")
    simulation.run()
    assert best_weights.read(directory)["step"] == 12 and best_weights.read(directory)["first_step"] == 12


def test_evaluations_of_different_development_sets_are_not_compared(tmp_path, caplog):
    directory = make_directory(tmp_path / "a")
    with pytest.raises(KeyError):  # the training is killed at step 9
        _Simulation(directory, {step: 1 / step for step in range(1, 9)}, every=1).run()
    assert best_weights.find(directory)["step"] == 1
    record = json.loads(files.read_text(f"{directory}/run.json"))
    record["changes"] = [{"step": 8, "changed": {"development data": ["a", "b"]}}]
    files.write_text(f"{directory}/run.json", json.dumps(record))
    # Until the next evaluation, the earlier best weights are kept. The training is killed at the steps 9, 10
    # and 9, and then stops early.
    for values, best in (({1: 1}, 1), ({9: 0.2}, 9), ({1: 1}, 1), ({9: 0.3, 10: 0.2, 11: 0.1}, 9)):
        with pytest.raises(KeyError) if len(values) == 1 else contextlib.nullcontext():
            assert _Simulation(directory, values, every=1, patience=2).run() == 11
        found = best_weights.find(directory)
        assert (found["step"], tf.train.load_variable(found["checkpoint"], "w")) == (best, best)
    assert "evaluations up to step 8 are not compared with later evaluations, because the dev" in caplog.text


# --- Refusals --------------------------------------------------------------------------------------------


def settings(directory, **changes):
    return types.SimpleNamespace(**{
        "do_train": True, "do_eval": True, "eval_each_checkpoint": False, "eval_every_steps": 3,
        "keep_best": "m", "early_stopping_evals": None, "output_dir": str(directory), **changes})


@pytest.mark.parametrize("changes, complaint", [
    (dict(do_train=False), "--eval_every_steps=3 needs --do_train=true: the model is evaluated during"),
    (dict(do_eval=False), "--eval_every_steps=3 needs --do_eval=true: "),
    (dict(eval_every_steps=None), "--keep_best=m needs evaluations during the training. Pass --eval_every"),
    (dict(keep_best=None, early_stopping_evals=2), "--early_stopping_evals=2 needs --keep_best=METRIC"),
    (dict(keep_best=""), "--keep_best=: the evaluation has no such metric. Name a metric in")], ids=str)
def test_flags_that_contradict_each_other_are_refused(changes, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        learning_curve.check(settings(tmp_path, **changes))
    learning_curve.check(settings(tmp_path))
    assert not list(tmp_path.iterdir())


def test_best_weights_of_another_training_are_refused(tmp_path):
    directory = make_directory(tmp_path / "a")
    _Simulation(directory).run()
    learning_curve.check(settings(directory))
    with pytest.raises(ValueError, match="The metrics of this command are m, n."):
        learning_curve.check(settings(directory, keep_best="k"))
    with pytest.raises(ValueError, match="without the state of the optimizer"):
        learning_curve.check(settings(f"{directory}/best"))
    record = json.loads(files.read_text(f"{directory}/run.json"))
    files.write_text(f"{directory}/run.json", json.dumps({**record, "started": "later"}))
    with pytest.raises(ValueError, match="best was not written by this training. Move .* to another place"):
        learning_curve.check(settings(directory))
    assert best_weights.find(directory) is None
    files.write_text(f"{directory}/run.json", json.dumps(record))
    for damaged in ("{}", "[]", '{"metric": "m", "step": "x", "value": 1}', "\x00"):
        files.write_text(f"{directory}/best/best.json", damaged)
        with pytest.raises(ValueError, match="best.json"):
            best_weights.find(directory)


@pytest.mark.parametrize("flag", ["eval_every_steps", "early_stopping_evals"])
def test_numbers_below_one_are_refused(flag, trainings, tmp_path):
    for value in (0, -1) if flag == "eval_every_steps" else (0,):
        refused = trainings.run("classifier", tmp_path / "output", **{flag: value})
        assert refused.code == 1 and flag in refused.err and not list(tmp_path.iterdir())
