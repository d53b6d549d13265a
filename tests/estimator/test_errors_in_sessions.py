"""Errors that mean a lost worker in TensorFlow end training, evaluation and prediction, without a restart."""

from unittest import mock

import pytest
import tensorflow.compat.v1 as tf

from bertlib.estimator.estimator import Estimator, EstimatorSpec, ModeKeys
from bertlib.tasks.classification import feature_extraction


def fails_with(error):
    """Returns a function that raises an error in its first call, and a RuntimeError if it is called again."""
    return mock.Mock(side_effect=[error(None, None, "the other side is gone"),
                                  RuntimeError("The session began anew.")])


def model_fn(features, mode, params):
    weight = tf.get_variable("weight", [1])
    failure = params["failure"]
    scaffold = tf.train.Scaffold(init_fn=failure) if failure else None
    train_op = tf.assign_add(tf.train.get_global_step(), 1) if mode == ModeKeys.TRAIN else None
    return EstimatorSpec(mode, loss=tf.reduce_sum(weight), predictions=weight + features, scaffold=scaffold,
                         train_op=train_op)


@pytest.mark.parametrize("call", [lambda model, *given: model.train(*given, steps=2),
                                  lambda model, given, hooks: model.evaluate(given, hooks=hooks),
                                  lambda model, given, hooks: list(model.predict(given, hooks=hooks))],
                         ids=["train", "evaluate", "predict"])
@pytest.mark.parametrize("when, error", [("at the start", tf.errors.AbortedError),
                                         ("in a step", tf.errors.UnavailableError)])
def test_it_ends_a_run(when, call, error, tmp_path):
    failure = fails_with(error)
    params, hook = {"failure": failure if when == "at the start" else None}, tf.train.SessionRunHook()
    if when == "in a step":
        hook.before_run = failure
    with pytest.raises(error, match="the other side is gone"):
        call(Estimator(model_fn, str(tmp_path), params=params),
             lambda: tf.data.Dataset.from_tensors([1.0]).repeat(5), [hook])
    assert failure.call_count == 1


def test_it_ends_an_extraction():
    failure = fails_with(tf.errors.AbortedError)

    def extracting_model_fn(features, labels, mode, params):
        return model_fn(0.0, mode, {"failure": failure})

    with pytest.raises(tf.errors.AbortedError), feature_extraction.running(extracting_model_fn):
        pass
    assert failure.call_count == 1
