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

    Args:
      predictions, labels: float tensors of the same size.
      weights: float tensor of the same size. None means that all weights are 1.
      metrics_collections, updates_collections, name: see `streaming_concat`.

    Returns:
      (value, update), like the functions of `tf.metrics`.
    """
    with tf.variable_scope(name, "pearson_r", [predictions, labels]):
        x, y = (tf.reshape(tf.cast(values, tf.float64), [-1]) for values in (predictions, labels))
        weights = tf.ones_like(x) if weights is None else tf.reshape(tf.cast(weights, tf.float64), [-1])
        # The total weight, the means of x and y, and the sums of the products of their differences from the
        # means (Chan et al. 1979). With sums of x², the result for a constant x would often be NaN.
        state = tf.get_variable("sums", [6], tf.float64, tf.zeros_initializer(), trainable=False,
                                collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
        before, *means = tf.unstack(state[:3])
        added = tf.reduce_sum(weights)
        count = before + added
        # The mean is computed from the differences to the first value, so that it is exact for a constant.
        of_batch = [first + tf.div_no_nan(tf.reduce_sum(weights * (values - first)), added)
                    for values, first in ((values, tf.reduce_sum(values[:1])) for values in (x, y))]
        x_rest, y_rest = (values - mean for values, mean in zip((x, y), of_batch))
        x_step, y_step = steps = [new - mean for new, mean in zip(of_batch, means)]
        between = tf.div_no_nan(before * added, count)
        products = [tf.reduce_sum(weights * rests) + between * of_means for rests, of_means in (
            (x_rest * x_rest, x_step * x_step), (y_rest * y_rest, y_step * y_step),
            (x_rest * y_rest, x_step * y_step))]
        merged = tf.stack([count, *(mean + step * tf.div_no_nan(added, count)
                                    for mean, step in zip(means, steps)),
                           *(old + new for old, new in zip(tf.unstack(state[3:]), products))])

        def correlation(state):
            xx, yy, xy = tf.unstack(state[3:])
            return tf.cast(tf.div_no_nan(xy, tf.sqrt(xx * yy)), tf.float32)

        return _metric(correlation(state), correlation(tf.assign(state, merged)), metrics_collections,
                       updates_collections)


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
