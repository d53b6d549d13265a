"""Regression: predicts a score for a text or a pair of texts.

The head is a linear layer that computes one score from the pooled output. Training minimizes the mean squared
error. As in the code of XLNet and ALBERT, the variables have the same names as those of a classifier, and the
weights have one row.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.tasks.classification import classification_head

# The standard deviation of the scores is divided by the standard deviation of the labels. If the quotient is
# smaller than this number, the scores count as constant.
_MIN_DEVIATION = 0.01


class Regressor(classification_head.TextHead):
    """Head that predicts one score. The feature label_ids is float32 [B]."""

    num_outputs, output = 1, "scores"

    def metric_fn(self, *values):
        return metric_fn(*values)

    def apply(self, pooled_output, labels, is_training):
        variables = classification_head.head_variables(pooled_output, 1)
        with tf.variable_scope("loss"):
            scores = tf.squeeze(classification_head.linear(pooled_output, *variables, is_training), axis=-1)
            if labels is None:
                return None, None, scores, scores
            losses = tf.square(scores - labels)
            return tf.reduce_mean(losses), losses, scores, scores

    def compute_metrics(self, predictions, label_ids):
        """See the module `head`.

        A user who computes the correlations from the files of the labels and the predictions must get the
        same values. For this reason, the labels are not rounded to float32. A predicted score is a float32,
        but the file of predictions contains the shortest decimal number that identifies this float32. So
        each predicted score is replaced by this decimal number.
        """
        labels = np.asarray(label_ids, np.float64)
        scores = np.array([row["scores"] for row in predictions], np.float32)
        written = np.array([float(str(score)) for score in scores], np.float64)
        losses = self.example_losses(predictions, labels)
        return metric_fn, [losses, labels, written, np.ones_like(losses)]

    def example_losses(self, predictions, label_ids):
        """See `TextHead`. The loss is the squared error."""
        scores = np.array([row["scores"] for row in predictions], np.float32)
        return np.square(scores - np.asarray(label_ids, np.float64).astype(np.float32))


# --- Metrics ---------------------------------------------------------------------------------------------


def metric_fn(per_example_loss, labels, scores, weights):
    """Returns the streaming metrics of a regression; see eval_metrics of `estimator.EstimatorSpec`.

    Args:
      per_example_loss: float32 [B].
      labels, scores: float32 or float64 [B].
      weights: float32 [B], 0 for padding examples.

    Returns:
      {name: (value, update op)} with eval_loss, eval_pearson and eval_spearman. The correlations are computed
      over all examples at once, so they do not depend on the batch size.
    """
    is_real = weights > 0
    with tf.variable_scope("correlations"):
        kept, update = zip(*(collect_values(name, tf.boolean_mask(values, is_real))
                             for name, values in (("labels", labels), ("scores", scores))))
    return {
        "eval_loss": tf.metrics.mean(per_example_loss, weights),
        "eval_pearson": (pearson(*kept), tf.group(update)),
        "eval_spearman": (spearman(*kept), tf.group(update)),
    }


def constant_scores_warning(labels, scores):
    """Returns a warning (str) if an evaluation predicted almost the same score for all examples, although the
    examples have different labels. Otherwise returns None.

    A correlation does not show this problem, because a correlation does not depend on the scale of the
    scores.

    Args:
      labels, scores: lists of float.
    """
    of_labels, of_scores = np.std(labels), np.std(scores)
    if len(scores) < 2 or not of_scores < _MIN_DEVIATION * of_labels:
        return None
    return (f"All {len(scores)} predicted scores are between {min(scores):.4g} and {max(scores):.4g}, but "
            f"the labels are between {min(labels):.4g} and {max(labels):.4g}. The model does not "
            "distinguish the examples. The errors are those of a constant prediction, and the correlations "
            "have no meaning.")


def collect_values(name, values):
    """Collects the values of all batches of an evaluation in a local variable.

    Args:
      name: str, name of the variable.
      values: float32 or float64 [B, ...]. All dimensions except the first one must be static.

    Returns:
      a pair: a float64 tensor [N, ...] with the values of all batches so far; and an op that adds `values`,
      the values of the current batch.
    """
    shape = values.shape.as_list()[1:]
    kept = tf.Variable(tf.zeros([0, *shape], tf.float64), trainable=False, name=name, use_resource=True,
                       shape=tf.TensorShape([None, *shape]),
                       collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
    return kept.read_value(), kept.assign(tf.concat([kept.read_value(), tf.cast(values, tf.float64)], 0))


def pearson(x, y):
    """Returns Pearson's correlation coefficient of two float64 tensors [N]. The coefficient is 0 if one of
    the tensors is constant."""
    x, y = x - tf.reduce_mean(x), y - tf.reduce_mean(y)
    deviations = tf.sqrt(tf.reduce_sum(x * x)) * tf.sqrt(tf.reduce_sum(y * y))
    return tf.math.divide_no_nan(tf.reduce_sum(x * y), deviations)


def spearman(x, y):
    """Returns Spearman's rank correlation of two float64 tensors [N]: Pearson's correlation of the ranks of
    their values."""
    return pearson(ranks(x), ranks(y))


def ranks(values):
    """Returns a float64 tensor [..., N] with the ranks of values [..., N] within the last dimension.

    The lowest value has rank 1. Equal values have the mean of their ranks.
    """
    ordered = tf.sort(values)
    below, not_above = (tf.searchsorted(ordered, values, side) for side in ("left", "right"))
    return tf.cast(below + not_above + 1, tf.float64) / 2
