"""TF_CONFIG as Kubernetes' training operators, Vertex AI and SageMaker write it, and TF_CONFIG with errors.
"""

import pytest

from bertlib.system import cluster


def read(text):
    return cluster.from_environment({"TF_CONFIG": text})


def config(jobs, kind="worker", index=0):
    """Returns the TF_CONFIG of a machine. `jobs` are the machines of the cluster, in JSON."""
    return f'{{"cluster": {jobs}, "task": {{"type": "{kind}", "index": {index}}}, "environment": "cloud"}}'


# --- Forms of services -----------------------------------------------------------------------------------

TFJOB = '{"chief": ["bert-chief:2222"], "worker": ["bert-worker-0:2222", "bert-worker-1:2222"]}'
ADDRESSES = ("bert-chief:2222", "bert-worker-0:2222", "bert-worker-1:2222")


@pytest.mark.parametrize("text, addresses, index", [
    # A TFJob of Kubernetes.
    (config(TFJOB, "chief"), ADDRESSES, 0), (config(TFJOB, index=1), ADDRESSES, 2),
    (config(TFJOB, "evaluator"), ADDRESSES, None),
    (config(TFJOB[:-1] + ', "evaluator": ["bert-evaluator:2222"]}', "evaluator"), ADDRESSES, None),
    # Vertex AI.
    ('{"cluster": {"chief": ["cmle-0:2222"], "worker": ["cmle-1:2222"]}, "environment": "cloud", "task": '
     '{"type": "worker", "index": 0, "trial": "", "cloud": "ab-ml"}, "job": "{\\"job_args\\": [\\"--a\\"]}"}',
     ("cmle-0:2222", "cmle-1:2222"), 1),
    # SageMaker; the second form is that for parameter servers, but without parameter servers.
    (config('{"worker": ["algo-1:8890", "algo-2:8890"]}', index=1), ("algo-1:8890", "algo-2:8890"), 1),
    (config('{"master": ["algo-1:2222"], "worker": ["algo-2:2222"]}', "master"),
     ("algo-1:2222", "algo-2:2222"), 0),
    # One machine.
    ('{"cluster": {"worker": ["a:1"]}}', ("a:1",), 0),
    # Addresses of IPv6, and an index in quotes.
    (config('{"worker": ["[fe80::1]:7", "[fe80::2]:8"]}', index='"1"'), ("[fe80::1]:7", "[fe80::2]:8"), 1)])
def test_forms_of_services(text, addresses, index):
    assert read(text) == cluster.Cluster(addresses, index)


def test_host_and_port_of_ipv6():
    found = cluster.Cluster(("[fe80::1]:7", "[fe80::2]:8"), 1)
    assert (found.host, found.coordinator) == ("fe80::2", ("fe80::1", 7))


@pytest.mark.parametrize("text", [
    "", '{"environment": "cloud"}', '{"cluster": null}', '{"cluster": {}, "task": {}}'])
def test_what_names_no_machine(text):
    assert read(text) is None and cluster.from_environment({}) is None


def test_all_machines_have_one_key_and_other_clusters_another():
    keys = {read(config('{"worker": ["a:1", "b:1"]}', index=index)).key for index in (0, 1)}
    assert len(keys) == 1 and len(bytes.fromhex(*keys)) == 32
    assert read(config('{"worker": ["a:1", "b:2"]}')).key not in keys


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, said", [
    ("{", "Expecting property name"),
    (config('{"worker": 2}'), "it does not have the form of the example"),
    (config('{"worker": ["a"]}'), "'a' is not an address"),
    (config('{"worker": ["a:1", "b:1"]}', index=2), "\"task\" says that this machine is 'worker 2', but "
     "\"cluster\" contains only worker 0, worker 1"),
    (config('{"chief": ["a:1"], "master": ["b:1"]}'), "more than one chief"),
    (config('{"worker": ["a:1", "a:1"]}'), "it names an address twice"),
    (config('{"evaluator": ["a:1"]}', "evaluator"), "it names no machine that trains"),
    (config('{"worker": ["a:1"]}', "ps"), "parameter servers"),
    (config('{"worker": ["::1:2222"]}'), "'::1:2222' is not an address"),
    (config('{"a\\nb\\ud800": ["a:1"]}'), "machines of an unknown kind: ['a\\nb\\ud800']")])
def test_what_is_wrong_is_said(text, said):
    with pytest.raises(ValueError) as caught:
        read(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600 and message.encode()
    assert said in message and message.startswith("The environment variable TF_CONFIG cannot be used: ")
    assert message.endswith(", or unset it to run on this machine alone.")
