"""Runs a script of google-research/bert under TensorFlow 2.15, the last version with `tf.estimator`.

    python benchmarks/peers/published_code.py CLONE/run_classifier.py [the script's flags]

CLONE is a clone of google-research/bert. `python` is that of an environment with tensorflow 2.15. The script
and the modules beside it run unchanged: `import tensorflow` gives them `tensorflow.compat.v1`, with the few
names of `tf.contrib` that they use. benchmarks/compare.py calls this program with --published_code.
"""

import os
import runpy
import sys
import types

import tensorflow.compat.v1 as tf


def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
    """Normalizes the last axis, as `tf.contrib.layers.layer_norm` does."""
    assert begin_norm_axis == begin_params_axis == -1
    with tf.variable_scope(scope, "LayerNorm"):
        size = inputs.shape[-1:]
        beta = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, variance_epsilon=1e-12)


def contrib():
    """Returns the parts of `tf.contrib` that the scripts use."""
    tpu = types.SimpleNamespace(**{name: getattr(tf.estimator.tpu, name) for name in (
        "InputPipelineConfig", "RunConfig", "TPUConfig", "TPUEstimator", "TPUEstimatorSpec")},
        CrossShardOptimizer=tf.tpu.CrossShardOptimizer)
    return types.SimpleNamespace(
        tpu=tpu, layers=types.SimpleNamespace(layer_norm=layer_norm),
        data=types.SimpleNamespace(map_and_batch=tf.data.experimental.map_and_batch,
                                   parallel_interleave=tf.data.experimental.parallel_interleave))


def main():
    """Runs the script that the command line names."""
    tf.disable_v2_behavior()
    tf.contrib = contrib()
    sys.modules["tensorflow"] = tf
    script, *flags = sys.argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    sys.argv = [script, *flags]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
