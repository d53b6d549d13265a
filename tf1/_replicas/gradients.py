"""Averages the gradients of a script over its replicas.

A fork of google-research/bert with its own optimizer computes gradients with `tf.gradients`, or with
`compute_gradients` or `minimize` of a `tf.train.Optimizer`. In the training graph of an Estimator, these
functions compute the gradients of variables as means over all replicas. For example, if the loss is a mean
over the batch, two replicas with batches of 16 take the same step as one process with a batch of 32. A fork
that clips gradients clips the means.

In a single process, this module has no effect.
"""

import contextlib
import functools
import threading

import tensorflow.compat.v1 as tf

from bertlib.graph import collectives
from bertlib.system import replica_group
from tf1._names import internals
from tf1._names.namespace import Namespace
from tf1._replicas import followers, session_exchange, strategies
from tf1._replicas.horovod_mode import script_divides_work

_thread = threading.local()


def install(tf1):
    """Makes the gradient functions of `tf1` and of TensorFlow's Optimizer return means over the replicas.

    Also replaces `tf1.distribute`. In replicas other than the first one, redirects the files that the script
    writes; see `followers`. Call this function after the process has joined the other replicas.
    """
    tf1.gradients = gradients
    tf1.distribute = Namespace("tf.distribute", strategies.OF_REPLICAS, lambda: tf.distribute)
    internals.replaces("compute_gradients", tf.train.Optimizer)(_compute_gradients)
    if not replica_group.current().is_first:
        followers.install(tf1)


def mean(pairs, sparse_as_dense=False, exchange_dtype=None):
    """Averages gradients over the replicas that train the current graph.

    Args:
      pairs: list of (gradient, variable). A gradient is a tensor, tf.IndexedSlices or None.
      sparse_as_dense: whether to convert tf.IndexedSlices to tensors. If false, the result contains the rows
        of all replicas, as in one graph with the examples of all replicas. If two replicas have the same
        row, it occurs twice in the result, and counts twice in the norm for clipping.
      exchange_dtype: floating dtype in which tensors are exchanged. None means the dtype of each tensor.

    Returns:
      list of the means, in the order of the pairs. In a graph without replicas, the gradients are returned
      unchanged.
    """
    all_reduce = collectives.current_all_reduce()
    means = [gradient for gradient, _ in pairs]
    if all_reduce is None:
        return means
    dense = []
    # The gradients of the last variables are usually computed first.
    for index, (gradient, variable) in reversed(list(enumerate(pairs))):
        if gradient is None:
            continue
        if isinstance(gradient, tf.IndexedSlices) and not sparse_as_dense:
            rows = gather_slices(all_reduce, gradient)
            means[index] = tf.IndexedSlices(rows.values / all_reduce.num_replicas, rows.indices,
                                            rows.dense_shape)
            continue
        gradient = tf.convert_to_tensor(gradient)
        gradient.set_shape(variable.shape)
        dense.append((index, tf.cast(gradient, exchange_dtype or gradient.dtype), gradient.dtype))
    tensors = [gradient for _, gradient, _ in dense]
    for places in collectives.buckets(tensors):  # one op sums several small tensors
        sums = all_reduce.sum_concatenated([tensors[place] for place in places])
        for summed, (index, _, dtype) in zip(sums, (dense[place] for place in places)):
            means[index] = tf.cast(summed, dtype) / all_reduce.num_replicas
    return means


def gather_slices(all_reduce, slices):
    """Gathers the tf.IndexedSlices of all replicas.

    Returns tf.IndexedSlices that contain the rows of replica 0, then the rows of replica 1, and so on.
    A single process would get the same rows if it computed the gradient from all examples.

    Args:
      all_reduce: the `collectives.AllReduce`.
      slices: tf.IndexedSlices.
    """
    def gather(tensor):
        return all_reduce.run_after_previous(functools.partial(session_exchange.gather, all_reduce), tensor)

    values, indices = slices.values, tf.cast(slices.indices, tf.int64)
    if values.shape[0] is not None:
        values, indices = gather(values), gather(indices)
    else:
        # The number of rows may differ between replicas, but the op gathers only tensors of equal shapes.
        # So each replica adds padding rows, which are removed after the gathering.
        count = tf.shape(indices, tf.int64)[0]
        counts = gather(count[tf.newaxis])
        max_count = tf.reduce_max(counts)
        is_row = tf.reshape(tf.sequence_mask(counts, max_count), [-1])
        values, indices = (
            tf.boolean_mask(gather(tf.pad(
                tensor, [[0, max_count - count], *[[0, 0]] * (tensor.shape.rank - 1)])), is_row)
            for tensor in (values, indices))
    return tf.IndexedSlices(values, tf.cast(indices, slices.indices.dtype), slices.dense_shape)


def gradients(ys, xs, *args, **kwargs):
    """Replaces tf.gradients. For each x that is a variable, the gradient is the mean over the replicas."""
    with _differentiating() as is_averaged:
        results = tf.gradients(ys, xs, *args, **kwargs)
    sources = list(xs) if isinstance(xs, (list, tuple)) else [xs]
    places = [index for index, source in enumerate(sources) if isinstance(source, tf.compat.v2.Variable)]
    if is_averaged and places:
        for index, gradient in zip(places, mean([(results[index], sources[index]) for index in places])):
            results[index] = gradient
    return results


def _compute_gradients(compute_gradients, *args, **kwargs):
    with _differentiating() as is_averaged:
        pairs = compute_gradients(*args, **kwargs)
    return list(zip(mean(pairs), [variable for _, variable in pairs])) if is_averaged else pairs


@contextlib.contextmanager
def _differentiating():
    """Returns a context manager for the computation of gradients.

    Yields:
      bool, whether these gradients must be averaged. It is False in three cases: there are no replicas; the
      script uses Horovod, and so averages the gradients itself; or TensorFlow has started this computation
      within another computation of gradients, for example for recomputation.
    """
    outer = getattr(_thread, "differentiating", False)
    _thread.differentiating = True
    group = replica_group.current()
    try:
        yield not outer and group is not None and not script_divides_work()
    finally:
        _thread.differentiating = outer
