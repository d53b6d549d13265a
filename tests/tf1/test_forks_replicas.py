"""Scripts with their own optimizers run as several replicas: `python -m tf1 --num_replicas`.

`forks/fork_optimizer/run_replicas.py` is such a script. It prints its results.
"""

import json
import pathlib
import re
import signal
import socket
import subprocess
import sys

from helpers import events_in
from numpy.testing import assert_allclose
import pytest
import scripts
import tensorflow.compat.v1 as tf

import tf1
from tf1._replicas import horovod_mode

SCRIPT = pathlib.Path(__file__).resolve().parent / "forks" / "fork_optimizer" / "run_replicas.py"
# Two sums over halves of a batch are rounded in another way than one sum. In addition, the own optimizer may
# divide by a small number.
TOLERANCE = dict(rtol=1e-4, atol=1e-5)


def start(directory, *flags, options=(), **variables):
    """Starts a run, and returns its process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tf1", *options, SCRIPT, f"--output_dir={directory}", *flags], cwd=directory,
        env=scripts.environment(PYTHONPATH=str(scripts.ROOT), **variables), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")


def run(directory, *flags, options=()):
    """Runs the script, which must succeed. Returns (the result that it prints, its log)."""
    process = start(directory, *flags, options=options)
    out, log = process.communicate(timeout=900)
    assert process.returncode == 0, log
    return last_json(out), log


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def assert_close(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert_allclose(found[name], value, **TOLERANCE, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    return directory, run(directory, "--batch_size=8")[0]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    directory = tmp_path_factory.mktemp("together")
    return directory, run(directory, "--batch_size=4", "--num_gpus=2", options=["--num_replicas=2"])[0]


@pytest.mark.slow(reason="three interpreters with TensorFlow, and one for comparison")
def test_two_replicas_train_as_one_process_with_twice_the_batch(alone, together):
    directory, expected = alone
    of_both, found = together[0], dict(together[1])
    other = last_json((of_both / "own" / "replicas" / "1.log").read_text())

    for kind in ("own", "clipped"):
        assert_close(found[kind], expected[kind])
        # The step of a summary may be read before or after the step is counted. So only the last losses are
        # compared.
        last, theirs = (max(events_in(folder / kind)["loss"]) for folder in (of_both, directory))
        assert_allclose(last[1], theirs[1], **TOLERANCE)
    assert "none" not in expected
    assert re.search("not averaged over the 2 replicas.* tf.gradients", found["none"])
    # All replicas get the results of replica 0. Only replica 0 writes files, and the other replica reads
    # them.
    files = [True, ["moved", "records", "text"]]
    assert found.pop("files") == ["0", "0", *files] and other.pop("files") == ["1", "1", *files]
    assert [(of_both / "files" / name).read_text() for name in ("moved", "text")] == ["0", "0"]
    assert [one.decode() for one in tf.python_io.tf_record_iterator(
        str(of_both / "files" / "records"))] == ["0"]
    assert other == found
    assert len(found["predicted"]) == 8 and len(list((of_both / "export").iterdir())) == 1
    assert found["evaluated"]["global_step"] == 4


@pytest.mark.slow(reason="three interpreters with TensorFlow, and one for comparison")
def test_horovod(tmp_path):
    outputs = [tmp_path / name for name in ("alone", "together")]
    for output in outputs:
        output.mkdir()
    expected, _ = run(outputs[0], "--batch_size=8", "--horovod")
    found, _ = run(outputs[1], "--batch_size=4", "--horovod", options=["--num_replicas=2"])
    other = last_json((outputs[1] / "sgd" / "replicas" / "1.log").read_text())

    ranks = [one["rank"] for one in (expected, found, other)]
    assert ranks == [[0, 0, 1, 1], [0, 0, 2, 2], [1, 1, 2, 2]]
    for kind in ("sgd", "afterwards"):
        assert_close(found[kind], expected[kind])
        assert other[kind] == found[kind] and found[kind]["global_step"] == 4
    assert other["evaluated"] is None and found["evaluated"]["global_step"] == 4


@pytest.mark.soak(reason="four interpreters with TensorFlow, and three for comparison")
def test_two_machines_train_as_two_replicas_of_one(together, tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    cluster = {"worker": [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    processes = [start(tmp_path, "--batch_size=4", "--fault=pass", options=["--num_replicas=1"],
                       TF_CONFIG=json.dumps({"cluster": cluster, "task": task})) for task in tasks]
    outputs = [process.communicate(timeout=900) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert last_json(outputs[0][0]) == together[1]["own"] and not outputs[1][0]
    assert last_json((tmp_path / "own" / "replicas" / "1.log").read_text()) == together[1]["own"]


# --- Failures --------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="an interpreter with TensorFlow")
def test_one_process_that_is_terminated_keeps_its_last_checkpoint(tmp_path):
    process = start(tmp_path, "--batch_size=8", "--fault=os.kill(os.getpid(), signal.SIGTERM)")
    process.communicate(timeout=900)
    assert process.returncode == -signal.SIGTERM
    assert tf.train.latest_checkpoint(str(tmp_path / "own")).endswith("-2")


# --- One process -----------------------------------------------------------------------------------------


def test_horovod_in_a_process_that_is_alone(graph, monkeypatch):
    import horovod.tensorflow as hvd
    from horovod.tensorflow.compression import Compression
    monkeypatch.setattr(horovod_mode, "_initialized", False)
    with pytest.raises(ValueError, match=r"hvd\.init\(\) has not been called"):
        hvd.rank()
    hvd.init()
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()) == (1, 0, 1, 0)
    assert Compression is hvd.Compression
    with pytest.raises(AttributeError, match=r"allgather: tf1 provides only these names of Horovod: .*init"):
        hvd.allgather  # noqa: B018
    variable = tf1.get_variable("x", initializer=2.0)
    optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(0.5), sparse_as_dense=True)
    train = optimizer.minimize(variable ** 2)
    hook = hvd.BroadcastGlobalVariablesHook(0)
    hook.begin()
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        hook.after_create_session(session, None)
        session.run(train)
        assert session.run([variable, hvd.allreduce(tf1.constant(3))]) == [0.0, 3]
