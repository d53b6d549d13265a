"""Sums over processes, by TensorFlow's collective engine and nothing else: one of the processes that
benchmarks/replicas.py starts.

The command line has JSON: addresses of all, the index of this one, and trials, a list of {sizes (bytes of the
tensors that are summed one after the other), dtype, warm_up, count}. Prints JSON: for each trial CPU and wall
seconds of each of its `count` times.
"""

import json
import sys
import time

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import collective_ops

SECONDS = 600.0


def sums(sizes, dtype, count, first_key):
    """An op that sums tensors of so many bytes over `count` processes, one after the other."""
    previous = []
    for key, size in enumerate(sizes, first_key):
        with tf.control_dependencies(previous):
            tensor = tf.get_variable(f"tensor_{key}", [size // dtype.size], dtype, tf.ones_initializer(),
                                     use_resource=True).read_value()
            previous = [collective_ops.all_reduce_v2(
                tensor, count, group_key=1, instance_key=key, merge_op="Add", final_op="Id",
                timeout=SECONDS).op]
    return tf.group(*previous)


def main():
    tf.disable_eager_execution()
    spec = json.loads(sys.argv[1])
    index, addresses = spec["index"], spec["addresses"]
    config = tf.ConfigProto(isolate_session_state=True)
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.distribute.Server({"worker": addresses}, job_name="worker", task_index=index, config=config)
    ops, key = [], 1
    with tf.device(f"/job:worker/replica:0/task:{index}"):
        for trial in spec["trials"]:
            ops.append(sums(trial["sizes"], tf.as_dtype(trial["dtype"]), len(addresses), key))
            key += len(trial["sizes"])
        meeting = sums([4], tf.float32, len(addresses), key)
        start = tf.global_variables_initializer()
    found = []
    with tf.Session(server.target, config=config) as session:
        session.run(start)
        for trial, op in zip(spec["trials"], ops):
            for _ in range(trial["warm_up"]):
                session.run(op)
            times = []
            for _ in range(trial["count"]):
                cpu, wall = time.process_time(), time.perf_counter()
                session.run(op)
                times.append([time.process_time() - cpu, time.perf_counter() - wall])
            found.append(times)
        session.run(meeting)  # nobody ends before all are done
    print(json.dumps(found))


if __name__ == "__main__":
    main()
