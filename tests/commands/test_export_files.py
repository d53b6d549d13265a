"""export.py --format=onnx and predict.py with ONNX files, as a user runs them."""

import importlib.util
import json
import random

from helpers import read_json, write_json
import model_directories
import pytest
import tiny

needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "tf2onnx", "onnxruntime")),
    reason="the extra [onnx] is not installed")


@pytest.fixture
def model_dir(tiny_model, tmp_path):
    """A model for the user's own data, whose development file still exists."""
    directory = model_directories.write_classifier(tmp_path / "model", tiny_model, task="own data",
                                                   text_column="text", label_column="label")
    chance = random.Random(5)
    rows = "".join(f"{tiny.sentence(chance)},{chance.choice(['no', 'yes'])}\n" for _ in range(30))
    (tmp_path / "dev.csv").write_text("text,label\n" + rows)
    record = read_json(directory / "run.json")
    record["files"] = {"dev_file": str(tmp_path / "dev.csv")}
    write_json(directory / "run.json", record)
    return directory


@needs_onnx
def test_an_onnx_file_is_compared_on_the_development_set_and_answers(run_script, model_dir, tmp_path):
    done = run_script("export.py", "--model_dir=model", "--format=onnx", "--compare_examples=20")
    assert done.code == 0 and not done.out, done.err
    *_, last = done.err.splitlines()
    accuracy = float(last.rpartition(" instead of ")[2].rstrip("."))
    assert f"; accuracy {accuracy:.3f} instead of {accuracy:.3f}." in last
    assert ("The ONNX file compared with the model in TensorFlow (fp32), on the development set: 15 "
            "inputs: 0 of 15 predictions differ (0.00%); scores differ by ") in done.err.splitlines()[-1]
    for name, flags in (("tensorflow", ["--model_dir=model"]),
                        ("engine", ["--model_dir=model", "--engine=onnx"])):
        done = run_script("predict.py", *flags, "--input_file=dev.csv", f"--output_file={name}.jsonl")
        done.assert_success()
    dev = [line.split(",") for line in (tmp_path / "dev.csv").read_text().splitlines()[1:]]
    expected, answers = ([json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
                         for name in ("tensorflow", "engine"))
    compared = list(zip(expected, dev))[::2]  # --compare_examples=20 takes every second row
    assert round(accuracy * 15) == sum(row["label"] == label for row, (_, label) in compared)
    for name in ("label", "text"):
        assert [row[name] for row in answers] == [row[name] for row in expected]
    (tmp_path / "dev.csv").unlink()
    done = run_script("export.py", "--model_dir=model", "--format=onnx", "--quantize=int8")
    done.assert_success("dev.csv does not exist any more. Name a file with --compare_file.")
    assert "The ONNX file compared" not in done.err
