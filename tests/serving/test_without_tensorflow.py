"""ONNX files of each task are answered in a process that can import neither TensorFlow nor scikit-learn."""

import importlib.util
import json
import random
import sys

from helpers import ROOT
from http_clients import Process
import pytest
from scripts import run_code
from test_export import asked, task_of, written

from bertlib import serving
from bertlib.reports import answer_differences
from bertlib.serving import export_portable

pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "tf2onnx", "onnxruntime", "fastapi", "uvicorn"))),
    reason="the extras [onnx] and [serve] are not installed")
# {name of a model in `test_export.MODELS`: tasks of its exports; None is the task of its training}.
TASKS = {"classification": [None, "vectors"], "multilabel": [None], "regression": [None], "tagging": [None],
         "questions": [None]}
# The start of a program in which the imports of these packages fail.
BLOCK = "import json, runpy, sys\nsys.modules.update(tensorflow=None, sklearn=None, keras=None)\n"
# Runs a script with its arguments.
SCRIPT = BLOCK + "sys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
# Hides TensorFlow like a machine on which it is not installed.
HIDE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "tensorflow" else find(name, *more)
"""
# Prints the answers to the inputs of each export.
LOAD = BLOCK + """
from bertlib import serving
found = []
for path, inputs in json.loads(sys.stdin.read()):
    with serving.load(path) as predictor:
        found.append(predictor.answer([predictor.prepare(*texts) for texts in inputs]))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def exports(tiny_model, tmp_path_factory):
    """List of (directory of an export, inputs, TensorFlow's answers)."""
    found, directory = [], tmp_path_factory.mktemp("exports")
    for name, tasks in TASKS.items():
        model, chance = written(directory / name, tiny_model, name), random.Random(name)
        inputs = [asked(task_of(name), chance) for _ in range(5)]
        for task in tasks:
            path = export_portable.export(model, str(directory / name / "export"), "onnx", task)
            with serving.load(model.path, task) as predictor:
                expected = predictor.answer([predictor.prepare(*texts) for texts in inputs])
            found.append((path, inputs, expected))
    return found


def run_blocked(code, *arguments, text=None):
    """Returns the output of a program in a fresh process."""
    done = run_code(code, *arguments, text=text)
    done.assert_success()
    return done.out


def check_same(found, expected):
    differences = answer_differences.compare(expected, found)
    assert (differences.inputs, differences.mismatches) == (len(found), 0) and differences.largest < 2e-5


def test_load_answers_an_export_of_each_task(exports):
    output = run_blocked(LOAD, text=json.dumps([(path, inputs) for path, inputs, _ in exports]))
    for found, (_, _, expected) in zip(json.loads(output), exports, strict=True):
        check_same(found, expected)


def test_predict_answers_lines_and_sends_no_data_about_its_use(exports, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path, inputs, expected = exports[0]
    lines = "".join(" ||| ".join(texts) + "\n" for texts in inputs)
    output = run_blocked(SCRIPT, "predict.py", f"--model_dir={path}", text=lines)
    check_same([json.loads(line) for line in output.splitlines()], expected)
    assert not list(tmp_path.rglob("*onnxruntime*"))  # the files that ONNX Runtime prepares for its makers


def test_serve_starts_and_answers(exports, tmp_path):
    path, inputs, expected = exports[0]
    with Process(tmp_path, [sys.executable, "-c", SCRIPT, "serve.py", f"--model_dir={path}"], ROOT) as server:
        check_same(server.ask([dict(zip(("text_a", "text_b"), texts)) for texts in inputs])[1], expected)


def refused(script, *flags):
    """Returns the error message, one line, of a script on a machine without TensorFlow."""
    hidden = SCRIPT.replace("sys.modules.update(tensorflow=None, sklearn=None, keras=None)", HIDE)
    done = run_code(hidden, script, *flags)
    assert done.code == 1 and len(done.err.splitlines()) == 1, done.err
    return done.err


def test_a_model_that_needs_tensorflow_names_both_ways_out(classifier_dir):
    """The error names the package to install, and the export that needs none."""
    message = refused("predict.py", f"--model_dir={classifier_dir}")
    assert "TensorFlow is not installed." in message
    assert "pip install -r requirements.txt" in message and "--format=onnx" in message


def test_a_directory_without_an_export_is_named(tmp_path):
    assert f"{tmp_path} has no export.json" in refused("serve.py", f"--model_dir={tmp_path}")


def test_a_command_that_needs_tensorflow_says_so():
    assert refused("run_classifier.py", "--help").startswith(
        "run_classifier.py: error: TensorFlow is not installed. Install it: pip install")
