"""Steps that the tests of several promises share."""

import json

from outputs import different_tensors, history, results
from scripts import ROOT

KILL_MOMENT = "step 4/"  # after the checkpoint of step 3
EVALUATION = "Weights for "  # the training has ended
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
