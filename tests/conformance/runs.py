"""Steps that the tests of several promises share."""

import json

from outputs import different_tensors, history, results, table
import pytest
from scripts import ROOT

KILL_MOMENT = "step 4/"  # after the checkpoint of step 3
EVALUATION = "Weights for "  # the training has ended
# A training with evaluations of the steps 0, 4 and 8.
EACH_CHECKPOINT = dict(eval_each_checkpoint=True, save_checkpoints_steps=4, do_predict=False)
_VOLATILE = {"time", "steps_per_second", "examples_per_second", "peak_memory_gb"}


def interrupt(workspace, moment, name="SIGKILL", **changes):
    """Starts the training, which gets a signal at a moment of its log (see inside.py). Returns `Finished`."""
    row = workspace.row
    return workspace.run("tests/conformance/inside.py", moment, name, ROOT / row.script,
                         **row.training_flags(**changes))


def assert_same_run(workspace, trained):
    """Asserts that two finished runs have the same bits, results and history."""
    assert different_tensors(workspace.output, trained.output) == []
    assert results(workspace.output) == results(trained.output)
    assert _history(workspace) == _history(trained)


def assert_same_training(workspace, trained):
    """Asserts that a finished training has the bits and the history of a run that also evaluates."""
    assert different_tensors(workspace.output, trained.output) == []
    assert _history(workspace) == [line for line in _history(trained) if "evaluation" not in line]


def _history(workspace):
    return [{name: value for name, value in line.items() if name not in _VOLATILE}
            for line in history(workspace.output)]


def add_bad_line(row, workspace):
    """Adds a line that cannot be used to the training file, in a sentence of its own. Returns its number."""
    path = workspace.directory / row.train_file
    bad = {".conll": b"word NO-TAG\n\n", ".jsonl": b'{"text": 7, "tokens": 7}\n'}.get(
        path.suffix, b"only one field\n")
    place = 0 if path.suffix == ".conll" else 1
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:place], bad, *lines[place:]]))
    return place + 1


def write_inputs(row, workspace):
    """Returns the path of the development data as inputs of predict.py. Writes the file where this is needed.
    """
    if row.name == "task module":
        texts = [path.read_text() for path in sorted((workspace.directory / "data" / "dev").iterdir())]
        (workspace.directory / "dev.txt").write_text("".join(f"{text}\n" for text in texts))
        return "dev.txt"
    if row.task == "questions":
        paragraphs = json.loads((workspace.directory / row.dev_file).read_text())["data"][0]["paragraphs"]
        (workspace.directory / "dev.jsonl").write_text("".join(json.dumps(
            {"question": paragraph["qas"][0]["question"], "context": paragraph["context"]}) + "\n"
            for paragraph in paragraphs))
        return "dev.jsonl"
    return row.dev_file


def predict(workspace, **flags):
    """Runs predict.py on the development data. Returns the objects of its lines."""
    done = workspace.run("predict.py", **{
        "input_file": write_inputs(workspace.row, workspace), "model_dir": "output", **flags})
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def _answers_of(row, lines):
    """Returns a list of (answer, numbers) of each example, from the lines that predict.py printed."""
    if row.task == "tagging":
        return [(tag, []) for line in lines for tag in line["tags"]]
    if row.task == "regression":
        return [(None, [line["score"]]) for line in lines]
    if row.task == "questions":
        return [(line["answer"], []) for line in lines]
    return [(sorted(line["labels"]) if "labels" in line else line["label"],
             [value for _, value in sorted(line["probabilities"].items())]) for line in lines]


def _evaluated(row, rows):
    """Returns the same list from the table of an evaluation."""
    if row.task == "regression":
        return [(None, [float(line["prediction"])]) for line in rows]
    if row.task in ("questions", "tagging"):
        return [(line["prediction"], []) for line in rows]
    columns = sorted(name for name in rows[0] if name.startswith("probability_"))
    return [(sorted(filter(None, line["prediction"].split(","))) if row.task == "multilabel"
             else line["prediction"], [float(line[name]) for name in columns]) for line in rows]


def assert_predicts_as_evaluated(workspace, trained, **flags):
    """Asserts that predict.py answers in `workspace` as the evaluation did in `trained`."""
    found = _answers_of(workspace.row, predict(workspace, **flags))
    expected = _evaluated(workspace.row, table(trained.output / "eval_predictions.csv"))
    assert [answer for answer, _ in found] == [answer for answer, _ in expected]
    for (_, numbers), (_, wanted) in zip(found, expected):
        assert numbers == pytest.approx(wanted, abs=2e-6)
