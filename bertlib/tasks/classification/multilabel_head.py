"""Multi-label classification of texts or pairs of texts.

The head is a linear layer on the pooled output, with a sigmoid for each label. Training minimizes the mean of
the binary cross-entropy over examples and labels, in the same way as Hugging Face's models with
problem_type="multi_label_classification". The variables have the same names as those of a classifier.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.tasks.classification import classification_head, regression_head


class MultilabelClassifier(classification_head.TextHead):
    """Head that predicts a probability for each label. The feature label_ids is int32 [B, L] and contains 0
    or 1."""

    output = "probabilities"

    def __init__(self, labels, threshold=0.5):
        """Creates a head.

        Args:
          labels: list of str, the names of the L labels, for the metrics.
          threshold: in the metrics, a label counts as predicted if its probability is at least this number.
        """
        self._labels, self._threshold, self.num_outputs = labels, threshold, len(labels)

    def metric_fn(self, losses, labels, probabilities, weights):
        labels = tf.cast(labels, tf.float32)
        return metric_fn(losses, labels, probabilities, weights, self._labels, self._threshold)

    def apply(self, pooled_output, labels, is_training):
        variables = classification_head.head_variables(pooled_output, self.num_outputs)
        with tf.variable_scope("loss"):
            logits = classification_head.linear(pooled_output, *variables, is_training)
            probabilities = tf.nn.sigmoid(logits)
            if labels is None:
                return None, None, probabilities, probabilities
            losses = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
                labels=tf.cast(labels, tf.float32), logits=logits), axis=-1)
            return tf.reduce_mean(losses), losses, probabilities, probabilities

    def compute_metrics(self, predictions, label_ids):
        """See the module `head`."""
        labels = np.array(label_ids, np.float32)
        probabilities = np.array([row["probabilities"] for row in predictions], np.float32)
        return self.metric_fn, [self.example_losses(predictions, labels), labels, probabilities,
                                np.ones(len(labels), np.float32)]

    def example_losses(self, predictions, label_ids):
        """See `TextHead`. The loss of an example is the mean of the binary cross-entropies of its labels."""
        probabilities = np.array([row["probabilities"] for row in predictions], np.float32)
        right = np.where(np.asarray(label_ids) > 0, probabilities, 1 - probabilities.astype(np.float64))
        return -np.log(np.maximum(right, np.finfo(np.float32).tiny)).mean(axis=-1).astype(np.float32)


# --- Metrics ---------------------------------------------------------------------------------------------


def metric_fn(per_example_loss, labels, probabilities, weights, names, threshold):
    """Returns the streaming metrics of multi-label classification; see eval_metrics of
    `estimator.EstimatorSpec`.

    Args:
      per_example_loss: float32 [B].
      labels: float32 [B, L], 0 or 1.
      probabilities: float32 [B, L].
      weights: float32 [B], 0 for padding examples.
      names: list of str, the labels.
      threshold: smallest probability of a predicted label.

    Returns:
      {name: (value, update op)}. All metrics are computed over all examples at once, so they do not depend on
      the batch size. eval_f1_micro is a single F1 over all pairs of an example and a label. eval_f1_macro is
      the mean of the F1 of each label. eval_auc_NAME is the area under the ROC curve of the label NAME; it is
      NaN if all or none of the examples have the label. eval_auc is the mean of the areas that are not NaN.
      eval_loss is the mean loss.
    """
    is_real = weights > 0
    with tf.variable_scope("decisions"):
        (labels, first), (scores, second) = (
            regression_head.collect_values(name, tf.boolean_mask(values, is_real))
            for name, values in (("labels", labels), ("probabilities", probabilities)))
    update = tf.group(first, second)
    predicted = tf.cast(tf.cast(scores, tf.float32) >= threshold, tf.float64)
    hits, found, real = (tf.reduce_sum(counted, 0) for counted in (labels * predicted, predicted, labels))
    f1 = tf.math.divide_no_nan(2 * hits, found + real)
    f1_micro = tf.math.divide_no_nan(2 * tf.reduce_sum(hits), tf.reduce_sum(found + real))
    areas = roc_auc(tf.transpose(labels), tf.transpose(scores))
    defined = tf.boolean_mask(areas, tf.math.is_finite(areas))
    values = {"eval_f1_micro": f1_micro, "eval_f1_macro": tf.reduce_mean(f1),
              "eval_auc": tf.reduce_mean(defined),
              **{f"eval_auc_{name}": area for name, area in zip(names, tf.unstack(areas, len(names)))}}
    return {"eval_loss": tf.metrics.mean(per_example_loss, weights),
            **{name: (value, update) for name, value in values.items()}}


def single_set_warning(labels, predicted):
    """Returns a warning (str) if the predicted labels are the same for all examples, although the correct
    labels of the examples differ. Otherwise returns None.

    Args:
      labels, predicted: lists with one tuple of str for each example: its labels, and its predicted labels.
    """
    if len(set(predicted)) != 1 or len(set(labels)) == 1:
        return None
    only = f"the labels {', '.join(predicted[0])}" if predicted[0] else "no label"
    equal = sum(label == predicted[0] for label in labels)
    return (f"All {len(predicted)} predictions are {only}; {equal} of the true answers are the same. The "
            "model does not distinguish the examples, and the F1 scores are those of a constant prediction.")


def roc_auc(labels, scores):
    """Returns a float64 tensor [L], the area under the ROC curve of each label.

    The area is the probability that an example with the label has a higher score than an example without the
    label (Mann and Whitney's U; Hanley and McNeil 1982). The area is NaN if all or none of the examples have
    the label.

    Args:
      labels: float64 [L, N], 0 or 1.
      scores: float64 [L, N].
    """
    positive = tf.reduce_sum(labels, -1)
    negative = tf.reduce_sum(1 - labels, -1)
    wins = tf.reduce_sum(labels * regression_head.ranks(scores), -1) - positive * (positive + 1) / 2
    return wins / (positive * negative)
