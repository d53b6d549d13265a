"""The session configuration of a run."""

import tensorflow.compat.v1 as tf

from bertlib.estimator.run_config import RunConfig


def test_ops_without_a_kernel_for_gpus_run_on_the_cpu_unless_the_script_configures_the_session():
    assert RunConfig().session_config.allow_soft_placement
    given = tf.ConfigProto()
    assert RunConfig(session_config=given).replace(model_dir="x").session_config is given
