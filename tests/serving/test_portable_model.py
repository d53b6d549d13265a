"""ONNX and TFLite files of each head: they give the answers of the predictor. Some inputs are refused."""

import collections
import importlib.util
import pathlib
import random
import shutil
import sys

from helpers import read_json, write_json
import model_directories
import pytest
from test_export import asked, task_of, written
import tiny

from bertlib import serving
from bertlib.reports import answer_differences
from bertlib.runs import trained_model
from bertlib.serving import export_portable, portable_model

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "tf2onnx", "onnxruntime"))
INPUTS = {"input_ids", "input_mask", "segment_ids"}  # those of docs/howto/onnx.md
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="the extra [onnx] is not installed")


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory):
    """A model with the exact gelu and with large matrices.

    They have at least 1024 weights, because TFLite does not quantize smaller matrices.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny.CONFIG, "intermediate_size", 80)
        patch.setitem(tiny.CONFIG, "hidden_act", "gelu_erf")
        directory = tmp_path_factory.mktemp("wide")
        model_directories.write_classifier(directory / "model", tiny.Model(directory),
                                           ["no", "yes", "unsure"])
    return directory / "model"


@pytest.fixture(scope="module")
def exported(wide_model):
    """The ONNX export of `wide_model`, in its directory."""
    if not HAS_ONNX:
        pytest.skip("the extra [onnx] is not installed")
    (wide_model / "eval_results.json").write_text('{"eval_accuracy": 0.5}')
    return export_to(portable_model.default_directory(str(wide_model), "onnx"), wide_model, "onnx")


def export_to(directory, model_dir, file_format, **options):
    model = trained_model.read(str(model_dir))
    return export_portable.export(model, str(directory), file_format, **options)


def differences(model_dir, *exports, name="classification", task=None):
    """Returns the `Differences` between each export and the predictor, on inputs of different lengths."""
    chance = random.Random(name)
    inputs = [asked(task_of(name), chance) for _ in range(40)]
    with serving.load(model_dir, task) as predictor:
        expected = [predictor(*texts) for texts in inputs]
    found = []
    for export in exports:
        with serving.load(export) as predictor:
            found.append(answer_differences.compare(expected, [predictor(*texts) for texts in inputs]))
        assert found[-1].inputs == 40
    return found


def check_same(found):
    assert found.mismatches == 0 and found.largest < 5e-4


def check_near(found):
    """Checks that an export is quantized: its answers differ a little."""
    assert found.largest > 1e-3 and found.mean < 0.05 and found.mismatches <= 4


def inputs_of(graph):
    return {value.name for value in graph.input}


def test_an_onnx_file_gives_the_answers_of_the_model_also_in_int8(wide_model, exported, tmp_path):
    """ONNX Runtime can fuse the ops of the graph."""
    import onnx
    quantized = export_to(tmp_path, wide_model, "onnx", quantize=True)
    graphs = [onnx.load(f"{path}/model.onnx").graph for path in (exported, quantized)]
    ops = [collections.Counter(node.op_type for node in graph.node) for graph in graphs]
    assert ops[0]["Erf"] == ops[1]["Erf"] == tiny.CONFIG["num_hidden_layers"] and not ops[0]["Erfc"]
    # Each layer has at least four products with weights. The segment embeddings, the pooler and the head have
    # more.
    assert not ops[0]["MatMulInteger"]
    assert ops[1]["MatMulInteger"] >= 4 * tiny.CONFIG["num_hidden_layers"]
    same, near = differences(wide_model, exported, quantized)
    check_same(same)
    check_near(near)
    assert same.predictions == 40
    assert inputs_of(graphs[0]) == INPUTS
    # An export has the results of the evaluation, which may contain a threshold.
    assert read_json(pathlib.Path(exported, "eval_results.json")) == {"eval_accuracy": 0.5}


def test_a_tflite_file_gives_the_answers_of_the_model_also_in_int8(wide_model, tmp_path):
    same, near = differences(wide_model, export_to(tmp_path, wide_model, "tflite"),
                             export_to(tmp_path, wide_model, "tflite", quantize=True))
    check_same(same)
    check_near(near)


# --- Refused exports and inputs --------------------------------------------------------------------------


@needs_onnx
def test_a_graph_that_onnx_cannot_hold_is_refused_and_nothing_is_left(tiny_model, tmp_path):
    model = written(tmp_path / "crf", tiny_model, "tagging_crf")
    message = "ONNX cannot represent the graph of this model: DynamicStitch .*=saved_"
    with pytest.raises(ValueError, match=message):
        export_portable.export(model, str(tmp_path / "export"), "onnx")
    assert not list(tmp_path.glob("export/*"))


def test_a_missing_package_is_named_with_its_extra(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model = written(tmp_path / "model", tiny_model, "classification")
    with pytest.raises(ImportError, match=r"needs the package \w+, .*\[onnx\]"):
        export_portable.export(model, str(tmp_path / "export"), "onnx")
    assert not list(tmp_path.glob("export/*"))


def test_the_engine_takes_the_newest_export_of_these_weights(wide_model, exported, tmp_path):
    copy = tmp_path / "copy"
    with serving.load(wide_model, engine="onnx") as predictor:
        assert predictor.checkpoint == f"{exported}/model.onnx"
    # The best weights of a training are in best/, but its exports are not.
    model = trained_model.read(str(wide_model))._replace(path=str(wide_model / "best"))
    assert portable_model.newest(str(wide_model), model, "onnx", None).model.path == exported
    with pytest.raises(ValueError, match="contains no export for the task vectors. Run export.py with "
                       ".* --format=onnx, and with the same --task"):
        serving.load(wide_model, task="vectors", engine="onnx")
    shutil.copytree(wide_model, copy)
    # The newest export is for another task.
    version = copy / "export_onnx" / "99999999999"
    shutil.copytree(exported, version)
    write_json(version / "export.json", {**read_json(version / "export.json"), "task": "vectors"})
    with serving.load(copy, engine="onnx") as predictor:
        assert predictor.task == "classification"
    tiny.write_training(copy, tiny.weights(), num_labels=3, step=7)
    with pytest.raises(ValueError, match=r"does not contain the weights of .*ckpt-7, because it was "
                       "exported from other weights. Run "):
        serving.load(copy, engine="onnx")
    shutil.rmtree(copy / "export_onnx")
    with pytest.raises(ValueError, match="export_onnx contains no export for the task classification. Run "):
        serving.load(copy, engine="onnx")


@pytest.mark.parametrize(("name", "content", "message"), [
    ("vocab.txt", None, "vocab.txt is missing"),
    ("model.onnx", b"another model", "model.onnx was changed after the export"),
    ("export.json", b"{}", "does not exist, or does not have the format 1")])
def test_a_changed_export_is_refused(name, content, message, exported, tmp_path):
    shutil.copytree(exported, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    if content is not None:
        (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        serving.load(tmp_path / "copy")


def test_a_file_of_another_task_or_program_is_refused(exported, tmp_path):
    with serving.load(f"{exported}/model.onnx") as predictor:
        assert predictor.task == "classification"
    shutil.copy(f"{exported}/model.onnx", tmp_path)
    for path, arguments, message in (
            (exported, dict(precision="bf16"), "--precision=bf16: the number format of"),
            (exported, dict(engine="tensorflow"), "is an export in the format onnx"),
            (exported, dict(task="vectors"), "is an export for the task classification"),
            (tmp_path / "model.onnx", {}, "export.json does not exist, or .* Pass a directory that ")):
        with pytest.raises(ValueError, match=message):
            serving.load(path, **arguments)


def test_differences_are_counted():
    ours = [{"label": "a", "probabilities": {"a": 0.75, "b": 0.25}},
            {"tags": ["O", "B-X"], "entities": [{"score": 0.5}]}, {"score": 1.0}]
    theirs = [{"label": "b", "probabilities": {"a": 0.25, "b": 0.75}}, {"tags": ["O", "O"], "entities": []},
              {"score": 0.5}]
    found = answer_differences.compare(ours, theirs)
    assert found == (3, 3, 2, 0.5, 0.5, None)
    assert str(found) == ("3 inputs: 2 of 3 predictions differ (66.67%); scores differ by 0.5 at most and "
                          "by 0.5 on average")
