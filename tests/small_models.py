"""Small models for tests of both Estimators: a model that counts its steps, and one that can be stopped."""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.estimator import estimator
from bertlib.system import stopping
import optimization


def count_step(loss, amount=1.0):
    """Returns (variable `total`, op of a training step that adds `amount` to it)."""
    total = tf.get_variable("total", [], initializer=tf.zeros_initializer())
    with tf.control_dependencies([loss]):
        return total, tf.group(tf.assign_add(total, amount), tf.assign_add(tf.train.get_global_step(), 1))


def counting_model(features, labels, mode, params):
    """Adds 1 to `total` in each step. The loss is the mean of x. The model predicts x and x + total."""
    del labels
    x = features["x"] if isinstance(features, dict) else features
    loss = tf.reduce_mean(x)
    total, train_op = count_step(loss)
    scaffold_fn = None
    if "init_checkpoint" in params:
        def scaffold_fn():
            return tf.train.Scaffold(init_fn=checkpoint_formats.create_init_fn(params["init_checkpoint"],
                                                                               [total]))
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op,
                                   predictions={"x": x, "sum": x + total},
                                   eval_metric_ops={"mean_x": tf.metrics.mean(x)}, scaffold_fn=scaffold_fn)


def replacing(**fields):
    """Returns the counting model with other values for fields of its `EstimatorSpec`."""
    def model_fn(features, labels, mode, params):
        return counting_model(features, labels, mode, params)._replace(**fields)
    return model_fn


def counting_estimators(directory, module=estimator):
    """Returns a function that creates Estimators of the counting model, or of another one, in a directory.

    `module` has the classes Estimator and RunConfig.
    """
    def create(params=None, model_fn=counting_model, batch_sizes=None, **config):
        return module.Estimator(model_fn, str(directory), module.RunConfig(**config), params,
                                **(batch_sizes or {}))
    return create


def endless():
    return tf.data.Dataset.from_tensors({"x": [1.0, 2.0]}).repeat()


def averaging_model(features, labels, mode, params):
    """A model with one weight that is trained on the means of batches. `ran` is called for each micro-batch.
    """
    ran = tf.numpy_function(params["ran"], [], tf.float32)
    ran.set_shape([])
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    loss = tf.square(weight - tf.reduce_mean(features)) + ran
    train_op = None
    if mode == "train":
        train_op = optimization.create_optimizer(
            loss, 0.1, 100, 2, use_tpu=False,
            step_config=optimization.StepConfig(
                gradient_accumulation_steps=params["gradient_accumulation_steps"]))
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=features + ran)


class Stopping:
    """An Estimator that gets a request to stop while it computes micro-batch number `at`, counted from 1.

    `module` has the classes Estimator and RunConfig.
    """

    def __init__(self, directory, at=None, micro_batches=1, module=estimator, **settings):
        self.at, self.micro_batches = at, 0
        self.request = stopping.StopRequest()
        config = module.RunConfig(gradient_accumulation_steps=micro_batches, stop_request=self.request,
                                  **{"save_checkpoints_steps": 100, **settings})
        self.model = module.Estimator(averaging_model, str(directory), config, {"ran": self.ran},
                                      train_batch_size=4 * micro_batches)

    def ran(self):
        self.micro_batches += 1
        if self.micro_batches == self.at:
            self.request.set()
        return np.float32(0)


def foreign_batches():
    return tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.float32)).shuffle(50, seed=1).batch(4)
