"""Scripts with Horovod that create their own sessions run as several replicas."""

import json

from graphs import run_python
from helpers import evaluate
import numpy as np
from numpy.testing import assert_allclose
import pytest
from replica_threads import run_replicas

import tf1 as tf
from tf1._replicas import gradients, session_exchange


def test_tensors_are_summed_and_rows_gathered_in_any_session():
    def work(group):
        with tf.Graph().as_default():
            all_reduce = session_exchange.of_graph(group)
            assert session_exchange.of_graph(group) is all_reduce
            own = tf.constant([1.0, 2.0]) * (group.index + 1)
            rows = tf.IndexedSlices(own[:, tf.newaxis][:group.index + 1], tf.range(group.index + 1), [4, 1])
            gathered = gradients.gather_slices(all_reduce, rows)
            return [value.tolist() for value in evaluate(
                [all_reduce.sum(own), *gradients.mean([(own, own), (own * 2, own)]), gathered.values,
                 gathered.indices])]

    first, second = run_replicas(2, work)
    assert first == second == [[3, 6], [1.5, 3], [3, 6], [[1], [2], [4]], [0, 0, 1]]


SCRIPT = """
import json
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
w = tf.Variable([hvd.rank() + 1.0, 5.0])
table = tf.get_variable("table", [4, 1], initializer=tf.constant_initializer(hvd.rank()))
step = tf.train.get_or_create_global_step()
rows = tf.nn.embedding_lookup(table, [hvd.rank(), 3])
loss = tf.reduce_sum(tf.square(w - hvd.rank())) + tf.reduce_sum(rows)
train = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1)).minimize(loss, step)
mean = hvd.allreduce(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(hvd.broadcast_global_variables(0))
    for _ in range(3):
        session.run(train)
    print(json.dumps([value.tolist() for value in session.run([w, table[:, 0]])]), session.run(mean))
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(2)]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
"""


@pytest.mark.slow(reason="two interpreters with TensorFlow")
def test_a_script_with_its_own_sessions_trains_in_two_processes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run_python(tmp_path, "-m", "tf1", "--num_replicas=2", "script.py")
    assert done.returncode == 0, done.stderr
    found, rows = json.JSONDecoder().raw_decode(done.stdout)[0]
    # The mean gradient of w is 2 · (w - 0.5). The rows 0, 1 and 3 of the table have the mean gradients 1/2,
    # 1/2 and 1.
    w = np.array([1.0, 5.0])
    for _ in range(3):
        w -= 0.2 * (w - 0.5)
    assert_allclose(found, w, rtol=1e-5)
    assert_allclose(rows, [-0.15, -0.15, 0, -0.3], rtol=1e-5)
