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


@pytest.mark.parametrize("text, named", [
    (tf_config("worker", 1, worker=["a:1", "b:1"]), "2 worker; this one is worker 1"),
    (tf_config("worker", worker={"0": "a:1", "1": "b:1"}), "2 worker; this one is worker 0"),
    (tf_config("chief", chief=["a:1"], worker=["b:1"]), "1 chief, 1 worker; this one is chief 0"),
    (tf_config("ps", chief=["a:1"], ps=["b:1"]), "1 chief, 1 ps; this one is ps 0"),
    (tf_config("evaluator", chief=["a:1"]), "1 chief; this one is evaluator 0")])
def test_a_cluster_is_refused(text, named, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=rf"TF_CONFIG names a cluster of several processes \({named}\).* not "
                       "supported yet.*Unset TF_CONFIG"):
        RunConfig()


@pytest.mark.parametrize("text", ["{", "worker", "[]", "3", '{"cluster": []}', '{"cluster": {"worker": 2}}',
                                  '{"task": "worker"}'])
def test_a_tf_config_that_cannot_be_read_is_an_error(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    if text == '{"cluster": []}':  # empty as well
        RunConfig()
        return
    with pytest.raises(ValueError, match="TF_CONFIG is not what TensorFlow understands .* unset it"):
        RunConfig()
