"""Scripts with optimizers of their own as several replicas: `python -m tf1 --num_replicas`.

`forks/fork_optimizer/run_replicas.py` is such a script; it prints what it found.
"""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import scripts
import tensorflow.compat.v1 as tf

import tf1
from tf1 import _horovod

SCRIPT = pathlib.Path(__file__).resolve().parent / "forks" / "fork_optimizer" / "run_replicas.py"
# Sums of two halves are rounded otherwise than a sum of all, and Adam divides by what may be small.
TOLERANCE = dict(rtol=1e-4, atol=1e-5)


def run(directory, *flags, options=()):
    """What a run prints and logs; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-m", "tf1", *options, SCRIPT, f"--output_dir={directory}", *flags], cwd=directory,
        env=scripts.environment(PYTHONPATH=str(scripts.ROOT)), stdin=subprocess.DEVNULL, capture_output=True,
        encoding="utf-8", timeout=900)
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout), done.stderr


def last_json(text):
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def losses_in(directory):
    """{step: loss} of the training's summaries."""
    return {event.step: value.simple_value for path in sorted(directory.glob("events*"))
            for event in tf.train.summary_iterator(str(path)) for value in event.summary.value
            if value.tag == "loss"}


def assert_close(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, **TOLERANCE, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    return directory, run(directory, "--batch_size=8")[0]


@pytest.mark.slow(reason="three interpreters with TensorFlow, and one for comparison")
def test_two_replicas_train_as_one_process_with_twice_the_batch(alone, tmp_path):
    directory, expected = alone
    found, _ = run(tmp_path, "--batch_size=4", "--num_gpus=2", options=["--num_replicas=2"])
    other = last_json((tmp_path / "own" / "replicas" / "1.log").read_text())

    for kind in ("own", "adam", "clipped"):
        assert_close(found[kind], expected[kind])
        # A summary's step may be read before or after it is counted, and files are named by the second.
        last, theirs = (max(losses_in(folder / kind).items()) for folder in (tmp_path, directory))
        np.testing.assert_allclose(last[1], theirs[1], **TOLERANCE)
    assert "none" not in expected
    assert re.search("2 replicas whose gradients are not averaged.* tf.gradients", found["none"])
    # All get what replica 0 found. It alone writes; another one reads what it has written.
    files = [True, False, ["moved", "records", "text"]]
    assert found.pop("files") == ["0", "0", *files] and other.pop("files") == ["1", "1", *files]
    assert [(tmp_path / "files" / name).read_text() for name in ("moved", "text")] == ["0", "0"]
    assert [one.decode() for one in tf.python_io.tf_record_iterator(
        str(tmp_path / "files" / "records"))] == ["0"]
    assert other == found
    assert len(found["predicted"]) == 8 and len(list((tmp_path / "export").iterdir())) == 1
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
    assert_close(found["sgd"], expected["sgd"])
    assert other["sgd"] == found["sgd"] and found["sgd"]["global_step"] == 4
    assert other["evaluated"] is None and found["evaluated"]["global_step"] == 4


@pytest.mark.slow(reason="five interpreters with TensorFlow, and one for comparison")
def test_a_replica_that_is_killed_ends_all_and_they_go_on(alone, tmp_path):
    found, log = run(tmp_path, "--batch_size=4", f"--killed={tmp_path}/killed",
                     options=["--num_replicas=2", "--max_restarts=1", "--replica_timeout=60"])
    assert re.search(r"replica 1 \(process \d+\) was killed by SIGKILL.* All replicas are started again", log)
    assert_close(found, alone[1]["own"])


def test_horovod_in_a_process_that_is_alone(graph, monkeypatch):
    import horovod.tensorflow as hvd
    from horovod.tensorflow.compression import Compression
    monkeypatch.setattr(_horovod, "_initialized", False)
    with pytest.raises(ValueError, match=r"call hvd\.init\(\) first"):
        hvd.rank()
    hvd.init()
    assert (hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()) == (1, 0, 1, 0)
    assert Compression is hvd.Compression
    with pytest.raises(AttributeError, match=r"allgather: of Horovod there are .*init"):
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
