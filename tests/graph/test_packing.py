"""Removal of padding: which positions become rows, and that the outputs of the encoder do not change."""

import functools

from helpers import evaluate
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
    """Returns ({name: array} of a model's outputs, {name: array} of the gradients).

    The loss of the gradients uses only the outputs of real tokens.
    """
    config = modeling.BertConfig.from_dict({
        **CONFIG.to_dict(), "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout})
    with tf.Graph().as_default():
        tf.train.get_or_create_global_step()
        model = modeling.BertModel(config, True, tf.convert_to_tensor(IDS, tf.int32),
                                   tf.convert_to_tensor(MASK), remove_padding=remove_padding, **options)
        last = model.get_sequence_output()
        real = last if options.get("first_token_only") else last * MASK[:, :, np.newaxis].astype(np.float32)
        loss = tf.reduce_sum(tf.sin(real)) + tf.reduce_sum(tf.cos(model.get_pooled_output()))
        variables = tf.trainable_variables()
        gradients = {variable.op.name: tf.convert_to_tensor(gradient)
                     for variable, gradient in zip(variables, tf.gradients(loss, variables))}
        outputs = {f"layer_{index}": layer for index, layer in enumerate(model.get_all_encoder_layers())}
        return evaluate(({**outputs, "pooled": model.get_pooled_output()}, gradients))


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
    (outputs, gradients), (expected, expected_gradients) = (run_model(remove, **options)
                                                            for remove in (True, False))
    tolerance = 2**-5 if options.get("precision") else 2e-6
    for name, values in outputs.items():
        real = MASK[:, :, np.newaxis] if values.ndim == 3 and values.shape[1] > 1 else 1
        assert_allclose(values * real, expected[name] * real, rtol=0, atol=tolerance * 4, err_msg=name)
    largest = max(np.abs(values).max() for values in expected_gradients.values())
    for name, values in gradients.items():
        assert_allclose(values, expected_gradients[name], rtol=0, atol=tolerance * largest, err_msg=name)


def test_with_kernels_for_this_machine_the_encoder_computes_the_same_with_the_same_dropout():
    found, expected = (run_model(True, 0.2, compile_kernels=compiled) for compiled in (True, False))
    for ours, theirs in zip(found, expected):
        assert ours.keys() == theirs.keys()
        largest = max(np.abs(values).max() for values in theirs.values())
        for name, values in theirs.items():
            assert_allclose(ours[name], values, rtol=0, atol=2e-6 * largest, err_msg=name)


def test_what_is_no_row_is_not_computed():
    outputs, _ = run_model(True)
    for name in ("layer_0", "layer_1"):
        assert_array_equal(outputs[name].any(axis=-1), is_row(), err_msg=name)


def test_without_training_nothing_is_left_out(graph):
    model = modeling.BertModel(CONFIG, False, tf.convert_to_tensor(IDS, tf.int32), tf.convert_to_tensor(MASK),
                               remove_padding=True)
    assert evaluate(model.get_sequence_output()).any(axis=-1).all()


def test_micro_batches_share_no_random_numbers_however_many_rows_they_have(session):
    part = tf.placeholder(tf.int64, [])
    randomness.set_micro_batch(part)
    tf.train.get_or_create_global_step()
    modeling.BertModel(CONFIG, True, tf.convert_to_tensor(IDS, tf.int32), tf.convert_to_tensor(MASK),
                       remove_padding=True)
    many, few = (randomness.uniform([size, 4], "site") for size in (6, 3))
    session.run(tf.global_variables_initializer())
    first, second = session.run(many, {part: 0}), session.run(few, {part: 1})
    assert not np.isin(second, first).any()
