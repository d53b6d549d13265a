"""TF_CONFIG: processes that would not know of each other are refused."""

import json

import pytest

from bertlib.runtime.run_config import RunConfig


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
