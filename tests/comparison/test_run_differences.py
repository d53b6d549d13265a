"""Differences of two directories: single bits, missing lines, environments."""

import json

from helpers import write_json
import model_directories
import numpy as np
import pytest
import tiny

from bertlib.comparison import run_differences


def write(directory, arrays, rows=()):
    tiny.write_tensorflow(directory / "model.ckpt-3", arrays)
    (directory / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(directory)


def test_one_bit_of_one_weight_is_a_difference(tmp_path):
    arrays = {"a": np.ones(4, np.float32), "b": np.zeros(3, np.float32), "c": np.array(np.nan, np.float32)}
    near = {**arrays, "a": np.array([1, 1, np.nextafter(np.float32(1), np.float32(2)), 1], np.float32)}
    negative = {**arrays, "b": np.array([0, -0.0, 0], np.float32)}
    first, second, third, same = (write(tmp_path / name, values) for name, values in (
        ("first", arrays), ("second", near), ("third", negative), ("same", arrays)))
    assert run_differences.compare_weights(first, same, 3)[0]["different"] == 0
    found, = run_differences.compare_weights(first, second, 3)
    assert (found["step"], found["variables"], found["different"], found["variable"]) == (3, 3, 1, "a")
    assert found["largest_absolute"] == pytest.approx(2**-23) == found["largest_relative"]
    found, = run_differences.compare_weights(first, third, 3)
    assert (found["different"], found["largest_absolute"], found["variable"]) == (1, 0.0, "b")
    assert run_differences.compare_weights(first, second, 2) == []


def test_lines_are_compared_without_times_and_missing_ones_are_named(tmp_path):
    rows = [{"step": step, "loss": 1 / step, "time": step, "steps_per_second": step} for step in (1, 2, 3)]
    rows.append({"step": 3, "evaluation": "dev", "eval_loss": 0.5, "time": 1})
    changed = [{**rows[0], "time": 9}, {**rows[1], "loss": 0.75}, {**rows[3], "eval_loss": None}]
    first, second = (write(tmp_path / name, {"a": np.zeros(1, np.float32)}, values)
                     for name, values in (("first", rows), ("second", changed)))
    found = run_differences.compare_losses(first, second, 3)
    assert found["lines"] == 3 and found["different"] == 2 and found["first_difference"] == 2
    assert found["missing"] == [3]
    assert found["largest"]["loss"] == {"absolute": 0.25, "relative": pytest.approx(1 / 3), "step": 2}
    assert run_differences.compare_losses(first, second, 1)["different"] == 0


def write_training(directory, best_step=2, changes=(), step=3, rows=({"step": 1, "loss": 2.0},)):
    """Writes the directory of a training with best weights, and returns the directory."""
    arrays = {"a": np.ones(4, np.float32)}
    write(directory, arrays, rows)
    (directory / "model.ckpt-3.index").rename(directory / f"model.ckpt-{step}.index")
    (directory / "model.ckpt-3.data-00000-of-00001").rename(
        directory / f"model.ckpt-{step}.data-00000-of-00001")
    (directory / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    record = model_directories.record(["0", "1"], started="now", settings={"keep_best": "m"})
    write_json(directory / "run.json", record)
    tiny.write_tensorflow(directory / "best" / f"model.ckpt-{best_step}", {**arrays, **dict(changes)})
    write_json(directory / "best" / "best.json", {"metric": "m", "step": best_step, "value": 0.5,
                                                  "first_step": 0, "training": "now", "earlier": []})
    return str(directory)


def test_best_weights_are_compared(tmp_path):
    original = write_training(tmp_path / "original")
    found = run_differences.compare(original, write_training(tmp_path / "same"), 3)
    assert found["same"] and found["weights"][-1]["variables"] == 1
    assert "Weights: best/, step 2, 1 variable: the same\n" in run_differences.to_text(found)
    changed = write_training(tmp_path / "changed", changes={"a": np.array([1, 1, 1, 2], np.float32)})
    found = run_differences.compare(original, changed, 3)
    assert not found["same"]
    text = run_differences.to_text(found)
    assert text.startswith("DIFFERENT. The first difference is in the values of step 2.")
    assert "Weights: best/, step 2, 1 variable: 1 differ; largest difference: 1 absolute" in text
    found = run_differences.compare(original, write_training(tmp_path / "later", best_step=3), 3)
    assert not found["same"] and "Weights: best/: step 2 -> 3\n" in run_differences.to_text(found)
    assert run_differences.compare(original, changed, 3, is_whole=False)["same"]


def test_a_continued_training_with_replicas_has_the_same_bits(tmp_path):
    rows = [{"step": 1, "loss": 2.0, "waiting_seconds": 0.5}, {"step": 2, "loss": 1.0}]
    original = write_training(tmp_path / "original", rows=rows)
    repeated = write_training(tmp_path / "repeated", rows=[{**rows[0], "waiting_seconds": 0.75}])
    found = run_differences.compare(original, repeated, 3)
    assert found["same"] and found["losses"]["missing"] == [2]
    assert "not compared, because the repetition lacks these log lines: steps 2\n" in (
        run_differences.to_text(found))


def test_a_repetition_that_ended_earlier_is_different(tmp_path):
    original, repeated = write_training(tmp_path / "original"), write_training(tmp_path / "b", step=2)
    found = run_differences.compare(original, repeated, 3)
    assert not found["same"] and found["reached_step"] == 2
    assert "Weights: step 3: not compared, because the repetition ended at step 2\n" in (
        run_differences.to_text(found))


def test_results_of_one_directory_are_named(tmp_path):
    original, repeated = write_training(tmp_path / "original"), write_training(tmp_path / "repeated")
    (tmp_path / "original" / "eval_results.txt").write_text("eval_loss = 1\n")
    (tmp_path / "original" / "test_results.tsv").write_text("0.5\t0.5\n")
    (tmp_path / "repeated" / "eval_results.txt").write_text("eval_loss = 2\n")
    found = run_differences.compare(original, repeated, 3)
    assert not found["same"]
    text = run_differences.to_text(found)
    assert "Results: eval_results.txt: differs\n" in text
    assert "Results: test_results.tsv: not compared, because only one directory has this file\n" in text
