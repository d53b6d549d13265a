"""`--open_ports`: which processes can reach the ports of replicas on one machine, and warnings about them."""

import os
import re
import signal
import socket
import time

import network_namespaces
import pytest
from test_replicas import command, machine  # noqa: F401 (a fixture)

# Prints in how many namespaces the replicas run, and that of replica 0.
NAMESPACES = ("namespaces = group.all_gather(os.readlink('/proc/self/ns/net'))\n"
              "print(len(set(namespaces)), namespaces[0])")


def warnings_in(log):
    return re.findall(r"WARNING: (.*)", log)


# --- Runs with closed ports ------------------------------------------------------------------------------


@pytest.mark.slow(reason="two interpreters, which load TensorFlow")
def test_a_run_that_needs_the_network_has_open_ports(command, run_script):  # noqa: F811 (a fixture)
    done = run_script(command, f"--act={NAMESPACES}", "--num_replicas=2", "--results_dir=gs://bucket/a")
    assert (done.code, done.out) == (0, f"1 {network_namespaces.namespace_of('self')}\n"), done
    warning, = warnings_in(done.err)
    assert re.fullmatch(r"The ports of this run are open to other machines \(--results_dir=gs://bucket/a "
                        r"needs the network\)\. The gRPC servers of TensorFlow.*", warning)


@pytest.mark.parametrize("flags, variables, said", [
    (["--results_dir=gs://bucket/a"], {}, "--results_dir=gs://bucket/a needs the network"),
    ([], {"TF_CONFIG": machine(1, 9)}, "TF_CONFIG names other")])
def test_closed_ports_that_cannot_be_are_refused(flags, variables, said, command, scripts,  # noqa: F811
                                                 tmp_path):
    done = scripts.run(command, f"--act={NAMESPACES}", "--num_replicas=2", "--open_ports=false", *flags,
                       cwd=tmp_path, **variables)
    last = done.err.splitlines()[-1]
    assert done.code == 1 and last.startswith("command.py: error: --open_ports=false: ") and said in last
    assert done.out == ""


# --- A training ------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="a training of two replicas")
def test_nothing_reaches_the_ports_of_a_training(untrained):
    network_namespaces.require_namespaces()
    run = untrained.start(untrained.row.script, **untrained.row.training_flags(
        num_train_epochs=100000, num_replicas=2, save_checkpoints_steps=10000))
    try:
        while not re.search(r" step \d+/", run.read("stderr")):
            time.sleep(0.1)
        found = {pid: network_namespaces.ports_of(pid) for pid in network_namespaces.children(run.pid)}
        ports = {pid: opened for pid, opened in found.items() if opened}
        assert len(ports) == 2 and not network_namespaces.ports_of(run.pid)
        for port in sum(ports.values(), []):
            assert port not in network_namespaces.ports_here()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
    finally:
        os.kill(run.pid, signal.SIGTERM)
        done = run.wait()
    assert done.code == 143 and "terminated." in done.err and not warnings_in(done.err)
