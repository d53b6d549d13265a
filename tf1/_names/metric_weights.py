"""Weights of metrics that are counted in a confusion matrix, where they have another length than the labels.

Forks score tags by `tensorflow.python.ops.metrics_impl._streaming_confusion_matrix`, as
`tf.metrics.mean_iou` does. TensorFlow 1 compared lengths only where the graph knew them: it ignored weights
behind the last label, and for labels without a weight it read the memory behind the weights. TensorFlow 2
refuses both.
"""

import functools

import tensorflow.compat.v1 as tf

from tf1._names import internals

_WRONG_NUMBER = ("A metric has the wrong number of weights: it takes one for each label, each position or "
                 "each example. Number of weights, shape of labels:")


def _for_each_label(weights, labels):
    """Returns a weight for each label of the flattened labels.

    Args:
      weights: [B, T] or [B · T], a weight for each label; [T], for each position; or [B], for each example.
        Where there are more weights than labels, the rest is ignored.
      labels: [B, T], or [B].

    Returns:
      tensor of the number of labels; an InvalidArgumentError in the session if the weights are none of these.
    """
    count, size = tf.size(labels), tf.size(weights)
    label = tf.range(count)
    index, fits = label, size >= count
    if labels.shape.rank == 2:
        examples, positions = tf.unstack(tf.shape(labels))
        of_positions = tf.equal(size, positions)
        one_row = tf.maximum(positions, 1)
        index = tf.where_v2(fits, label, tf.where_v2(of_positions, label % one_row, label // one_row))
        fits = fits | of_positions | tf.equal(size, examples)
    refusal = tf.Assert(fits, [_WRONG_NUMBER, size, tf.shape(labels)])
    with tf.control_dependencies([refusal]):
        return tf.gather(tf.reshape(weights, [-1]), tf.identity(index))


def install():
    """Puts it into TensorFlow's function."""
    internals.replace_confusion_matrix(_with_weights_of_any_length)


def _with_weights_of_any_length(count):
    @functools.wraps(count)
    def counted(labels, predictions, num_classes, weights=None):
        if weights is not None:
            labels, weights = tf.convert_to_tensor(labels), tf.convert_to_tensor(weights)
            same = weights.shape.is_fully_defined() and weights.shape.as_list() == labels.shape.as_list()
            if weights.shape.rank != 0 and not same:
                weights = _for_each_label(weights, labels)
        return count(labels, predictions, num_classes, weights)

    return counted
