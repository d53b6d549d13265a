"""Builds the model of a task: BERT with a head. The same `model_fn` is used for all heads, and for training,
evaluation and prediction."""

import functools
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from bertlib.data import example_encoding, input_pipeline
from bertlib.data.batches import EXAMPLE_INDEX
from bertlib.estimator import estimator, sessions
from bertlib.estimator.run_config import step_config_of
from bertlib.graph import collectives
import modeling
import optimization

# Dropout probability for the input of a head. As in the published classifier, it does not depend on the
# model's configuration.
_DROPOUT = 0.1


class HeadOutputs(NamedTuple):
    """The tensors that a head computes from the encoder's outputs.

    Attributes:
      loss: scalar; None if the features have no labels.
      predictions: {name: tensor [B, …]}.
      metrics: the `eval_metrics` of `estimator.EstimatorSpec`, for programs that call `Estimator.evaluate`
        without the argument `metrics`; None if the head has none. The metrics of the commands are functions
        of NumPy arrays, in a module of the task such as `classification_metrics`.
      is_divided_by_total: True if the loss is already divided by a total over the effective batch, such as
        the number of tagged words. Such a loss must not be multiplied by a weight for the size of the
        micro-batch.
    """

    loss: Any = None
    predictions: dict = {}
    metrics: tuple | None = None
    is_divided_by_total: bool = False


class Head:
    """Base class of the heads. A head computes losses and predictions from the outputs of the encoder.

    Attributes:
      modes: the supported modes, a tuple of `estimator.ModeKeys`.
      first_token_only: whether the head uses only the pooled output. The encoder then computes its last layer
        only for the token [CLS].
      batch_totals: see `input_pipeline.training_dataset`.
      uses_pooler: whether a head without `first_token_only` uses the pooled output, too.
      padding_is_removable: whether the loss depends only on real tokens. In this case, the training can leave
        out the padding.
      sequences_per_example: number of sequences that the encoder reads for an example.
    """

    modes = (estimator.ModeKeys.TRAIN, estimator.ModeKeys.PREDICT)
    first_token_only = uses_pooler = padding_is_removable = False
    batch_totals = ()
    sequences_per_example = 1

    def shapes(self, bert_config):
        """Returns {name: shape} of the variables that the head adds to the encoder."""
        raise NotImplementedError

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        """Builds the head in the current graph.

        Args:
          bert_config: a `modeling.BertConfig`.
          encoder: the encoder, applied to the tensors that `encoder_inputs` returns.
          features: {name: tensor} of a micro-batch. In prediction, they may have no labels.
          mode: one of `modes`.
          num_micro_batches: number of micro-batches in the effective batch.

        Returns:
          a `HeadOutputs`.
        """
        raise NotImplementedError

    def simulated(self):
        """Returns the head that the memory planner simulates. It must have no loops."""
        return self

    def exported_features(self, features):
        """Returns the features that `build` needs in an exported model.

        Args:
          features: the inputs of the exported model, {name: int32 [B, F]}.
        """
        return features

    def exported_outputs(self, model, predictions, features):
        """Returns the outputs of an exported model, {name: tensor [B, …]}. By default, these are the
        predictions.

        Args:
          model: a `trained_model.TrainedModel`.
          predictions: the predictions of `build`.
          features: the result of `exported_features`.
        """
        return predictions


# --- The model -------------------------------------------------------------------------------------------


def model_fn_builder(head, bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps,
                     build_encoder=None):
    """Returns a model_fn for `estimator.Estimator`.

    The settings of the step are those of the Estimator: the `step_config` of its `RunConfig`. Without a
    `step_config`, the model has the published settings, and the number of micro-batches is
    params["gradient_accumulation_steps"].

    Args:
      head: a `Head`.
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: checkpoint with the initial weights, see `checkpoint_formats.open_checkpoint`; None for
        random weights.
      learning_rate: the `init_lr` of `optimization.create_optimizer`.
      num_train_steps, num_warmup_steps: see `optimization.create_optimizer`.
      build_encoder: function that returns the encoder of the head. Its arguments are those of
        `modeling.BertModel` after `config`. None for a `modeling.BertModel`.
    """
    build_encoder = build_encoder or functools.partial(modeling.BertModel, bert_config)

    def model_fn(features, labels, mode, params, config=None):
        if mode not in head.modes:
            known = ", ".join(map(repr, head.modes))
            raise ValueError(f"The mode is {mode!r}, but this model has only the modes {known}.")
        is_training = mode == estimator.ModeKeys.TRAIN
        step_config = step_config_of(params, config)
        inputs = encoder_inputs(features)
        encoder = build_encoder(is_training, *inputs, step_config=step_config,
                                first_token_only=head.first_token_only)
        num_micro_batches = (step_config.gradient_accumulation_steps * collectives.num_replicas()
                             if is_training else 1)
        outputs = head.build(bert_config, encoder, features, mode, num_micro_batches)
        scaffold = sessions.create_init_checkpoint_scaffold(init_checkpoint)
        if is_training:
            weight = features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
            loss = outputs.loss if outputs.is_divided_by_total else outputs.loss * weight
            update = optimization.create_optimizer(loss, learning_rate, num_train_steps, num_warmup_steps,
                                                   use_tpu=False, step_config=step_config)
            return estimator.EstimatorSpec(mode, loss=loss, train_op=update, scaffold=scaffold)
        # The features that identify the examples are copied to the predictions, so that the caller can assign
        # each prediction to its example.
        numbers = {name: tf.identity(features[name]) for name in ("unique_ids", EXAMPLE_INDEX)
                   if name in features}
        return estimator.EstimatorSpec(mode, {**outputs.predictions, **numbers}, loss=outputs.loss,
                                       scaffold=scaffold, eval_metrics=outputs.metrics)

    return model_fn


def encoder_inputs(features):
    """Returns the inputs of the encoder: input_ids, input_mask and segment_ids, int32 [B, F].

    If an example consists of C sequences, its features are [B, C, F]. The encoder then reads B · C sequences:
    first all sequences of the first example, then all sequences of the second example, and so on.

    Args:
      features: {name: tensor}.
    """
    inputs = [features[name] for name in example_encoding.ENCODER_INPUTS]
    if inputs[0].shape.ndims == 2:
        return inputs
    batch_size, num_sequences, length = modeling.get_shape_list(inputs[0], expected_rank=3)
    return [tf.reshape(tensor, [batch_size * num_sequences, length]) for tensor in inputs]


def published_encoder(bert_config, use_tpu, use_one_hot_embeddings):
    """Returns the argument `build_encoder` of `model_fn_builder` for the published builders.

    Args:
      bert_config: a `modeling.BertConfig`.
      use_tpu: must be false.
      use_one_hot_embeddings: whether words are looked up by a matrix product.

    Raises:
      ValueError: `use_tpu` is true.
    """
    estimator.refuse_tpu(use_tpu)
    return functools.partial(modeling.BertModel, bert_config, use_one_hot_embeddings=use_one_hot_embeddings)


# --- Parts of heads --------------------------------------------------------------------------------------


def apply_dropout(output, is_training, encoder):
    """Returns the input of a head: an output of the encoder. In training, dropout is applied to it.

    Args:
      output: float tensor.
      is_training: bool.
      encoder: the encoder, whose kernels draw the dropout mask.
    """
    return modeling.dropout(output, _DROPOUT, encoder.kernels) if is_training else output


def token_logits(sequence, size, prefix=""):
    """Applies a linear layer to each token of the encoder's last layer.

    Args:
      sequence: float [B, F, W].
      size: N, the number of outputs for each token.
      prefix: prefix of the variables' names.

    Returns:
      float [B, F, N].
    """
    batch_size, length, width = modeling.get_shape_list(sequence, expected_rank=3)
    logits = linear(tf.reshape(sequence, [batch_size * length, width]), size, prefix)
    return tf.reshape(logits, [batch_size, length, size])


def linear(rows, size, prefix="", initializer_range=0.02):
    """Applies the linear layer of a head, whose variables are <prefix>output_weights and <prefix>output_bias.

    Args:
      rows: float [rows, W].
      size: N, the number of outputs for each row.
      prefix: prefix of the variables' names.
      initializer_range: standard deviation of the initial weights.

    Returns:
      float [rows, N].
    """
    weights = tf.get_variable(f"{prefix}output_weights", [size, rows.shape.as_list()[-1]],
                              initializer=modeling.create_initializer(initializer_range))
    bias = tf.get_variable(f"{prefix}output_bias", [size], initializer=tf.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(rows, weights, transpose_b=True), bias)


def repeat_names(names, like):
    """Returns a string tensor [B, number of names], in which each row contains all names. The tensor has as
    many rows as `like`, a tensor [B, …]."""
    return tf.tile(tf.constant([names]), [tf.shape(like)[0], 1])
