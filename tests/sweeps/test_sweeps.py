"""Sweeps: grids, samples, statistics, and the loop over the runs. A fake command replaces the trainings."""

import csv
import fcntl
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from helpers import read_json, write_json
import model_directories
import numpy as np
import pytest

from bertlib.api import child_command
from bertlib.output_directory import best_weights, output_files
from bertlib.sweeps import child_jobs, grid, run_rows, sweep_directory, sweep_loop
from bertlib.system import child_processes, gpu_libraries

ROOT = pathlib.Path(__file__).resolve().parents[2]

RECORD = json.dumps(model_directories.record(["0", "1"]))
# A fake training command: its accuracy is the flag "a". With a=0.3 it fails (without a message, if the file
# `silent` exists), with a=0.2 it predicts only one of two classes, and with a=0.1 it diverges. It adds a line
# to the file `starts`. While the file `wait` exists, it does not end.
COMMAND = f"""
RECORD = {RECORD!r}
""" + """
import hashlib, json, os, pathlib, sys, time
flags = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
output = pathlib.Path(flags["output_dir"])
output.mkdir(parents=True, exist_ok=True)
with open("starts", "a") as starts:
    starts.write(f"{flags['a']} {os.getpid()}\\n")
(output / "model.ckpt-1.index").write_text("weights")
while os.path.exists("wait") and flags["a"] == "0.7":
    time.sleep(0.02)
if flags["a"] == "0.3":
    sys.exit(4 if os.path.exists("silent") else "train.py: error: no such file")
if flags["a"] == "0.1":
    pathlib.Path(os.environ["BERT_OUTCOME_FILE"]).write_text(json.dumps({
        "outcome": "diverged", "exit_code": 1, "message": "Der Verlust von Schritt 3 ist keine Zahl."}))
    sys.exit(1)
matrix = [[3, 0], [2, 0]] if flags["a"] == "0.2" else [[3, 0], [1, 1]]
if os.path.exists("data"):
    content = hashlib.blake2b(digest_size=16)
    data = pathlib.Path("data").read_bytes()
    content.update(f"{len(data)}\\n".encode() + data)
    write_json(output / "run.json", {
        **json.loads(RECORD),
        "inputs": {os.path.abspath("data"): {"bytes": len(data), "fingerprint": content.hexdigest()}},
        **(json.loads(pathlib.Path("vocabulary").read_text()) if os.path.exists("vocabulary") else {})})
results = {"eval_accuracy": float(flags["a"]), "eval_loss": 1 - float(flags["a"]),
           "eval_confusion_matrix": matrix}
write_json(output / "eval_results.json", results)
"""
# Runs a sweep of this command: python driver.py JOBS VALUE...
DRIVER = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
sys.path[:0] = [{str(ROOT / "tests" / "sweeps")!r}, {str(ROOT / "tests")!r}]
import test_sweeps
sys.exit(test_sweeps.sweep(sys.argv[2:], jobs=int(sys.argv[1])))
"""


def runs_of(values):
    return grid.list_runs(grid.parse([f"a={','.join(values)}"], lambda name, text: text))


def sweep(values, jobs=1, metric="eval_accuracy", keep="best", **base):
    """Runs a sweep in the working directory. Returns the number of failed runs."""
    child_command.command_line = lambda script: [sys.executable, "command.py"]
    return sweep_loop.run(
        sweep_loop.Sweep("train.py", [], metric, keep, [child_jobs.Slot()] * jobs),
        sweep_directory.SweepDirectory("sweep", "train.py", base), runs_of(values))


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "command.py").write_text(COMMAND)
    (tmp_path / "driver.py").write_text(DRIVER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child_command, "command_line", None)  # so that the change by `sweep` is undone
    return tmp_path


def table(directory):
    with open(directory / "sweep" / "sweep.csv", newline="") as file:
        return {row["a"]: row for row in csv.DictReader(file)}


def starts(directory):
    return [line.split()[0] for line in (directory / "starts").read_text().splitlines()]


def weights(directory):
    return [path.parent.name for path in sorted(directory.glob("sweep/runs/*/*.index"))]


def test_each_run_has_a_row_and_only_the_best_keeps_its_weights(directory, caplog):
    with caplog.at_level("INFO", logger="absl"):
        assert sweep(["0.2", "0.3", "0.5", "0.9", "0.6"]) == 1
    assert re.search(r"a 0\.2: eval_accuracy 0\.2, rank \d of \d\. Degenerate: ", caplog.text)
    rows = table(directory)
    assert [rows[a]["status"] for a in ("0.2", "0.3", "0.5", "0.9")] == ["finished", "failed", "finished",
                                                                         "finished"]
    assert "no such file" in rows["0.3"]["message"] and "Degenerate" in rows["0.2"]["message"]
    assert rows["0.9"]["eval_accuracy"] == "0.9" and rows["0.5"]["message"] == ""
    assert rows["0.5"]["directory"] == os.path.join("sweep", "runs", "a=0.5")
    assert weights(directory) == ["a=0.3", "a=0.9"]  # a failed run will continue from its weights
    assert all((directory / row["directory"] / "eval_results.json").exists()
               for row in rows.values() if row["status"] == "finished")
    page = (directory / "sweep" / "sweep.html").read_text()
    for heading in ("Metric against each setting", "Expected best of k runs", "degenerate runs"):
        assert heading in page
    assert "no such file" in page and "<script" not in page

    # The same command repeats only the failed run; another grid adds its runs.
    (directory / "silent").touch()
    assert sweep(["0.2", "0.3", "0.5", "0.9", "0.6"]) == 1 and starts(directory)[5:] == ["0.3"]
    assert table(directory)["0.3"]["message"] == "The process ended with the exit code 4."
    assert sweep(["0.5", "0.95"], jobs=2) == 0 and starts(directory)[6:] == ["0.95"]
    assert list(table(directory)) == ["0.2", "0.3", "0.5", "0.9", "0.6", "0.95"]
    assert weights(directory) == ["a=0.3", "a=0.95"]
    # With another metric, no run is repeated.
    assert sweep(["0.5", "0.95"], metric="eval_loss") == 0 and len(starts(directory)) == 7
    page = (directory / "sweep" / "sweep.html").read_bytes()
    with pytest.raises(ValueError, match="eval_f1.*eval_accuracy, eval_loss"):
        sweep(["0.5"], metric="eval_f1")
    assert weights(directory) == ["a=0.3", "a=0.95"]
    assert (directory / "sweep" / "sweep.html").read_bytes() == page
    with pytest.raises(ValueError, match=r"--data_dir: not given -> /.*/b\."):
        sweep(["0.5"], data_dir="b")


def test_a_run_that_diverged_is_known_by_its_outcome_and_not_by_its_message(directory):
    for _ in range(2):  # the run is not repeated
        assert sweep(["0.1", "0.5"]) == 0 and starts(directory) == ["0.1", "0.5"]
        row = table(directory)["0.1"]
        assert (row["status"], row["message"]) == ("diverged", "Der Verlust von Schritt 3 ist keine Zahl.")


@pytest.mark.parametrize("results, status, message", [
    ({"m": None}, "diverged", "m is not a finite number."), (None, "failed", "wrote no eval_results.json"),
    ({"m": 0.3, "eval_confusion_matrix": [[1, 4], [3, 2]]}, "finished", "3 of 10 predictions are right"),
    ({"m": 0.9, "eval_confusion_matrix": [[5, 0], [1, 4]]}, "finished", "")])
def test_the_results_of_a_run_decide_its_status(results, status, message):
    row = run_rows.Row({})
    run_rows.of_ended_run(row, child_processes.Outcome("finished", 0, ""), results, "m")
    assert row.status == status and message in row.message and bool(message) == bool(row.message)


@pytest.mark.parametrize("value", ["/data/" + "好" * 80 + "/train.tsv", "é" * 149])
def test_a_long_value_in_any_script_is_the_name_of_a_directory(value):
    first, second = (grid.make_run({"train_file": text}).name for text in (f"{value}a", f"{value}b"))
    assert first != second
    for name in (first, second):
        assert len(f"{name}.json.partial".encode()) <= 255 and name.encode().decode() == name
    # The names of other runs are those of earlier versions.
    assert grid.make_run({"b": "好" * 40, "a": "1"}).name == "a=1.b=" + "好" * 40


def test_runs_with_another_vocabulary_are_not_compared(directory):
    (directory / "data").write_text("one")
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("[UNK]\na\n")
    write_json(directory / "vocabulary", {
        "files": {"vocab_file": str(vocabulary)}, "vocabulary": output_files.hash_vocabulary(vocabulary)})
    assert sweep(["0.5"]) == 0
    assert sweep(["0.5", "0.6"]) == 0
    vocabulary.write_text("[UNK]\nb\n")
    with pytest.raises(ValueError, match=r"vocab.txt was changed after sweep/runs/a=0.5 was trained: its "):
        sweep(["0.5", "0.7"])
    assert starts(directory) == ["0.5", "0.6"]


RECORD = {"settings": {}, "files": {"task_module": "/my_task.py"},
          "task_module": {"name": "my_task.py", "fingerprint": "m", "texts": 1},
          "train_data": {"examples": 3, "fingerprint": "t"}, "dev_data": {"examples": 2, "fingerprint": "d"}}


@pytest.mark.parametrize("changes, said", [
    ({"train_data": {"examples": 3, "fingerprint": "x"}}, "The training data was changed during the sweep"),
    ({"dev_data": {"examples": 2, "fingerprint": "x"}}, "The development data was changed during the sweep"),
    ({"task_module": {"name": "my_task.py", "fingerprint": "x", "texts": 1}}, "/my_task.py was changed"),
    # These runs read other data on purpose.
    ({"train_data": {"examples": 1, "fingerprint": "x"}, "settings": {"max_train_examples": 1}}, None),
    ({"task_module": {"name": "b.py", "fingerprint": "x", "texts": 1}, "files": {"task_module": "/b.py"},
      "train_data": {"examples": 3, "fingerprint": "x"}}, None)])
def test_runs_with_other_examples_or_another_module_are_not_compared(directory, changes, said):
    (directory / "data").write_text("one")
    for values, record in ((["0.5"], RECORD), (["0.5", "0.6"], {**RECORD, **changes})):
        write_json(directory / "vocabulary", record)
        failed = sweep(values)
    row = table(directory)["0.6"]
    assert (failed, row["status"]) == ((1, "failed") if said else (0, "finished"))
    assert (said or "") in row["message"]


def test_runs_with_other_data_are_not_compared(directory):
    data = directory / "data"
    data.write_text("one")
    assert sweep(["0.5"]) == 0
    data.write_text("another")
    with pytest.raises(ValueError, match=r"data was changed after sweep/runs/a=0.5 .* and is \w+ now"):
        sweep(["0.5", "0.6"])
    assert list(table(directory)) == ["0.5"] and starts(directory) == ["0.5"]
    assert read_json(directory / "sweep" / "sweep.json")["runs"] == [{"a": "0.5"}]
    assert sweep(["0.5"]) == 0  # the run is complete

    # The data file changes while the sweep waits for a run.
    data.write_text("one")
    (directory / "wait").touch()
    with subprocess.Popen([sys.executable, "driver.py", "1", "0.7", "0.8"], cwd=directory) as process:
        wait_for(lambda: starts(directory)[-1] == "0.7")
        data.write_text("another")
        (directory / "wait").unlink()
        assert process.wait() == 2
    rows = table(directory)
    assert [rows[a]["status"] for a in ("0.5", "0.7", "0.8")] == ["finished", "failed", "failed"]
    assert "was changed during the sweep: sweep/runs/a=0.5 and sweep/runs/a=0.8" in rows["0.8"]["message"]
    data.write_text("one")
    with pytest.raises(ValueError, match="remove the output directory of the run that has read"):
        sweep(["0.8"])
    for name in ("a=0.7", "a=0.8"):
        shutil.rmtree(directory / "sweep" / "runs" / name)
    assert sweep(["0.7", "0.8"]) == 0

    # A finished run whose directory was removed is no longer in the table.
    shutil.rmtree(directory / "sweep" / "runs" / "a=0.5")
    assert sweep(["0.7"]) == 0 and list(table(directory)) == ["0.7", "0.8"]


def test_relative_paths_of_another_directory_are_another_command(directory, monkeypatch):
    assert sweep(["0.5"], data_dir="data", init_checkpoint="hf:bert") == 0
    path = os.path.abspath("sweep")
    (directory / "other").mkdir()
    monkeypatch.chdir(directory / "other")
    with pytest.raises(ValueError, match=rf"--data_dir: {directory}/data -> {directory}/other/data"):
        sweep_directory.SweepDirectory(path, "train.py", {"data_dir": "data", "init_checkpoint": "hf:bert"})
    sweep_directory.SweepDirectory(path, "train.py", {"data_dir": f"{directory}/data",
                                                      "init_checkpoint": "hf:bert"})


def test_each_job_has_its_own_gpu(directory, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "missing_libraries", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab,5")
    slots = child_jobs.divide_machine(2)
    assert [slot.gpu for slot in slots] == ["3", "GPU-ab"]
    assert [slot.gpu for slot in child_jobs.divide_machine(1)] == [None]
    with pytest.raises(ValueError, match="--jobs=4: each job needs a GPU, but this machine has 3"):
        child_jobs.divide_machine(4)

    # Each of four children waits until another one runs, and writes its GPU.
    program = ("import os, pathlib, time; gpu = os.environ['CUDA_VISIBLE_DEVICES']\n"
               "mark = pathlib.Path('running ' + gpu); mark.touch(exist_ok=False)\n"
               "time.sleep(0.2); mark.unlink(); print(gpu)")
    with child_jobs.no_other_children("lock") as descriptor:
        ends = list(child_jobs.run_all(
            range(4), lambda key: ([sys.executable, "-c", program], f"log {key}"), slots, descriptor))
    assert sorted(key for key, _, _ in ends) == [0, 1, 2, 3]
    assert {child.outcome[0] for _, child, _ in ends} == {"finished"}
    gpus = [(directory / f"log {key}").read_text().strip() for key in range(4)]
    assert gpus[:2] == ["3", "GPU-ab"] and set(gpus) == {"3", "GPU-ab"}


def test_the_weights_of_the_best_run_that_has_weights_are_kept(directory, caplog):
    assert sweep(["0.9"], keep="none") == 0 and weights(directory) == []
    assert sweep(["0.9", "0.5", "0.6", "0.4"]) == 0 and weights(directory) == ["a=0.6"]
    assert [record.message for record in caplog.records if "no checkpoint" in record.message][-1] == (
        "sweep/runs/a=0.9 is the best run by eval_accuracy, but it has no checkpoint. The checkpoints of "
        "sweep/runs/a=0.6 are kept.")


def wait_for(condition, seconds=60):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_sweep_goes_on_and_its_children_end(directory):
    (directory / "wait").touch()
    command = [sys.executable, "driver.py", "2", "0.5", "0.7", "0.9"]
    with subprocess.Popen(command, cwd=directory) as process:
        # Two runs have ended, and a third one waits.
        wait_for(lambda: (directory / "sweep" / "sweep.csv").exists() and len(table(directory)) == 2)
        child, = [int(line.split()[1]) for line in (directory / "starts").read_text().splitlines()
                  if line.startswith("0.7")]
        second = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        assert second.returncode == 1 and "is in use" in second.stderr
        assert alive(child)
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not alive(child))
    (directory / "wait").unlink()
    assert sweep(["0.5", "0.7", "0.9"]) == 0
    assert starts(directory).count("0.7") == 2 and len(starts(directory)) == 4
    assert {row["status"] for row in table(directory).values()} == {"finished"}
    assert read_json(directory / "sweep" / "sweep.json")["runs"] == [
        {"a": "0.5"}, {"a": "0.7"}, {"a": "0.9"}]


def test_a_sweep_waits_for_the_runs_of_an_earlier_one(directory, caplog):
    with open("lock", "w") as earlier:
        fcntl.flock(earlier, fcntl.LOCK_EX)
        threading.Timer(0.2, earlier.close).start()
        with caplog.at_level("INFO"), child_jobs.no_other_children("lock"):
            assert caplog.text.count("Waiting for runs of an earlier sweep") == 1
    assert not os.path.exists("lock")


# --- Grids and statistics --------------------------------------------------------------------------------


@pytest.mark.parametrize("texts, message", [
    ([], "--grid is missing"), (["a"], "write the name of a flag"), (["a=1,,2"], "a value is empty"),
    (["a=1,2,1"], "the value 1 occurs twice"),
    (["a=1", "a=2"], "already lists values of a"), (["b=1"], "no flag b")])
def test_grids_that_cannot_be(texts, message):
    def parse_value(name, text):
        if name != "a":
            raise ValueError(f"no flag {name}")
        return text

    with pytest.raises(ValueError, match=message):
        grid.parse(texts, parse_value)


def names(number, seed=0, **changed):
    values = {"a": list("123456"), "b": list("78"), **changed}
    return {run.name for run in grid.list_runs(values, number, sample_seed=seed)}


def test_samples_depend_on_the_content_of_the_grid_and_the_seed():
    assert len(names(5)) == 5 and names(5) == names(5) == names(5, a=list("654321"), b=list("87"))
    assert {run.name for run in grid.list_runs({"b": list("78"), "a": list("123456")}, 5)} == names(5)
    assert names(5) != names(5, seed=1) and names(5) < names(7) and names(12) == names(None)
    with pytest.raises(ValueError, match="only 12 runs"):
        names(13)
    with pytest.raises(ValueError, match="12,000 runs"):
        names(2, c=list(map(str, range(1000))))


@pytest.mark.parametrize("lower", [False, True])
def test_expected_best_is_the_mean_over_all_draws(lower):
    values = [0.3, 0.9, 0.5, 0.5]
    best = min if lower else max
    for count, expected in enumerate(run_rows.expected_best(values, lower), 1):
        draws = itertools.product(values, repeat=count)
        assert expected == pytest.approx(np.mean([best(draw) for draw in draws]))


def test_equal_values_have_the_same_rank():
    rows = [run_rows.Row({}, run_rows.DONE, {"m": value}) for value in (0.5, 0.7, 0.5, None, 0.4)]
    ranked = run_rows.by_rank(rows, "m")
    assert run_rows.ranks(ranked, "m") == {0.7: 1, 0.5: 2, 0.4: 4}


@pytest.mark.parametrize("metric, is_lower", [
    ("loss", True), ("perplexity", True), ("eval_rmse", True), ("f1", False), ("eval_lossless", False),
    ("eval_recall_loss", False)])
def test_of_losses_and_errors_the_lower_value_is_better(metric, is_lower):
    assert best_weights.choose_best(metric, [(1, 0.5), (2, 0.25)]) == ((2, 0.25) if is_lower else (1, 0.5))
    rows = [run_rows.Row({}, run_rows.DONE, {metric: value}) for value in (0.5, 0.25)]
    assert (run_rows.by_rank(rows, metric)[0].value(metric) == 0.25) == is_lower
