"""--eval_every_steps, --keep_best, --early_stopping_evals: best weights, killed runs, replicas and errors."""

import contextlib
import functools
import json
import os
import types

from helpers import write_json
import model_directories
from outputs import different_tensors, record, scores, table
import pytest
from rows import ROWS
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import metrics_history
from bertlib.reports import reproduction
from bertlib.runs import best_weights, learning_curve
from bertlib.runs.output_directory import OutputDirectory
from bertlib.runs.settings import Settings
from bertlib.system import files
from bertlib.tasks import training_with_evaluations

# Eight steps with checkpoints of the steps 0, 3, 6 and 8, and evaluations of the steps 3, 6 and 8.
EVERY = dict(eval_every_steps=3, do_predict=False)


@pytest.fixture(scope="module")
def whole(workspaces):
    """The workspace of a training that keeps its best weights."""
    return workspaces(ROWS["pairs"], **EVERY, keep_best="eval_f1")


@pytest.fixture
def copy(whole, tmp_path):
    return whole.copy(tmp_path / "copy")


# --- Whole trainings -------------------------------------------------------------------------------------


def test_later_commands_take_the_best_weights(whole, copy):
    best = OutputDirectory(str(copy.output)).best["step"]
    assert best < 8
    log = whole.finished.err
    assert f"Weights: output/best/model.ckpt-{best}, the best weights" in log
    lines = log[log.index("Evaluations during the training, in"):].splitlines()[:5]
    assert [line.split()[0] for line in lines[1:]] == ["step", "3", "6", "8"]
    assert [line.split()[0] for line in lines if line.endswith("  best")] == [str(best)]
    done = copy.run("run_classifier.py", output_dir="output", do_eval=True, data_dir="data",
                    results_dir="results", weights="last")
    assert done.code == 0 and "unfinished" not in done.err, done.err
    assert scores(copy.directory / "results", whole.row)["global_step"] == 8
    (copy.directory / "texts").write_text("the cat ||| the dog\n")
    done = copy.run("predict.py", model_dir="output", input_file="texts")
    done.assert_success("the best weights of the training (eval_f1 = ")
    done = copy.train(init_checkpoint="output", output_dir="next", max_steps=1, do_eval=False,
                      do_predict=False)
    done.assert_success("The last weights in --init_checkpoint=output are used. To start from the best")


def test_settings_of_the_evaluations_can_change_after_the_last_step(copy):
    rows = table(copy.output / "learning_curve.tsv", "excel-tab")
    rows[-1]["eval_accuracy"] = "0.99"
    (copy.output / "learning_curve.tsv").write_text("".join(
        "\t".join(line) + "\n" for line in [rows[0], *(row.values() for row in rows)]))
    done = copy.train(**EVERY, keep_best="eval_accuracy")
    done.assert_success("these settings have changed: keep_best: eval_f1 -> eval_accuracy.")
    assert "results are those of the earlier training" not in done.err
    for directory in (copy.output, copy.output / "best"):
        found = record(directory)
        assert found["settings"]["keep_best"] == "eval_accuracy" and found["finished_step"] in (8, None)
        assert [(change["step"], change["changed"]) for change in found["changes"]] == [
            (8, {"keep_best": ["eval_f1", "eval_accuracy"]})]
    assert OutputDirectory(str(copy.output)).best["step"] == 8
    assert scores(copy.output, copy.row)["global_step"] == 8
    plan = reproduction.plan(str(copy.output), str(copy.directory / "again"))
    assert not plan.is_whole and plan.notes == [
        "After the last step, these settings were changed: keep_best. So the best weights and the results "
        "are not compared."]


@pytest.mark.slow(reason="two replicas in fresh interpreters; the contract stops one process early")
def test_two_replicas_stop_at_the_step_of_one_process(workspaces):
    changes = dict(**EVERY, keep_best="eval_f1", early_stopping_evals=1)
    replicas, alone = (workspaces(ROWS["pairs"], **changes, **{name: 2}).output
                       for name in ("num_replicas", "gradient_accumulation_steps"))
    assert table(replicas / "learning_curve.tsv") == table(alone / "learning_curve.tsv")
    last = record(alone)["finished_step"]
    assert record(replicas)["finished_step"] == last and different_tensors(replicas, alone, last) == []
    assert OutputDirectory(str(replicas)).best["step"] == OutputDirectory(str(alone)).best["step"]


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

    def save(self, step, directory):
        os.makedirs(directory, exist_ok=True)
        with tf.Graph().as_default(), tf.Session() as session:
            session.run(tf.raw_ops.SaveV2(
                prefix=f"{directory}/model.ckpt-{step}", tensor_names=["w", "w/adam_m", "global_step"],
                shape_and_slices=[""] * 3, tensors=[tf.constant(float(step)), tf.constant(0.0),
                                                    tf.constant(step, tf.int64)]))
        return f"{directory}/model.ckpt-{step}"

    def publish(self, step):
        self.save(step, self.directory)
        files.write_text(f"{self.directory}/checkpoint", f'model_checkpoint_path: "model.ckpt-{step}"\n')

    def run(self):
        """Trains to the end. Returns the last step."""
        def evaluate(prefix):
            step = int(tf.train.load_variable(prefix, "w"))
            return {"m": self.results[step], "n": -self.results[step], "global_step": step}

        newest = tf.train.latest_checkpoint(self.directory)
        step = int(newest.rpartition("-")[2]) if newest else None
        curve = training_with_evaluations.TrainingWithEvaluations(types.SimpleNamespace(
            settings=settings(self.directory, eval_each_checkpoint=self.each, eval_every_steps=self.every,
                              keep_best=self.metric, early_stopping_evals=self.patience),
            title="title", metric_titles={"m": "M"}, full_score=1.0), evaluate)
        last = curve.prepare(12)
        metrics_history.MetricsHistory(self.directory).cut(step)
        if step is None:
            self.publish(step := 0)
            curve.evaluate_checkpoint(step)
        ends = False
        while step < last and not ends:
            step += 1
            if step % 4 == 0:
                self.publish(step)
                curve.evaluate_checkpoint(step)
            ends = curve.after_step(step, functools.partial(self.save, step))
        if step % 4:
            self.publish(step)
            curve.evaluate_checkpoint(step)
        curve.finish()
        return step


def settings(directory, **changes):
    return Settings({
        "do_train": True, "do_eval": True, "eval_each_checkpoint": False, "eval_every_steps": 3,
        "keep_best": "m", "early_stopping_evals": None, "output_dir": str(directory), **changes})


def make_directory(directory, **settings):
    directory.mkdir()
    write_json(directory / "run.json", model_directories.record(["0", "1"], started="now",
                                                                settings={"keep_best": "m", **settings}))
    return str(directory)


def content(directory):
    """Returns the results of a training: the table, the history without times, and the weights in best/."""
    rows = [json.loads(line) for line in files.read_text(f"{directory}/metrics.jsonl").splitlines()]
    best = OutputDirectory(directory).best
    assert os.path.exists(f"{directory}/best/run.json")
    return (files.read_text(f"{directory}/learning_curve.tsv"),
            sorted((row["step"], row["m"]) for row in rows), best["step"], best["value"],
            tf.train.load_variable(best["checkpoint"], "w"), sorted(os.listdir(f"{directory}/best")))


SIMULATED = {"each": dict(every=None, each_checkpoint=True), "both": dict(each_checkpoint=True),
             "often": dict(every=1, values={step: -((step - 7) ** 2) for step in range(13)}),
             "early": dict(patience=1)}


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
    for number in range(list(SIMULATED).index(name), 1000, 53 if name == "often" else 13):
        directory = make_directory(tmp_path / str(number))
        left[0] = number
        try:
            _Simulation(directory, **options).run()
        except _Killed:
            left[0] = None
            best = OutputDirectory(directory).best  # the earlier one or the new one, complete
            if best is not None:
                assert tf.train.load_variable(best["checkpoint"], "w") == best["step"]
                assert best["value"] == options.get("values", _Simulation.values)[best["step"]]
            assert _Simulation(directory, **options).run() == last
            assert content(directory) == whole
        else:
            break
    assert number > 13


def test_the_weights_of_the_best_value_are_kept(tmp_path):
    directory = make_directory(tmp_path / "a")
    assert _Simulation(directory).run() == 12
    best = OutputDirectory(directory).best
    assert (best["step"], best["value"], best["checkpoint"]) == (9, 0.7, f"{directory}/best/model.ckpt-9")
    assert tf.train.list_variables(best["checkpoint"]) == [("global_step", []), ("w", [])]


def test_values_that_are_not_finite_do_not_count(tmp_path, caplog):
    values = {3: float("nan"), 6: 0.5, 9: float("nan"), 12: 0.4}
    directory = make_directory(tmp_path / "a")
    assert _Simulation(directory, values, patience=2).run() == 12
    assert OutputDirectory(directory).best["step"] == 6
    assert "the evaluation of step 3 does not count, because m is nan." in caplog.text


def test_another_metric_needs_weights_that_are_kept(tmp_path):
    directory = make_directory(tmp_path / "{a}")
    simulation = _Simulation(directory)
    simulation.run()
    simulation.metric = "n"
    table = tmp_path / "{a}" / "learning_curve.tsv"
    text = table.read_text()
    for simulation.metric in ("n", "n", "m"):
        with pytest.raises(ValueError, match="best contains the weights of step 9, the best weights by m, but"
                                             " not the best weights up to step 12 by the [mn] in the table"):
            simulation.run()
        assert OutputDirectory(directory).best["step"] == 9
        table.write_text("")  # without the evaluations, it is not known which weights are the best ones
    table.write_text(text)
    (tmp_path / "{a}" / "best").rename(tmp_path / "elsewhere")
    simulation.run()
    assert best_weights.read(directory)["step"] == 12 and best_weights.read(directory)["first_step"] == 12


@pytest.mark.parametrize("changed", ["development data", "threshold", "max_seq_length"])
def test_evaluations_of_different_data_or_settings_are_not_compared(changed, tmp_path, caplog):
    directory = make_directory(tmp_path / "a")
    with pytest.raises(KeyError):  # the training is killed at step 9
        _Simulation(directory, {step: 1 / step for step in range(1, 9)}, every=1).run()
    assert OutputDirectory(directory).best["step"] == 1
    record = json.loads(files.read_text(f"{directory}/run.json"))
    record["changes"] = [{"step": 8, "changed": {changed: ["a", "b"]}}]
    files.write_text(f"{directory}/run.json", json.dumps(record))
    # Until the next evaluation, the earlier best weights are kept. The training is killed at the steps 9, 10
    # and 9, and then stops early.
    for values, best in (({1: 1}, 1), ({9: 0.2}, 9), ({1: 1}, 1), ({9: 0.3, 10: 0.2, 11: 0.1}, 9)):
        with pytest.raises(KeyError) if len(values) == 1 else contextlib.nullcontext():
            assert _Simulation(directory, values, every=1, patience=2).run() == 11
        found = OutputDirectory(directory).best
        assert (found["step"], tf.train.load_variable(found["checkpoint"], "w")) == (best, best)
    assert "evaluations up to step 8 are not compared with later evaluations, because the dev" in caplog.text


# --- Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, complaint", [
    (dict(do_train=False), "--eval_every_steps=3 needs --do_train=true: the model is evaluated during"),
    (dict(do_eval=False), "--eval_every_steps=3 needs --do_eval=true: "),
    (dict(eval_every_steps=None), "--keep_best=m needs evaluations during the training. Pass --eval_every"),
    (dict(keep_best=None, early_stopping_evals=2), "--early_stopping_evals=2 needs --keep_best=METRIC"),
    (dict(keep_best=""), "--keep_best=: the evaluation has no such metric. Name a metric in")], ids=str)
def test_flags_that_contradict_each_other_are_refused(changes, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        learning_curve.check_flags(settings(tmp_path, **changes))
    learning_curve.check_flags(settings(tmp_path))
    assert not list(tmp_path.iterdir())


def test_best_weights_of_another_training_are_refused(tmp_path):
    directory = make_directory(tmp_path / "a")
    _Simulation(directory).run()
    learning_curve.check_flags(settings(directory))
    with pytest.raises(ValueError, match="The metrics of this command are m, n."):
        learning_curve.check_flags(settings(directory, keep_best="k"))
    with pytest.raises(ValueError, match="without the state of the optimizer"):
        learning_curve.check_flags(settings(f"{directory}/best"))
    record = json.loads(files.read_text(f"{directory}/run.json"))
    files.write_text(f"{directory}/run.json", json.dumps({**record, "started": "later"}))
    with pytest.raises(ValueError, match="best was not written by this training. Move .* to another place"):
        learning_curve.check_flags(settings(directory))
    assert OutputDirectory(directory).best is None
    files.write_text(f"{directory}/run.json", json.dumps(record))
    for damaged in ("{}", "[]", '{"metric": "m", "step": "x", "value": 1}', "\x00"):
        files.write_text(f"{directory}/best/best.json", damaged)
        with pytest.raises(ValueError, match="best.json"):
            _ = OutputDirectory(directory).best


def test_a_metric_that_the_task_cannot_have_is_refused_before_the_training(untrained):
    untrained.train(keep_best="f1", eval_every_steps=2).assert_refused(
        "--keep_best=f1: the evaluation has no such metric. Did you mean eval_f1? The metrics of this "
        "command are eval_accuracy, eval_f1, eval_loss, eval_matthews, loss.")
    assert not untrained.output.exists()
