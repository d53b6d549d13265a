"""Makes metrics with a confusion matrix accept weights whose length differs from that of the labels.

Forks compute the scores of tags with `tensorflow.python.ops.metrics_impl._streaming_confusion_matrix`.
`tf.metrics.mean_iou` uses this function, too. TensorFlow 1 compared the length of the weights with the length
of the labels only if both were known when the graph was built. Otherwise, TensorFlow 1 ignored additional
weights. If there were too few weights, it read memory beyond the end of the weights. TensorFlow 2 refuses
weights of a different length in every case.
"""

import tensorflow.compat.v1 as tf

from tf1._names import internals

_WRONG_NUMBER = ("A metric has the wrong number of weights: pass one weight for each label, for each "
                 "position or for each example. Number of weights, shape of labels:")


def _for_each_label(weights, labels):
    """Returns one weight for each label, in the order of the flattened labels.

    Args:
      weights: tensor with a weight for each label ([B, T] or [B · T]), for each position ([T]) or for each
        example ([B]). If there are more than B · T weights, the additional weights are ignored.
      labels: [B, T] or [B].

    Returns:
      the weights, [B · T] or [B]. If there are fewer weights than labels, and their number is neither T nor
      B, the session raises an InvalidArgumentError.
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


@internals.replaces_confusion_matrix
def _with_weights_of_any_length(confusion_matrix, labels, predictions, num_classes, weights=None):
    """Computes TensorFlow's `_streaming_confusion_matrix`. All metrics that call this function accept the
    weights that `_for_each_label` describes."""
    if weights is not None:
        labels, weights = tf.convert_to_tensor(labels), tf.convert_to_tensor(weights)
        fits = weights.shape.is_fully_defined() and weights.shape.as_list() == labels.shape.as_list()
        if weights.shape.rank != 0 and not fits:
            weights = _for_each_label(weights, labels)
    return confusion_matrix(labels, predictions, num_classes, weights)
