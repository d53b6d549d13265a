"""Directories of the last code that wrote run.json in format 1: they are evaluated, answer, and continue.

tests/data/format_1.tar.xz contains the workspaces of six rows of the table, trained by that code. The
training of the regression was stopped at its step 3; its folder `expected` has the results of the whole
training.
"""

import re
import tarfile

from helpers import ROOT, read_json
import pytest
from rows import ROWS, Workspace
import runs

from bertlib.runs import model_files, record_format, tokenizer_flags
from bertlib.runs.output_directory import OutputDirectory
import bertlib.tasks  # noqa: F401  registers the tasks, whose names are in the records

FOLDERS = {name.replace(" ", "_").replace(",", ""): ROWS[name] for name in (
    "one text", "regression", "SQuAD 2.0", "tagging, columns", "multiple choice", "pre-training")}
STOPPED = "regression"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    directory = tmp_path_factory.mktemp("format_1")
    with tarfile.open(ROOT / "tests" / "data" / "format_1.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.fixture
def workspace(unpacked, folder, scripts, tmp_path):
    return Workspace(FOLDERS[folder], scripts, unpacked / folder).copy(tmp_path / "work")


def numbers(path):
    """Returns {name: numbers} of a file with lines "name = value"."""
    pairs = (line.partition(" = ")[::2] for line in path.read_text().splitlines())
    return {name: [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)]
            for name, text in pairs}


def assert_same_results(found, expected):
    values = numbers(found)
    matrix = read_json(found.with_suffix(".json")).get("eval_confusion_matrix")
    if matrix:  # only the text files of format 1 have it, too
        values["eval_confusion_matrix"] = [float(number) for row in matrix for number in row]
    # Another processor rounds otherwise. Later versions have more metrics.
    wanted = numbers(expected)
    assert {name: values.get(name) for name in wanted} == {
        name: pytest.approx(values, rel=1e-4, abs=1e-4) for name, values in wanted.items()}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_the_record_becomes_one_of_format_2(unpacked, folder):
    output = unpacked / folder / "output"
    record = record_format.read_record(output)
    assert record["format"] == 2
    assert record["vocabulary"] == tokenizer_flags.hash_vocabulary(output / "vocab.txt")
    model_files.check_trained_vocabulary(OutputDirectory(str(output)))
    (output / "vocab.txt").rename(output / "moved.txt")
    try:
        assert record_format.read_record(output)["vocabulary"] != record["vocabulary"]
    finally:
        (output / "moved.txt").rename(output / "vocab.txt")


@pytest.mark.parametrize("folder", [
    pytest.param(folder, marks=() if folder == "one_text" else pytest.mark.slow(
        reason="four runs; the row with the best weights is fast"))
    for folder in sorted(set(FOLDERS) - {STOPPED})])
def test_it_is_evaluated_and_answers_and_is_exported(workspace, folder):
    before = {path: path.read_bytes() for path in workspace.output.rglob("*") if path.is_file()}
    row, name = workspace.row, "eval_results.txt"
    results = "eval_results.json" if folder == "SQuAD_2.0" else name
    done = workspace.train(do_train=False, do_predict=False, results_dir="results")
    assert done.code == 0, done.err
    if results == name:
        assert_same_results(workspace.directory / "results" / name, workspace.output / name)
    assert (workspace.directory / "results" / results).exists()
    assert {path: path.read_bytes() for path in before} == before
    again = workspace.train(do_eval=False, do_predict=False)
    assert again.code == 0 and "with changed settings" not in again.err, again.err
    masked = {"input_file": "masked.txt"} if row.task == "masked_words" else {}
    (workspace.directory / "masked.txt").write_text("the [MASK] sees a bird\n")
    assert all("error" not in answer for answer in runs.predict(workspace, **masked))
    exported = workspace.run("export.py", model_dir="output")
    assert exported.code == 0, exported.err


@pytest.mark.parametrize("folder", [STOPPED])
def test_a_stopped_training_continues(workspace):
    done = workspace.train()
    assert done.code == 0, done.err
    assert_same_results(workspace.output / "eval_results.txt",
                        workspace.directory / "expected" / "eval_results.txt")
    assert record_format.read_record(workspace.output)["finished_step"] == 8
