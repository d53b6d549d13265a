"""The GPU of a replica."""

import types

import tensorflow.compat.v1 as tf

from bertlib.estimator.run_config import RunConfig
from bertlib.replicas import replica_group


def test_a_replica_that_sees_all_gpus_uses_its_own_unless_the_script_names_one(monkeypatch):
    group = types.SimpleNamespace(gpu=1)
    monkeypatch.setattr(replica_group, "_group", group)
    given = tf.ConfigProto(allow_soft_placement=True)
    found = RunConfig(session_config=given).replace(model_dir="x").session_config
    assert found.gpu_options.visible_device_list == "1" and found.allow_soft_placement
    assert RunConfig().session_config.gpu_options.visible_device_list == "1"
    assert not given.gpu_options.visible_device_list
    given.gpu_options.visible_device_list = "0"
    assert RunConfig(session_config=given).session_config.gpu_options.visible_device_list == "0"
    group.gpu = None
    assert RunConfig(session_config=given).session_config is given
    assert RunConfig().session_config.allow_soft_placement
