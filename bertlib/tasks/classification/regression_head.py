"""Regression: predicts a score for a text or a pair of texts.

The head is a linear layer that computes one score from the pooled output. Training minimizes the mean squared
error. As in the code of XLNet and ALBERT, the variables have the same names as those of a classifier, and the
weights have one row.
"""

import tensorflow.compat.v1 as tf

from bertlib.tasks.classification import classification_head


class Regressor(classification_head.TextHead):
    """Head that predicts one score. The feature label_ids is float32 [B]."""

    num_outputs, output = 1, "scores"

    def apply(self, pooled_output, labels, is_training):
        variables = classification_head.head_variables(pooled_output, 1)
        with tf.variable_scope("loss"):
            scores = tf.squeeze(classification_head.linear(pooled_output, *variables, is_training), axis=-1)
            if labels is None:
                return None, None, scores
            losses = tf.square(scores - labels)
            return tf.reduce_mean(losses), losses, scores
