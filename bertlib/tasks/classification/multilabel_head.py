"""Any number of several labels for a text or a pair of texts: BERT with a linear layer on the pooled output
and a sigmoid for each label, trained on the mean binary cross-entropy.

The variables have a classifier's names. The loss is the mean over examples and labels, as in Hugging Face's
models with problem_type="multi_label_classification".
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks import head
from bertlib.tasks.classification import classification_head, regression_head


class MultilabelClassifier:
    """A probability for each label; see `head`. Features: label_ids, int32 [B, L], 0 or 1; is_real_example, 0
    in padding."""

    modes = classification_head.Classifier.modes
    first_token_only = True

    def __init__(self, labels, threshold=0.5):
        """`labels` are their names, for the metrics; one whose probability is at least `threshold` counts as
        predicted."""
        self._labels, self._threshold = labels, threshold

    def shapes(self, bert_config):
        return classification_head.head_shapes(bert_config, len(self._labels))

    def build(self, bert_config, model, features, mode, micro_batches):
        del bert_config, micro_batches
        labels = features.get("label_ids")
        loss, per_example_loss, probabilities = classify(model.get_pooled_output(), labels, len(self._labels),
                                                         mode == estimator.ModeKeys.TRAIN)
        if labels is None:
            return head.HeadOutputs(predictions={"probabilities": probabilities})
        labels = tf.cast(labels, tf.float32)
        weights = tf.cast(features.get("is_real_example", tf.ones_like(labels[:, 0])), tf.float32)

        return head.HeadOutputs(loss, {"probabilities": probabilities},
                                (self._metrics, [per_example_loss, labels, probabilities, weights]))

    def _metrics(self, *values):
        return metric_fn(*values, self._labels, self._threshold)

    def compute_metrics(self, predictions, label_ids):
        """See `head`. The loss is the cross-entropy of the probabilities."""
        labels = np.array(label_ids, np.float32)
        probabilities = np.array([row["probabilities"] for row in predictions], np.float32)
        right = np.where(labels > 0, probabilities, 1 - probabilities.astype(np.float64))
        losses = -np.log(np.maximum(right, np.finfo(np.float32).tiny)).mean(axis=-1).astype(np.float32)
        return self._metrics, [losses, labels, probabilities, np.ones(len(labels), np.float32)]


def classify(output, labels, num_labels, is_training):
    """Builds the linear outputs on a pooled output.

    Args:
      output: float32 [B, W].
      labels: int32 [B, L], 0 or 1; None makes None of the losses.
      num_labels: L.
      is_training: turns dropout on.

    Returns:
      (loss: scalar, the mean binary cross-entropy; per-example loss [B]; probabilities [B, L]), all float32.
    """
    variables = classification_head.head_variables(output, num_labels)
    with tf.variable_scope("loss"):
        logits = classification_head.linear(output, *variables, is_training)
        if labels is None:
            return None, None, tf.nn.sigmoid(logits)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits)
        per_example_loss = tf.reduce_mean(losses, axis=-1)
        return tf.reduce_mean(per_example_loss), per_example_loss, tf.nn.sigmoid(logits)


# --- Metrics ---------------------------------------------------------------------------------------------


def metric_fn(per_example_loss, labels, probabilities, weights, names, threshold):
    """Streaming metrics of a model of several labels; see `estimator.EstimatorSpec`'s eval_metrics.

    Args:
      per_example_loss: float32 [B].
      labels: float32 [B, L], 0 or 1.
      probabilities: float32 [B, L].
      weights: float32 [B], 0 for padding examples.
      names: list of str, the labels.
      threshold: a label of a probability from there on counts as predicted.

    Returns:
      {name: (value, update op)}, over all examples at once, whatever the batches: eval_loss; eval_f1_micro,
      of all decisions together, and eval_f1_macro, the mean over labels; eval_auc_NAME, the area under each
      label's ROC curve, NaN where all or none of the examples have the label; eval_auc, the mean of those
      that are numbers.
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


def roc_auc(labels, scores):
    """Returns the area under the ROC curve, float64 [L]: how often an example with the label has a higher
    score than one without it (Mann and Whitney's U; Hanley and McNeil 1982). NaN where one kind is missing.

    Args:
      labels: float64 [L, N], 0 or 1.
      scores: float64 [L, N].
    """
    positive = tf.reduce_sum(labels, -1)
    negative = tf.reduce_sum(1 - labels, -1)
    wins = tf.reduce_sum(labels * regression_head.ranks(scores), -1) - positive * (positive + 1) / 2
    return wins / (positive * negative)
