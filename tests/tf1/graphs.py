"""Helpers for tests of `tf1`: they build and run a graph, or a program in a new interpreter."""

import subprocess
import sys

import numpy as np
import scripts

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


def run_python(folder, *arguments, path=()):
    """Runs python in a folder, in a new interpreter that finds this project and the folders in `path`.
    Returns a CompletedProcess."""
    variables = scripts.environment(PYTHONPATH=":".join(map(str, [scripts.ROOT, *path])),
                                    PYTHONDONTWRITEBYTECODE="")
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, encoding="utf-8",
                          env=variables, timeout=300)
