"""Finds answers to questions in a context: BERT with a start logit and an end logit for each token."""

import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding
from bertlib.estimator import estimator, input_functions
from bertlib.tasks import head
from bertlib.tasks.squad.squad_data import feature_fields
import modeling


class Span(head.Head):
    """Head that predicts the start and the end of an answer. See the module `head`.

    In training, the features include start_positions and end_positions, both int32 [B]. The predictions are
    start_logits and end_logits, both float32 [B, F].
    """

    def shapes(self, bert_config):
        return {"cls/squad/output_weights": (2, bert_config.hidden_size), "cls/squad/output_bias": (2,)}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        start_logits, end_logits = _span_logits(encoder.get_sequence_output())
        loss = None
        if mode == estimator.ModeKeys.TRAIN:
            loss = (span_loss(start_logits, features["start_positions"])
                    + span_loss(end_logits, features["end_positions"])) / 2.0
        return head.HeadOutputs(loss, {"start_logits": start_logits, "end_logits": end_logits})


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
                 step_config=None):
    """Builds BERT with a start and an end logit for each token.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: whether dropout is on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      use_one_hot_embeddings: whether words are looked up by a matrix product.
      step_config: a `StepConfig`; None for the published settings.

    Returns:
      (start logits, end logits), both float32 [B, F].
    """
    model = modeling.BertModel(bert_config, is_training, input_ids, input_mask, segment_ids,
                               use_one_hot_embeddings, step_config=step_config)
    return _span_logits(model.get_sequence_output())


def _span_logits(sequence):
    """Builds the head on the last layer [B, F, W]. Returns (start logits, end logits), see `create_model`."""
    start, end = tf.unstack(head.token_logits(sequence, 2, "cls/squad/"), axis=2)
    return start, end


def span_loss(logits, positions):
    """Returns the mean cross-entropy of positions, a scalar. As in the published code, the softmax includes
    the logits of padding.

    Args:
      logits: float [B, F].
      positions: int32 [B].
    """
    log_probabilities = tf.nn.log_softmax(logits)
    label_scores = tf.one_hot(positions, depth=modeling.get_shape_list(logits)[1]) * log_probabilities
    return -tf.reduce_mean(tf.reduce_sum(label_scores, axis=-1))


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings):
    """Returns a model_fn for `estimator.Estimator`; see `head.model_fn_builder` and
    `head.published_encoder`."""
    return head.model_fn_builder(Span(), bert_config, init_checkpoint, learning_rate, num_train_steps,
                                 num_warmup_steps, head.published_encoder(
                                     bert_config, use_tpu, use_one_hot_embeddings))


def input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim_padding=False):
    """Returns an input_fn that reads a TFRecord file of `FeatureWriter`. For the arguments, see
    `run_classifier.file_based_input_fn_builder`."""
    return input_functions.input_fn_builder(
        input_file, feature_fields(seq_length, is_training), is_training, drop_remainder,
        example_encoding.TRIMMED_FIELDS if trim_padding else ())
