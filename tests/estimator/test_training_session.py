"""The steps of a training session whose input does not come from `input_pipeline`."""

import types

import pytest
from small_models import Stopping, foreign_batches
import tensorflow.compat.v1 as tf

from bertlib.estimator import training_session


def test_a_continued_training_says_that_its_input_starts_from_the_beginning(tmp_path, caplog):
    Stopping(tmp_path).model.train(foreign_batches, max_steps=1)
    assert "starts from its beginning" not in caplog.text
    Stopping(tmp_path).model.train(foreign_batches, max_steps=2)
    text, = (text for text in caplog.messages if "starts from its beginning" in text)
    assert str(tmp_path / "model.ckpt-1") in text and "bertlib.data.input_pipeline" in text


def test_replicas_refuse_an_input_that_is_not_divided():
    builder = types.SimpleNamespace(call_input_fn=lambda input_fn, mode: (input_fn(), None, []))
    config = types.SimpleNamespace(group=types.SimpleNamespace(index=0, count=2))
    session = training_session.TrainingSession(builder, config, foreign_batches, [], [], None, 4)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="each replica would train on all batches"):
        session.prepare_input()
