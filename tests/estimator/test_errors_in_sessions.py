"""Errors that mean a lost worker in TensorFlow end training, evaluation and prediction, without a restart."""

from unittest import mock

import pytest
from small_models import endless, replacing
import tensorflow.compat.v1 as tf

from bertlib.estimator.estimator import Estimator
from bertlib.tasks.classification import feature_extraction


def fails_with(error):
    """Returns a function that raises an error in its first call, and a RuntimeError if it is called again."""
    return mock.Mock(side_effect=[error(None, None, "the other side is gone"),
                                  RuntimeError("The session began anew.")])


@pytest.mark.parametrize("call", [lambda model, *given: model.train(*given, steps=2),
                                  lambda model, given, hooks: model.evaluate(given, hooks=hooks),
                                  lambda model, given, hooks: list(model.predict(given, hooks=hooks))],
                         ids=["train", "evaluate", "predict"])
@pytest.mark.parametrize("when, error", [("at the start", tf.errors.AbortedError),
                                         ("in a step", tf.errors.UnavailableError)])
def test_it_ends_a_run(when, call, error, tmp_path):
    failure, hook = fails_with(error), tf.train.SessionRunHook()
    if when == "in a step":
        hook.before_run = failure
    scaffold = tf.train.Scaffold(init_fn=failure) if when == "at the start" else None
    with pytest.raises(error, match="the other side is gone"):
        call(Estimator(replacing(scaffold=scaffold), str(tmp_path)), endless, [hook])
    assert failure.call_count == 1


def test_it_ends_an_extraction():
    failure = fails_with(tf.errors.AbortedError)
    model_fn = replacing(scaffold=tf.train.Scaffold(init_fn=failure))

    def extracting_model_fn(features, labels, mode, params):
        tf.train.create_global_step()
        return model_fn(tf.constant([0.0]), labels, mode, params)

    with pytest.raises(tf.errors.AbortedError), feature_extraction.running(extracting_model_fn):
        pass
    assert failure.call_count == 1
