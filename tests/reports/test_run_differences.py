"""Differences of two directories: single bits, missing lines, environments."""

import json

from helpers import write_json, write_lines
import model_directories
import numpy as np
import pytest
import tiny

from bertlib.reports import run_differences


def write(directory, arrays):
    tiny.write_tensorflow(directory / "model.ckpt-3", arrays)
    return str(directory)


def write_history(directory, rows):
    directory.mkdir(exist_ok=True)
    write_lines(directory / "metrics.jsonl", map(json.dumps, rows))
    return str(directory)


def test_each_bit_of_the_weights_is_compared(tmp_path):
    """0 and -0 differ, and NaN equals NaN. A variable may be missing, or have another shape."""
    same = {"nan": np.nan, "same": [1]}
    first, second = (write(tmp_path / name, {key: np.float32(value) for key, value in arrays.items()})
                     for name, arrays in (
        ("first", {**same, "bit": [0.5, 1], "zero": [0], "old": [1], "shape": [1, 1]}),
        ("second", {**same, "bit": [0.5, 1 + 2**-23], "zero": [-0.0], "new": [1], "shape": [[1, 1]]})))
    found, = run_differences.compare_weights(first, second, 3)
    assert found == {"name": "step 3", "step": 3, "variables": 7, "different": 5,
                     "largest_absolute": 2**-23, "largest_relative": pytest.approx(2**-23),
                     "variable": "bit"}
    assert run_differences.compare_weights(first, second, 2) == []
    assert run_differences.compare_weights(first, first, 3)[0]["different"] == 0


def test_lines_are_compared_without_times_and_missing_ones_are_named(tmp_path):
    rows = [{"step": step, "loss": 1 / step, "time": step, "steps_per_second": step} for step in (1, 2, 3)]
    rows.append({"step": 3, "evaluation": "dev", "eval_loss": 0.5, "time": 1})
    changed = [{**rows[0], "time": 9}, {**rows[1], "loss": 0.75}, {**rows[3], "eval_loss": None}]
    first, second = write_history(tmp_path / "first", rows), write_history(tmp_path / "second", changed)
    found = run_differences.compare_losses(first, second, 3)
    assert found["lines"] == 3 and found["different"] == 2 and found["first_difference"] == 2
    assert found["missing"] == [3]
    assert found["largest"]["loss"] == {"absolute": 0.25, "relative": pytest.approx(1 / 3), "step": 2}
    assert run_differences.compare_losses(first, second, 1)["different"] == 0


ROWS = [{"step": 1, "loss": 2.0, "waiting_seconds": 0.5}, {"step": 2, "loss": 1.0}]
WEIGHTS = np.ones(4, np.float32)


def write_training(directory, step=3, rows=ROWS, best_step=2, best=WEIGHTS, results=()):
    """Writes the directory of a training with best weights and results. Returns the directory."""
    for path, number, array in ((directory, step, WEIGHTS), (directory / "best", best_step, best)):
        tiny.write_tensorflow(path / f"model.ckpt-{number}", {"a": array})
    write_history(directory, rows)
    write_json(directory / "run.json", model_directories.record(
        ["0", "1"], started="now", settings={"keep_best": "m"}))
    write_json(directory / "best" / "best.json", {
        "metric": "m", "step": best_step, "value": 0.5, "first_step": 0, "training": "now", "earlier": []})
    for name, text in {"eval_results.txt": "eval_loss = 1\n",
                       "eval_results.json": '{"baselines": {"most": 1}}', **dict(results)}.items():
        (directory / name).write_text(text)
    return str(directory)


def test_the_same_bits_reach_to_the_last_compared_step(tmp_path):
    write_training(tmp_path / "old")
    write_training(tmp_path / "new", step=4)
    found = run_differences.compare(str(tmp_path / "old"), str(tmp_path / "new"), 4, is_whole=False)
    assert run_differences.to_text(found).startswith(
        "SAME BITS up to step 2. The original has no weights and losses of later steps.\n")


@pytest.mark.parametrize("changes, is_same, text", [
    ({"rows": [{**ROWS[0], "waiting_seconds": 0.75}, ROWS[1]]}, True,
     "Weights: best/, step 2, 1 variable: the same"),
    # After a kill, the lines of the last steps may be missing.
    ({"rows": ROWS[:1]}, True, "not compared, because the repetition lacks these log lines: steps 2"),
    ({"best": np.array([1, 1, 1, 2], np.float32)}, False,
     "Weights: best/, step 2, 1 variable: 1 differ; largest difference: 1 absolute"),
    ({"best_step": 3}, False, "Weights: best/: step 2 -> 3"),
    ({"step": 2}, False, "Weights: step 3: not compared, because the repetition ended at step 2"),
    ({"results": {"eval_results.txt": "eval_loss = 2\n"}}, False, "Results: eval_results.txt: differs"),
    ({"results": {"eval_results.json": '{"baselines": {"bag_of_words": {"eval_f1": 0.5}, "most": 1}}'}}, True,
     "Results: eval_results.json: the same"),
    ({"results": {"test_results.tsv": "0.5\n"}}, True,
     "Results: test_results.tsv: not compared, because only one directory has this file")])
def test_differences_of_two_trainings_are_named(changes, is_same, text, tmp_path):
    original, other = write_training(tmp_path / "original"), write_training(tmp_path / "other", **changes)
    found = run_differences.compare(original, other, 3)
    report = run_differences.to_text(found)
    assert found["same"] == is_same and text in report
    if "best" in changes:
        assert report.startswith("DIFFERENT. The first difference is in the values of step 2.")
        assert run_differences.compare(original, other, 3, is_whole=False)["same"]
