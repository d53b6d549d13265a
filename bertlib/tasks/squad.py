"""Questions about a context: BERT with a start and an end logit for each token."""

import tensorflow.compat.v1 as tf

from bertlib.runtime import checkpoints, estimator, input_pipeline
from bertlib.tasks.squad_data import SEQUENCES, feature_fields
import modeling
import optimization


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings, model_options=None):
    """Builds BERT with a start and an end logit for each token.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: turns dropout on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.

    Returns:
      (start logits, end logits), float32 [B, F].
    """
    model = modeling.BertModel(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
                               **(model_options or {}))
    sequence = model.get_sequence_output()
    batch_size, length, width = modeling.get_shape_list(sequence, expected_rank=3)
    weights = tf.get_variable("cls/squad/output_weights", [2, width], initializer=modeling.create_initializer(0.02))
    bias = tf.get_variable("cls/squad/output_bias", [2], initializer=tf.zeros_initializer())
    logits = tf.nn.bias_add(tf.matmul(tf.reshape(sequence, [batch_size * length, width]), weights, transpose_b=True), bias)
    start, end = tf.unstack(tf.reshape(logits, [batch_size, length, 2]), axis=2)
    return start, end


def head_shapes(bert_config):
    """The variables that `create_model` adds to the encoder: {name: shape}."""
    return {"cls/squad/output_weights": (2, bert_config.hidden_size), "cls/squad/output_bias": (2,)}


def span_loss(logits, positions):
    """The mean cross-entropy of positions, int32 [B], under logits, float [B, F] (padding included, as published)."""
    log_probabilities = tf.nn.log_softmax(logits)
    chosen = tf.one_hot(positions, depth=modeling.get_shape_list(logits)[1]) * log_probabilities
    return -tf.reduce_mean(tf.reduce_sum(chosen, axis=-1))


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings, model_options=None, optimizer_options=None):
    """Returns a model_fn for `estimator.Estimator`.

    Args:
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: where weights start, see `checkpoints.open_checkpoint`; None for random ones.
      learning_rate, num_train_steps, num_warmup_steps, use_tpu: see `optimization.create_optimizer`.
      use_one_hot_embeddings: see `modeling.BertModel`.
      model_options: dict of its further arguments.
      optimizer_options: dict of further arguments of `optimization.create_optimizer`.
    """
    def model_fn(features, labels, mode, params):
        del labels
        start_logits, end_logits = create_model(
            bert_config, mode == estimator.ModeKeys.TRAIN, features["input_ids"], features["input_mask"],
            features["segment_ids"], use_one_hot_embeddings, model_options)
        scaffold = checkpoints.starting_scaffold(init_checkpoint)
        if mode == estimator.ModeKeys.PREDICT:
            predictions = {"start_logits": start_logits, "end_logits": end_logits}
            predictions.update((name, tf.identity(features[name])) for name in ("unique_ids", input_pipeline.EXAMPLE_INDEX)
                               if name in features)
            return estimator.EstimatorSpec(mode, predictions=predictions, scaffold=scaffold)
        if mode != estimator.ModeKeys.TRAIN:
            raise ValueError(f"This model is trained and predicts; mode {mode!r} is neither.")
        loss = (span_loss(start_logits, features["start_positions"]) + span_loss(end_logits, features["end_positions"])) / 2.0
        loss *= features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
        train_op = optimization.create_optimizer(
            loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, **(optimizer_options or {}),
            gradient_accumulation_steps=params.get("gradient_accumulation_steps", 1))
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

    return model_fn


def input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim_padding=False, by_tokens=False):
    """Returns an input_fn that reads a TFRecord file of `FeatureWriter`.

    Args:
      input_file: the file.
      seq_length: sequence length that it was written with.
      is_training: shuffle and repeat.
      drop_remainder: leave the last, smaller batch out.
      trim_padding: sort by length and cut batches after their longest sequence; see `input_pipeline.record_dataset`.
      by_tokens: see there; the Estimator's configuration has unequal_micro_batches then.
    """
    def input_fn(params):
        return input_pipeline.record_dataset(
            input_file, feature_fields(seq_length, is_training), params["batch_size"], is_training, drop_remainder,
            params.get("gradient_accumulation_steps", 1), trim=SEQUENCES if trim_padding else (),
            by_tokens=by_tokens)
    return input_fn
