"""A helper for tests of `tf1`: it builds a graph, runs it, and forgets it."""

import numpy as np

import tf1 as tf


def run(build, step=0, seed=1, times=1, values=None):
    """Calls build() in a new graph, and returns the values of its tensors.

    Args:
      build: function that returns tensors.
      step: the global step.
      seed: the seed of the graph.
      times: number of runs. The values of the last run are returned.
      values: {variable: array}, values to set before the first run.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        global_step = tf.train.get_or_create_global_step()
        outputs = build()
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        global_step.load(step, session)
        for variable in tf.global_variables():
            if variable.op.name in (values or {}):
                variable.load(values[variable.op.name], session)
        for _ in range(times):
            results = session.run(outputs)
        return results


def names(variables):
    return [variable.op.name for variable in variables]


def normal(*shape):
    return np.random.RandomState(sum(shape)).standard_normal(shape).astype(np.float32)
