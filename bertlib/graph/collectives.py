"""Sums tensors over all replicas with TensorFlow's collective ops.

The ops request NCCL, NVIDIA's communication library. TensorFlow uses NCCL if all replicas compute on GPUs;
otherwise it uses rings over gRPC. NCCL has not been tested with this code.

Each process runs one server, and its training session runs on this server as task `index` of the job
"worker". If each of R replicas computes N micro-batches, a step processes R · N micro-batches. Each replica
adds up the gradients of its N micro-batches, then all replicas exchange these sums. So each replica applies
the same update. The weights are the same on all replicas, because all replicas start from the same checkpoint
or draw the same initial values.
"""

import contextlib
import itertools
import time

import tensorflow.compat.v1 as tf

from bertlib.graph import graph_keys
from bertlib.graph.tensorflow_internals import control_flow_context

# Size of a bucket in bytes. A bucket is a list of tensors. A single op sums all tensors of a bucket over the
# replicas. This needs fewer messages than a separate op for each tensor. A tensor of this size or more is
# alone in its bucket. See docs/development/scaling.md.
_BUCKET_BYTES = 2**23
# Each collective op has an instance key, a number that is the same on all replicas. `_KEYS_PER_GRAPH` keys
# are reserved for each graph. The keys of graph number n start at n · `_KEYS_PER_GRAPH`.
_KEYS_PER_GRAPH = 10**5
# Errors that TensorFlow raises when another replica has ended.
CONNECTION_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
                     tf.errors.DeadlineExceededError, tf.errors.InternalError)

_graphs = itertools.count(1)
_server = None


class AllReduce:
    """Adds ops to a training graph. These ops sum tensors over all replicas.

    Attributes:
      num_replicas: number of replicas.
      index: number of this replica, from 0.
      gradients_ready: float64 scalar tensor, the time in seconds at which all gradients of this replica were
        computed; None if no gradients are summed.
    """

    def __init__(self, group, exchange_dtype=None):
        """Reserves keys for the collective ops of a graph. Replica 0 sends the first key to the other
        replicas, so all replicas must create the object at the same point of the program.

        Args:
          group: the `replica_group.Group`.
          exchange_dtype: dtype in which gradients are exchanged. None: each gradient is exchanged in its own
            dtype.
        """
        self.num_replicas, self.index = group.count, group.index
        self.gradients_ready = None
        self._exchange_dtype = exchange_dtype
        # All ops with the same key must have tensors of the same shape. Two graphs can have tensors of
        # different shapes, so they must not share a key.
        self._keys = itertools.count(group.broadcast(next(_graphs)) * _KEYS_PER_GRAPH)
        self._ops = {}

    @property
    def name(self):
        """Returns the name of the first collective op. An exported MetaGraph stores this name in place of
        this `AllReduce` object."""
        return self.unconditional_ops[0].name

    @property
    def unconditional_ops(self):
        """Returns the list of the collective ops outside of any tf.cond. Each of these ops waits until all
        replicas run it. So each replica must run all of them in each run of the train op."""
        return self._ops.get(None, [])

    @property
    def own_slice(self):
        """Returns a `slice` that selects this replica's micro-batches from the micro-batches of an effective
        batch.

        With R replicas, the slice selects every R-th micro-batch. So each replica gets long and short
        micro-batches, even if the micro-batches are sorted by length.
        """
        return slice(self.index, None, self.num_replicas)

    def effective_batch_index(self, micro_batch):
        """Returns the index of a micro-batch within the effective batch, as an integer tensor.

        Args:
          micro_batch: index of the micro-batch among the micro-batches of this replica.
        """
        return micro_batch * self.num_replicas + self.index

    def sum(self, tensor):
        """Returns the sum of a tensor over all replicas.

        The sums of a graph run one after the other, in the order in which this method was called. All
        replicas must call it in the same order.
        """
        return self.run_after_previous(self.reduce, tensor)

    def reduce(self, tensor):
        """Adds the op of `sum`. `tf1._replicas.session_exchange` overrides this method."""
        return tf.raw_ops.CollectiveReduceV2(input=tensor, merge_op="Add", final_op="Id", **self.options())

    def options(self):
        """Returns the arguments of a collective op that are the same for all ops, except the key."""
        # No timeout is set: with a timeout, TensorFlow would start a thread for each sum, and this thread
        # would sleep until the timeout is over. A timeout is not needed, because `replica_group` detects
        # that a replica has ended.
        return dict(group_size=self.num_replicas, group_key=1, instance_key=next(self._keys),
                    ordering_token=[], communication_hint="nccl")

    def run_after_previous(self, collect, tensor):
        """Returns collect(tensor), the output of a collective op; for the order of the ops, see `sum`."""
        # An op outside of a tf.cond cannot wait for an op inside of this tf.cond. So each context has a
        # separate list of ops, and an op waits only for the last op of its own list. There is one list for
        # the ops outside of any tf.cond, and one list for each branch.
        previous_ops = self._ops.setdefault(control_flow_context(tf.get_default_graph()), [])
        with tf.control_dependencies(previous_ops[-1:]):
            result = collect(tensor)
        previous_ops.append(result.op)
        return result

    def sum_concatenated(self, tensors):
        """Returns the sum of each tensor over all replicas.

        The tensors are concatenated, so that one op computes all sums. For this reason, the tensors must have
        the same dtype, and their shapes must be static.
        """
        if len(tensors) == 1:
            return [self.sum(tensors[0])]
        total = self.sum(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0))
        pieces = tf.split(total, [tensor.shape.num_elements() for tensor in tensors])
        return [tf.reshape(piece, tensor.shape) for piece, tensor in zip(pieces, tensors)]

    def sum_variables(self, pairs):
        """Adds ops that replace the values of variables by their sums over all replicas.

        The variables are divided into buckets; see `buckets`. The sum of a bucket begins as soon as this
        replica has computed the values of its variables. While the replicas exchange these values, the
        backward pass computes the values of the next buckets.

        Args:
          pairs: list of (resource variable, op that writes the last value to this variable), in the order in
            which these ops run.

        Returns:
          list of ops that assign the sums to the variables.
        """
        self.gradients_ready = time_after([add for _, add in pairs], pairs[-1][0].read_value)
        assigns = []
        for indices in buckets([variable for variable, _ in pairs]):
            variables, adds = zip(*(pairs[index] for index in indices))
            with tf.control_dependencies(adds):
                values = [variable.read_value() for variable in variables]
            dtype = values[0].dtype
            sums = self.sum_concatenated([tf.cast(value, self._exchange_dtype or dtype) for value in values])
            assigns += [variable.assign(tf.cast(summed, dtype), read_value=False)
                        for variable, summed in zip(variables, sums)]
        return assigns

    def seconds_waited(self, ops, result):
        """Returns a float64 scalar tensor: the seconds from `gradients_ready` until all of `ops` have run.

        During this time, the step waits for other replicas and for the network.

        Args:
          ops: list of ops or tensors.
          result: a tensor on the device of the ops, such as the result of one of them.
        """
        return time_after(ops, lambda: result) - self.gradients_ready


def time_after(ops, read):
    """Returns a float64 scalar tensor: the time in seconds at which the device has computed all of `ops`.

    The CPU only starts the ops of a GPU. The GPU computes them later, in the same order. So this function
    computes one value after the ops and copies the value to the CPU. TensorFlow waits for this copy.
    `tf.timestamp` is not used for two reasons: it does not wait for the GPU, and
    `tf.config.experimental.enable_op_determinism` does not allow it.

    Args:
      ops: list of ops or tensors of one device.
      read: function without arguments that returns a tensor on this device.
    """
    with tf.control_dependencies(ops):
        value = tf.strided_slice(tf.reshape(read(), [-1]), [0], [1])
    with tf.device("/device:CPU:0"):
        seconds = tf.numpy_function(_time_of_copy, [value], tf.float64)
    seconds.set_shape([])
    return seconds


def _time_of_copy(value):
    return time.time()


def buckets(tensors):
    """Yields buckets: lists of indices of tensors or variables. One op sums all tensors of a bucket.

    A tensor of 8 MiB or more has a bucket for itself. Smaller tensors of the same dtype are collected in a
    bucket until the bucket has 8 MiB. Buckets that are not full are yielded last.
    """
    partial = {}
    for index, tensor in enumerate(tensors):
        bucket = [] if _size(tensor) >= _BUCKET_BYTES else partial.setdefault(tensor.dtype.base_dtype, [])
        bucket.append(index)
        if sum(_size(tensors[other]) for other in bucket) >= _BUCKET_BYTES:
            yield list(bucket)
            bucket.clear()
    yield from filter(None, partial.values())


def _size(tensor):
    return tensor.shape.num_elements() * tensor.dtype.base_dtype.size


def current_all_reduce():
    """Returns the `AllReduce` of the current graph, or None if a single process trains."""
    collection = tf.get_collection(graph_keys.ALL_REDUCE)
    return collection[0] if collection else None


def num_replicas():
    """Returns the number of replicas that train the current graph."""
    all_reduce = current_all_reduce()
    return all_reduce.num_replicas if all_reduce else 1


# --- Sessions --------------------------------------------------------------------------------------------


def session_target(group, config):
    """Returns the address of this process's server. A session that exchanges tensors with other replicas
    connects to this server.

    The first call starts the server.
    """
    global _server
    if _server is None:
        cluster = tf.train.ClusterSpec({"worker": group.addresses})
        group.release_port()
        _server = tf.distribute.Server(cluster, job_name="worker", task_index=group.index, config=config)
    return _server.target


def session_config(config=None):
    """Returns a copy of a tf.ConfigProto, with settings for a session that exchanges tensors with other
    replicas.

    Args:
      config: tf.ConfigProto, or None for the defaults.
    """
    result = tf.ConfigProto()
    if config is not None:
        result.CopyFrom(config)
    result.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    result.isolate_session_state = True
    return result


def check_sums(group, exchange_dtype, config):
    """Checks that sums over the replicas are right. Each replica contributes a 1, so the sum must be the
    number of replicas.

    Without this check, a fault of the communication library could make all gradients wrong without any error
    message. For example, older versions of TensorFlow let NCCL add numbers in bfloat16 as if they were
    float32.

    Args:
      group: the `replica_group.Group`.
      exchange_dtype: dtype in which gradients are exchanged; None for float32.
      config: the tf.ConfigProto of the run's sessions, or None.

    Raises:
      ValueError: a sum is wrong.
    """
    config = session_config(config)
    for dtype in dict.fromkeys([tf.float32, exchange_dtype or tf.float32]):
        with tf.Graph().as_default(), tf.device(replica_device(group)), \
                tf.Session(session_target(group, config), config=config) as session:
            total = AllReduce(group).sum(tf.ones([64], dtype))
            sums = session.run(tf.cast(total, tf.float32))
        if (sums != group.count).any():
            advice = ("Pass --gradient_dtype=fp32." if dtype == tf.bfloat16 else
                      "Try the environment variable NCCL_P2P_DISABLE=1, or train with --num_replicas=1.")
            raise ValueError(f"The replicas compute wrong sums: the sum of 1 in {dtype.name} over "
                             f"{group.count} replicas is {sums[sums != group.count][0]:g}. {advice}")


def replica_device(group):
    """Returns the name of the device on which all ops of this replica's training graph are placed."""
    return f"/job:worker/replica:0/task:{group.index}"


@contextlib.contextmanager
def translate_connection_errors(group):
    """Returns a context manager. If TensorFlow raises a connection error in its block, the context manager
    raises a `ReplicaError` instead, which names the cause.

    Args:
      group: the `replica_group.Group`; None for a single process, whose errors are not translated.
    """
    try:
        yield
    except CONNECTION_ERRORS as error:
        if group is None:
            raise
        raise group.find_cause(error) from error
