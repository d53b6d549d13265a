"""Measures the CPU and wall seconds of this project for benchmarks/compare.py.

The work is a training step of a model with random weights, or a matrix product.

    python benchmarks/peers/this_project.py SETTINGS        (JSON; see compare.py)
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from bertlib.commands import launch

import numpy as np
from stopwatch import measure
import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import StepConfig
import modeling
import optimization
import run_classifier

DTYPES = {"fp32": tf.float32, "bf16": tf.bfloat16}


def step(settings):
    """Trains a classifier on one random batch without padding."""
    shape = settings["batch_size"], settings["length"]
    ids, mask, segments = (tf.placeholder(tf.int32, shape) for _ in range(3))
    labels = tf.placeholder(tf.int32, shape[:1])
    tf.train.get_or_create_global_step()
    config = StepConfig(precision=settings["precision"], compile_kernels=settings["compile_kernels"])
    loss = run_classifier.create_model(
        modeling.BertConfig.from_dict(settings["config"]), True, ids, mask, segments, labels, 2, False,
        step_config=config)[0]
    train_op = optimization.create_optimizer(loss, 5e-5, 1000, 100, False, step_config=config)
    random = np.random.RandomState(0)
    batch = {ids: random.randint(1000, settings["config"]["vocab_size"], shape), mask: np.ones(shape),
             segments: np.zeros(shape), labels: random.randint(0, 2, shape[:1])}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        measure(lambda: session.run([train_op, loss], batch), settings["warm_up"], settings["count"])


def matmul(settings):
    """Measures the multiplication of two square matrices."""
    with tf.Session() as session:
        left, right = (tf.Variable(tf.ones([settings["width"]] * 2, DTYPES[settings["precision"]]))
                       for _ in range(2))
        session.run(tf.global_variables_initializer())
        product = tf.matmul(left, right).op
        measure(lambda: session.run(product), settings["warm_up"], settings["count"])


def main():
    """Measures training steps or matrix products, as settings["work"] says."""
    settings = json.loads(sys.argv[1])
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    {"step": step, "matmul": matmul}[settings["work"]](settings)


if __name__ == "__main__":
    launch.keep_freed_memory()
    main()
