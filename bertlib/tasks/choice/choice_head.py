"""Chooses one of several sequences. The model is BERT with a head that computes a score for each sequence.
The probabilities of the sequences are the softmax of their scores."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks import head
import modeling

_WEIGHTS = "cls/multiple_choice/output_weights"


class Choice(head.Head):
    """Head that scores each sequence of a question. See the module `head`.

    The only variable is a vector. The score of a sequence is the product of this vector with the pooled
    output of the sequence (Devlin et al. 2019, section 4.4).

    The features of the encoder are int32 [B, C, F]: C sequences for each question. label_ids, int32 [B], is
    the number of the right sequence, and is not needed in prediction. In prediction, the features may also be
    single sequences [B, F].

    The predictions are "scores", float32 [B, C], or [B] for single sequences. If the features have labels,
    the predictions also contain "loss", float32 [B].
    """

    first_token_only = padding_is_removable = True

    def __init__(self, num_choices=1):
        self.sequences_per_example = num_choices

    def shapes(self, bert_config):
        return {_WEIGHTS: (1, bert_config.hidden_size)}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        weights = tf.get_variable(_WEIGHTS, [1, bert_config.hidden_size],
                                  initializer=modeling.create_initializer(0.02))
        output = head.apply_dropout(encoder.get_pooled_output(), mode == estimator.ModeKeys.TRAIN, encoder)
        scores = tf.reshape(tf.matmul(output, weights, transpose_b=True),
                            modeling.get_shape_list(features["input_ids"])[:-1])
        labels = features.get("label_ids")
        if labels is None:
            return head.HeadOutputs(predictions={"scores": scores})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return head.HeadOutputs(tf.reduce_mean(losses), {"scores": scores, "loss": losses})

    def exported_outputs(self, model, predictions, features):
        # An input of the exported model is the sequence of a single ending, so the model cannot compare the
        # endings of a question. The client computes the softmax over the scores of these endings.
        return {"score": predictions["scores"]}
