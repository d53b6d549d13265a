"""TF_CONFIG as Kubernetes' training operators, Vertex AI and SageMaker write it, and TF_CONFIG with errors.
"""

import json

import pytest

from bertlib.replicas import cluster


def read(text):
    return cluster.from_environment({"TF_CONFIG": text if isinstance(text, str) else json.dumps(text)})


def config(task="worker", index=0, **jobs):
    return {"cluster": jobs, "task": {"type": task, "index": index}}


# --- Forms of services -----------------------------------------------------------------------------------

TFJOB = {"chief": ["bert-chief-0.team.svc:2222"],
         "worker": ["bert-worker-0.team.svc:2222", "bert-worker-1.team.svc:2222"]}


@pytest.mark.parametrize("kind, index, place", [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)])
def test_a_tfjob_of_kubernetes(kind, index, place):
    found = read({"cluster": TFJOB, "task": {"type": kind, "index": index}, "environment": "cloud"})
    assert found.addresses == (*TFJOB["chief"], *TFJOB["worker"]) and found.index == place
    assert found.coordinator == ("bert-chief-0.team.svc", 2222) and not found.is_evaluator
    assert found.host == found.addresses[place].removesuffix(":2222")


def test_the_evaluator_of_a_tfjob():
    found = read({"cluster": TFJOB, "task": {"type": "evaluator", "index": 0}, "environment": "cloud"})
    assert found.is_evaluator and found.coordinator == ("bert-chief-0.team.svc", 2222)
    also_named = read(config("evaluator", **TFJOB, evaluator=["bert-evaluator-0.team.svc:2222"]))
    assert also_named == found


def test_vertex_ai():
    found = read({
        "cluster": {"chief": ["cmle-training-workerpool0-782452dcb4-0:2222"],
                    "worker": ["cmle-training-workerpool1-782452dcb4-0:2222"]},
        "environment": "cloud", "task": {"type": "worker", "index": 0, "trial": "", "cloud": "ab-ml"},
        "job": '{"python_module": "trainer.task", "job_args": ["--a"]}'})
    assert (len(found.addresses), found.index) == (2, 1)
    assert found.host == "cmle-training-workerpool1-782452dcb4-0"


def test_sagemaker():
    found = read({"cluster": {"worker": ["algo-1:8890", "algo-2:8890"]}, "environment": "cloud",
                  "task": {"index": 1, "type": "worker"}})
    assert (found.index, found.host, found.coordinator) == (1, "algo-2", ("algo-1", 8890))
    # The form for parameter servers, but without parameter servers.
    found = read({"cluster": {"master": ["algo-1:2222"], "worker": ["algo-2:2222"]}, "environment": "cloud",
                  "task": {"index": 0, "type": "master"}})
    assert (found.index, found.addresses) == (0, ("algo-1:2222", "algo-2:2222"))


@pytest.mark.parametrize("text", ["", " ", "{}", {"environment": "cloud"}, {"cluster": None},
                                  {"cluster": {}, "task": {}}, {"cluster": []}])
def test_what_names_no_machine(text):
    assert read(text) is None and cluster.from_environment({}) is None


@pytest.mark.parametrize("text", [config(worker=["a:1"]), config("chief", chief=["a:1"]), {
    "cluster": {"worker": ["a:1"]}}, config(worker={"0": "a:1"})])
def test_a_cluster_of_one_machine(text):
    assert read(text) == cluster.Cluster(("a:1",), 0)


def test_members_by_number_and_addresses_of_ipv6():
    found = read(config("worker", "1", worker={"1": "[fe80::2]:8", "0": "[fe80::1]:7"}))
    assert (found.index, found.host, found.coordinator) == (1, "fe80::2", ("fe80::1", 7))


def test_all_machines_have_one_key_and_other_clusters_another():
    keys = {read(config("worker", index, worker=["a:1", "b:1"])).key for index in (0, 1)}
    assert len(keys) == 1 and len(bytes.fromhex(keys.pop())) == 32
    assert read(config(worker=["a:1", "b:2"])).key != read(config(worker=["a:1", "b:1"])).key


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, said", [
    ("{", "Expecting property name"), ("worker", "Expecting value"),
    ("3", "its content is not a JSON object"), ({"cluster": 3}, '"cluster" is not a JSON object'),
    ({"cluster": {"worker": 2}}, '"worker" is not a list of addresses'),
    ({"cluster": {"worker": ["a"]}}, "'a' is not an address"),
    ({"cluster": {"worker": ["a:b"]}}, "'a:b' is not an address"),
    ({"cluster": {"worker": ["a:70000"]}}, "'a:70000' is not an address"),
    ({"cluster": {"worker": ["grpc://a:1"]}}, "is not an address"),
    ({"cluster": {"worker": [["a:1"]]}}, "is not an address"),
    ({"cluster": {"worker": {"0": "a:1", "2": "b:1"}}}, "None is not an address"),
    ({"task": "worker"}, '"task" is not a JSON object'),
    ({"cluster": {"worker": ["a:1", "b:1"]}}, "this machine is 'None 0'"),
    (config("worker", 2, worker=["a:1", "b:1"]),
     """"task" says that this machine is 'worker 2', but "cluster" contains only worker 0, worker 1"""),
    (config("chief", 0, worker=["a:1", "b:1"]), "this machine is 'chief 0'"),
    (config("worker", 0, chief=["a:1", "b:1"]), "more than one chief"),
    (config("worker", 0, chief=["a:1"], master=["b:1"]), "more than one chief"),
    (config("worker", 0, worker=["a:1", "a:1"]), "it names an address twice"),
    (config("workerpool0", 0, workerpool0=["a:1"]), "machines of an unknown kind: ['workerpool0']"),
    (config("evaluator", 0, evaluator=["a:1"]), "it names no machine that trains"),
    (config("worker", 0, worker=["a:1"], ps=["b:1"]), "parameter servers"),
    (config("ps", 0, worker=["a:1"]), "parameter servers"),
    (config("worker", "9" * 5000, worker=["a:1", "b:1"]), "99, but"),
    ("[" * 100_000, "maximum recursion depth"),
    ({"cluster": {"worker": ["a\nb:1"]}}, "is not an address"),
    ({"cluster": {"worker": ["::1:2222"]}}, "'::1:2222' is not an address"),
    ({"cluster": {"worker": ["[a]:x"]}}, '"[host]:port" for IPv6'),
    ({"cluster": {"a\nb\ud800": ["a:1"]}}, "machines of an unknown kind: ['a\\nb\\ud800']"),
    ({"sparseCluster": {"worker": {"1": "a:1"}}, "task": {"type": "worker", "index": 1}},
     "enableDynamicWorker")])
def test_what_is_wrong_is_said(text, said):
    with pytest.raises(ValueError) as caught:
        read(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600 and message.encode()
    assert said in message and message.startswith("The environment variable TF_CONFIG cannot be used: ")
    assert message.endswith(", or unset it to run on this machine alone.")
