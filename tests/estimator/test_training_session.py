"""The steps of a training session whose input does not come from `input_pipeline`."""

import types

from absl import logging
import pytest
import tensorflow.compat.v1 as tf

from bertlib.estimator import training_session
from bertlib.estimator.estimator import Estimator, EstimatorSpec
import optimization


def model_fn(features, labels, mode):
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(weight - features))
    return EstimatorSpec(mode, loss=loss, train_op=optimization.create_optimizer(loss, 0.1, 9, 0, False))


def other_input():
    return tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)).batch(4)


def test_a_continued_training_says_that_its_input_starts_from_the_beginning(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: warnings.append(text % values))
    Estimator(model_fn, str(tmp_path)).train(other_input, max_steps=1)
    assert not [text for text in warnings if "starts from its beginning" in text]
    Estimator(model_fn, str(tmp_path)).train(other_input, max_steps=2)
    text, = (text for text in warnings if "starts from its beginning" in text)
    assert str(tmp_path / "model.ckpt-1") in text and "bertlib.data.input_pipeline" in text


def test_replicas_refuse_an_input_that_is_not_divided():
    builder = types.SimpleNamespace(call_input_fn=lambda input_fn, mode: (input_fn(), None, []))
    config = types.SimpleNamespace(group=types.SimpleNamespace(index=0, count=2))
    session = training_session.TrainingSession(builder, config, other_input, [], [], None, 4)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="each replica would train on all batches"):
        session.prepare_input()
