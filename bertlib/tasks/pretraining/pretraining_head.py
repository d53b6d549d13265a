"""The two heads of the pre-training: masked words and next-sentence prediction."""

import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding, input_pipeline
from bertlib.estimator import estimator, input_functions
from bertlib.tasks import head
from bertlib.tasks.pretraining import pretraining_data
import modeling

# The loss needs the sums of these features over the effective batch; see `get_masked_lm_output`.
BATCH_TOTALS = ("masked_lm_weights",)


# --- Model -----------------------------------------------------------------------------------------------


class PretrainingHead(head.Head):
    """Head that predicts the masked words, and whether the second text follows the first. See the module
    `head`.

    The loss is the sum of the losses of these two predictions. The features are masked_lm_positions and
    masked_lm_ids, both int32 [B, P]; masked_lm_weights, float [B, P]; and next_sentence_labels, int32 [B, 1].
    An example with fewer than P masked words has unused positions. If the encoder skips padding, the head
    computes no logits for the unused positions.
    """

    modes = (estimator.ModeKeys.TRAIN, estimator.ModeKeys.EVAL)
    batch_totals, padding_is_removable, uses_pooler = BATCH_TOTALS, True, True

    def shapes(self, bert_config):
        width = bert_config.hidden_size
        return {"cls/predictions/transform/dense/kernel": (width, width),
                "cls/predictions/transform/dense/bias": (width,),
                "cls/predictions/transform/LayerNorm/beta": (width,),
                "cls/predictions/transform/LayerNorm/gamma": (width,),
                "cls/predictions/output_bias": (bert_config.vocab_size,),
                "cls/seq_relationship/output_weights": (2, width), "cls/seq_relationship/output_bias": (2,)}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        sequence, predictions, metrics = encoder.get_sequence_output(), {}, None
        masked = [features[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")]
        if encoder.step_config.remove_padding:
            sequence, masked = _pack_masked(sequence, *masked)
        masked_lm_loss, masked_lm_losses, log_probs = get_masked_lm_output(
            bert_config, sequence, encoder.get_embedding_table(), *masked,
            features.get("masked_lm_weights_total"), num_micro_batches, encoder.kernels)
        next_sentence_loss, *next_sentence = get_next_sentence_output(
            bert_config, encoder.get_pooled_output(), features["next_sentence_labels"])
        if mode == estimator.ModeKeys.EVAL:
            predictions, metrics = _evaluation(features, masked_lm_losses, log_probs, *next_sentence)
        # The loss of the masked words is already divided by the total weight of the masked words in the
        # effective batch. The loss of next-sentence prediction is a mean over the examples of this
        # micro-batch, so it needs the weight of the micro-batch.
        weight = features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
        return head.HeadOutputs(masked_lm_loss + weight * next_sentence_loss, predictions, metrics,
                                is_divided_by_total=True)


def _evaluation(features, masked_lm_losses, log_probs, next_sentence_losses, next_sentence_log_probs):
    """Returns the predictions from which the task computes its metrics, and the published metrics for
    programs that call `Estimator.evaluate` without the argument `metrics`; see `head.HeadOutputs`.

    The predictions contain the likeliest word of each position, and not the log probabilities of all words,
    which need vocab_size times the memory.

    Args:
      features: {name: tensor}, see `PretrainingHead`.
      masked_lm_losses: float32 [B·P].
      log_probs: float32 [B·P, vocab_size].
      next_sentence_losses: float32 [B].
      next_sentence_log_probs: float32 [B, 2].
    """
    labels = {name: features[name] for name in ("masked_lm_ids", "masked_lm_weights", "next_sentence_labels")}
    shape = modeling.get_shape_list(features["masked_lm_ids"])
    predictions = {
        "masked_lm_losses": tf.reshape(masked_lm_losses, shape),
        "masked_lm_words": tf.reshape(tf.argmax(log_probs, -1, output_type=tf.int32), shape),
        "next_sentence_losses": next_sentence_losses,
        "next_sentence_predictions": tf.argmax(next_sentence_log_probs, -1, output_type=tf.int32), **labels}
    return predictions, (metric_fn, [
        masked_lm_losses, log_probs, features["masked_lm_ids"], features["masked_lm_weights"],
        next_sentence_losses, next_sentence_log_probs, features["next_sentence_labels"]])


class MaskedWordsHead(head.Head):
    """Head that predicts the K likeliest words at given positions. See the module `head`.

    The feature is masked_lm_positions, int32 [B, P]. The predictions are ids, int32 [B, P, K], with the
    likeliest word first; and probabilities, float32 [B, P, K].

    Args:
      num_words: int, K.
      known_ids: the ids that have a token, as a collection of int. No other id is predicted. With padding,
        vocab_size is larger than the vocabulary, so the last ids have no token.
    """

    modes = (estimator.ModeKeys.PREDICT,)

    def __init__(self, num_words, known_ids):
        self._num_words, self._known_ids = num_words, known_ids

    def shapes(self, bert_config):
        shapes = PretrainingHead().shapes(bert_config)
        return {name: shape for name, shape in shapes.items() if "/predictions/" in name}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        positions = features["masked_lm_positions"]
        logits = masked_lm_logits(bert_config, encoder.get_sequence_output(), encoder.get_embedding_table(),
                                  positions, encoder.kernels)
        is_known = [index in self._known_ids for index in range(bert_config.vocab_size)]
        if not all(is_known):
            logits = tf.where_v2(is_known, logits, logits.dtype.min)                   # [B·P, vocab_size]
        # The order is that of the logits, because small probabilities can be rounded to 0.
        ids = tf.nn.top_k(logits, self._num_words).indices
        probabilities = tf.gather(tf.nn.softmax(logits), ids, batch_dims=1)
        shape = [*modeling.get_shape_list(positions), self._num_words]
        return head.HeadOutputs(predictions={"ids": tf.reshape(ids, shape),
                                             "probabilities": tf.reshape(probabilities, shape)})

    def exported_outputs(self, model, predictions, features):
        words = model.tokenizer.inv_vocab
        tokens = tf.constant([words.get(index, "") for index in range(model.bert_config.vocab_size)])
        return {"tokens": tf.gather(tokens, predictions["ids"]), "ids": predictions["ids"],
                "probabilities": predictions["probabilities"]}


def model_fn_builder(bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps, use_tpu,
                     use_one_hot_embeddings):
    """Returns a model_fn for `estimator.Estimator`; see `head.model_fn_builder` and
    `head.published_encoder`."""
    return head.model_fn_builder(PretrainingHead(), bert_config, init_checkpoint, learning_rate,
                                 num_train_steps, num_warmup_steps, head.published_encoder(
                                     bert_config, use_tpu, use_one_hot_embeddings))


def get_masked_lm_output(bert_config, input_tensor, output_weights, positions, label_ids, label_weights,
                         total_weight=None, num_micro_batches=1, kernels=None):
    """Builds the head for the masked words. It consists of a dense layer, an activation, layer normalization,
    and an output layer whose weights are the word embeddings.

    Args:
      bert_config: a `modeling.BertConfig`.
      input_tensor: float [B, F, W], the output of the last encoder layer.
      output_weights: float [vocab_size, W], the word embeddings.
      positions: int32 [B, P], the masked positions.
      label_ids: int32 [B, P], the words at these positions.
      label_weights: float [B, P], 0 for padding among the P positions.
      total_weight: scalar, the sum of the label weights over the effective batch. If it is None, the sum over
        this batch is used.
      num_micro_batches: number of micro-batches in the effective batch. The loss of each micro-batch is
        multiplied by this number. For this reason, the mean over the micro-batches is the loss of the
        effective batch, even if the micro-batches have different sums of label weights.
      kernels: the `TrainingKernels` or `InferenceKernels`, which compute the parts of a layer.

    Returns:
      three values: the loss (scalar, the weighted mean over the positions); the loss of each position,
      [B·P]; and the log probabilities, [B·P, vocab_size].
    """
    logits = masked_lm_logits(bert_config, input_tensor, output_weights, positions, kernels)
    # This op keeps one matrix [B·P, vocab_size] for the backward pass. The published formula would keep three
    # matrices.
    per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.reshape(label_ids, [-1]), logits=logits)
    weights = tf.cast(tf.reshape(label_weights, [-1]), tf.float32)
    total_weight = tf.reduce_sum(weights) if total_weight is None else total_weight
    loss = num_micro_batches * tf.reduce_sum(weights * per_example_loss) / (total_weight + 1e-5)
    return loss, per_example_loss, tf.nn.log_softmax(logits)


def masked_lm_logits(bert_config, input_tensor, output_weights, positions, kernels):
    """Builds the logits of all entries of the vocabulary at given positions.

    For the arguments, see `get_masked_lm_output`.

    Returns:
      float32 [B·P, vocab_size].
    """
    width = bert_config.hidden_size
    inputs = gather_indexes(input_tensor, positions)  # [B·P, W]
    with tf.variable_scope("cls/predictions"):
        with tf.variable_scope("transform"):
            with tf.variable_scope("dense"):
                kernel = tf.get_variable("kernel", [inputs.shape.as_list()[-1], width],
                                         initializer=modeling.create_initializer(bert_config.initializer_range))
                inputs = tf.nn.bias_add(tf.matmul(inputs, kernel),
                                        tf.get_variable("bias", [width], initializer=tf.zeros_initializer()))
            activation = modeling.get_activation(bert_config.hidden_act, kernels)
            inputs = modeling.layer_norm(activation(inputs) if activation else inputs, kernels=kernels)
        bias = tf.get_variable("output_bias", [bert_config.vocab_size], initializer=tf.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(inputs, output_weights, transpose_b=True), bias)


def get_next_sentence_output(bert_config, input_tensor, labels):
    """Builds the head that predicts whether the second segment is random (1) or follows the first segment
    (0).

    Args:
      bert_config: a `modeling.BertConfig`.
      input_tensor: float [B, W], the pooled output.
      labels: int32 [B] or [B, 1].

    Returns:
      three values: the mean loss, a scalar; the loss of each example, [B]; and the log probabilities, [B, 2].
    """
    with tf.variable_scope("cls/seq_relationship"):
        logits = head.linear(input_tensor, 2, initializer_range=bert_config.initializer_range)
        per_example_loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.reshape(labels, [-1]), logits=logits)
        return tf.reduce_mean(per_example_loss), per_example_loss, tf.nn.log_softmax(logits)


def gather_indexes(sequence_tensor, positions):
    """Returns the vectors at given positions of each sequence, [B·P, W].

    Args:
      sequence_tensor: [B, F, W].
      positions: int32 [B, P].
    """
    batch_size, length, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
    starts = tf.reshape(tf.range(batch_size, dtype=tf.int32) * length, [-1, 1])
    return tf.gather(tf.reshape(sequence_tensor, [batch_size * length, width]),
                     tf.reshape(positions + starts, [-1]))


def _pack_masked(sequence_tensor, positions, ids, weights):
    """Packs the masked positions of all examples into one example, without the unused positions.

    Args:
      sequence_tensor: float [B, F, W].
      positions, ids, weights: [B, P], see `get_masked_lm_output`.

    Returns:
      (packed sequence, [positions, ids, weights]). The packed sequence is float [1, B·F, W]. Each element of
      the list is [1, K], where K is the number of weights above 0.
    """
    batch_size, length, width = modeling.get_shape_list(sequence_tensor, expected_rank=3)
    used = tf.where(weights > 0)                                                        # [K, 2]
    starts = tf.range(batch_size, dtype=tf.int32)[:, tf.newaxis] * length               # [B, 1]
    return (tf.reshape(sequence_tensor, [1, batch_size * length, width]),
            [tf.gather_nd(values, used)[tf.newaxis] for values in (positions + starts, ids, weights)])


def metric_fn(masked_lm_example_loss, masked_lm_log_probs, masked_lm_ids, masked_lm_weights,
              next_sentence_example_loss, next_sentence_log_probs, next_sentence_labels):
    """Returns the published metrics of both heads; see eval_metrics of `estimator.EstimatorSpec`.

    The names are masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and next_sentence_loss. Some
    arguments are features. The other arguments are the losses and the log probabilities that the two heads
    return.
    """
    ids, weights = tf.reshape(masked_lm_ids, [-1]), tf.reshape(masked_lm_weights, [-1])
    return {
        "masked_lm_accuracy": tf.metrics.accuracy(
            ids, tf.argmax(masked_lm_log_probs, -1, output_type=tf.int32), weights),
        "masked_lm_loss": tf.metrics.mean(masked_lm_example_loss, weights),
        "next_sentence_accuracy": tf.metrics.accuracy(
            tf.reshape(next_sentence_labels, [-1]),
            tf.argmax(next_sentence_log_probs, -1, output_type=tf.int32)),
        "next_sentence_loss": tf.metrics.mean(next_sentence_example_loss),
    }


# --- Input -----------------------------------------------------------------------------------------------


def input_fn_builder(input_files, max_seq_length, max_predictions_per_seq, is_training, num_cpu_threads=4,
                     vocab_size=None, type_vocab_size=None, trim_padding=False):
    """Returns an input_fn that reads several TFRecord files of create_pretraining_data.py as if they were one
    file.

    Args:
      input_files: list of paths.
      max_seq_length, max_predictions_per_seq: the values with which the files were made.
      is_training: True to shuffle and repeat the examples of all files; False to read them once, in order.
      num_cpu_threads: number of batches that are read at the same time. The order of the batches does not
        depend on this number.
      vocab_size, type_vocab_size: see `pretraining_data.feature_fields`.
      trim_padding: whether to sort examples by length and trim each batch to its longest sequence.
    """
    fields = pretraining_data.feature_fields(max_seq_length, max_predictions_per_seq, vocab_size,
                                             type_vocab_size)
    return input_functions.input_fn_builder(
        list(input_files), fields, is_training, drop_remainder=is_training,
        trimmed_fields=example_encoding.TRIMMED_FIELDS if trim_padding else (),
        batch_totals=BATCH_TOTALS if is_training else (), num_threads=num_cpu_threads,
        position_fields=pretraining_data.POSITIONS if trim_padding else ())


def _decode_record(record, name_to_features):
    """Parses a serialized `tf.train.Example`; returns {name: tensor}, with int64 cast to int32."""
    example = tf.parse_single_example(record, name_to_features)
    return {name: tf.cast(tensor, tf.int32) if tensor.dtype == tf.int64 else tensor
            for name, tensor in example.items()}
