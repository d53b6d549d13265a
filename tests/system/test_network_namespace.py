"""Processes in their own network namespace: what they can reach, and what stays the same.

tests/commands/test_open_ports.py shows that nothing outside reaches them.
"""

import json
import os
import socket
import subprocess
import sys

from helpers import ROOT
import network_namespaces
from network_namespaces import as_nobody, forbidden
import pytest

from bertlib.system import cluster, network_namespace

USERS = {"this user": list, "nobody": as_nobody}

# Creates a namespace in a process that has another thread, like a launcher, and runs the last argument in it.
CREATE = """
import json, os, subprocess, sys, threading
sys.path.insert(0, sys.argv[1])
from bertlib.system import network_namespace
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    with network_namespace.Namespace() as namespace:
        process = subprocess.Popen(namespace.wrap_command([sys.executable, "-S", "-c", sys.argv[2]]))
        code = process.wait()
except OSError as error:
    sys.exit(f"OSError: {error}")
print(code == 0 and process.pid)
"""


@pytest.fixture(params=list(USERS))
def prefix(request):
    """A function that returns the command line that runs a command as some user."""
    if request.param == "nobody" and os.geteuid():
        pytest.skip("only root can become another user")
    network_namespaces.require(USERS[request.param])
    return USERS[request.param]


def create(prefix, code, **options):
    """Runs code in a namespace that an interpreter creates. Returns the `CompletedProcess`."""
    return subprocess.run([str(part) for part in prefix([sys.executable, "-S", "-c", CREATE, ROOT, code])],
                          capture_output=True, encoding="utf-8", timeout=60, **options)


# --- In the namespace ------------------------------------------------------------------------------------

LOOK = """
import json, os, socket
reached = []
inside = socket.create_server(("127.0.0.1", 0))
for port in (inside.getsockname()[1], int(os.environ["OUTSIDE"])):
    try:
        reached.append(bool(socket.create_connection(("127.0.0.1", port))))
    except ConnectionRefusedError:
        reached.append(False)
print(json.dumps({"interfaces": [name for _, name in socket.if_nameindex()], "reached": reached,
                  "user": [os.geteuid(), os.getegid()], "pid": os.getpid()}))
"""


def test_a_process_in_it_has_loopback_alone(prefix):
    network_namespaces.require_namespaces(prefix)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        done = create(prefix, LOOK, env={**os.environ, "OUTSIDE": str(outside.getsockname()[1])})
    assert done.returncode == 0, done.stderr
    seen, pid = map(json.loads, done.stdout.splitlines())
    assert seen["interfaces"] == ["lo"] and seen["reached"] == [True, False] and seen["pid"] == pid
    user = [os.geteuid(), os.getegid()] if prefix is list else [network_namespaces.NOBODY] * 2
    assert seen["user"] == user


# --- Machines that forbid namespaces ---------------------------------------------------------------------


def test_a_machine_that_forbids_namespaces_is_an_error(prefix):
    network_namespaces.require(lambda command: prefix(forbidden(command)))
    done = create(lambda command: prefix(forbidden(command)), "print('never')")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "OSError: unshare: No space left on device\n"


def test_a_system_without_such_calls_is_an_error(monkeypatch):
    monkeypatch.setattr(network_namespace.sys, "executable", "/bin/false")
    with pytest.raises(OSError, match="without an answer"):
        network_namespace.Namespace()


# --- Deciding --------------------------------------------------------------------------------------------


def decide(open_ports=None, arguments=()):
    """Returns (whether ports are closed, the warnings)."""
    warnings = []
    with network_namespace.for_replicas(None, open_ports, arguments, warnings.append) as namespace:
        return namespace is not None, warnings


def test_ports_are_closed_by_default():
    network_namespaces.require_namespaces()
    assert decide() == (True, []) and decide(False) == (True, [])
    assert decide(arguments=["--data_dir=/data", "a,b", "file:///a", "ram://a", "--text=see gs://b"]) == (
        True, [])


@pytest.mark.parametrize("argument", [
    "--data_dir=gs://bucket/data", "s3://bucket", "--input_file=/here/a,hdfs://host/b", "--a=viewfs://b/c"])
def test_a_remote_path_needs_the_network(argument):
    is_closed, (warning,) = decide(arguments=["--seed=1", argument])
    assert not is_closed and f"({argument} needs the network)" in warning


def test_the_warning_says_what_is_open_to_whom_and_the_remedy(monkeypatch):
    def fail():
        raise OSError(1, "unshare: Operation not permitted")

    monkeypatch.setattr(network_namespace, "Namespace", fail)
    is_closed, (warning,) = decide()
    assert not is_closed
    assert "unshare: Operation not permitted" in warning and "--open_ports=true" in warning
    with pytest.raises(ValueError, match=r"--open_ports=false: .*unshare: Operation not permitted.*iptables"):
        decide(False)


@pytest.mark.parametrize("machines, open_ports, arguments", [
    (None, True, []), (None, True, ["--data_dir=gs://bucket"]),
    *((cluster.Cluster(("a:1", "b:1"), 0), given, []) for given in (None, True))], ids=str)
def test_ports_stay_open_if_asked_for_and_between_machines(machines, open_ports, arguments, monkeypatch):
    """test_open_ports.py has --open_ports=false with several machines."""
    monkeypatch.setattr(network_namespace, "Namespace", None)
    warnings = []
    with network_namespace.for_replicas(machines, open_ports, arguments, warnings.append) as namespace:
        assert namespace is None and warnings == []
