"""`--open_ports`: which processes can reach the ports of replicas on one machine, and warnings about them."""

import os
import re
import signal
import socket
import time

import network_namespaces
import pytest
import tensorflow.compat.v1 as tf
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


def read_through(port, path, seconds=20):
    """Reads a file like an attacker: through the port of a TensorFlow process, and with its rights."""
    config = tf.ConfigProto(operation_timeout_in_ms=1000 * seconds)
    with tf.Graph().as_default():
        content = tf.io.read_file(str(path))
        with tf.Session(f"grpc://127.0.0.1:{port}", config=config) as session:
            return session.run(content)


@pytest.mark.slow(reason="a training of two replicas, and a session that waits for its deadline")
@pytest.mark.parametrize("is_open", [
    pytest.param(True, marks=pytest.mark.soak(reason="two more trainings of replicas")), False])
def test_who_reads_files_through_the_ports_of_a_training(is_open, untrained, tmp_path):
    network_namespaces.require_namespaces()
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    secret.chmod(0o600)
    run = untrained.start(untrained.row.script, **untrained.row.training_flags(
        num_train_epochs=100000, num_replicas=2, save_checkpoints_steps=10000, open_ports=is_open or None))
    try:
        while not re.search(r" step \d+/", run.read("stderr")):
            time.sleep(0.1)
        found = {pid: network_namespaces.ports_of(pid) for pid in network_namespaces.children(run.pid)}
        ports = {pid: opened for pid, opened in found.items() if opened}
        replicas = list(ports)
        visible = network_namespaces.ports_here()
        assert len(replicas) == 2
        if is_open:
            assert visible.issuperset(sum(ports.values(), []))
            assert read_through(ports[replicas[0]][-1], secret) == b"a secret"
        else:
            assert visible.isdisjoint(sum(ports.values(), [])) and not network_namespaces.ports_of(run.pid)
            for port in sum(ports.values(), []):
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port))
            with pytest.raises((tf.errors.DeadlineExceededError, tf.errors.UnavailableError)):
                read_through(ports[replicas[0]][-1], secret, seconds=5)
    finally:
        os.kill(run.pid, signal.SIGTERM)
        done = run.wait()
    assert done.code == 143 and "terminated." in done.err and not warnings_in(done.err)
