"""Promises that the fast tests keep on all rows."""

import fnmatch
import itertools
import json
import os
import re
import statistics

from outputs import contents, different_tensors, history, record, results, scores, table
import promises
import pytest
from rows import STEPS
from runs import add_bad_line, assert_predicts_as_evaluated, assert_same_training
from seqeval import metrics as seqeval_metrics
from sklearn import metrics as sklearn_metrics
from test_flag_pairs import find_problem

from bertlib.runs import registry


@promises.of(promises.ALL)
def test_fresh_run(row, trained):
    """A training ends with exit code 0 and writes all its files."""
    done, output = trained.finished, trained.output
    assert "Traceback" not in done.err and not done.out
    if row.name == "task of a user":
        assert (output / "labels.txt").exists() and (output / "test_predictions.csv").exists()
    else:
        assert find_problem(row.script, done, row.training_flags(), trained.directory) is None
    assert all(path.stat().st_size for path in output.glob("*.*"))
    assert not list(output.rglob("*.partial*")) and not list(output.rglob("*.lock"))
    values = scores(output, row)
    assert values["global_step"] == STEPS and row.metric in values


@promises.of(promises.ALL)
def test_second_run(row, trained, copy):
    """The same command again trains nothing and writes the same results."""
    before = record(copy.output)
    done = copy.train()
    assert done.code == 0 and "Nothing to train" in done.err, done.err
    assert f"step 1/{STEPS}" not in done.err
    assert results(copy.output) == results(trained.output)
    assert different_tensors(copy.output, trained.output) == []
    after = record(copy.output)
    assert {name: value for name, value in before.items() if value != after[name]} == {}


@promises.of(promises.ALL)
def test_record(row, trained):
    """run.json and metrics.jsonl describe the whole training."""
    found = record(trained.output)
    assert found["command"] == os.path.basename(row.script)
    assert found["from_step"] == 0 and found["changes"] == []
    assert found["planned_steps"] == found["finished_step"] == STEPS
    given = row.training_flags(do_train=None, do_eval=None, do_predict=None)
    written = {**found["flags"], **{name: value for name, value in found["settings"].items()
                                    if value is not None}}
    assert {name: value for name, value in given.items() if written.get(name) != value} == {}
    assert set(given) <= set(found["flags"])
    # tests/data/capabilities.json has the class of each flag.
    recorded = {entry.name for entry in registry.find_flags(row.script.removesuffix(".py"))
                if entry.is_recorded or entry.category in ("input", "task", "weights") and not entry.is_path}
    assert recorded - set(found["settings"]) == {"task_name", "task_type", "do_lower_case"} & recorded
    assert found["train_data"]["fingerprint"] and found["code"] and found["versions"]["tensorflow"]
    assert isinstance(found["environment"]["gpus"], list)
    if row.name == "hub module":
        assert any(path.endswith("module/variables/variables.index") for path in found["inputs"])
    else:
        assert found["init_checkpoint"]["fingerprint"]
    steps = [line["step"] for line in history(trained.output) if "evaluation" not in line]
    assert steps == list(range(1, STEPS + 1))
    evaluations = [line for line in history(trained.output) if line.get("evaluation") == "dev"]
    assert [line["step"] for line in evaluations] == [STEPS]
    known = registry.find_target(found["task_type"]).known_metrics
    unknown = {name for name in evaluations[0] if not any(fnmatch.fnmatchcase(name, one) for one in known)}
    assert found["task_module"] or unknown <= {"step", "evaluation", "time", "eval_confusion_matrix"}
    assert evaluations[0][row.metric] == pytest.approx(scores(trained.output, row)[row.metric])


def _accuracy(rows):
    true, answers = zip(*((line["label"], line["prediction"]) for line in rows))
    return {"eval_accuracy": sklearn_metrics.accuracy_score(true, answers)}


def _classification(rows):
    true, answers = zip(*((line["label"], line["prediction"]) for line in rows))
    labels = [name.removeprefix("probability_") for name in rows[0] if name.startswith("probability_")]
    return {**_accuracy(rows),
            "eval_confusion_matrix": sklearn_metrics.confusion_matrix(true, answers, labels=labels)}


def _multilabel(rows):
    true, answers = ([[name in line[column].split(",") for name in ("loud", "pets")] for line in rows]
                     for column in ("label", "prediction"))
    areas = {f"eval_auc_{name}": sklearn_metrics.roc_auc_score(
        [line[index] for line in true], [float(line[f"probability_{name}"]) for line in rows])
        for index, name in enumerate(("loud", "pets"))}
    return {f"eval_f1_{average}": sklearn_metrics.f1_score(true, answers, average=average, zero_division=0)
            for average in ("micro", "macro")} | areas


def _regression(rows):
    true, answers = ([float(line[name]) for line in rows] for name in ("label", "prediction"))
    return {"eval_mae": sklearn_metrics.mean_absolute_error(true, answers),
            "eval_pearson": statistics.correlation(true, answers)}


def _tagging(rows):
    true, answers = ([[line[name] for line in words] for _, words in itertools.groupby(
        rows, lambda line: line["sentence"])] for name in ("label", "prediction"))
    return {"eval_f1": seqeval_metrics.f1_score(true, answers, zero_division=0)}


def _squad(rows):
    exact = [_normalize(line["label"].split("\n")[0]) == _normalize(line["prediction"]) for line in rows]
    return {"exact": 100 * sum(exact) / len(exact)}


def _normalize(text):
    words = re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[^\w\s]", "", text.lower())).split()
    return " ".join(words)


SCORES = {"classification": _classification, "multilabel": _multilabel, "regression": _regression,
          "tagging": _tagging, "questions": _squad, "multiple_choice": _accuracy}


@promises.of(promises.ALL, {"pre-training": "it writes no table of predictions"})
def test_scores(row, trained):
    """The scores are those of the table of predictions, by an independent library."""
    expected = SCORES[row.task](table(trained.output / "eval_predictions.csv"))
    values = {**json.loads((trained.output / "eval_results.json").read_text()), **scores(trained.output, row)}
    values["exact"] = values.get("exact", values.get("exact_match"))
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, abs=1e-5), name


@promises.of(promises.ALL, promises.NOT_ANSWERED)
def test_prediction(copy):
    """predict.py answers as the evaluation did."""
    assert_predicts_as_evaluated(copy, copy)


@promises.of(promises.ALL)
def test_killed_at_a_checkpoint(row, trained, tmp_path):
    """A training that is killed after its first checkpoint continues to the same bits."""
    killed = trained.killed.copy(tmp_path / "killed")
    assert {path.name for path in killed.output.glob("model.ckpt-*.index")} == {
        "model.ckpt-0.index", "model.ckpt-3.index"}
    done = killed.train(do_eval=False, do_predict=False)
    assert done.code == 0 and f"step 1/{STEPS}" not in done.err, done.err
    assert_same_training(killed, trained)


@promises.of(promises.ALL, promises.NO_ROWS | promises.NO_FILE)
def test_bad_line(row, untrained):
    """A bad line is refused with file and line, before anything is written."""
    place = row.train_file
    if row.task == "questions":
        path = untrained.directory / place
        data = json.loads(path.read_text())
        del data["data"][0]["paragraphs"][2]["qas"][0]["question"]
        path.write_text(json.dumps(data))
    else:
        place += f":{add_bad_line(row, untrained)}"
    refused = untrained.train()
    assert refused.code == 1 and "Traceback" not in refused.err, refused.err
    assert place in refused.err.split("error: ", 1)[1], refused.err
    assert not untrained.output.exists() or not list(untrained.output.iterdir())


@promises.of(promises.ALL, {"hub module": "the vocabulary is a part of the module"})
def test_another_vocabulary(row, copy):
    """A trained directory refuses another vocabulary."""
    path = copy.directory / "model" / "vocab.txt"
    path.write_bytes(path.read_bytes().replace(b"cat\n", b"cut\n"))
    before = contents(copy.output)
    refused = copy.train()
    assert refused.code == 1 and re.search(r"error: .*vocabulary", refused.err), refused.err
    assert str(path) in refused.err or "model/vocab.txt" in refused.err
    assert contents(copy.output) == before
