"""Removal of padding: which positions become rows, and that the outputs of the encoder do not change."""

import functools

from helpers import evaluate, run_bert
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.graph import packing, randomness
import modeling

CONFIG = modeling.BertConfig.from_dict({**tiny.CONFIG, "hidden_dropout_prob": 0.0,
                                        "attention_probs_dropout_prob": 0.0})
# 480 positions with 203 real tokens. They become 256 rows.
LENGTHS = np.array([33, 1, 40, 12, 7, 22, 3, 9, 31, 5, 26, 14])
MASK = (np.arange(40) < LENGTHS[:, np.newaxis]).astype(np.int32)
PADDING_IN_ROWS = 256 - 203
IDS = np.where(MASK, np.random.RandomState(4).randint(5, CONFIG.vocab_size, size=MASK.shape), 0)


def is_row():
    """Returns a boolean array: which positions of `MASK` must be rows."""
    rows = MASK.astype(bool)
    rows.flat[np.flatnonzero(MASK == 0)[:PADDING_IN_ROWS]] = True
    return rows


@functools.cache
def run_model(remove_padding, dropout=0.0, **options):
    """Returns {name: array}, see `run_bert`. The loss uses only the outputs of real tokens."""
    def loss(model):
        last = model.get_sequence_output()
        real = last if options.get("first_token_only") else last * MASK[:, :, np.newaxis].astype(np.float32)
        return tf.reduce_sum(tf.sin(real)) + tf.reduce_sum(tf.cos(model.get_pooled_output()))

    config = modeling.BertConfig.from_dict({
        **CONFIG.to_dict(), "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout})
    return run_bert(config, IDS, MASK, loss, remove_padding=remove_padding, **options)


def gradients_in(arrays):
    return {name: array for name, array in arrays.items() if name.endswith("/gradient")}


def test_rows_are_the_real_tokens_then_padding_up_to_a_multiple_of_128(graph):
    positions = evaluate(packing.Packing(tf.constant(MASK)).positions)
    assert len(positions) == 256
    assert_array_equal(positions[:203], np.argwhere(MASK))
    assert_array_equal(positions[203:], np.argwhere(MASK == 0)[:PADDING_IN_ROWS])


@pytest.mark.parametrize("options", [
    {}, {"recompute": "layers", "first_token_only": True},
    pytest.param({"precision": "bf16"}, marks=pytest.mark.slow(reason="two more graphs of the encoder")),
], ids=str)
def test_the_encoder_computes_the_same_without_padding(options):
    found, expected = (run_model(remove, **options) for remove in (True, False))
    tolerance = 2**-5 if options.get("precision") else 2e-6
    for name in ("layer_0", "layer_1", "pooled"):
        values = found[name]
        real = MASK[:, :, np.newaxis] if values.ndim == 3 and values.shape[1] > 1 else 1
        assert_allclose(values * real, expected[name] * real, rtol=0, atol=tolerance * 4, err_msg=name)
    check_same(gradients_in(found), gradients_in(expected), tolerance)


def check_same(found, expected, tolerance):
    assert found.keys() == expected.keys()
    largest = max(np.abs(values).max() for values in expected.values())
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=0, atol=tolerance * largest, err_msg=name)


def test_with_kernels_for_this_machine_the_encoder_computes_the_same_with_the_same_dropout():
    found, expected = (run_model(True, 0.2, compile_kernels=compiled) for compiled in (True, False))
    check_same(gradients_in(found), gradients_in(expected), 2e-6)
    check_same(found, expected, 2e-6)


def test_what_is_no_row_is_not_computed():
    outputs = run_model(True)
    for name in ("layer_0", "layer_1"):
        assert_array_equal(outputs[name].any(axis=-1), is_row(), err_msg=name)


def test_without_training_nothing_is_left_out(graph):
    model = modeling.BertModel(CONFIG, False, tf.convert_to_tensor(IDS, tf.int32), tf.convert_to_tensor(MASK),
                               step_config=modeling.StepConfig(remove_padding=True))
    assert evaluate(model.get_sequence_output()).any(axis=-1).all()


def test_micro_batches_share_no_random_numbers_however_many_rows_they_have(session):
    part = tf.placeholder(tf.int64, [])
    randomness.set_micro_batch(part)
    tf.train.get_or_create_global_step()
    modeling.BertModel(CONFIG, True, tf.convert_to_tensor(IDS, tf.int32), tf.convert_to_tensor(MASK),
                       step_config=modeling.StepConfig(remove_padding=True))
    many, few = (randomness.uniform([size, 4], "site") for size in (6, 3))
    session.run(tf.global_variables_initializer())
    first, second = session.run(many, {part: 0}), session.run(few, {part: 1})
    assert not np.isin(second, first).any()
