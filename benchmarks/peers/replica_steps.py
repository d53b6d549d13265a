"""Measures training steps of a random model, and sums without training, for benchmarks/replicas.py.

benchmarks/replicas.py starts one such process for each replica. A turn measures one kind of step. In each
round, the turns run one after the other. The command line contains JSON:

    addresses, index    addresses of all processes, and the index of this process
    turns               the turns in their order: [kind, dtype of the exchanged gradients]
    rounds              number of repetitions of all turns
    warm_up, count      number of steps in a turn before the measurement, and during the measurement
    micro_batches       number of micro-batches in a step, summed over all processes
    shape               [rows, length] of a micro-batch
    config              configuration of the model
    sizes               lists of sizes in bytes. A turn "ring" becomes a separate turn for each list

Kinds of turns:

    alone       process 0 accumulates all micro-batches
    apart       each process accumulates its share of the micro-batches, and nothing is exchanged
    sums        the processes are replicas, and sum their gradients as in training
    none        like "sums", but the sums over the replicas are left out
    late        like "sums", but the sums begin only after the last gradient is ready
    bare        only the sums of a step, without training
    bare one    only one sum, with as many bytes as all sums of a step
    ring        only sums of tensors of the given sizes

The process prints a line of JSON for each turn:

    kind, dtype    of the turn
    sizes          bytes of each sum
    cpu            CPU seconds of a step, mean over the steps
    last           CPU seconds of the last micro-batch and the update, mean over the steps
    sent           bytes sent over loopback in a step, mean over the steps
    wall           wall seconds of each step
    waiting        waiting seconds of each step
    lead           seconds of each step from the start of the first sum until the last gradient was ready
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from bertlib.commands import launch

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import StepConfig
from bertlib.graph import collectives, graph_keys
import modeling
import optimization
import run_classifier

TRAVELS = {"fp32": tf.float32, "bf16": tf.bfloat16}


class Group:
    """Replaces a `replica_group.Group`. Has only the attributes that `collectives.AllReduce` needs."""

    def __init__(self, spec):
        self.index, self.count = spec["index"], len(spec["addresses"])

    def broadcast(self, value):
        """Returns the value unchanged. Nothing has to be sent, because all processes build the same graphs in
        the same order."""
        return value


class Exchange(collectives.AllReduce):
    """Sums gradients over the replicas, and records the size of each sum.

    The top of this file lists the kinds of turns. In a turn of the kind "none", the object leaves out the
    sums. In a turn of the kind "late", the sums begin only after the last gradient is ready.
    """

    def __init__(self, group, kind, exchange_dtype):
        super().__init__(group, exchange_dtype)
        self.kind, self.sizes, self.lead = kind, [], tf.constant(0.0, tf.float64)

    def sum(self, tensor):
        """Returns the sum of a tensor over all replicas, as in training. Records the size of the sum."""
        if self.kind == "none":
            return tf.identity(tensor)
        if not self.sizes and self.gradients_ready is not None:
            self.lead = self.gradients_ready - collectives.time_after([tensor], lambda: tensor)
        self.sizes.append(tensor.shape.num_elements() * tensor.dtype.size)
        return super().sum(tensor)

    def sum_variables(self, pairs):
        """Sums the values of variables over all replicas, as in training. If `self.kind` is "late", the sums
        begin only after the values of all variables are computed."""
        if self.kind == "late":
            everything = tf.group(*[add for _, add in pairs])
            pairs = [(variable, everything) for variable, _ in pairs]
        return super().sum_variables(pairs)


def bytes_sent():
    """Returns the bytes that all programs have sent over the loopback interface."""
    with open("/proc/net/dev", encoding="utf-8") as file:
        return next(int(line.split()[9]) for line in file if line.strip().startswith("lo:"))


class Turn:
    """Contains the graph of one kind of step, and measures this step."""

    def __init__(self, spec, group, kind, dtype, sizes):
        self.kind, self.dtype = kind, dtype
        with tf.Graph().as_default() as self._graph, tf.device(collectives.replica_device(group)):
            exchange = None if kind in ("alone", "apart") else Exchange(group, kind, TRAVELS[dtype])
            if kind in ("bare", "bare one", "ring"):
                self._build_sums(exchange, [sum(sizes)] if kind == "bare one" else sizes)
            else:
                self._build_training(spec, exchange, group)
            self._start = tf.global_variables_initializer(), tf.local_variables_initializer()
        self.sizes = exchange.sizes if exchange else []

    def _build_sums(self, exchange, sizes):
        dtype = TRAVELS[self.dtype]
        self._more, self._accumulate, self._feed = 0, tf.no_op(), {}
        self._step = [exchange.sum(tf.get_variable(
            f"tensor_{index}", [size // dtype.size], dtype, tf.ones_initializer(), trainable=False,
            use_resource=True).read_value()).op for index, size in enumerate(sizes)]
        self._said = tf.zeros([2], tf.float64)

    def _build_training(self, spec, exchange, group):
        if exchange:
            tf.add_to_collection(graph_keys.ALL_REDUCE, exchange)
        shape, config = spec["shape"], modeling.BertConfig.from_dict(spec["config"])
        ids, labels = tf.placeholder(tf.int32, shape), tf.placeholder(tf.int32, shape[:1])
        tf.train.get_or_create_global_step()
        micro_batches = spec["micro_batches"] // (1 if self.kind == "alone" else group.count)
        step = StepConfig(compile_kernels=True, gradient_accumulation_steps=micro_batches)
        loss = run_classifier.create_model(
            config, True, ids, tf.ones(shape, tf.int32), tf.zeros(shape, tf.int32), labels, 2, False,
            step_config=step)[0]
        self._step = optimization.create_optimizer(loss, 5e-5, 1000, 100, False, step_config=step)
        found = tf.get_collection(graph_keys.GRADIENT_ACCUMULATION)
        self._more, self._accumulate = micro_batches - 1, found[0].accumulate_op if found else tf.no_op()
        waiting = [tensor for tensor in tf.get_collection(graph_keys.LOGGED_SCALARS)
                   if tensor.op.name == "waiting_seconds"] or [tf.constant(0.0, tf.float64)]
        self._said = tf.stack([waiting[0], exchange.lead if exchange else waiting[0]])
        random = np.random.RandomState(0)
        self._feed = {ids: random.randint(1000, config.vocab_size, shape), labels: np.ones(shape[:1])}

    def measure(self, target, config, warm_up, count):
        """Runs steps in a separate session: first `warm_up` steps, and then `count` steps that are measured.
        Returns the measured values as a dict, which is printed later."""
        walls, said, last = [], [], 0.0
        with tf.Session(target, self._graph, config) as session:
            for op in self._start:
                session.run(op)
            for index in range(warm_up + count):
                if index == warm_up:
                    cpu, sent = time.process_time(), bytes_sent()
                begun = time.perf_counter()
                for _ in range(self._more):
                    session.run(self._accumulate, self._feed)
                before = time.process_time()
                said.append(session.run([self._step, self._said], self._feed)[1].tolist())
                last += (time.process_time() - before) / count if index >= warm_up else 0.0
                walls.append(time.perf_counter() - begun)
            cpu, sent = (time.process_time() - cpu) / count, (bytes_sent() - sent) / count
        waiting, lead = zip(*said[warm_up:])
        return {"kind": self.kind, "dtype": self.dtype, "sizes": self.sizes, "cpu": cpu,
                "last": last, "sent": sent, "wall": walls[warm_up:], "waiting": waiting, "lead": lead}


def main():
    """Measures each kind of work that the command line names, and prints the results; see the docstring of
    this module."""
    spec = json.loads(sys.argv[1])
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    group = Group(spec)
    config = collectives.session_config()
    server = tf.distribute.Server({"worker": spec["addresses"]}, job_name="worker", task_index=group.index,
                                  config=config)
    turns, sizes = [], {}
    for kind, dtype in spec["turns"]:
        if kind == "alone" and group.index:
            turns.append(None)
            continue
        if kind == "ring":
            turns += [Turn(spec, group, kind, dtype, some) for some in spec["sizes"]]
            continue
        turns.append(Turn(spec, group, kind, dtype, sizes.get(dtype)))
        if kind == "sums":
            sizes[dtype] = turns[-1].sizes
    meeting = Turn(spec, group, "ring", "fp32", [4])
    for _ in range(spec["rounds"]):
        for turn in turns:
            meeting.measure(server.target, config, 0, 1)
            if turn:
                found = turn.measure(server.target, config, spec["warm_up"], spec["count"])
                print(json.dumps(found), flush=True)
    meeting.measure(server.target, config, 0, 1)


if __name__ == "__main__":
    launch.keep_freed_memory()
    main()
