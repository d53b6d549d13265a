"""`import horovod.tensorflow as hvd`, over the replicas of `python -m tf1 --num_replicas`.

It is what scripts use that train an Estimator, as NVIDIA's BERT does, and nothing more of Horovod. Such a
script divides the work itself: each process reads its own input, and those but the first have a model_dir of
their own, or none. Started without a launcher, there is one process.
"""

import sys

import tensorflow.compat.v1 as tf

from bertlib.graph import collectives
from bertlib.replicas import replica_group
from tf1._contrib.optimizers import WrappedOptimizer
from tf1._names.namespace import ModuleFinder, Namespace, defined_names
from tf1._replicas import broadcast, gradients, horovod_mode


def init(*args, **kwargs):
    """Says that the script divides the work itself. To be called before anything else of the module."""
    horovod_mode.initialize()


def _group():
    if not horovod_mode.is_initialized():
        raise ValueError("Horovod has not been initialized: call hvd.init() first.")
    return replica_group.current()


def size():
    """Returns the number of processes."""
    group = _group()
    return group.count if group else 1


def rank():
    """Returns which of them this is."""
    group = _group()
    return group.index if group else 0


def local_size():
    """Returns the number of processes on this machine."""
    group = _group()
    return group.local_count if group else 1


def local_rank():
    """Returns which of these this is, and so which GPU is its own."""
    group = _group()
    return group.local_index if group else 0


class Compression(object):
    """The dtypes that floats travel in."""

    none = None  # their own
    fp16 = tf.float16


def allreduce(tensor, average=True, device_dense="", device_sparse="", compression=Compression.none):
    """Returns the mean of a tensor over all processes, of integers rounded down.

    Args:
      tensor: tensor, or tf.IndexedSlices, whose rows are gathered.
      average: false for the sum.
      device_dense, device_sparse: ignored.
      compression: an attribute of `Compression`.

    Raises:
      ValueError: it is not the training graph of an Estimator.
    """
    all_reduce = _exchange()
    if all_reduce is None:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        rows = all_reduce.gather_slices(tensor)
        return tf.IndexedSlices(rows.values / all_reduce.replicas if average else rows.values, rows.indices,
                                rows.dense_shape)
    tensor = tf.convert_to_tensor(tensor)
    exchange_dtype = compression if compression and tensor.dtype.is_floating else tensor.dtype
    summed = tf.cast(all_reduce.sum(tf.cast(tensor, exchange_dtype)), tensor.dtype)
    return tf.div(summed, tf.cast(all_reduce.replicas, tensor.dtype)) if average else summed


def _exchange():
    """What the replicas of the current graph share; None in a process that is alone."""
    all_reduce = collectives.current_all_reduce()
    if all_reduce is None and size() > 1:
        raise ValueError("hvd.allreduce and hvd.DistributedOptimizer work in the training graph of a "
                         "tf.estimator.Estimator, and not in a session of the script's own.")
    return all_reduce


class DistributedOptimizer(WrappedOptimizer):
    """An optimizer whose `compute_gradients` gives the mean of all processes."""

    def __init__(self, optimizer, name=None, use_locking=False, device_dense="", device_sparse="",
                 compression=Compression.none, sparse_as_dense=False):
        """Wraps an optimizer.

        Args:
          optimizer: the optimizer.
          name: of the ops.
          use_locking, device_dense, device_sparse: ignored.
          compression: an attribute of `Compression`.
          sparse_as_dense: whether tf.IndexedSlices become tensors; their rows are gathered if not.
        """
        super().__init__(optimizer, name or f"Distributed{type(optimizer).__name__}")
        self._sparse_as_dense, self._compression = sparse_as_dense, compression

    def compute_gradients(self, *args, **kwargs):
        """Returns the pairs of the wrapped optimizer, with their means."""
        pairs = super().compute_gradients(*args, **kwargs)
        _exchange()
        return list(zip(gradients.mean(pairs, self._sparse_as_dense, self._compression),
                        [variable for _, variable in pairs]))


class BroadcastGlobalVariablesHook(broadcast.BroadcastHook):
    """Gives all processes the values that one process's global variables start with."""

    def __init__(self, root_rank, device=""):
        """Creates the hook.

        Args:
          root_rank: which process's values.
          device: ignored.
        """
        super().__init__(_group(), root_rank)


def _explain(name):
    return f"of Horovod there are {', '.join(sorted(_NAMES))}. For more install Horovod itself."


_NAMES = defined_names(sys.modules[__name__])
_COMPRESSION = Namespace("horovod.tensorflow.compression", dict(Compression=Compression), explain=_explain)
_TENSORFLOW = Namespace("horovod.tensorflow", dict(_NAMES, compression=_COMPRESSION), explain=_explain)
_HOROVOD = Namespace("horovod", dict(tensorflow=_TENSORFLOW), explain=_explain)
FINDER = ModuleFinder({module.__name__: module for module in (_HOROVOD, _TENSORFLOW, _COMPRESSION)}.get)
