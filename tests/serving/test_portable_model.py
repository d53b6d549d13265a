"""ONNX and TFLite files of each head: they give the answers of the predictor. Some inputs are refused."""

import collections
import importlib.util
import random
import shutil
import sys

from helpers import read_json, write_json
import model_directories
from model_directories import linear
import numpy as np
import pytest
from test_export import MODELS, asked, task_of, written
import tiny

from bertlib import serving
from bertlib.comparison import answer_differences
from bertlib.output_directory import model_directory, null_threshold
from bertlib.serving import portable_model

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "tf2onnx", "onnxruntime"))
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
        model_directories.write(directory / "model", tiny.Model(directory), "classification", linear(3),
                                ["no", "yes", "unsure"])
    return directory / "model"


def differences(model_dir, export, name, count=40):
    """Returns the `Differences` between an export and the predictor, on inputs of different lengths."""
    chance = random.Random(name)
    inputs = [asked(task_of(name), chance) for _ in range(count)]
    with serving.load(model_dir, export_task(name)) as ours, serving.load(export) as theirs:
        return answer_differences.compare(*([predictor(*texts) for texts in inputs]
                                            for predictor in (ours, theirs)))


def export_task(name):
    return "vectors" if name == "vectors" else None


def check_same(directory, tiny_model, name, file_format):
    model = written(directory / name, tiny_model, "regression" if name == "vectors" else name)
    export = portable_model.export(model, str(directory / "export"), file_format, export_task(name))
    found = differences(model.path, export, name)
    assert found.inputs == 40 and found.differing == 0 and found.largest < 5e-4
    assert found.predictions >= 40 or name in ("regression", "vectors")
    return export


@needs_onnx
@pytest.mark.parametrize("name", ["classification", *(pytest.param(name, marks=pytest.mark.slow(
    reason="a conversion of a further head")) for name in ("tagging", "regression", "questions", "vectors"))])
def test_an_onnx_file_gives_the_answers_of_the_model(name, tiny_model, tmp_path):
    export = check_same(tmp_path, tiny_model, name, "onnx")
    import onnx
    graph = onnx.load(f"{export}/model.onnx").graph
    assert {value.name for value in graph.input} == {  # the inputs of docs/howto/onnx.md
        "input_ids", "input_mask", "segment_ids", *(["word_mask"] if name == "tagging" else [])}


def test_a_tflite_file_gives_the_answers_of_the_model(tiny_model, tmp_path):
    check_same(tmp_path, tiny_model, "classification", "tflite")


def check_near(model_dir, export):
    """Checks that an export is quantized: its answers differ a little."""
    found = differences(model_dir, export, "classification")
    assert found.largest > 1e-3 and found.mean < 0.05 and found.differing <= 4


@needs_onnx
def test_the_graph_has_the_ops_that_onnx_runtime_can_fuse_and_the_weights_are_in_int8(wide_model, tmp_path):
    import onnx
    model = model_directory.read(str(wide_model))
    plain, quantized = (portable_model.export(model, str(tmp_path / str(int8)), "onnx", quantize=int8)
                        for int8 in (False, True))
    ops = [collections.Counter(node.op_type for node in onnx.load(f"{path}/model.onnx").graph.node)
           for path in (plain, quantized)]
    assert ops[0]["Erf"] == ops[1]["Erf"] == tiny.CONFIG["num_hidden_layers"] and not ops[0]["Erfc"]
    # Each layer has at least four products with weights. The segment embeddings, the pooler and the head have
    # more.
    assert not ops[0]["MatMulInteger"]
    assert ops[1]["MatMulInteger"] >= 4 * tiny.CONFIG["num_hidden_layers"]
    assert differences(str(wide_model), plain, "classification").largest < 5e-4
    check_near(str(wide_model), quantized)


def test_a_tflite_file_with_weights_in_int8_gives_nearly_the_answers_of_the_model(wide_model, tmp_path):
    model = model_directory.read(str(wide_model))
    check_near(str(wide_model), portable_model.export(model, str(tmp_path), "tflite", quantize=True))


@needs_onnx
def test_the_best_weights_and_their_export_use_the_threshold_of_the_evaluation(tiny_model, tmp_path):
    """An evaluation of best/ writes its results into the output directory."""
    kind, head, labels, settings = MODELS["questions"]
    output = tmp_path / "output"
    for directory in (output, output / "best"):
        model_directories.write(directory, tiny_model, kind, head, labels, "SQuAD 2.0", **settings,
                                keep_best="f1")
    write_json(output / "best" / "best.json", {
        "metric": "f1", "step": 7, "value": 50.0, "first_step": 0,
        "training": model_directories.record()["started"], "earlier": []})
    question = "what sees the dog", "the old cat sees a dog ."
    results = output / "eval_results.json"
    with serving.load(output) as predictor:
        odds = predictor(*question)["null_odds"]
    for threshold, is_null in ((odds + 1, False), (odds - 1, True)):
        write_json(results, {"null_score_diff_threshold": threshold})
        with serving.load(output) as predictor:
            assert (predictor(*question)["answer"] == "") == is_null
    model = model_directory.read(str(output))
    assert model.path == f"{output}/best"
    with serving.load(portable_model.export(model, str(tmp_path / "export"), "onnx")) as predictor:
        assert predictor(*question)["answer"] == ""
    # Another directory with the name best/ does not belong to a training.
    shutil.copytree(output / "best", tmp_path / "best")
    results.replace(tmp_path / "eval_results.json")
    assert null_threshold.read(str(tmp_path / "best" / "model.ckpt-3")) == (None, None)


# --- Refused exports and inputs --------------------------------------------------------------------------


@needs_onnx
def test_a_graph_that_onnx_cannot_hold_is_refused_and_nothing_is_left(tiny_model, tmp_path):
    model = written(tmp_path / "crf", tiny_model, "tagging_crf")
    message = "ONNX cannot represent the graph of this model: DynamicStitch .*=saved_"
    with pytest.raises(ValueError, match=message):
        portable_model.export(model, str(tmp_path / "export"), "onnx")
    assert not list(tmp_path.glob("export/*"))


def test_a_missing_package_is_named_with_its_extra(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model = written(tmp_path / "model", tiny_model, "classification")
    with pytest.raises(ImportError, match=r"needs the package \w+, .*\[onnx\]"):
        portable_model.export(model, str(tmp_path / "export"), "onnx")
    assert not list(tmp_path.glob("export/*"))


@pytest.fixture(scope="module")
def exported(tiny_model, tmp_path_factory):
    """The directory of a model with an ONNX export, and the export."""
    if not HAS_ONNX:
        pytest.skip("the extra [onnx] is not installed")
    directory = tmp_path_factory.mktemp("exported") / "model"
    model = written(directory, tiny_model, "classification")
    return directory, portable_model.export(model, portable_model.default_directory(str(directory), "onnx"),
                                            "onnx")


def test_the_engine_takes_the_newest_export_of_these_weights(exported, tiny_model, tmp_path):
    directory, export = exported
    with serving.load(directory, engine="onnx") as predictor:
        assert predictor.checkpoint == f"{export}/model.onnx"
    # The best weights of a training are in best/, but its exports are not.
    model = model_directory.read(str(directory))._replace(path=str(directory / "best"))
    assert portable_model.newest(str(directory), model, "onnx").directory.path == export
    with pytest.raises(ValueError, match="contains no export for the task vectors. Run export.py with "
                       ".* --format=onnx, and with the same --task"):
        serving.load(directory, task="vectors", engine="onnx")
    shutil.copytree(directory, tmp_path / "copy")
    # The newest export is for another task.
    version = tmp_path / "copy" / "export_onnx" / "99999999999"
    shutil.copytree(export, version)
    description = read_json(version / "export.json")
    write_json(version / "export.json", {**description, "task": "vectors"})
    with serving.load(tmp_path / "copy", engine="onnx") as predictor:
        assert predictor.task == "classification"
    generator = np.random.RandomState(4)
    tiny.write_tensorflow(tmp_path / "copy" / "model.ckpt-7", {
        **tiny_model.weights, "global_step": np.int64(7),
        **{name: generator.standard_normal(shape).astype(np.float32) for name, shape in linear(3).items()}})
    with pytest.raises(ValueError, match=r"does not contain the weights of .*ckpt-7, because it was "
                       "exported from other weights. Run "):
        serving.load(tmp_path / "copy", engine="onnx")
    shutil.rmtree(tmp_path / "copy" / "export_onnx")
    with pytest.raises(ValueError, match="export_onnx contains no export for the task classification. Run "):
        serving.load(tmp_path / "copy", engine="onnx")


@pytest.mark.parametrize(("name", "content", "message"), [
    ("vocab.txt", None, "vocab.txt is missing"),
    ("model.onnx", b"another model", "model.onnx was changed after the export"),
    ("export.json", b"{}", "does not exist, or does not have the format 1")])
def test_a_changed_export_is_refused(name, content, message, exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    if content is not None:
        (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        serving.load(tmp_path / "copy")


def test_a_file_of_another_task_or_program_is_refused(exported, tmp_path):
    export = exported[1]
    with serving.load(f"{export}/model.onnx") as predictor:
        assert predictor.task == "classification"
    for arguments, message in ((dict(precision="bf16"), "--precision=bf16: the number format of"),
                               (dict(engine="tensorflow"), "is an export in the format onnx"),
                               (dict(task="vectors"), "is an export for the task classification")):
        with pytest.raises(ValueError, match=message):
            serving.load(export, **arguments)
    shutil.copy(f"{export}/model.onnx", tmp_path)
    with pytest.raises(ValueError, match="export.json does not exist, or .* Pass a directory that export.py"):
        serving.load(tmp_path / "model.onnx")


def test_differences_are_counted():
    ours = [{"label": "a", "probabilities": {"a": 0.75, "b": 0.25}},
            {"tags": ["O", "B-X"], "entities": [{"score": 0.5}]}, {"score": 1.0}]
    theirs = [{"label": "b", "probabilities": {"a": 0.25, "b": 0.75}}, {"tags": ["O", "O"], "entities": []},
              {"score": 0.5}]
    found = answer_differences.compare(ours, theirs)
    assert found == (3, 3, 2, 0.5, 0.5, None)
    assert str(found) == ("3 inputs: 2 of 3 predictions differ (66.67%); scores differ by 0.5 at most and "
                          "by 0.5 on average")
