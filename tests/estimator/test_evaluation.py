"""`evaluation`: evaluations during a training do not change the training, whatever triggers them."""

import pathlib
import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_replica_sync import Replica

from bertlib.estimator import evaluation, model_graph
from bertlib.estimator.estimator import Estimator, EstimatorSpec, RunConfig
from bertlib.graph import randomness
import optimization

LAST_STEP = 6


def model_fn(features, labels, mode):
    """A linear regression with random numbers, in each training step and in the evaluation."""
    weights = tf.get_variable("weights", [4], initializer=tf.random_normal_initializer())
    scale = randomness.uniform([4], randomness.new_site("noise")) + 0.5
    outputs = tf.linalg.matvec(features["x"] * scale, weights)
    loss = tf.reduce_mean(tf.square(outputs - labels))
    train_op = optimization.create_optimizer(loss, 0.1, 100, 2, use_tpu=False) if mode == "train" else None
    tf.summary.scalar("output", tf.reduce_mean(outputs))
    return EstimatorSpec(mode, loss=loss, train_op=train_op, predictions={"output": outputs},
                         eval_metric_ops={"error": tf.metrics.mean(outputs - labels)})


def input_fn():
    """Returns endless batches from the global random generators of NumPy and Python, as in some forks."""
    def batches():
        while True:
            x = np.random.standard_normal([3, 4]).astype(np.float32)
            yield {"x": x}, np.float32([random.random()] * 3)

    return tf.data.Dataset.from_generator(batches, ({"x": tf.float32}, tf.float32), ({"x": [3, 4]}, [3]))


class EachCheckpoint(tf.train.CheckpointSaverListener):
    """Triggers an evaluation of each checkpoint."""

    def __init__(self, evaluate):
        self._evaluate = evaluate

    def after_save(self, session, global_step_value):
        self._evaluate(None)


class EachStep(tf.train.SessionRunHook):
    """Triggers an evaluation of the session's weights before the first step and after each step."""

    def __init__(self, evaluate):
        self._evaluate = evaluate

    def begin(self):
        self._weights = evaluation.SessionWeights()

    def after_create_session(self, session, coord):
        self._evaluate_weights_of(session)

    def after_run(self, run_context, run_values):
        self._evaluate_weights_of(run_context.session)

    def _evaluate_weights_of(self, session):
        with self._weights.saved(session) as checkpoint:
            self._evaluate(checkpoint)
        assert not pathlib.Path(checkpoint).parent.exists()


def train(directory, trigger=None):
    """Trains. Returns (the Estimator, the results of its evaluations)."""
    random.seed(5)
    np.random.seed(5)
    trained = Estimator(model_fn, str(directory), RunConfig(
        save_checkpoints_steps=2, keep_checkpoint_max=None, save_summary_steps=1, log_step_count_steps=None))
    results = []

    def evaluate(checkpoint):
        before = random.getstate(), np.random.get_state()[1].tolist(), tf.get_default_graph()
        results.append(trained.evaluate(input_fn, steps=2, checkpoint_path=checkpoint))
        assert before == (random.getstate(), np.random.get_state()[1].tolist(), tf.get_default_graph())

    hooks = [EachStep(evaluate)] if trigger is EachStep else []
    listeners = [EachCheckpoint(evaluate)] if trigger is EachCheckpoint else []
    trained.train(input_fn, hooks=hooks, max_steps=LAST_STEP, saving_listeners=listeners)
    return trained, results


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The directory of a training without evaluations."""
    directory = tmp_path_factory.mktemp("without")
    train(directory)
    return directory


def batches_of(count=3):
    """Returns an input_fn with `count` batches."""
    def made():
        chance = np.random.RandomState(0)
        x = chance.standard_normal([count, 3, 4]).astype(np.float32)
        return tf.data.Dataset.from_tensor_slices(({"x": x}, np.ones([count, 3], np.float32)))
    return made


def test_replicas_that_cannot_share_the_input_leave_the_evaluation_to_replica_0(tmp_path):
    config = RunConfig(model_dir=str(tmp_path))
    builder = model_graph.Builder(model_fn, config, None, dict.fromkeys(("train", "eval", "infer")))
    alone = evaluation.evaluate(builder, None, batches_of())
    assert evaluation.evaluate(builder, None, batches_of(), group=Replica(0, 2)) == alone
    assert alone["global_step"] == 0 and not list(tmp_path.iterdir())
    # Replica 1 computes nothing. It only returns the value that replica 0 broadcasts, and here this is None.
    assert evaluation.evaluate(builder, None, batches_of(), group=Replica(1, 2)) is None
