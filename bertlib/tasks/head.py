"""The model of a task: BERT with a head, trained, evaluated and run by one `model_fn`, whatever the head.

A head is an object with

    modes                        the modes that it has, of `estimator.ModeKeys`
    first_token_only             whether it looks at the pooled output only, so that the last layer is
                                 computed at [CLS] only
    shapes(bert_config)          {name: shape} of the variables that it adds to the encoder
    build(bert_config, model, features, mode, micro_batches)
                                 its part of the graph: an `HeadOutputs`; `micro_batches` are the parts of the
                                 effective batch, of which `features` are one. In prediction features may
                                 have no labels

and, if its examples may be cut into windows,

    compute_metrics(predictions, label_ids)
                                 like `metrics` of `HeadOutputs`, of arrays: of a prediction, a dict, and a
                                 label for each example, wherever these come from
"""

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.estimator import estimator
from bertlib.estimator.step_config import StepConfig
from bertlib.graph import collectives
import modeling
import optimization


class HeadOutputs(NamedTuple):
    """What a head makes of the encoder's outputs.

    loss: scalar; None if the features have no labels. predictions: {name: tensor [B, …]}. metrics: (function,
    its arguments, a list of tensors) that make {name: (value, update op)}; None if the head is not evaluated.
    is_divided_by_total: True if the loss is already divided by the whole step's total, so that it must not be
    weighted by the micro-batch's size.
    """

    loss: Any = None
    predictions: dict = {}
    metrics: tuple | None = None
    is_divided_by_total: bool = False


def create_encoder(bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
                   step=None,
                   first_token_only=False):
    """Builds the `modeling.BertModel` that a step asks for.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: turns dropout on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      use_one_hot_embeddings, first_token_only: see `modeling.BertModel`.
      step: a `StepConfig`; the published one if None.
    """
    step = step or StepConfig()
    return modeling.BertModel(
        bert_config, is_training, input_ids, input_mask, segment_ids, use_one_hot_embeddings,
        recompute=step.recompute,
        recompute_segment=step.recompute_segment, precision=step.precision, first_token_only=first_token_only,
        compile_kernels=step.compile_kernels, remove_padding=step.remove_padding)


def create_train_op(loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, step, micro_batches):
    """Builds the update that a step asks for, of a loss that is the mean over one of its micro-batches."""
    return optimization.create_optimizer(
        loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, optimizer=step.optimizer,
        lr_schedule=step.lr_schedule, adam_bias_correction=step.adam_bias_correction,
        gradient_accumulation_steps=micro_batches, loss_scaling=step.loss_scaling)


def model_fn_builder(head, bert_config, init_checkpoint, learning_rate, num_train_steps, num_warmup_steps,
                     use_tpu, use_one_hot_embeddings, step=None, build_encoder=None):
    """Returns a model_fn for `estimator.Estimator`.

    Args:
      head: see above.
      bert_config: a `modeling.BertConfig`.
      init_checkpoint: where weights start, see `checkpoint_formats.open_checkpoint`; None for random ones.
      learning_rate, num_train_steps, num_warmup_steps, use_tpu: see `optimization.create_optimizer`.
      use_one_hot_embeddings: see `modeling.BertModel`.
      step: a `StepConfig`; the published one if None. The number of micro-batches that the Estimator has in
        params goes before its.
      build_encoder: function of is_training, input_ids, input_mask and segment_ids that returns what the head
        is given as its `model`; None for `create_encoder`.
    """
    step = step or StepConfig()

    def model_fn(features, labels, mode, params):
        del labels
        if mode not in head.modes:
            raise ValueError(
                f"This model has the modes {', '.join(map(repr, head.modes))}, and not {mode!r}.")
        is_training = mode == estimator.ModeKeys.TRAIN
        micro_batches = params.get("gradient_accumulation_steps",
                                   step.gradient_accumulation_steps) if is_training else 1
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        model = build_encoder(is_training, *inputs) if build_encoder else create_encoder(
            bert_config, is_training, *inputs, use_one_hot_embeddings, step, head.first_token_only)
        outputs = head.build(bert_config, model, features, mode, micro_batches * collectives.num_replicas())
        scaffold = checkpoint_formats.create_scaffold(init_checkpoint)
        if is_training:
            weight = features.get(input_pipeline.MICRO_BATCH_WEIGHT, 1.0)
            loss = outputs.loss if outputs.is_divided_by_total else outputs.loss * weight
            update = create_train_op(loss, learning_rate, num_train_steps, num_warmup_steps, use_tpu, step,
                                     micro_batches)
            return estimator.EstimatorSpec(mode, loss=loss, train_op=update, scaffold=scaffold)
        which = {name: tf.identity(features[name]) for name in ("unique_ids", input_pipeline.EXAMPLE_INDEX)
                 if name in features}
        predictions = {**outputs.predictions, **which}
        if mode == estimator.ModeKeys.EVAL:
            return estimator.EstimatorSpec(mode, predictions, loss=outputs.loss, scaffold=scaffold,
                                           eval_metrics=outputs.metrics)
        return estimator.EstimatorSpec(mode, predictions, scaffold=scaffold)

    return model_fn


def token_logits(sequence, size, prefix="", dropout_prob=0.0):
    """Builds a linear layer on each token of the encoder's last layer.

    Args:
      sequence: float [B, F, W].
      size: number of outputs, N.
      prefix: what the names of the variables begin with.
      dropout_prob: probability of a zero in the layer's input.

    Returns:
      float [B, F, N].
    """
    batch_size, length, width = modeling.get_shape_list(sequence, expected_rank=3)
    weights = tf.get_variable(f"{prefix}output_weights", [size, width],
                              initializer=modeling.create_initializer(0.02))
    bias = tf.get_variable(f"{prefix}output_bias", [size], initializer=tf.zeros_initializer())
    if dropout_prob:
        sequence = modeling.dropout(sequence, dropout_prob)
    rows = tf.reshape(sequence, [batch_size * length, width])
    logits = tf.nn.bias_add(tf.matmul(rows, weights, transpose_b=True), bias)
    return tf.reshape(logits, [batch_size, length, size])


def evaluate_metrics(metrics):
    """Computes metrics of arrays; see `compute_metrics` above. Returns {name: value}."""
    function, arrays = metrics
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        # As constants they would be part of the graph, which is of 2 GB at most.
        inputs = [tf.placeholder(array.dtype, array.shape) for array in arrays]
        found = function(*inputs)
        session.run(tf.local_variables_initializer())
        session.run([update for _, update in found.values()], dict(zip(inputs, arrays)))
        return session.run({name: value for name, (value, _) in found.items()})


def input_fn_builder(input_files, fields, is_training, drop_remainder, trimmed_fields=(),
                     unequal_micro_batches=False, batch_totals=(), num_threads=None):
    """Returns an input_fn that reads TFRecord files in the batches that the Estimator asks for.

    Args:
      input_files, fields, is_training, drop_remainder, trimmed_fields, unequal_micro_batches, batch_totals,
        num_threads: see `input_pipeline.record_dataset`.
    """
    def input_fn(params):
        return input_pipeline.record_dataset(
            input_files, fields, params["batch_size"], is_training, drop_remainder,
            params.get("gradient_accumulation_steps", 1), batch_totals, num_threads,
            trimmed_fields, unequal_micro_batches)
    return input_fn
