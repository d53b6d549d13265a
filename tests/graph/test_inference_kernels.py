"""Weights that are only read to prepare other weights get no memory, and the outputs stay the same."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.checkpoints.checkpoint_formats import Checkpoint
from bertlib.estimator import sessions
from bertlib.estimator.estimator_spec import EstimatorSpec, ModeKeys
from bertlib.graph.inference_kernels import InferenceKernels

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
SHAPES = {"query": [4, 3], "key": [4, 3], "value": [4, 6]}
VALUES = {name: np.random.RandomState(0).normal(size=shape).astype(np.float32)
          for name, shape in SHAPES.items()}
EXPECTED = [ROWS @ np.concatenate([VALUES["query"], VALUES["key"]], axis=1), ROWS @ VALUES["value"]]


def build():
    """Returns two products: one with weights that are joined, and so prepared; one with weights as they are.
    """
    weights = {name: tf.get_variable(name, initializer=value) for name, value in VALUES.items()}
    biases = [tf.zeros([3])] * 2
    kernels = InferenceKernels(uses_one_dnn=True)
    return [kernels.linear(tf.constant(ROWS), [weights["query"], weights["key"]], biases),
            kernels.linear(tf.constant(ROWS), [weights["value"]], [tf.zeros([6])])]


def open_checkpoint(**other_values):
    values = {**VALUES, **other_values}
    return Checkpoint("weights", {name: np.shape(value) for name, value in values.items()}, values.get,
                      {name: tf.as_dtype(np.asarray(value).dtype) for name, value in values.items()})


def check(session, outputs, exists, value_exists=True):
    """Checks the outputs, and that of all weights at most `value` exists."""
    for output, expected in zip(session.run(outputs), EXPECTED):
        np.testing.assert_allclose(output, expected, rtol=1e-5)
    assert dict(zip(SHAPES, session.run(exists))) == {
        "query": False, "key": False, "value": value_exists}


def ask_existence():
    return [tf.is_variable_initialized(variable) for variable in tf.trainable_variables()]


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource variables", "reference variables"])
def test_a_loaded_model_lacks_them(use_resource, session):
    with tf.variable_scope("", use_resource=use_resource):
        outputs = build()
    exists = ask_existence()
    sessions.load_read_weights(session, open_checkpoint(), tf.trainable_variables(), outputs)
    check(session, outputs, exists, value_exists=use_resource)  # reference variables are all prepared


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_session_of_an_evaluation_lacks_them(graph, is_trained):
    step = tf.train.create_global_step()
    outputs = build()
    exists = ask_existence()
    counter = tf.Variable(3, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    # Only a checkpoint of the run contains its step, and all its weights.
    new = None if is_trained else tf.get_variable("new", initializer=5.0)
    trained = open_checkpoint(global_step=np.int64(7)) if is_trained else None
    start = None if is_trained else sessions.create_init_checkpoint_scaffold(open_checkpoint())
    spec = EstimatorSpec(ModeKeys.PREDICT, predictions={"all": outputs}, scaffold=start)
    others = [step, counter] if is_trained else [step, counter, new]
    scaffold = sessions.create_inference_scaffold(spec, trained, [outputs, *others])
    with tf.train.SingularMonitoredSession(scaffold=scaffold) as session:
        check(session, outputs, exists)
        assert session.run(others) == ([7, 3] if is_trained else [0, 3, 5])
