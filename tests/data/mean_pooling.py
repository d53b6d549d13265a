"""Classifies your own texts with another head: the mean of all tokens, a focal loss and a second output.

    python run_classifier.py --task_module=mean_pooling.py --train_file=train.csv --dev_file=dev.csv

The flags of the data are those of run_classifier.py.
"""

import tensorflow.compat.v1 as tf

from bertlib.estimator.estimator import ModeKeys
from bertlib.runs import model_config
from bertlib.tasks import head
from bertlib.tasks.classification import classification_head, classification_task

GAMMA = 2.0


class MeanPooling(classification_task.Classification):

    def resolve(self):
        self.resolve_own_data()
        model_config.resolve_model_flags(self.settings)

    def create_head(self):
        return MeanPoolingHead(self.target.size)


class MeanPoolingHead(classification_head.Classifier):
    """Head whose loss is the focal loss of Lin et al. 2017, arXiv:1708.02002, with γ = `GAMMA`."""

    first_token_only = False  # the head reads all tokens

    def shapes(self, bert_config):
        return {"mean/output_weights": (self.num_outputs, bert_config.hidden_size),
                "mean/output_bias": (self.num_outputs,)}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        tokens = encoder.get_sequence_output()                                        # [B, F, W]
        mask = tf.expand_dims(tf.cast(features["input_mask"], tokens.dtype), -1)      # [B, F, 1]
        mean = tf.reduce_sum(tokens * mask, 1) / tf.reduce_sum(mask, 1)               # [B, W]
        dropped = head.apply_dropout(mean, mode == ModeKeys.TRAIN, encoder)
        logits = head.linear(dropped, self.num_outputs, "mean/")
        predictions = {"probabilities": tf.nn.softmax(logits), "mean": mean}
        if "label_ids" not in features:
            return head.HeadOutputs(predictions=predictions)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(features["label_ids"], logits)
        losses *= (1 - tf.exp(-losses)) ** GAMMA
        if mode == ModeKeys.EVAL:
            predictions["loss"] = losses
        return head.HeadOutputs(tf.reduce_mean(losses), predictions)
