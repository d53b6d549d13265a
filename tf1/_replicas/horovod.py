"""Provides `import horovod.tensorflow as hvd` for the replicas of `python -m tf1 --num_replicas`.

This module contains only some functions of Horovod. A script with Horovod divides the work itself: each
process reads its own input, and only the process with rank 0 uses the model_dir. Every other process has a
different model_dir, or none. The script trains with an Estimator or in its own sessions; see
`session_exchange`. Without `--num_replicas`, there is one process.
"""

import sys

import tensorflow.compat.v1 as tf

from bertlib.system import replica_group
from tf1._contrib.optimizers import WrappedOptimizer
from tf1._names.namespace import ModuleFinder, Namespace, defined_names
from tf1._replicas import broadcast as broadcasting
from tf1._replicas import gradients, horovod_mode, session_exchange


def init(*args, **kwargs):
    """Tells tf1 that the script itself divides the work between the processes. Call this function before all
    other functions of this module."""
    horovod_mode.initialize()


def _group():
    if not horovod_mode.is_initialized():
        raise ValueError("hvd.init() has not been called. Call it before all other functions of hvd.")
    return replica_group.current()


def size():
    """Returns the number of processes."""
    return getattr(_group(), "count", 1)


def rank():
    """Returns the index of this process among all processes."""
    return getattr(_group(), "index", 0)


def local_size():
    """Returns the number of processes on this machine."""
    return getattr(_group(), "local_count", 1)


def local_rank():
    """Returns the index of this process on this machine. Scripts use the GPU with this index."""
    return getattr(_group(), "local_index", 0)


class Compression:
    """Lists the dtypes in which float tensors can be exchanged."""

    none = None  # no conversion: each tensor is exchanged in its own dtype
    fp16 = tf.float16


def allreduce(tensor, average=True, device_dense="", device_sparse="", compression=Compression.none):
    """Returns the mean of a tensor over all processes. The mean of integers is rounded down.

    Args:
      tensor: a tensor or tf.IndexedSlices. The rows of tf.IndexedSlices are gathered from all processes.
      average: whether to return the mean. If false, the sum is returned.
      device_dense, device_sparse: ignored.
      compression: an attribute of `Compression`.
    """
    all_reduce = _exchange()
    if all_reduce is None:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        rows = gradients.gather_slices(all_reduce, tensor)
        values = rows.values / all_reduce.num_replicas if average else rows.values
        return tf.IndexedSlices(values, rows.indices, rows.dense_shape)
    tensor = tf.convert_to_tensor(tensor)
    exchange_dtype = compression if compression and tensor.dtype.is_floating else tensor.dtype
    summed = tf.cast(all_reduce.sum(tf.cast(tensor, exchange_dtype)), tensor.dtype)
    return tf.div(summed, tf.cast(all_reduce.num_replicas, tensor.dtype)) if average else summed


def _exchange():
    """Returns the all-reduce of the current graph, or None if there is only one process."""
    return session_exchange.of_graph(_group()) if size() > 1 else None


def broadcast(tensor, root_rank, name=None):
    """Returns the value that a tensor of numbers has in the process with the rank root_rank."""
    tensor, all_reduce = tf.convert_to_tensor(tensor), _exchange()
    if all_reduce is None:
        return tensor
    return tf.identity(all_reduce.sum(tensor if rank() == root_rank else tf.zeros_like(tensor)), name)


def broadcast_variables(variables, root_rank):
    """Returns an op that gives variables the values that they have in the process with the rank root_rank."""
    return tf.group(*[variable.assign(broadcast(variable, root_rank)) for variable in variables])


def broadcast_global_variables(root_rank):
    """Returns an op that gives all global variables the values of one process; see `broadcast_variables`."""
    return broadcast_variables(tf.global_variables(), root_rank)


class DistributedOptimizer(WrappedOptimizer):
    """Wraps an optimizer. `compute_gradients` returns the means of the gradients over all processes."""

    def __init__(self, optimizer, name=None, use_locking=False, device_dense="", device_sparse="",
                 compression=Compression.none, sparse_as_dense=False):
        """Wraps an optimizer.

        Args:
          optimizer: the tf.train.Optimizer to wrap.
          name: name of the ops.
          use_locking, device_dense, device_sparse: ignored.
          compression: an attribute of `Compression`.
          sparse_as_dense: whether to convert tf.IndexedSlices to tensors. If false, the rows of the
            tf.IndexedSlices of all processes are gathered.
        """
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")
        self._sparse_as_dense, self._compression = sparse_as_dense, compression

    def compute_gradients(self, *args, **kwargs):
        """Returns (gradient, variable) pairs: the gradients of the wrapped optimizer, as means over all
        processes."""
        pairs = super().compute_gradients(*args, **kwargs)
        _exchange()
        return list(zip(gradients.mean(pairs, self._sparse_as_dense, self._compression),
                        [variable for _, variable in pairs]))


class BroadcastGlobalVariablesHook(broadcasting.BroadcastHook):
    """Broadcasts the starting values of one process's global variables to all processes."""

    def __init__(self, root_rank, device=""):
        """Creates the hook.

        Args:
          root_rank: rank of the process that sends its values.
          device: ignored.
        """
        super().__init__(_group(), root_rank)


def _explain(name):
    return (f"tf1 provides only these names of Horovod: {', '.join(sorted(_NAMES))}. For other names, "
            "install Horovod itself.")


_NAMES = defined_names(sys.modules[__name__])
_COMPRESSION = Namespace("horovod.tensorflow.compression", dict(Compression=Compression), explain=_explain)
_TENSORFLOW = Namespace("horovod.tensorflow", dict(_NAMES, compression=_COMPRESSION), explain=_explain)
_HOROVOD = Namespace("horovod", dict(tensorflow=_TENSORFLOW), explain=_explain)
FINDER = ModuleFinder({module.__name__: module for module in (_HOROVOD, _TENSORFLOW, _COMPRESSION)}.get)
