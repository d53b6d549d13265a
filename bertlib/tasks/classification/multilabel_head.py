"""Multi-label classification of texts or pairs of texts.

The head is a linear layer on the pooled output, with a sigmoid for each label. Training minimizes the mean of
the binary cross-entropy over examples and labels, in the same way as Hugging Face's models with
problem_type="multi_label_classification". The variables have the same names as those of a classifier.
"""

import tensorflow.compat.v1 as tf

from bertlib.tasks.classification import classification_head


class MultilabelClassifier(classification_head.TextHead):
    """Head that predicts a probability for each label. The feature label_ids is int32 [B, L] and contains 0
    or 1."""

    output = "probabilities"

    def __init__(self, num_labels):
        self.num_outputs = num_labels

    def apply(self, pooled_output, labels, is_training):
        variables = classification_head.head_variables(pooled_output, self.num_outputs)
        with tf.variable_scope("loss"):
            logits = classification_head.linear(pooled_output, *variables, is_training)
            probabilities = tf.nn.sigmoid(logits)
            if labels is None:
                return None, None, probabilities
            losses = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(
                labels=tf.cast(labels, tf.float32), logits=logits), axis=-1)
            return tf.reduce_mean(losses), losses, probabilities
