"""Sweeps: grids, samples, statistics, and the loop over the runs. A fake command replaces the trainings."""

import concurrent.futures
import csv
import fcntl
import itertools
import multiprocessing
import os
import re
import shutil
import sys
import threading

from helpers import is_running, read_json, wait_until, write_json
import model_directories
import numpy as np
import pytest

from bertlib.reports import sweep_directory, sweep_grid, sweep_loop, sweep_page, sweep_runs
from bertlib.runs import best_weights, tokenizer_flags
from bertlib.system import child_command, child_jobs, child_processes, gpu_libraries, locks

# A fake training command: its accuracy is the flag "a". With a=0.3 it fails (without a message, if the file
# `silent` exists), with a=0.2 it predicts only one of two classes, and with a=0.1 it diverges. With a=0.9,
# its recall is not defined. It adds a line to the file `starts`. While the file `wait` exists, it does not
# end. The file `record` is its run.json, to which it adds the fingerprint of the file `data`.
COMMAND = """
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
if os.path.exists("record"):
    data = pathlib.Path("data").read_bytes()
    content = hashlib.blake2b(f"{len(data)}\\n".encode() + data, digest_size=16)
    inputs = {os.path.abspath("data"): {"bytes": len(data), "fingerprint": content.hexdigest()}}
    record = json.loads(pathlib.Path("record").read_text())
    (output / "run.json").write_text(json.dumps({**record, "inputs": inputs}))
results = {"eval_accuracy": float(flags["a"]), "eval_loss": 1 - float(flags["a"]),
           "eval_recall": None if flags["a"] == "0.9" else 0.5,
           "eval_confusion_matrix": [[3, 0], [2, 0] if flags["a"] == "0.2" else [1, 1]]}
(output / "eval_results.json").write_text(json.dumps(results))
"""


def sweep(values, jobs=1, metric="eval_accuracy", keep="best"):
    """Runs a sweep in the working directory. Returns the number of failed runs."""
    runs = sweep_grid.list_runs(sweep_grid.parse([f"a={','.join(values)}"], lambda name, text: text), None, 0)
    return sweep_loop.run_sweep(
        sweep_loop.Sweep("train.py", [], metric, keep, [{}] * jobs),
        sweep_directory.SweepDirectory("sweep", "train.py", {}), runs)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "command.py").write_text(COMMAND)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(child_command, "command_line", lambda script: [sys.executable, "-S", "command.py"])
    return tmp_path


@pytest.fixture
def data(directory):
    """The file `data`. Each run has a run.json, which is a copy of the file `record`."""
    write_json(directory / "record", model_directories.record(["0", "1"]))
    (directory / "data").write_text("one")
    return directory / "data"


def table(directory):
    with open(directory / "sweep" / "sweep.csv", newline="") as file:
        return {row["a"]: row for row in csv.DictReader(file)}


def statuses(directory):
    return {a: row["status"] for a, row in table(directory).items()}


def starts(directory):
    return [line.split()[0] for line in (directory / "starts").read_text().splitlines()]


def weights(directory):
    return [path.parent.name for path in sorted(directory.glob("sweep/runs/*/*.index"))]


def test_each_run_has_a_row_and_only_the_best_keeps_its_weights(directory, caplog):
    values = ["0.2", "0.3", "0.1", "0.9", "0.6"]
    caplog.set_level("INFO", logger="absl")
    assert sweep(values) == 1
    assert re.search(r"a 0\.2: eval_accuracy 0\.2\. Degenerate: ", caplog.text)
    assert "The best run by eval_accuracy: sweep/runs/a=0.9." in caplog.text
    rows = table(directory)
    assert statuses(directory) == {
        "0.2": "finished", "0.3": "failed", "0.1": "diverged", "0.9": "finished", "0.6": "finished"}
    assert "no such file" in rows["0.3"]["message"] and "Degenerate" in rows["0.2"]["message"]
    assert rows["0.1"]["message"] == "Der Verlust von Schritt 3 ist keine Zahl."
    assert [rows["0.9"][name] for name in ("eval_accuracy", "eval_loss", "message")] == ["0.9", "0.1", ""]
    assert rows["0.9"]["directory"] == os.path.join("sweep", "runs", "a=0.9")
    assert weights(directory) == ["a=0.3", "a=0.9"]  # a failed run will continue from its weights
    assert (directory / rows["0.6"]["directory"] / "eval_results.json").exists()
    page = (directory / "sweep" / "sweep.html").read_text()
    for heading in ("Metric against each setting", "Expected best of k runs", "degenerate runs"):
        assert heading in page
    assert "no such file" in page and "<script" not in page

    # The same command repeats only the failed run; another grid adds its runs.
    (directory / "silent").touch()
    assert sweep(values) == 1 and starts(directory)[5:] == ["0.3"]
    assert table(directory)["0.3"]["message"] == "The process ended with the exit code 4."
    assert sweep(["0.6", "0.95"], jobs=2) == 0 and starts(directory)[6:] == ["0.95"]
    assert list(table(directory)) == [*values, "0.95"]
    assert weights(directory) == ["a=0.3", "a=0.95"]
    # With another metric, no run is repeated.
    assert sweep(["0.6", "0.95"], metric="eval_loss") == 0 and len(starts(directory)) == 7
    page = (directory / "sweep" / "sweep.html").read_bytes()
    with pytest.raises(ValueError, match="eval_f1.*eval_accuracy, eval_loss"):
        sweep(["0.6"], metric="eval_f1")
    assert weights(directory) == ["a=0.3", "a=0.95"]
    assert (directory / "sweep" / "sweep.html").read_bytes() == page


@pytest.mark.parametrize("results, status, message", [
    ({"m": None}, "diverged", "m is not a finite number."), (None, "failed", "wrote no eval_results.json"),
    ({"m": 0.3, "eval_confusion_matrix": [[1, 4], [3, 2]]}, "finished", "3 of 10 predictions are right"),
    ({"m": 0.9, "eval_confusion_matrix": [[5, 0], [1, 4]]}, "finished", "")])
def test_the_results_of_a_run_decide_its_status(results, status, message):
    run = sweep_runs.Run({})
    sweep_runs.set_result(run, child_processes.Outcome("finished", 0, ""), results)
    run = run.judged_by("m")
    assert run.status == status and message in run.message and bool(message) == bool(run.message)


@pytest.mark.parametrize("value", ["/data/" + "好" * 80 + "/train.tsv", "é" * 149])
def test_a_long_value_in_any_script_is_the_name_of_a_directory(value):
    names = {sweep_runs.Run({"train_file": value + end}).name for end in "ab"}
    assert len(names) == 2 and all(len(f"{name}.json.partial".encode()) <= 255 for name in names)
    # The names of other runs are those of earlier versions.
    assert sweep_runs.Run({"b": "好" * 40, "a": "1"}).name == "a=1.b=" + "好" * 40


def test_runs_with_other_examples_another_module_or_another_vocabulary_are_not_compared(directory, data):
    module = {"name": "my_task.py", "fingerprint": "m", "texts": 1}
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("[UNK]\na\n")
    record = {**read_json(directory / "record"),
              "files": {"task_module": "/my_task.py", "vocab_file": str(vocabulary)}, "task_module": module,
              "vocabulary": tokenizer_flags.hash_vocabulary(vocabulary),
              "train_data": {"fingerprint": "t"}, "dev_data": {"fingerprint": "d"}}
    other, other_module = {"fingerprint": "x"}, {**module, "fingerprint": "x"}
    for value, changes, message in (
            ("0.5", {}, ""),
            ("0.51", {"train_data": other}, "The training data was changed during the sweep"),
            ("0.52", {"dev_data": other}, "The development data was changed during the sweep"),
            ("0.53", {"task_module": other_module}, "/my_task.py was changed"),
            # These runs read other data on purpose.
            ("0.54", {"train_data": other, "settings": {"max_train_examples": 1}}, ""),
            ("0.55", {"task_module": other_module, "train_data": other, "files": {"task_module": "/b.py"}},
             "")):
        write_json(directory / "record", {**record, **changes})
        assert sweep([value]) == bool(message)
        row = table(directory)[value]
        assert row["status"] == ("failed" if message else "finished") and message in row["message"]
        if message:
            shutil.rmtree(directory / row["directory"])
    vocabulary.write_text("[UNK]\nb\n")
    with pytest.raises(ValueError, match=r"vocab.txt was changed after sweep/runs/a=0.5 was trained: its "):
        sweep(["0.6"])
    assert starts(directory)[-1] == "0.55"


def test_runs_with_other_data_are_not_compared(directory, data):
    assert sweep(["0.5"]) == 0
    data.write_text("another")
    with pytest.raises(ValueError, match=r"data was changed after sweep/runs/a=0.5 .* and is \w+ now"):
        sweep(["0.5", "0.6"])
    assert starts(directory) == ["0.5"]
    stored = read_json(directory / "sweep" / "sweep.json")
    assert stored["runs"] == [{"a": "0.5"}] and stored["metric"] == "eval_accuracy"
    assert sweep(["0.5"]) == 0  # the run is complete

    # The data file changes while the sweep waits for a run.
    def change_data():
        wait_until(lambda: starts(directory)[-1] == "0.7")
        data.write_text("another")
        (directory / "wait").unlink()

    data.write_text("one")
    (directory / "wait").touch()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        changed = pool.submit(change_data)
        assert sweep(["0.7", "0.8"]) == 2
        changed.result()
    assert statuses(directory) == {"0.5": "finished", "0.7": "failed", "0.8": "failed"}
    assert ("was changed during the sweep: sweep/runs/a=0.5 and sweep/runs/a=0.8"
            in table(directory)["0.8"]["message"])
    data.write_text("one")
    with pytest.raises(ValueError, match="remove the output directory of the run that has read"):
        sweep(["0.8"])
    for name in ("a=0.7", "a=0.8"):
        shutil.rmtree(directory / "sweep" / "runs" / name)
    assert sweep(["0.7", "0.8"]) == 0

    # A finished run whose directory was removed is no longer in the table, and starts again.
    shutil.rmtree(directory / "sweep" / "runs" / "a=0.5")
    assert sweep(["0.7"]) == 0 and list(table(directory)) == ["0.7", "0.8"]
    assert sweep(["0.5", "0.7"]) == 0 and starts(directory)[-2:] == ["0.8", "0.5"]


def test_relative_paths_of_another_directory_are_another_command(directory, monkeypatch):
    def opened(**base):
        return sweep_directory.SweepDirectory(f"{directory}/sweep", "train.py",
                                              {"init_checkpoint": "hf:bert", **base})

    opened(data_dir="data").add([])
    (directory / "other").mkdir()
    monkeypatch.chdir(directory / "other")
    with pytest.raises(ValueError, match=rf"--data_dir: {directory}/data -> {directory}/other/data"):
        opened(data_dir="data")
    with pytest.raises(ValueError, match=rf"--data_dir: {directory}/data -> not given"):
        opened()
    opened(data_dir=f"{directory}/data")


def test_each_job_has_its_own_gpu(directory, monkeypatch):
    monkeypatch.setattr(gpu_libraries, "missing_libraries", list)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab,5")
    slots = child_jobs.divide_machine(2)
    assert slots == [{"CUDA_VISIBLE_DEVICES": "3"}, {"CUDA_VISIBLE_DEVICES": "GPU-ab"}]
    assert child_jobs.divide_machine(1) == [{}]
    with pytest.raises(ValueError, match="--jobs=4: each job needs a GPU, but this machine has 3"):
        child_jobs.divide_machine(4)

    # Each of four children waits until another one runs, and writes its GPU.
    program = ("import os, pathlib, time; gpu = os.environ['CUDA_VISIBLE_DEVICES']\n"
               "mark = pathlib.Path('running ' + gpu); mark.touch(exist_ok=False)\n"
               "time.sleep(0.2); mark.unlink(); print(gpu)")
    with child_jobs.no_other_children("lock") as descriptor:
        ends = list(child_jobs.run_all(
            range(4), lambda key: ([sys.executable, "-S", "-c", program], f"log {key}"), slots, descriptor))
    assert sorted(key for key, _, _ in ends) == [0, 1, 2, 3]
    assert {child.outcome[0] for _, child, _ in ends} == {"finished"}
    gpus = [(directory / f"log {key}").read_text().strip() for key in range(4)]
    assert gpus[:2] == ["3", "GPU-ab"] and set(gpus) == {"3", "GPU-ab"}


def test_runs_of_a_replaced_grid_are_named_and_not_waited_for(directory, caplog):
    caplog.set_level("INFO", logger="absl")
    assert sweep(["0.3", "0.5"]) == 1
    opened = sweep_directory.SweepDirectory("sweep")
    opened.add([*opened.runs, sweep_runs.Run({"a": "0.4"}), sweep_runs.Run({"a": "0.8"})])
    assert sweep(["0.6", "0.8"]) == 0
    assert ("An earlier --grid had other runs: 2 that have ended stay in the results, and 1 that have not "
            "ended are left out.") in caplog.text
    assert "<p class=\"summary\">4 of 4 runs have ended:" in (directory / "sweep" / "sweep.html").read_text()
    assert sorted(statuses(directory)) == ["0.3", "0.5", "0.6", "0.8"]


def test_another_metric_judges_the_same_runs(directory):
    assert sweep(["0.9", "0.6"], metric="eval_recall", keep="all") == 0
    assert statuses(directory) == {"0.9": "diverged", "0.6": "finished"}
    assert sweep(["0.9", "0.6"]) == 0 and len(starts(directory)) == 2
    assert statuses(directory) == {"0.9": "finished", "0.6": "finished"}
    assert {row["message"] for row in table(directory).values()} == {""}
    assert weights(directory) == ["a=0.9"]


def test_the_weights_of_the_best_run_that_has_weights_are_kept(directory, caplog):
    assert sweep(["0.9"], keep="none") == 0 and weights(directory) == []
    assert sweep(["0.9", "0.5", "0.6"]) == 0 and weights(directory) == ["a=0.6"]
    assert [record.message for record in caplog.records if "no checkpoint" in record.message][-1] == (
        "sweep/runs/a=0.9 is the best run by eval_accuracy, but it has no checkpoint. The checkpoints of "
        "sweep/runs/a=0.6 are kept.")


def test_a_killed_sweep_goes_on_and_its_children_end(directory):
    values = ["0.5", "0.7", "0.9"]
    (directory / "wait").touch()
    process = multiprocessing.get_context("fork").Process(target=sweep, args=(values, 2))
    process.start()
    # Two runs have ended, and a third one waits.
    wait_until(lambda: (directory / "sweep" / "sweep.csv").exists() and len(table(directory)) == 2
               and "0.7" in starts(directory))
    child, = [int(line.split()[1]) for line in (directory / "starts").read_text().splitlines()
              if line.startswith("0.7")]
    with pytest.raises(locks.InUseError):
        sweep(values)
    assert is_running(child)
    process.kill()
    process.join()
    wait_until(lambda: not is_running(child))
    (directory / "wait").unlink()
    assert sweep(values) == 0
    assert starts(directory).count("0.7") == 2 and len(starts(directory)) == 4
    assert statuses(directory) == dict.fromkeys(values, "finished")
    assert read_json(directory / "sweep" / "sweep.json")["runs"] == [{"a": value} for value in values]


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
        sweep_grid.parse(texts, parse_value)


def names(number, seed=0, **changed):
    values = {"a": list("123456"), "b": list("78"), **changed}
    return {run.name for run in sweep_grid.list_runs(values, number, sample_seed=seed)}


def test_samples_depend_on_the_content_of_the_grid_and_the_seed():
    assert len(names(5)) == 5 and names(5) == names(5) == names(5, a=list("654321"), b=list("87"))
    swapped = {"b": list("78"), "a": list("123456")}
    assert {run.name for run in sweep_grid.list_runs(swapped, 5, 0)} == names(5)
    assert names(5) != names(5, seed=1) and names(5) < names(7) and names(12) == names(None)
    with pytest.raises(ValueError, match="only 12 runs"):
        names(13)
    with pytest.raises(ValueError, match="12,000 runs"):
        names(2, c=list(map(str, range(1000))))


@pytest.mark.parametrize("lower", [False, True])
def test_expected_best_is_the_mean_over_all_draws(lower):
    values = [0.3, 0.9, 0.5, 0.5]
    best = min if lower else max
    for count, expected in enumerate(sweep_runs.expected_best(values, lower), 1):
        draws = itertools.product(values, repeat=count)
        assert expected == pytest.approx(np.mean([best(draw) for draw in draws]))


@pytest.mark.parametrize("metric, is_lower", [
    ("loss", True), ("perplexity", True), ("eval_brier", True), ("f1", False), ("eval_lossless", False),
    ("eval_recall_loss", False)])
def test_of_losses_and_errors_the_lower_value_is_better(metric, is_lower):
    runs = [sweep_runs.Run({}, sweep_runs.DONE, {metric: value}) for value in (0.5, 0.25)]
    assert sweep_runs.by_rank(runs, metric)[0].value(metric) == (0.25 if is_lower else 0.5)
    assert best_weights.choose_best(metric, [(1, 0.5), (2, 0.25)])[0] == (2 if is_lower else 1)


def test_the_page_names_ties(tmp_path):
    """The ranks come first."""
    runs = [sweep_runs.Run({"learning_rate": rate, "seed": "12345678"}, sweep_runs.DONE, {"m": value})
            for rate, value in (("2e-05", 0.5), ("3e-05", 0.75), ("5e-05", 0.75))]
    sweep_page.write_page(str(tmp_path / "page.html"), runs, "m", 3, "train.py", {})
    page = (tmp_path / "page.html").read_text().replace("\u00a0", " ")
    assert ("The best m is 0.75: learning_rate 3e-05, seed 12345678; also learning_rate 5e-05, seed 12345678."
            in page)
    assert page.index("Runs by rank") < page.index("Metric against each setting")
    assert re.findall(r"<tr><th>(\d)</th>", page)[:3] == ["1", "1", "3"]
