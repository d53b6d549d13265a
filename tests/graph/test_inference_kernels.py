"""Weights that are only read to prepare other weights are freed, and the outputs stay the same."""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.graph.inference_kernels import FreeUnreadWeights, InferenceKernels
from bertlib.tasks import loaded_model

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


def check(session, outputs, exists):
    """Checks the outputs, and that of all weights only `value` still exists."""
    for output, expected in zip(session.run(outputs), EXPECTED):
        np.testing.assert_allclose(output, expected, rtol=1e-5)
    assert dict(zip(SHAPES, session.run(exists))) == {"query": False, "key": False, "value": True}


def ask_existence():
    return [tf.is_variable_initialized(variable) for variable in tf.trainable_variables()]


def test_a_session_frees_them_before_its_first_run(graph):
    outputs = build()
    exists = ask_existence()
    with tf.train.SingularMonitoredSession([FreeUnreadWeights({"all": outputs})]) as session:
        check(session, outputs, exists)


def test_a_model_that_is_loaded_frees_them(session):
    outputs = build()
    exists = ask_existence()
    checkpoint = checkpoint_formats.Checkpoint("weights", SHAPES, VALUES.get)
    loaded_model.load_read_weights(session, checkpoint, outputs)
    check(session, outputs, exists)
