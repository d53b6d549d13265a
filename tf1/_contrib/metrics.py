"""Defines tf.contrib.metrics. As in `tf.metrics`, each function returns the pair (value, update op)."""

import tensorflow.compat.v1 as tf

_EPSILON = 1e-7


def streaming_concat(values, axis=0, max_size=None, metrics_collections=None, updates_collections=None,
                     name=None):
    """Returns a metric whose value is the concatenation of all values so far.

    Args:
      values: tensor. Only its size along `axis` may be unknown.
      axis: dimension along which the values are concatenated.
      max_size: not supported.
      metrics_collections, updates_collections: collections for the value and for the update.
      name: variable scope.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    if max_size is not None:
        raise ValueError("tf.contrib.metrics.streaming_concat: max_size is not supported. Leave it out, and "
                         "truncate the result instead.")
    with tf.variable_scope(name, "streaming_concat", [values]):
        shape = values.shape.as_list()
        initial = [0 if index == axis % len(shape) else size for index, size in enumerate(shape)]
        kept = tf.Variable(tf.zeros(initial, values.dtype), trainable=False, use_resource=True,
                           shape=tf.TensorShape(None),
                           collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        update = kept.assign(tf.concat([kept.read_value(), values], axis), read_value=True)
        return _metric(kept.read_value(), update, metrics_collections, updates_collections)


def streaming_pearson_correlation(predictions, labels, weights=None, metrics_collections=None,
                                  updates_collections=None, name=None):
    """Returns a metric: Pearson's correlation of predictions and labels. It is 0 if one of them is constant.

    The metric keeps all values in memory.

    Args:
      predictions, labels: float tensors of the same size.
      weights: float tensor of the same size. None means that all weights are 1.
      metrics_collections, updates_collections, name: see `streaming_concat`.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    weights = tf.ones_like(labels) if weights is None else weights
    with tf.variable_scope(name, "pearson_r", [predictions, labels]):
        rows = tf.stack([tf.reshape(tf.cast(values, tf.float64), [-1])
                         for values in (predictions, labels, weights)], 1)
        value, update = map(_correlation, streaming_concat(rows))
        return _metric(value, update, metrics_collections, updates_collections)


def _correlation(rows):
    """Returns the correlation of x and y, float32 scalar. Each row contains x, y and a weight."""
    values, weights = rows[:, :2], rows[:, 2:]
    # The first row is subtracted before the mean, so that the differences are exactly 0 for a constant.
    values -= values[:1]
    values -= tf.div_no_nan(tf.reduce_sum(weights * values, 0), tf.reduce_sum(weights))
    products = tf.matmul(weights * values, values, transpose_a=True)
    return tf.cast(tf.div_no_nan(products[0, 1], tf.sqrt(products[0, 0] * products[1, 1])), tf.float32)


def _metric(value, update, metrics_collections, updates_collections):
    tf.add_to_collections(metrics_collections or [], value)
    tf.add_to_collections(updates_collections or [], update)
    return value, update


def f1_score(labels, predictions, weights=None, num_thresholds=200, metrics_collections=None,
             updates_collections=None, name=None):
    """Returns a metric: the best F1 over evenly spaced thresholds of the predictions.

    Args:
      labels: bool tensor, or tensor of 0 and 1.
      predictions: tensor of the same shape, with values in [0, 1].
      weights: tensor of the same shape. None means that all weights are 1.
      num_thresholds: number of thresholds. The first one is just below 0, the last one is just above 1.
      metrics_collections, updates_collections, name: see `streaming_concat`.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    between = [index / (num_thresholds - 1) for index in range(1, num_thresholds - 1)]
    thresholds = [-_EPSILON, *between, 1.0 + _EPSILON]
    with tf.variable_scope(name, "f1", [labels, predictions, weights]):
        sides = tf.cast(labels, tf.bool), tf.cast(predictions, tf.float32), thresholds, weights
        precisions = tf.metrics.precision_at_thresholds(*sides)
        recalls = tf.metrics.recall_at_thresholds(*sides)
        value, update = (tf.reduce_max(2.0 * precision * recall / (precision + recall + _EPSILON))
                         for precision, recall in zip(precisions, recalls))
        return _metric(value, update, metrics_collections, updates_collections)
