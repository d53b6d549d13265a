"""Sums tensors over the processes of a script that uses Horovod in its own sessions.

TensorFlow's collective ops work only in sessions of a cluster, and the Estimator creates such sessions. A
script may create its own session. So the ops of this module are Python functions, which send the tensors
through the connections of the processes. They are slower than collective ops.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.graph import collectives, graph_keys


class SessionAllReduce(collectives.AllReduce):
    """An `AllReduce` whose ops run in any session."""

    def __init__(self, group):
        super().__init__(group)
        self._group = group

    def reduce(self, tensor):
        return self._exchange(lambda arrays: sum(arrays[1:], arrays[0]), tensor, tensor.shape)

    def gather(self, tensor):
        return self._exchange(np.concatenate, tensor, [None, *tensor.shape[1:]])

    def _exchange(self, combine, tensor, shape):
        def exchange(array):
            return combine(self._group.all_gather(array)).astype(array.dtype)

        result = tf.py_func(exchange, [tensor], tensor.dtype)
        result.set_shape(shape)
        return result


def gather(all_reduce, tensor):
    """Adds an op that concatenates the tensors of all replicas, which must have the same shape.

    Args:
      all_reduce: the `collectives.AllReduce`.
      tensor: the tensor of this replica.
    """
    if isinstance(all_reduce, SessionAllReduce):
        return all_reduce.gather(tensor)
    return tf.raw_ops.CollectiveGatherV2(input=tensor, **all_reduce.options())


def of_graph(group):
    """Returns the `AllReduce` of the current graph. If the Estimator has not created one, this function
    does."""
    if not tf.get_collection(graph_keys.ALL_REDUCE):
        tf.add_to_collection(graph_keys.ALL_REDUCE, SessionAllReduce(group))
    return collectives.current_all_reduce()
