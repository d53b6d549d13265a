"""A score of a text or a pair of texts: BERT with one linear output, trained on the mean squared error.

The variables have a classifier's names, with one row: as in XLNet's and ALBERT's code.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.tasks.classification import classification_head


class Regressor(classification_head.TextHead):
    """One number. Features: label_ids, float32 [B]."""

    num_outputs, output = 1, "scores"

    def metric_fn(self, *values):
        return metric_fn(*values)

    def apply(self, output, labels, is_training):
        variables = classification_head.head_variables(output, 1)
        with tf.variable_scope("loss"):
            scores = tf.squeeze(classification_head.linear(output, *variables, is_training), axis=-1)
            if labels is None:
                return None, None, scores, scores
            losses = tf.square(scores - labels)
            return tf.reduce_mean(losses), losses, scores, scores

    def compute_metrics(self, predictions, label_ids):
        """See `head`. The correlations are those of the numbers in the files: of labels before they are
        rounded to float32, and of scores as they are written, by the shortest decimal number of each."""
        labels = np.asarray(label_ids, np.float64)
        scores = np.array([row["scores"] for row in predictions], np.float32)
        losses = np.square(scores - labels.astype(np.float32))
        written = np.array([float(str(score)) for score in scores], np.float64)
        return metric_fn, [losses, labels, written, np.ones_like(losses)]


# --- Metrics ---------------------------------------------------------------------------------------------


def metric_fn(per_example_loss, labels, scores, weights):
    """Streaming metrics of a regression; see `estimator.EstimatorSpec`'s eval_metrics.

    Args:
      per_example_loss: float32 [B].
      labels, scores: float32 or float64 [B].
      weights: float32 [B], 0 for padding examples.

    Returns:
      {name: (value, update op)}: eval_loss, eval_pearson and eval_spearman, the latter two over all examples
      at once, whatever the batches.
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


def collect_values(name, values):
    """Keeps the values of all batches of an evaluation.

    Args:
      name: str, of the variable.
      values: float32 or float64 [B, ...], the rest of the shape known.

    Returns:
      (float64 [N, ...], all values so far, one batch after the other; the op that adds a batch).
    """
    shape = values.shape.as_list()[1:]
    kept = tf.Variable(tf.zeros([0, *shape], tf.float64), trainable=False, name=name, use_resource=True,
                       shape=tf.TensorShape([None, *shape]),
                       collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES])
    return kept.read_value(), kept.assign(tf.concat([kept.read_value(), tf.cast(values, tf.float64)], 0))


def pearson(x, y):
    """Returns Pearson's correlation coefficient of x and y, float64 [N]; 0 if one of them is constant."""
    x, y = x - tf.reduce_mean(x), y - tf.reduce_mean(y)
    deviations = tf.sqrt(tf.reduce_sum(x * x)) * tf.sqrt(tf.reduce_sum(y * y))
    return tf.math.divide_no_nan(tf.reduce_sum(x * y), deviations)


def spearman(x, y):
    """Returns Spearman's rank correlation of x and y, float64 [N]: Pearson's of their ranks."""
    return pearson(ranks(x), ranks(y))


def ranks(values):
    """Returns the ranks from 1 of values [..., N] among the last dimension's; equal ones share the mean of
    theirs. float64 [..., N]."""
    ordered = tf.sort(values)
    below, not_above = (tf.searchsorted(ordered, values, side) for side in ("left", "right"))
    return tf.cast(below + not_above + 1, tf.float64) / 2
