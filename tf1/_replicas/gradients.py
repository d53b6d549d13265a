"""What `tf` is in a script that runs as several replicas: gradients are averaged over them.

A fork with an optimizer of its own computes gradients by `tf.gradients`, or by `compute_gradients` or
`minimize` of a `tf.train.Optimizer`. In the training graph of an Estimator each of these gives, for
variables, the mean of what all replicas computed: two replicas of batch 16 make the step of one of batch 32,
if the loss is a mean. It does so before the fork clips them.

Nothing here is in effect in a process that works alone.
"""

import contextlib
import functools
import threading

import tensorflow.compat.v1 as tf

from bertlib.graph import collectives
from bertlib.graph.tensorflow_internals import control_flow_context
from bertlib.replicas import replica_group
from tf1._names.namespace import Namespace
from tf1._replicas import followers, strategies
from tf1._replicas.horovod_mode import script_divides_work

_thread = threading.local()


def install(tf1):
    """Puts it into the module `tf1` and into TensorFlow's classes, in a process that has joined a group."""
    tf1.gradients = gradients
    tf1.distribute = Namespace("tf.distribute", strategies.OF_REPLICAS, lambda: tf.distribute)
    optimizer = tf.train.Optimizer
    optimizer.compute_gradients = _averaging(optimizer.compute_gradients)
    if not replica_group.current().is_first:
        followers.install(tf1)


def mean(pairs, sparse_as_dense=False, exchange_dtype=None):
    """Averages gradients over the replicas that train the current graph.

    Args:
      pairs: list of (gradient, variable); a gradient is a tensor, tf.IndexedSlices or None.
      sparse_as_dense: make tensors of tf.IndexedSlices. Else these get the rows of all replicas, as in one
        graph with all their examples: what clips them to a norm sees rows one by one.
      exchange_dtype: floating dtype in which tensors are exchanged; their own if None.

    Returns:
      list of the means in the places of the gradients; the gradients themselves where nothing is shared.
    """
    all_reduce = collectives.current_all_reduce()
    found = [gradient for gradient, _ in pairs]
    if all_reduce is None:
        return found
    position = {op: index for index, op in enumerate(tf.get_default_graph().get_operations())}
    in_turn = sorted((index for index, gradient in enumerate(found) if gradient is not None),
                     key=lambda index: position[found[index].op])
    if all_reduce.gradients_ready is None and control_flow_context(tf.get_default_graph()) is None:
        with tf.control_dependencies([found[index].op for index in in_turn]):
            all_reduce.gradients_ready = tf.timestamp()
    dense = []
    for index in in_turn:
        gradient = found[index]
        if isinstance(gradient, tf.IndexedSlices) and not sparse_as_dense:
            rows = all_reduce.gather_slices(gradient)
            found[index] = tf.IndexedSlices(rows.values / all_reduce.replicas, rows.indices, rows.dense_shape)
            continue
        gradient = tf.convert_to_tensor(gradient)
        gradient.set_shape(pairs[index][1].shape)
        dense.append((index, tf.cast(gradient, exchange_dtype or gradient.dtype), gradient.dtype))
    sums = all_reduce.sum_many([gradient for _, gradient, _ in dense])
    for summed, (index, _, dtype) in zip(sums, dense):
        found[index] = tf.cast(summed, dtype) / all_reduce.replicas
    return found


def gradients(ys, xs, *args, **kwargs):
    """tf.gradients; for variables, the mean over the replicas."""
    with _deriving() as shared:
        found = tf.gradients(ys, xs, *args, **kwargs)
    sources = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    places = [index for index, source in enumerate(sources) if isinstance(source, tf.compat.v2.Variable)]
    if shared and places:
        for index, gradient in zip(places, mean([(found[index], sources[index]) for index in places])):
            found[index] = gradient
    return found


def _averaging(compute_gradients):
    @functools.wraps(compute_gradients)
    def averaged(self, *args, **kwargs):
        with _deriving() as shared:
            pairs = compute_gradients(self, *args, **kwargs)
        if not shared:
            return pairs
        return list(zip(mean(pairs), [variable for _, variable in pairs]))
    return averaged


@contextlib.contextmanager
def _deriving():
    """Gives whether what is derived in the block is to be averaged: not with Horovod, which says itself what
    is, nor what a derivative in progress computes for its own ends, as recomputation does."""
    outer = getattr(_thread, "deriving", False)
    _thread.deriving = True
    group = replica_group.current()
    try:
        yield not outer and group is not None and not script_divides_work()
    finally:
        _thread.deriving = outer
