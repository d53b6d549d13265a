"""TF_CONFIG: processes that would not know of each other are refused. The GPU of a replica."""

import json
import types

import pytest
import tensorflow.compat.v1 as tf

from bertlib.estimator.run_config import RunConfig
from bertlib.replicas import replica_group


def tf_config(task="worker", index=0, **cluster):
    return json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})


@pytest.mark.parametrize("text", [
    "", " ", "{}", '{"environment": "cloud"}', '{"cluster": null}', tf_config(worker=["a:1"]),
    tf_config("chief", chief=["a:1"]), tf_config(worker={"0": "a:1"})])
def test_one_process_is_no_cluster(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert RunConfig().num_worker_replicas == 1


@pytest.mark.parametrize("text", [
    tf_config("worker", 1, worker=["a:1", "b:1"]), tf_config("worker", worker={"0": "a:1", "1": "b:1"}),
    tf_config("chief", chief=["a:1"], worker=["b:1"]), tf_config("evaluator", chief=["a:1"])])
def test_a_cluster_is_refused_without_what_starts_replicas(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG names a cluster.*python -m tf1 --num_replicas=1 SCRIPT"):
        RunConfig()


@pytest.mark.parametrize("text", ["{", "worker", "[]", '{"cluster": {"worker": 2}}', '{"task": "worker"}'])
def test_a_tf_config_that_cannot_be_read_is_an_error(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG cannot be used"):
        RunConfig()


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
    assert RunConfig(session_config=given).session_config is given and RunConfig().session_config is None
