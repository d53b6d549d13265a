"""--eval_each_checkpoint in all trainings: the curve, unchanged weights, killed runs, replicas and errors."""

import csv
import json
import os
import random
import shutil
import signal
import xml.etree.ElementTree

import hub_modules
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_run_ner import write_conll
from test_run_pretraining import FIELDS, LENGTH, PREDICTIONS, rows
from test_run_squad import LENGTHS, write_squad
import tiny

from bertlib.data import record_files
from bertlib.reports import charts
from bertlib.runs import learning_curve

_again = pytest.mark.slow(reason="two more runs for what the classifier shows")
_long = pytest.mark.soak(reason="two more runs for what the classifier, SQuAD and pre-training show")
NAMES = ["classifier", *(pytest.param(name, marks=_again) for name in ("squad", "pretraining")),
         *(pytest.param(name, marks=_long) for name in ("ner", "hub"))]
SCRIPTS = {"classifier": "run_classifier.py", "hub": "run_classifier_with_tfhub.py", "squad": "run_squad.py",
           "ner": "run_ner.py", "pretraining": "run_pretraining.py"}
# {name: (names of the metrics in the picture, value that the picture shows as 100 %)}.
SHOWN = {"classifier": ({"eval_f1": "F1", "eval_accuracy": "accuracy"}, 1),
         "hub": ({"eval_f1": "F1", "eval_accuracy": "accuracy"}, 1),
         "squad": ({"f1": "F1", "exact": "exact match"}, 100),
         "ner": ({"eval_f1": "F1", "eval_precision": "precision", "eval_recall": "recall"}, 1),
         "pretraining": ({"masked_lm_accuracy": "the model"}, 1)}


class Trainings:
    """Trainings of five steps that save a checkpoint every three steps. `flags` are those of each command."""

    def __init__(self, scripts, model, directory):
        self._scripts, self.directory = scripts, directory
        data = directory / "data"
        data.mkdir()
        mrpc = dict(task_name="mrpc", data_dir=tiny.write_task(data, "mrpc", train=20, dev=7),
                    num_train_epochs=1, eval_batch_size=3)
        chance = random.Random(5)
        squad = {f"{name}_file": write_squad(data / f"{name}.json", chance, size, version_2=True)
                 for name, size in (("train", 20), ("predict", 9))}
        sentences = {f"{name}_file": write_conll(data / f"{name}.conll", size)
                     for name, size in (("train", 20), ("dev", 9))}
        records = data / "text.tfrecord"
        record_files.write_records(str(records), FIELDS, rows(0, 20))
        module = hub_modules.write(model, directory / "module", config=model.shallow)
        self.flags = {
            "classifier": {**model.flags, **mrpc},
            "hub": dict(mrpc, bert_hub_module_handle=module, max_seq_length=tiny.SEQ_LENGTH),
            "squad": {**model.flags, **squad, **LENGTHS, "version_2_with_negative": True,
                      "num_train_epochs": 1},
            "ner": {**model.flags, **sentences, "num_train_epochs": 0.8},
            "pretraining": dict(max_seq_length=LENGTH, max_predictions_per_seq=PREDICTIONS,
                                num_train_steps=5, num_warmup_steps=1, input_file=records)}
        for name in ("classifier", "squad", "ner", "pretraining"):
            self.flags[name]["bert_config_file"] = model.shallow

    def command(self, name, output, **changes):
        """Returns (script, flags)."""
        flags = {"train_batch_size": 4, "learning_rate": 0.01, "save_checkpoints_steps": 3, "do_train": True,
                 "do_eval": True, "eval_each_checkpoint": True, **self.flags[name], "output_dir": output,
                 **changes}
        return SCRIPTS[name], *tiny.flags(**{key: value for key, value in flags.items() if value is not None})

    def start(self, name, output, **changes):
        return self._scripts.start(*self.command(name, output, **changes), cwd=self.directory)

    def run(self, name, output, **changes):
        """Runs a command, and returns `Finished`."""
        return self.start(name, output, **changes).wait()

    def finished(self, name, output, **changes):
        """Runs a command, which must succeed. Returns its output directory."""
        done = self.run(name, output, **changes)
        assert done.code == 0 and "Traceback" not in done.err, done.err
        return output


@pytest.fixture(scope="module")
def trainings(scripts, tiny_model, tmp_path_factory):
    return Trainings(scripts, tiny_model, tmp_path_factory.mktemp("trainings"))


@pytest.fixture(scope="module")
def outputs(trainings):
    """A function of a name that returns the directory of a finished training with a curve."""
    done = {}

    def output(name):
        if name not in done:
            done[name] = trainings.finished(name, trainings.directory / f"{name}_output")
        return done[name]
    return output


def table_of(output):
    with open(output / "learning_curve.tsv", encoding="utf-8", newline="") as reader:
        return list(csv.DictReader(reader, dialect="excel-tab"))


def results_of(output):
    """Returns the metrics that the last evaluation of a command wrote, {name: text}."""
    if not (output / "eval_results.txt").exists():
        found = json.loads((output / "eval_results.json").read_text())
        return {key: str(value) for key, value in found.items()}
    return dict(line.split(" = ") for line in (output / "eval_results.txt").read_text().splitlines())


def assert_same_weights(first, second, step=5):
    readers = [tf.train.load_checkpoint(str(output / f"model.ckpt-{step}")) for output in (first, second)]
    shapes = [reader.get_variable_to_shape_map() for reader in readers]
    assert shapes[0] == shapes[1] and "global_step" in shapes[0]
    for name in shapes[0]:
        np.testing.assert_array_equal(*(reader.get_tensor(name) for reader in readers), err_msg=name)


# --- The curve -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_curve_holds_the_metrics_of_each_checkpoint(name, outputs):
    output = outputs(name)
    table, final = table_of(output), results_of(output)
    assert [row["global_step"] for row in table] == ["0", "3", "5"]
    last = {key: value for key, value in table[-1].items() if value}
    if name == "squad":
        final["global_step"] = "5"
    assert last == {key: value for key, value in final.items() if key != "eval_confusion_matrix"}
    losses = {row["eval_loss" if name == "ner" else "loss"] for row in table if name != "squad"}
    assert len(losses) == (0 if name == "squad" else 3)

    root = xml.etree.ElementTree.fromstring((output / "learning_curve.svg").read_text())
    lines = [line.get("points").split() for line in root.iter("{http://www.w3.org/2000/svg}polyline")]
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    shown, full_score = SHOWN[name]
    assert all(len(points) == 3 for points in lines) and len(lines) >= len(shown)
    for metric, label in shown.items():
        assert f"{label}: {100 / full_score * float(last[metric]):.1f} %" in texts


@pytest.mark.parametrize("name", ["classifier", *(
    pytest.param(name, marks=pytest.mark.soak(reason="one more run for what the classifier shows"))
    for name in ("squad", "pretraining", "ner", "hub"))])
def test_the_weights_are_those_of_a_training_without_it(name, trainings, outputs, tmp_path):
    without = tmp_path / "without"
    without.mkdir()
    for file in ("learning_curve.tsv", "learning_curve.svg"):  # of a training whose checkpoints were removed
        shutil.copy(outputs(name) / file, without)
    trainings.finished(name, without, eval_each_checkpoint=None, do_eval=None)
    assert not list(without.glob("learning_curve.*"))
    for step in (0, 3, 5):
        assert_same_weights(outputs(name), without, step)


@_again
@pytest.mark.parametrize("name, changes", [
    ("squad", dict(find_null_threshold=True)),
    pytest.param("classifier", dict(task_name="mnli", num_train_epochs=1, label_smoothing=0.1),
                 marks=pytest.mark.soak(reason="one more training; test_glue_tasks.py evaluates both sets")),
    pytest.param("classifier", dict(doc_stride=4, max_seq_length=12), marks=pytest.mark.soak(
        reason="one more training; test_long_texts.py evaluates windows"))],
                         ids=["threshold", "sets", "windows"])
def test_other_evaluations_have_a_curve(name, changes, trainings, tmp_path):
    if changes.get("task_name") == "mnli":
        changes = {**changes, "data_dir": tiny.write_task(tmp_path, "mnli", train=20, dev=6)}
        shutil.copy(tmp_path / "dev_matched.tsv", tmp_path / "dev_mismatched.tsv")
    output = trainings.finished(name, tmp_path / "output", **changes)
    final = results_of(output)
    assert len(table_of(output)) > 2
    for metric, value in table_of(output)[-1].items():
        assert metric == "global_step" or final[metric] == value


# --- The table -------------------------------------------------------------------------------------------


def curve_of(directory, shown, *results):
    """Adds evaluations to the curve in a directory, and returns the table. An evaluation is a dict."""
    for result in results:
        curve = learning_curve.LearningCurve(str(directory), lambda result=result: result, "title", shown)
        curve.after_save(None, result["global_step"])
    return (directory / "learning_curve.tsv").read_text()


def test_the_curve_of_a_resumed_run_goes_on(tmp_path):
    found = [{"global_step": step, "b": step / 10, "a": 0.5, "matrix": np.zeros([2, 2])}
             for step in (0, 3, 6, 3, 5)]
    assert curve_of(tmp_path, {"b": "B"}, *found) == (
        "a\tb\tglobal_step\n0.5\t0.0\t0\n0.5\t0.3\t3\n0.5\t0.5\t5\n")
    assert "B: 50.0 %" in (tmp_path / "learning_curve.svg").read_text()


def test_metrics_may_come_and_go(tmp_path):
    """For example, some entity types are predicted only at some steps, and equal numbers have no correlation.
    """
    found = [{"global_step": 0, "b": np.float32("nan")}, {"global_step": 3, "b": -0.25, "a": 1.0},
             {"global_step": 6, "b": 0.5, "c": 2}]
    assert curve_of(tmp_path, {"b": "B"}, *found) == (
        "a\tb\tc\tglobal_step\n\tnan\t\t0\n1.0\t-0.25\t\t3\n\t0.5\t2\t6\n")
    picture = (tmp_path / "learning_curve.svg").read_text()
    assert 'points="330.0,330.0 590.0,185.0"' in picture and "B: 50.0 %" in picture


@pytest.mark.parametrize("table", ["", "x\tglobal_step\n1\t2\n", "b\tglobal_step\nx\t1\n",
                                   "b\tglobal_step\n1\n", "b\tglobal_step\n1\t?\n"])
def test_rows_that_are_not_of_this_curve_are_left_out(tmp_path, table):
    (tmp_path / "learning_curve.tsv").write_text(table)
    assert curve_of(tmp_path, {"b": "B"}, {"global_step": 3, "b": 1.0}) == "b\tglobal_step\n1.0\t3\n"


def test_a_series_without_points_is_left_out_of_the_picture():
    assert charts.line_chart("title", {"x": []}).count("polyline") == 0


# --- Killed and started again ----------------------------------------------------------------------------


@pytest.mark.slow(reason="two trainings")
def test_what_a_killed_run_did_not_evaluate_is_evaluated_when_it_goes_on(trainings, outputs, tmp_path):
    whole, output = outputs("classifier"), tmp_path / "output"
    output.mkdir()
    for path in [*whole.glob("model.ckpt-[03].*"), whole / "run.json", whole / "vocab.txt"]:
        shutil.copy(path, output)
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    lines = (whole / "learning_curve.tsv").read_text().splitlines(keepends=True)
    (output / "learning_curve.tsv").write_text("".join(lines[:2]))  # only the row of step 0
    trainings.finished("classifier", output)
    assert (output / "learning_curve.tsv").read_text() == "".join(lines)
    assert_same_weights(whole, output)

    # The run was killed in its last evaluation, so no step has to be trained.
    (output / "learning_curve.tsv").write_text("".join(lines[:3]))
    trainings.finished("classifier", output)
    assert (output / "learning_curve.tsv").read_text() == "".join(lines)


@pytest.mark.soak(reason="three whole runs, for what the run that was cut back shows")
@pytest.mark.parametrize("name, number, code", [
    ("squad", signal.SIGKILL, -signal.SIGKILL),
    pytest.param("ner", signal.SIGTERM, 128 + signal.SIGTERM, marks=pytest.mark.soak(
        reason="four more runs; test_signals.py ends trainings by SIGTERM"))])
def test_ended_while_it_evaluates_and_started_again_the_curve_is_the_same(name, number, code, trainings,
                                                                          tmp_path):
    changes = dict(num_train_epochs=4, save_checkpoints_steps=1)
    whole = trainings.finished(name, tmp_path / "whole", **changes)
    table = tmp_path / "parts" / "learning_curve.tsv"
    for count in (3, 9):
        running = trainings.start(name, tmp_path / "parts", **changes)
        while ((not table.exists() or len(table.read_text().splitlines()) < count)
               and os.path.exists(f"/proc/{running.pid}")):
            pass
        os.kill(running.pid, number)
        assert running.wait().code == code
    parts = trainings.finished(name, tmp_path / "parts", **changes)
    for file in ("learning_curve.tsv", "learning_curve.svg"):
        assert (whole / file).read_text() == (parts / file).read_text()
    assert_same_weights(whole, parts, table_of(whole)[-1]["global_step"])


# --- Replicas --------------------------------------------------------------------------------------------


@pytest.mark.soak(reason="a launcher with two interpreters; test_replicas_train.py evaluates so, too")
@pytest.mark.parametrize("name", ["classifier", *(
    pytest.param(name, marks=pytest.mark.soak(reason="three more runs for what the classifier shows"))
    for name in ("squad", "ner", "pretraining"))])
def test_two_replicas_have_the_curve_of_one_process(name, trainings, tmp_path):
    outputs = [trainings.finished(name, tmp_path / key, **{key: 2})
               for key in ("num_replicas", "gradient_accumulation_steps")]
    assert table_of(outputs[0]) == table_of(outputs[1])
    assert_same_weights(*outputs)
    # The replicas are started again. They share the evaluation of the missing checkpoint.
    table = outputs[0] / "learning_curve.tsv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    trainings.finished(name, outputs[0], num_replicas=2)
    assert table.read_text() == "".join(lines)


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, changes, complaint", [
    ("classifier", dict(do_train=False), "--eval_each_checkpoint=true needs --do_train=true: "),
    ("pretraining", dict(do_train=False), "--eval_each_checkpoint=true needs --do_train=true: "),
    ("classifier", dict(do_eval=None), "--eval_each_checkpoint=true needs --do_eval=true: "),
    ("hub", dict(do_eval=None), "--eval_each_checkpoint=true needs --do_eval=true: "),
    ("squad", dict(do_eval=None, do_predict=True), "--eval_each_checkpoint=true needs --do_eval=true: "),
    ("ner", dict(do_eval=None), "Pass --do_eval=true, or leave --eval_each_checkpoint out."),
    ("squad", dict(predict_file="output/learning_curve.tsv"),
     "would overwrite output/learning_curve.tsv, which --predict_file reads")], ids=str)
def test_what_cannot_be_is_refused_before_anything_is_written(name, changes, complaint, trainings, scripts,
                                                              tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "learning_curve.tsv").write_text("{}")
    refused = scripts.run(*trainings.command(name, "output", **changes), cwd=tmp_path)
    assert refused.code == 1 and complaint in refused.err and "Traceback" not in refused.err, refused.err
    assert [path.name for path in (tmp_path / "output").iterdir()] == ["learning_curve.tsv"]
    assert (tmp_path / "output" / "learning_curve.tsv").read_text() == "{}"
