"""Checkpoints whose numbers cannot be used as weights: quantized numbers, and numbers outside of float32."""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.checkpoints import checkpoint_formats

NAME, KEY = "bert/pooler/dense/bias", "bert.pooler.dense.bias"
CODES = {"I8": "int8", "I64": "int64", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "unknown"}


def write_safetensors(path, code, content, shape):
    """Writes a file with one tensor and opens it.

    The bytes are written directly, because NumPy lacks some types.
    """
    header = json.dumps({KEY: {"dtype": code, "shape": shape, "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return checkpoint_formats.open_checkpoint(path)


def write_tensorflow(path, values):
    return checkpoint_formats.open_checkpoint(tiny.write_tensorflow(path, {NAME: values}))


def refuse(checkpoint, kind):
    with tf.Graph().as_default(), pytest.raises(
            ValueError, match=f"is quantized, or does not .*: {NAME} has the type {kind}.*Use the model from "
            "before the quantization"):
        checkpoint_formats.create_init_fn(checkpoint.path, [tf.get_variable(NAME, checkpoint.shapes[NAME])])


@pytest.mark.parametrize("code", CODES)
def test_safetensors_of_other_types_than_weights_have_are_refused(tmp_path, code):
    size = 8 if code == "I64" else 1
    refuse(write_safetensors(tmp_path / "model.safetensors", code, bytes(4 * size), [4]), CODES[code])


@pytest.mark.parametrize("dtype", ["int8", "bool"])
def test_tensorflow_checkpoints_of_other_types_than_weights_have_are_refused(tmp_path, dtype):
    refuse(write_tensorflow(tmp_path / "model.ckpt", np.ones(4, dtype)), dtype)


def test_integers_of_16_bits_are_not_read_as_floats(tmp_path):
    assert write_tensorflow(tmp_path / "model.ckpt", np.ones(4, np.int16)).read(NAME).dtype == np.int16


def test_numbers_that_are_too_large_for_float32_are_refused(tmp_path):
    content = np.array([1, -1e300]).tobytes()
    checkpoint = write_safetensors(tmp_path / "model.safetensors", "F64", content, [2])
    with pytest.raises(ValueError, match=f"{NAME} contains values that are .* too large for float32"):
        checkpoint_formats.check_readable(checkpoint, [NAME])
