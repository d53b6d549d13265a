"""Sums over replicas by TensorFlow's own collective engine: rings through gRPC on CPU, NCCL on GPU.

A process has one server, and its training session is placed on it as task `index` of the job "worker". A step
of R replicas with N micro-batches each is a step of R · N micro-batches: each replica adds up the gradients
of its own, then all exchange their sums, so that each makes the same update of the same weights.
"""

import contextlib
import itertools

import tensorflow.compat.v1 as tf

from bertlib.graph import graph_keys
from bertlib.graph.tensorflow_internals import control_flow_context

# Bytes of a bucket: larger tensors are summed alone, smaller ones together, so that fewer messages are sent.
# See docs/development/scaling.md.
_BUCKET_BYTES = 2**23
_KEYS_PER_GRAPH = 10**5
# How TensorFlow's calls end when another replica is gone.
CONNECTION_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
                     tf.errors.DeadlineExceededError, tf.errors.InternalError)

_graphs = itertools.count(1)
_server = None


class AllReduce:
    """How the replicas of a training graph add up what each of them computed.

    Attributes:
      replicas, index: how many there are, and which this one is.
      gradients_ready: the time in seconds at which all gradients of this replica were computed, float64
        scalar; None if no gradients are summed.
    """

    def __init__(self, group, gradient_dtype=None):
        """Creates it; all replicas have to do so at the same time.

        Args:
          group: the `replica_group.Group`.
          gradient_dtype: dtype that gradients are exchanged in; None for their own.
        """
        self.replicas, self.index = group.count, group.index
        self.gradients_ready = None
        self._gradient_dtype = gradient_dtype
        # A key is never used by two graphs, which may exchange other shapes.
        self._keys = itertools.count(group.broadcast(next(_graphs)) * _KEYS_PER_GRAPH)
        self._ops = {}

    @property
    def name(self):
        """By it the collection is written to a MetaGraph."""
        return self.unconditional_ops[0].name

    @property
    def unconditional_ops(self):
        """Collective ops outside of any tf.cond; every run executes them. List of ops."""
        return self._ops.get(None, [])

    @property
    def own_micro_batches(self):
        """Which parts of an effective batch are this replica's, a slice: every R-th of them, so that of parts
        that are sorted by length all replicas have long and short ones."""
        return slice(self.index, None, self.replicas)

    def effective_batch_index(self, micro_batch):
        """Returns which part of the effective batch a micro-batch of this replica is (integer tensor)."""
        return micro_batch * self.replicas + self.index

    def sum(self, tensor):
        """Returns the sum of a tensor over all replicas. Sums are made one after the other, in the order in
        which they are asked for, which has to be the same on all replicas."""
        return self._run_after_previous(tf.raw_ops.CollectiveReduceV2, tensor, merge_op="Add", final_op="Id")

    def _run_after_previous(self, collective, tensor, **settings):
        # What is in the branch of a condition cannot be waited for outside of it.
        before = self._ops.setdefault(control_flow_context(tf.get_default_graph()), [])
        with tf.control_dependencies(before[-1:]):
            # Without a timeout: TensorFlow would start a thread for each sum, which sleeps until the timeout
            # is over. `replica_group` notices a replica that is gone.
            made = collective(input=tensor, group_size=self.replicas, group_key=1,
                              instance_key=next(self._keys), ordering_token=[], **settings)
        before.append(made.op)
        return made

    def sum_concatenated(self, tensors):
        """Returns the sums of tensors of one dtype with static shapes, exchanged by one op."""
        if len(tensors) == 1:
            return [self.sum(tensors[0])]
        together = self.sum(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0))
        pieces = tf.split(together, [tensor.shape.num_elements() for tensor in tensors])
        return [tf.reshape(piece, tensor.shape) for piece, tensor in zip(pieces, tensors)]

    def sum_many(self, tensors):
        """Returns the sums of tensors with static shapes; small tensors are exchanged together.

        Args:
          tensors: list, in the order in which they are ready.
        """
        found = {}
        for indices in _buckets(tensors):
            found.update(zip(indices, self.sum_concatenated([tensors[index] for index in indices])))
        return [found[index] for index in range(len(tensors))]

    def gather_slices(self, slices):
        """Returns tf.IndexedSlices with the rows of those of all replicas, one replica's after the other's,
        as one graph has them for all their examples."""
        values, indices = slices.values, tf.cast(slices.indices, tf.int64)
        if values.shape[0] is not None:
            values, indices = self._gather(values), self._gather(indices)
        else:  # replicas may have different numbers of them
            count = tf.shape(indices, tf.int64)[0]
            counts = self._gather(count[tf.newaxis])
            most = tf.reduce_max(counts)
            is_row = tf.reshape(tf.sequence_mask(counts, most), [-1])
            values, indices = (
                tf.boolean_mask(self._gather(tf.pad(
                    tensor, [[0, most - count], *[[0, 0]] * (tensor.shape.rank - 1)])), is_row)
                for tensor in (values, indices))
        return tf.IndexedSlices(values, tf.cast(indices, slices.indices.dtype), slices.dense_shape)

    def _gather(self, tensor):
        return self._run_after_previous(tf.raw_ops.CollectiveGatherV2, tensor)

    def sum_variables(self, pairs):
        """Replaces the values of variables by their sums over all replicas.

        Each sum begins as soon as its variable is ready, while the backward pass goes on for others.

        Args:
          pairs: list of (resource variable, op after which it has its value), in the order in which they
            are ready.

        Returns:
          list of ops.
        """
        with tf.control_dependencies([add for _, add in pairs]):
            self.gradients_ready = tf.timestamp()
        assigns = []
        for indices in _buckets([variable for variable, _ in pairs]):
            assigns += self._sum_bucket([pairs[index] for index in indices])
        return assigns

    def _sum_bucket(self, pairs):
        variables, adds = zip(*pairs)
        with tf.control_dependencies(adds):
            values = [variable.read_value() for variable in variables]
        dtype = values[0].dtype
        exchange_dtype = self._gradient_dtype or dtype
        sums = self.sum_concatenated([tf.cast(value, exchange_dtype) for value in values])
        return [variable.assign(tf.cast(summed, dtype), read_value=False)
                for variable, summed in zip(variables, sums)]

    def seconds_waited(self, ops):
        """Returns for how long the step waited for others and for the network until some ops were done:
        seconds from `gradients_ready` on, float64 scalar."""
        with tf.control_dependencies(ops):
            return tf.timestamp() - self.gradients_ready


def _buckets(tensors):
    """Yields buckets of indices of tensors or variables, lists of ints; a bucket is summed by one op.

    A tensor of 8 MiB or more is a bucket; smaller ones of one dtype are collected up to 8 MiB; the rest come
    last.
    """
    waiting = {}
    for index, tensor in enumerate(tensors):
        bucket = [] if _size(tensor) >= _BUCKET_BYTES else waiting.setdefault(tensor.dtype.base_dtype, [])
        bucket.append(index)
        if sum(_size(tensors[other]) for other in bucket) >= _BUCKET_BYTES:
            yield list(bucket)
            bucket.clear()
    yield from filter(None, waiting.values())


def _size(variable):
    return variable.shape.num_elements() * variable.dtype.base_dtype.size


def current_all_reduce():
    """Returns the `AllReduce` of the current graph, or None if it is one process's."""
    found = tf.get_collection(graph_keys.ALL_REDUCE)
    return found[0] if found else None


def num_replicas():
    """Returns the number of replicas that the current graph trains with."""
    found = current_all_reduce()
    return found.replicas if found else 1


# --- Sessions --------------------------------------------------------------------------------------------


def session_target(group, config):
    """Returns what a session of all replicas is to connect to: this process's server, which the first call
    starts."""
    global _server
    if _server is None:
        cluster = tf.train.ClusterSpec({"worker": group.addresses})
        group.release_port()
        _server = tf.distribute.Server(cluster, job_name="worker", task_index=group.index, config=config)
    return _server.target


def session_config(config=None):
    """Returns a tf.ConfigProto of a session of all replicas: a given one, and what they need besides."""
    found = tf.ConfigProto()
    if config is not None:
        found.CopyFrom(config)
    found.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    found.isolate_session_state = True
    return found


def replica_device(group):
    """Returns where all ops of this replica's training graph are."""
    return f"/job:worker/replica:0/task:{group.index}"


@contextlib.contextmanager
def translate_connection_errors(group):
    """Makes an error that another replica's end caused in the block the `ReplicaError` that says so."""
    try:
        yield
    except CONNECTION_ERRORS as error:
        if group is None:
            raise
        raise group.find_cause(error) from error
