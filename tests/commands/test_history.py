"""metrics.jsonl, --max_steps and disk space, in whole runs of the commands."""

import json
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
from test_learning_curve import Trainings, assert_same_weights

from bertlib.checkpoints import metrics_history
from bertlib.output_directory import output_files

_again = pytest.mark.slow(reason="another command, for what the classifier shows")
NAMES = ["classifier", *(pytest.param(name, marks=_again) for name in ("squad", "ner", "pretraining", "hub"))]


@pytest.fixture(scope="module")
def trainings(scripts, tiny_model, tmp_path_factory):
    return Trainings(scripts, tiny_model, tmp_path_factory.mktemp("history"))


def rows_of(output):
    """Returns the rows of the history. Checks that the last line ends with a line feed."""
    text = (output / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def steps_of(rows):
    """Returns (steps of the rows of the training, [(step, data)] of the evaluations)."""
    return ([row["step"] for row in rows if "evaluation" not in row],
            [(row["step"], row["evaluation"]) for row in rows if "evaluation" in row])


# --- The history of a run --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_stops_early_and_continues_has_each_step_once(name, trainings, tmp_path):
    part = tmp_path / "part"
    early = trainings.run(name, part, max_steps=4, log_steps=1)
    assert early.code == 0, early.err
    assert "--max_steps=4: the training ends at step 4 of 5. " in early.err
    assert re.search(r" Disk: this training needs about [\d.]+ MB in .*: at most 3 checkpoints", early.err)
    assert early.err.count(f"tensorboard --logdir {part}\n") == 1
    assert early.err.count("The learning rate rises to --learning_rate=") == 1
    assert "step 4/4  loss" in early.err and "step 5" not in early.err
    record = output_files.read_record(part)
    assert (record["planned_steps"], record["finished_step"]) == (5, 4)
    output_files.check_trained(record, str(part / "model.ckpt-4"))
    assert "max_steps" not in record["settings"]
    steps, evaluations = steps_of(rows_of(part))
    assert steps == [1, 2, 3, 4] and evaluations == [(0, "dev"), (3, "dev"), (4, "dev")]

    again = trainings.run(name, part, log_steps=1)
    assert again.code == 0 and "unfinished" not in again.err and "WARNING: --max" not in again.err, again.err
    whole = trainings.finished(name, tmp_path / "whole", log_steps=1)
    assert_same_weights(whole, part)
    record = output_files.read_record(part)
    assert (record["planned_steps"], record["finished_step"]) == (5, 5)
    found, expected = rows_of(part), {(row["step"], row.get("evaluation")): row for row in rows_of(whole)}
    assert steps_of(found) == ([1, 2, 3, 4, 5], [(0, "dev"), (3, "dev"), (4, "dev"), (5, "dev")])
    passing = {"time", "steps_per_second", "examples_per_second", "peak_memory_gb"}
    for row in found:
        same = expected.get((row["step"], row.get("evaluation")))
        if same:
            assert {**row, **dict.fromkeys(passing)} == {**same, **dict.fromkeys(passing)}
    of_step = next(row for row in found if row["step"] == 4 and "evaluation" not in row)
    assert set(of_step) == {"step", "loss", "learning_rate", "gradient_norm", *passing}
    assert "step 4/4  loss {loss:.5g}  learning_rate {learning_rate:.5g}  ".format(**of_step) in early.err
    assert abs(of_step["time"] - time.time()) < 3600


def test_killed_and_started_again_each_step_is_there_once(trainings, scripts, tmp_path):
    """The run is killed between two checkpoints.

    The file has lines of later steps, and the last one is cut off.
    """
    output, flags = tmp_path / "output", dict(num_train_epochs=40, save_checkpoints_steps=50, log_steps=1,
                                              eval_each_checkpoint=None, do_eval=None)
    running = trainings.start("classifier", output, **flags)
    path = output / "metrics.jsonl"
    while (not (path.exists() and b'"step": 60,' in path.read_bytes())
           and os.path.exists(f"/proc/{running.pid}")):
        time.sleep(0.001)
    os.kill(running.pid, signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    before = [row["step"] for row in rows_of(output)]
    assert before == list(range(1, before[-1] + 1)) and before[-1] % 50
    with open(path, "a") as file:
        file.write('{"step": 1, "los')
    trainings.finished("classifier", output, **flags)
    assert [row["step"] for row in rows_of(output)] == list(range(1, 201))

    # A run without training does not change the history. A new training begins a new history.
    content = path.read_bytes()
    trainings.finished("classifier", output, do_train=None, do_eval=True, eval_each_checkpoint=None,
                       train_batch_size=4, num_train_epochs=40)
    assert path.read_bytes() == content
    for checkpoint in (*output.glob("model.ckpt-*"), output / "checkpoint"):
        checkpoint.unlink()
    trainings.finished("classifier", output, **{**flags, "num_train_epochs": 1})
    assert [row["step"] for row in rows_of(output)] == [1, 2, 3, 4, 5]


def test_a_history_that_cannot_be_written_is_warned_of_once(trainings, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    (output / "metrics.jsonl").symlink_to("/dev/full")
    done = trainings.run("classifier", output, log_steps=1)
    assert done.code == 0 and (output / "eval_results.txt").exists(), done.err
    assert done.err.count("metrics.jsonl could not be written: No space left on device. ") == 1


# --- The file --------------------------------------------------------------------------------------------


def test_lines_that_are_damaged_or_too_late_are_removed(tmp_path):
    path, history = tmp_path / "metrics.jsonl", metrics_history.MetricsHistory(str(tmp_path))
    history.cut(3)
    assert not path.exists()
    kept = '{"step": 1}\n{"step": 3, "evaluation": "dev"}\n{"step": 2}\n'
    path.write_bytes(b'\xff\n{"step": 4}\n[1]\n' + kept.encode() + b'{"step": "1"}\n\n{"step": 3, "lo')
    history.cut(3)
    assert path.read_text() == kept
    path.write_text(kept.rstrip("\n"))  # an editor may write the file without a line feed
    history.add_evaluation(3, "test", {"global_step": np.int64(3), "a": np.float32(0.1),
                                       "b": np.float64("nan"), "matrix": np.array([[1, 2], [3, 4]])})
    history.add_evaluation(3, "dev", {"a": 2})
    first, second, third, fourth = rows_of(tmp_path)
    assert (first, second) == ({"step": 1}, {"step": 2})
    assert {**third, "time": 0} == {"step": 3, "evaluation": "test", "a": 0.1, "b": None,
                                    "matrix": [[1, 2], [3, 4]], "time": 0}
    assert {**fourth, "time": 0} == {"step": 3, "evaluation": "dev", "a": 2, "time": 0}
    history.cut(None)
    assert path.read_text() == ""


# --- The disk --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(name, trainings, tmp_path):
    many = (dict(num_train_steps=2 * 10**9) if name == "pretraining" else dict(num_train_epochs=1e8))
    for keep, advice in ((2 * 10**9, "lower --keep_checkpoint_max=2000000000"),
                         (0, "pass --keep_checkpoint_max=5")):
        refused = trainings.run(name, tmp_path / "output", keep_checkpoint_max=keep, save_checkpoints_steps=1,
                                **many)
        assert refused.code == 1 and "Traceback" not in refused.err, refused.err
        assert re.search(rf"error: --output_dir={tmp_path}/output: this training needs about \d{{4,}}\.\d\d "
                         r"GB for its checkpoints \(at most \d{8,} checkpoints of [\d.]+ MB at the same "
                         r"time\), but only [\d.]+ [GM]B are free on this disk\. Make "
                         rf"room on the disk, {advice}, or pass an --output_dir on another disk\.",
                         refused.err), refused.err
        assert not os.path.exists(tmp_path / "output")


def test_the_files_that_are_there_already_are_counted(trainings, tmp_path):
    output = trainings.finished("classifier", tmp_path / "output", keep_checkpoint_max=2, log_steps=1)
    size = sum(path.stat().st_size for path in output.glob("model.ckpt-*"))
    more = trainings.run("classifier", output, keep_checkpoint_max=2, num_train_epochs=2)
    assert "at most 3 checkpoints of " in more.err and shutil.disk_usage(tmp_path).free > size
    assert f", of which {size / 1e6:.2f} MB are already there." in more.err
