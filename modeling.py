"""Builds the BERT encoder (Devlin et al. 2018, arXiv:1810.04805).

Shape legend, used throughout:
  B  examples in the batch           N  attention heads
  F  positions that attend ("from")  H  size of one head
  T  positions attended to ("to")    W  hidden size, N·H in the encoder
  I  intermediate size               R  rows: B·F, or fewer if padding is removed
In self-attention, F = T. A comment at the end of a line gives the shape of the tensor that the line computes.

Inside the encoder, activations are matrices [R, W]. Reshaping them to [B, F, W] and back between the layers
would cost time on some devices.
"""

import collections
import copy
import dataclasses
import functools

import tensorflow.compat.v1 as tf

from bertlib.checkpoints.bert_config import (  # noqa: F401  public names of this module
    BertConfig,
    check_activation,
    variable_shapes,
)
from bertlib.estimator.step_config import RECOMPUTE, StepConfig
from bertlib.graph import kernel_choice, randomness
from bertlib.graph.formulas import LAYER_NORM_EPSILON  # noqa: F401  a public name
from bertlib.graph.packing import Packing

# This number is added to the attention score of a masked position. It is far below any real score. The
# number is not infinite, because infinite scores can become NaN.
_MASKED_SCORE = -10000.0
# {value of `precision`: data type of the encoder's layers}.
PRECISIONS = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


class BertModel:
    """The BERT encoder with its pooler, in the current graph.

        model = modeling.BertModel(config=config, is_training=True, input_ids=input_ids,
                                   input_mask=input_mask, token_type_ids=segment_ids)
        logits = tf.matmul(model.get_pooled_output(), output_weights, transpose_b=True)

    Attributes:
      step_config: the `StepConfig` that the encoder follows. Without training, it recomputes nothing and
        keeps the padding.
      kernels: the kernels of the parts that compute in float32: embeddings, pooler and the head.
    """

    def __init__(self, config, is_training, input_ids, input_mask=None, token_type_ids=None,
                 use_one_hot_embeddings=False, scope=None, first_token_only=False, step_config=None):
        """Builds the encoder.

        Args:
          config: a `BertConfig`.
          is_training: bool; False turns all dropout off.
          input_ids: int32 [B, F], vocabulary ids.
          input_mask: int32 [B, F], 1 for real tokens and 0 for padding; all ones if None.
          token_type_ids: int32 [B, F], segment ids below `config.type_vocab_size`; all zeros if None.
          use_one_hot_embeddings: whether to look words up by a matrix product instead of a gather.
          scope: variable scope; "bert" if None.
          first_token_only: whether to compute the last layer only at the first position, [CLS], which is
            sufficient for the pooler. The output of the last layer is then [B, 1, W].
          step_config: a `StepConfig`; None for its defaults, which are those of the published code. The
            encoder uses `precision`, `compile_kernels`, and in training `remove_padding`, `recompute`,
            `recompute_segment` and `freeze_layers`; for the last three, see `transformer_model`.

        Raises:
          ValueError: a shape or a value in the configuration is not valid.
        """
        step_config = step_config or StepConfig()
        if step_config.precision not in PRECISIONS:
            raise ValueError(f"Unknown precision={step_config.precision!r}; known: {', '.join(PRECISIONS)}.")
        config = copy.deepcopy(config)
        if not is_training:
            config.hidden_dropout_prob = 0.0
            config.attention_probs_dropout_prob = 0.0
            step_config = dataclasses.replace(step_config, recompute="none", remove_padding=False)
        self.step_config = step_config
        self.kernels = kernel_choice.choose_kernels(is_training, tf.float32, step_config)
        self._build(config, is_training, (input_ids, input_mask, token_type_ids), use_one_hot_embeddings,
                    scope, first_token_only)

    def _build(self, config, is_training, inputs, use_one_hot_embeddings, scope, first_token_only):
        """Builds embeddings, encoder and pooler. `inputs` are input_ids, input_mask and token_type_ids."""
        step_config, dtype = self.step_config, PRECISIONS[self.step_config.precision]
        input_ids, input_mask, token_type_ids = inputs
        batch_size, seq_length = get_shape_list(input_ids, expected_rank=2)
        if input_mask is None:
            input_mask = tf.ones([batch_size, seq_length], tf.int32)
        if token_type_ids is None:
            token_type_ids = tf.zeros([batch_size, seq_length], tf.int32)
        if step_config.remove_padding:
            # If padding is removed, micro-batches have different numbers of rows R, even if their inputs have
            # equal shapes [B, F]. So they draw different numbers of random values.
            randomness.mark_unequal_micro_batches()

        with tf.variable_scope(scope, default_name="bert"):
            with tf.variable_scope("embeddings"):
                word_embeddings, self.embedding_table = embedding_lookup(
                    input_ids, config.vocab_size, config.hidden_size, config.initializer_range,
                    use_one_hot_embeddings=use_one_hot_embeddings, kernels=self.kernels)
                # [B, F, W]
                self.embedding_output = embedding_postprocessor(
                    word_embeddings, use_token_type=True, token_type_ids=token_type_ids,
                    token_type_vocab_size=config.type_vocab_size, initializer_range=config.initializer_range,
                    max_position_embeddings=config.max_position_embeddings,
                    dropout_prob=config.hidden_dropout_prob, kernels=self.kernels)

            with tf.variable_scope("encoder"):
                layers = transformer_model(
                    tf.cast(self.embedding_output, dtype),
                    create_attention_mask_from_input_mask(input_ids, input_mask),
                    hidden_size=config.hidden_size, num_hidden_layers=config.num_hidden_layers,
                    num_attention_heads=config.num_attention_heads,
                    intermediate_size=config.intermediate_size,
                    intermediate_act_fn=get_activation(config.hidden_act),
                    hidden_dropout_prob=config.hidden_dropout_prob,
                    attention_probs_dropout_prob=config.attention_probs_dropout_prob,
                    initializer_range=config.initializer_range, do_return_all_layers=True,
                    first_token_only=first_token_only,
                    packing=Packing(input_mask) if step_config.remove_padding else None,
                    kernels=kernel_choice.choose_kernels(is_training, dtype, step_config),
                    step_config=step_config)
            # The outputs of the layers, each [B, F, W].
            self.all_encoder_layers = [tf.cast(layer, tf.float32) for layer in layers]
            self.sequence_output = self.all_encoder_layers[-1]

            with tf.variable_scope("pooler"):
                # [B, W]: the vector of [CLS] represents the sequence.
                first_token = tf.cast(layers[-1][:, 0, :], tf.float32)
                self.pooled_output = _dense(first_token, config.hidden_size, "dense",
                                            config.initializer_range, tf.tanh, self.kernels)

    def get_pooled_output(self):
        """Returns float [B, W]: the output of the last layer at [CLS], after a dense layer and tanh."""
        return self.pooled_output

    def get_sequence_output(self):
        """Returns float [B, F, W]: the output of the last layer."""
        return self.sequence_output

    def get_all_encoder_layers(self):
        """Returns a list of float [B, F, W]: the outputs of all layers, from the first to the last."""
        return self.all_encoder_layers

    def get_embedding_output(self):
        """Returns float [B, F, W]: the sum of the embeddings, to which layer normalization and then dropout
        were applied."""
        return self.embedding_output

    def get_embedding_table(self):
        """Returns the word embeddings, float [vocab_size, W]."""
        return self.embedding_table


# --- Activations, normalization, dropout ---------------------------------------------------------


def gelu(x, kernels=None):
    """Computes the tanh form of the Gaussian error linear unit (Hendrycks and Gimpel 2016, arXiv:1606.08415).

    The formula, from section 2, is 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). The published models were
    trained with this form. For `kernels`, see `transformer_model`.
    """
    return (kernels or kernel_choice.PLAIN).gelu(x)


def gelu_erf(x, kernels=None):
    """Computes the exact Gaussian error linear unit, 0.5 x (1 + erf(x/√2)). Hugging Face calls this form
    "gelu". For `kernels`, see `transformer_model`."""
    return (kernels or kernel_choice.PLAIN).gelu(x, approximate=False)


_ACTIVATIONS = {"linear": None, "relu": tf.nn.relu, "gelu": gelu, "gelu_erf": gelu_erf, "tanh": tf.tanh}


def get_activation(activation_string, kernels=None):
    """Returns the activation function with a given name; None for "linear", for an empty name and for None.

    An argument that is not a string is returned unchanged. With `kernels` (see `transformer_model`), these
    compute the two forms of gelu.

    Raises:
      ValueError: there is no activation of that name.
    """
    if not isinstance(activation_string, str):
        return activation_string
    check_activation(activation_string)
    activation = _ACTIVATIONS[activation_string.lower()] if activation_string else None
    if kernels and activation in (gelu, gelu_erf):
        return functools.partial(activation, kernels=kernels)
    return activation


def dropout(input_tensor, dropout_prob, kernels=None):
    """Sets each value to zero with a given probability, and scales the other values so that the mean stays
    the same (Srivastava et al. 2014).

    The mask depends only on the seed of the graph, the global step, the position in the effective batch, and
    the site. A site is the name of a place in the model; see `bertlib.graph.randomness`.

    Args:
      input_tensor: float tensor. The mask has the same shape. `bertlib.graph.randomness.uniform` describes
        which first dimension this tensor must have.
      dropout_prob: probability of a zero. If it is None or 0.0, the input is returned unchanged.
      kernels: see `transformer_model`. They draw the mask, which is the same for all kernels.
    """
    mask = (kernels or kernel_choice.PLAIN).dropout_mask(input_tensor, tf.shape(input_tensor), dropout_prob)
    if mask is None:
        return input_tensor
    # tf.where needs less memory than a product with the mask: for the backward pass, tf.where keeps one byte
    # for each value of the mask, and a product would keep a float.
    return tf.where_v2(mask, input_tensor * (1.0 / (1.0 - dropout_prob)), tf.zeros([], input_tensor.dtype))


def layer_norm(input_tensor, name=None, kernels=None):
    """Computes layer normalization over the last dimension (Ba et al. 2016, arXiv:1607.06450).

    The variables are gamma and beta.

    Args:
      input_tensor: float [..., W].
      name: name of the variables' scope; "LayerNorm" if None.
      kernels: the `TrainingKernels` or `InferenceKernels` of the graph; None for TensorFlow's ops.
    """
    norm = _norm_parameters(input_tensor.shape.as_list()[-1], name)
    return (kernels or kernel_choice.PLAIN).layer_norm(input_tensor, *norm)


def _norm_parameters(width, name=None):
    """Creates the variables gamma and beta; returns their values as tensors, (gamma, beta)."""
    with tf.variable_scope(name, default_name="LayerNorm"):
        beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
        return tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)


def layer_norm_and_dropout(input_tensor, dropout_prob, name=None, kernels=None):
    """Applies `layer_norm`, then `dropout`."""
    return dropout(layer_norm(input_tensor, name, kernels), dropout_prob, kernels)


def create_initializer(initializer_range=0.02):
    """Returns an initializer: a truncated normal distribution with the standard deviation initializer_range.

    The values depend on the seed of the graph and on the variable scope, see `randomness.new_site`.
    """
    def initialize(shape, dtype=tf.float32, partition_info=None):
        site = randomness.new_site("initializer")
        return randomness.truncated_normal(shape, initializer_range, site, dtype)
    return initialize


def _dense(inputs, units, name, initializer_range, activation, kernels):
    """Builds a dense layer: activation(inputs · kernel + bias), for inputs [rows, width].

    The variables are <name>/kernel and <name>/bias.
    """
    kernel, bias = _dense_parameters(inputs.shape.as_list()[-1], units, name, initializer_range)
    outputs = kernels.linear(inputs, [kernel], [bias])
    return outputs if activation is None else activation(outputs)


def _dense_parameters(width, units, name, initializer_range):
    """Creates the variables <name>/kernel and <name>/bias; returns their values as tensors."""
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [width, units], initializer=create_initializer(initializer_range))
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias)


# --- Embeddings ------------------------------------------------------------------------------------


def embedding_lookup(input_ids, vocab_size, embedding_size=128, initializer_range=0.02,
                     word_embedding_name="word_embeddings", use_one_hot_embeddings=False, kernels=None):
    """Looks up the embeddings of ids.

    Args:
      input_ids: int32 [B, F], or [B, F, K] with K ids at each position.
      vocab_size: number of rows of the table.
      embedding_size: width of the table.
      initializer_range: standard deviation of the random initial weights.
      word_embedding_name: name of the table's variable.
      use_one_hot_embeddings: whether to multiply one-hot vectors by the table instead of gathering rows.
      kernels: the `TrainingKernels` or `InferenceKernels` of the graph; None for TensorFlow's ops.

    Returns:
      a pair: the embeddings, float [B, F, K·embedding_size] (K is 1 if input_ids is [B, F]), and the table,
      float [vocab_size, embedding_size].
    """
    if input_ids.shape.ndims == 2:
        input_ids = tf.expand_dims(input_ids, axis=[-1])
    table = tf.get_variable(word_embedding_name, [vocab_size, embedding_size],
                            initializer=create_initializer(initializer_range))
    flat_ids = tf.reshape(input_ids, [-1])
    if use_one_hot_embeddings:
        output = tf.matmul(tf.one_hot(flat_ids, depth=vocab_size), table)
    else:
        output = (kernels or kernel_choice.PLAIN).look_up(table, flat_ids)
    batch_size, seq_length, ids_per_position = get_shape_list(input_ids)
    return tf.reshape(output, [batch_size, seq_length, ids_per_position * embedding_size]), table


def embedding_postprocessor(input_tensor, use_token_type=False, token_type_ids=None, token_type_vocab_size=16,
                            token_type_embedding_name="token_type_embeddings", use_position_embeddings=True,
                            position_embedding_name="position_embeddings", initializer_range=0.02,
                            max_position_embeddings=512, dropout_prob=0.1, kernels=None):
    """Adds segment and position embeddings, then normalizes and applies dropout.

    Args:
      input_tensor: float [B, F, W].
      use_token_type: whether to add segment embeddings.
      token_type_ids: int32 [B, F]; required with `use_token_type`.
      token_type_vocab_size: number of segment ids.
      token_type_embedding_name: name of the segment table's variable.
      use_position_embeddings: whether to add position embeddings.
      position_embedding_name: name of the position table's variable.
      initializer_range: standard deviation of the random initial weights.
      max_position_embeddings: number of rows of the position table, at least F.
      dropout_prob: float, probability of a dropped value.
      kernels: the `TrainingKernels` or `InferenceKernels` of the graph; None for TensorFlow's ops.

    Returns:
      float [B, F, W].

    Raises:
      ValueError: `token_type_ids` is missing, or the sequence is longer than the position table.
    """
    batch_size, seq_length, width = get_shape_list(input_tensor, expected_rank=3)
    output = input_tensor

    if use_token_type:
        if token_type_ids is None:
            raise ValueError("use_token_type=True needs token_type_ids.")
        table = tf.get_variable(token_type_embedding_name, [token_type_vocab_size, width],
                                initializer=create_initializer(initializer_range))
        # The table has few rows, so a product with one-hot vectors is faster than a gather. In addition,
        # the product gives the table a dense gradient. A gather would give it IndexedSlices.
        one_hot = tf.one_hot(tf.reshape(token_type_ids, [-1]), depth=token_type_vocab_size)
        output += tf.reshape(tf.matmul(one_hot, table), [batch_size, seq_length, width])

    if use_position_embeddings:
        if isinstance(seq_length, int) and seq_length > max_position_embeddings:
            raise ValueError(f"Sequence length {seq_length} exceeds "
                             f"max_position_embeddings={max_position_embeddings}.")
        table = tf.get_variable(position_embedding_name, [max_position_embeddings, width],
                                initializer=create_initializer(initializer_range))
        # Row i of the table is the embedding of position i. [F, W] is broadcast over the batch. If F is
        # unknown when the graph is built, a sequence that is too long causes an error when this slice runs.
        output += tf.slice(table, [0, 0], [seq_length, -1])

    return layer_norm_and_dropout(output, dropout_prob, kernels=kernels)


# --- Encoder -----------------------------------------------------------------------------------------


def create_attention_mask_from_input_mask(from_tensor, to_mask):
    """Returns the mask with which every position attends to all real positions.

    Args:
      from_tensor: [B, F] or [B, F, …]; only its shape is used.
      to_mask: int32 [B, T], 1 for real tokens and 0 for padding.

    Returns:
      float32 [B, F, T], 1.0 if position f may attend to position t, else 0.0.
    """
    batch_size, from_seq_length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_seq_length = get_shape_list(to_mask, expected_rank=2)[1]
    to_mask = tf.cast(tf.reshape(to_mask, [batch_size, 1, to_seq_length]), tf.float32)
    return tf.ones([batch_size, from_seq_length, 1], tf.float32) * to_mask


def attention_layer(from_tensor, to_tensor, attention_mask=None, num_attention_heads=1, size_per_head=512,
                    query_act=None, key_act=None, value_act=None, attention_probs_dropout_prob=0.0,
                    initializer_range=0.02, do_return_2d_tensor=False, batch_size=None, from_seq_length=None,
                    to_seq_length=None, recompute=False, from_packing=None, to_packing=None, kernels=None):
    """Builds multi-head scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, equation 1).

    The result is softmax(Q Kᵀ / √H + mask) V for each head. If from_tensor and to_tensor are the same object,
    this is self-attention.

    Args:
      from_tensor: float [B, F, width] or [B·F, width].
      to_tensor: float [B, T, width] or [B·T, width].
      attention_mask: [B, F, T], 1 if position f may attend to position t, else 0; None if every position may
        attend to all positions.
      num_attention_heads: N.
      size_per_head: H.
      query_act, key_act, value_act: activations of the three projections, or None.
      attention_probs_dropout_prob: dropout probability of the attention probabilities.
      initializer_range: standard deviation of the random initial weights.
      do_return_2d_tensor: whether to return [B·F, N·H] instead of [B, F, N·H].
      batch_size, from_seq_length, to_seq_length: B, F and T; required if the inputs are matrices.
      recompute: whether to keep only Q, K and V for the backward pass, which then computes scores and
        probabilities again. This is recompute="attention" of `transformer_model`.
      from_packing, to_packing: the `Packing`s of from_tensor and to_tensor, if these tensors are matrices
        without the rows of padding; otherwise None.
      kernels: the `TrainingKernels` or `InferenceKernels` of the graph; None for TensorFlow's ops.

    Returns:
      float [B, F, N·H] or [B·F, N·H]; with `from_packing`, [R, N·H].

    Raises:
      ValueError: the ranks of the tensors differ; or the tensors are matrices, and B, F or T is missing.
    """
    batch_size, from_seq_length, to_seq_length = _attention_sizes(
        from_tensor, to_tensor, [batch_size, from_seq_length, to_seq_length])
    kernels = kernels or kernel_choice.PLAIN
    project = functools.partial(_project, heads=(num_attention_heads, size_per_head), batch_size=batch_size,
                                initializer_range=initializer_range, kernels=kernels)
    to_rows = reshape_to_matrix(to_tensor)                                              # [B·T, width]
    keys = {"key": key_act, "value": value_act}
    if from_tensor is to_tensor:
        query, key, value = project(to_rows, to_seq_length, to_packing, {"query": query_act, **keys})
    else:
        from_rows = reshape_to_matrix(from_tensor)                                      # [B·F, width]
        query, = project(from_rows, from_seq_length, from_packing, {"query": query_act})     # [B, N, F, H]
        key, value = project(to_rows, to_seq_length, to_packing, keys)                  # [B, N, T, H]

    attend = functools.partial(_attend, dropout_prob=attention_probs_dropout_prob, kernels=kernels)
    if recompute:
        from bertlib.graph import recompute_grad
        attend = recompute_grad.recompute_grad(attend)
    mask = [] if attention_mask is None else [attention_mask]
    context = attend(query, key, value, *mask)                                          # [B, N, F, H]
    rows = kernels.merge_heads(context, batch_size, from_seq_length, from_packing)      # [R, N·H]
    if do_return_2d_tensor or from_packing:
        return rows
    return tf.reshape(rows, [batch_size, from_seq_length, num_attention_heads * size_per_head])


def _attention_sizes(from_tensor, to_tensor, given):
    """Returns a list of the sizes B, F and T of the tensors that were passed to `attention_layer`. The shapes
    of matrices do not contain these sizes. For matrices, returns `given`, the sizes from the caller."""
    from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
    to_shape = get_shape_list(to_tensor, expected_rank=[2, 3])
    if len(from_shape) != len(to_shape):
        raise ValueError(f"from_tensor has rank {len(from_shape)}, but to_tensor has rank {len(to_shape)}. "
                         "The ranks must be equal.")
    if len(from_shape) == 3:
        return [*from_shape[:2], to_shape[1]]
    if any(size is None for size in given):
        raise ValueError("With matrices as inputs, batch_size, from_seq_length and to_seq_length are needed.")
    return given


def _project(rows, length, packing, activations, heads, batch_size, initializer_range, kernels):
    """Builds several projections of the same rows as one matrix product.

    Args:
      rows: float [R, width].
      length: F or T.
      packing: see `attention_layer`.
      activations: {name of a projection's variables: its activation, or None}.
      heads: pair (N, H).

    Returns:
      list of float [B, N, length, H], one for each projection.
    """
    width, (num_heads, size) = rows.shape.as_list()[-1], heads
    weights, biases = zip(*(_dense_parameters(width, num_heads * size, name, initializer_range)
                            for name in activations))
    outputs = kernels.linear(rows, list(weights), list(biases))                         # [R, projections·N·H]
    outputs = kernels.split_heads(outputs, len(activations), num_heads, batch_size, length, packing)
    return [output if act is None else act(output) for act, output in zip(activations.values(), outputs)]


def _attend(query, key, value, attention_mask=None, dropout_prob=0.0, kernels=None):
    """Computes the formula of `attention_layer`.

    Args:
      query: [B, N, F, H].
      key, value: [B, N, T, H].
      attention_mask: [B, F, T], or None.

    Returns:
      [B, N, F, H].
    """
    score_bias = None
    if attention_mask is not None:
        allowed = tf.cast(tf.expand_dims(attention_mask, axis=[1]), tf.float32)         # [B, 1, F, T]
        score_bias = (1.0 - allowed) * _MASKED_SCORE                                    # [B, 1, F, T]
    batch_size, num_heads, from_length, _ = get_shape_list(query)
    shape = [batch_size, num_heads, from_length, get_shape_list(key)[2]]
    mask = kernels.dropout_mask(query, shape, dropout_prob)                             # [B, N, F, T]
    return kernels.attention(query, key, value, score_bias, mask, 1.0 - dropout_prob)   # [B, N, F, H]


class _Encoder(collections.namedtuple("_Encoder", [
        "hidden_size", "num_layers", "num_heads", "intermediate_size", "activation", "hidden_dropout_prob",
        "attention_dropout_prob", "initializer_range", "first_token_only", "packing", "batch_size",
        "seq_length", "kernels", "recomputes_attention"])):
    """Contains values that all layers of an encoder share: arguments of `transformer_model`, and the sizes B
    and F."""


def transformer_model(input_tensor, attention_mask=None, hidden_size=768, num_hidden_layers=12,
                      num_attention_heads=12, intermediate_size=3072, intermediate_act_fn=gelu,
                      hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, initializer_range=0.02,
                      do_return_all_layers=False, first_token_only=False, packing=None, kernels=None,
                      step_config=None):
    """Builds the Transformer encoder (Vaswani et al. 2017), with normalization after each residual
    connection.

    Args:
      input_tensor: float [B, F, W].
      attention_mask: [B, F, F], see `attention_layer`.
      hidden_size: W.
      num_hidden_layers: number of layers.
      num_attention_heads: N. W must be a multiple of N.
      intermediate_size: width of the feed-forward layer.
      intermediate_act_fn: activation of the feed-forward layer.
      hidden_dropout_prob: dropout probability of the outputs of attention and feed-forward layer.
      attention_probs_dropout_prob: dropout probability of the attention probabilities.
      initializer_range: standard deviation of the random initial weights.
      do_return_all_layers: whether to return the outputs of all layers instead of only the last output.
      first_token_only: whether to compute the last layer at the first position only.
      packing: `Packing` of the positions to compute; None for all positions.
      kernels: the `TrainingKernels` or `InferenceKernels` that compute the parts of a layer, from
        `kernel_choice.choose_kernels`; None for TensorFlow's ops, with the gradients of training.
      step_config: a `StepConfig`; None for its defaults. Three attributes are used:
        recompute: the activations that are not kept for the backward pass; the backward pass computes them
          again. The results are the same for all values. With "none", all activations are kept. With
          "attention", the attention scores and probabilities are not kept; for long sequences, they need
          most of the memory, but only a small part of the FLOPs. With "layers", only three kinds of tensors
          are kept: the inputs of each segment of layers, the weights, and the outputs that other ops use.
        recompute_segment: number of layers in a segment. While the backward pass is in a segment, all
          activations of this segment are in memory.
        freeze_layers: number of layers, counted from the lowest one, for which
          `optimization.create_optimizer` computes no gradients. These layers are not part of a segment,
          because the backward pass does not need them.

    Returns:
      the output of the last layer, [B, F, W] in the dtype of the input; with `do_return_all_layers`, a list
      of the outputs of all layers. With `first_token_only`, the output of the last layer is [B, 1, W].
      Positions that are not computed are zero.

    Raises:
      ValueError: W is not a multiple of N, W is not the width of the input, or `recompute` or
        `recompute_segment` is not valid.
    """
    batch_size, seq_length, input_width = get_shape_list(input_tensor, expected_rank=3)
    step_config = step_config or StepConfig()
    if hidden_size % num_attention_heads != 0:
        raise ValueError(f"hidden_size={hidden_size} is not a multiple of "
                         f"num_attention_heads={num_attention_heads}.")
    if input_width != hidden_size:
        raise ValueError("The residual connections need an input whose width is hidden_size, but "
                         f"the width is {input_width}, and hidden_size is {hidden_size}.")
    if step_config.recompute not in RECOMPUTE:
        raise ValueError(f"Unknown recompute={step_config.recompute!r}; known: {', '.join(RECOMPUTE)}.")
    if step_config.recompute_segment < 1:
        raise ValueError(f"recompute_segment={step_config.recompute_segment}; the number of layers must "
                         "be at least 1.")
    encoder = _Encoder(
        hidden_size=hidden_size, num_layers=num_hidden_layers, num_heads=num_attention_heads,
        intermediate_size=intermediate_size, activation=intermediate_act_fn,
        hidden_dropout_prob=hidden_dropout_prob, attention_dropout_prob=attention_probs_dropout_prob,
        initializer_range=initializer_range, first_token_only=first_token_only, packing=packing,
        batch_size=batch_size, seq_length=seq_length, kernels=kernels or kernel_choice.PLAIN,
        recomputes_attention=step_config.recompute == "attention")

    mask = [] if attention_mask is None else [attention_mask]                           # [B, F, F]
    outputs = [packing.pack(input_tensor) if packing else reshape_to_matrix(input_tensor)]     # [R, W]
    # The division into segments has an effect only with recompute="layers". If there are frozen layers, they
    # come before the first segment.
    firsts = [*([0] if step_config.freeze_layers else []),
              *range(step_config.freeze_layers, num_hidden_layers, step_config.recompute_segment)]
    for first, end in zip(firsts, [*firsts[1:], num_hidden_layers]):
        segment = functools.partial(_layers, encoder, first, end)
        if step_config.recompute == "layers" and first >= step_config.freeze_layers:
            from bertlib.graph import recompute_grad
            segment = recompute_grad.recompute_grad(segment)
        outputs += segment(outputs[-1], *mask)                                          # each [R, W]

    last = outputs[-1][:, tf.newaxis, :] if first_token_only else _whole(encoder, outputs[-1])
    outputs = [_whole(encoder, output) for output in outputs[1:-1]] + [last]            # each [B, F, W]
    return outputs if do_return_all_layers else last


def _layers(encoder, first, end, rows, attention_mask=None):
    """Builds the layers of a segment, from layer `first` to layer `end` − 1. Returns the list of their
    outputs, each [R, W]."""
    outputs = []
    for index in range(first, end):
        at_first_token = encoder.first_token_only and index == encoder.num_layers - 1
        with tf.variable_scope(f"layer_{index}"):
            rows = _layer(encoder, rows, attention_mask, at_first_token)                # [R, W]
        outputs.append(rows)
    return outputs


def _layer(encoder, rows, attention_mask, at_first_token):
    """Builds a layer: [R, W] -> [R, W]. With `at_first_token`, computes only the first position: [B, W]."""
    if at_first_token:
        queries, length, packing = _whole(encoder, rows)[:, 0, :], 1, None              # [B, W]
        attention_mask = None if attention_mask is None else attention_mask[:, :1, :]   # [B, 1, T]
    else:
        queries, length, packing = rows, encoder.seq_length, encoder.packing            # [R, W]
    with tf.variable_scope("attention"):
        with tf.variable_scope("self"):
            # `queries` contains the rows of the first `length` positions of each example, and `rows` contains
            # those of all positions.
            context = attention_layer(                                                  # [R, W]
                queries, rows, attention_mask, encoder.num_heads, encoder.hidden_size // encoder.num_heads,
                attention_probs_dropout_prob=encoder.attention_dropout_prob,
                initializer_range=encoder.initializer_range, do_return_2d_tensor=True,
                batch_size=encoder.batch_size, from_seq_length=length,
                to_seq_length=encoder.seq_length, recompute=encoder.recomputes_attention,
                from_packing=packing, to_packing=encoder.packing, kernels=encoder.kernels)
        attention = _add_and_norm(encoder, context, queries)                            # [R, W]
    return _feed_forward(encoder, attention)                                            # [R, W]


def _add_and_norm(encoder, inputs, residual):
    """Builds LayerNorm(residual + dropout(dense(inputs))): [R, width] -> [R, W]."""
    input_width, width = inputs.shape.as_list()[-1], encoder.hidden_size
    with tf.variable_scope("output"):
        dense = _dense_parameters(input_width, width, "dense", encoder.initializer_range)
        norm = _norm_parameters(width)
        return encoder.kernels.linear_norm(inputs, dense, residual, encoder.hidden_dropout_prob, norm)


def _feed_forward(encoder, inputs):
    """Builds LayerNorm(inputs + dropout(dense(activation(dense(inputs))))): [R, W] -> [R, W]."""
    width, inner_width, act = encoder.hidden_size, encoder.intermediate_size, encoder.activation
    if act not in (gelu, gelu_erf):
        with tf.variable_scope("intermediate"):
            inner = _dense(inputs, inner_width, "dense", encoder.initializer_range, act, encoder.kernels)
        return _add_and_norm(encoder, inner, inputs)                                    # [R, W]
    # If the activation is gelu, the kernels compute the whole sublayer.
    with tf.variable_scope("intermediate"):
        inner = _dense_parameters(width, inner_width, "dense", encoder.initializer_range)
    with tf.variable_scope("output"):
        outer = _dense_parameters(inner_width, width, "dense", encoder.initializer_range)
        norm = _norm_parameters(width)
        return encoder.kernels.gelu_norm(inputs, inner, outer, encoder.hidden_dropout_prob, norm,
                                         approximate=act is gelu)                       # [R, W]


def _whole(encoder, rows):
    """Moves each row to its position in the batch: [R, W] -> [B, F, W]. Positions that are not computed have
    no row, and become zeros."""
    if encoder.packing:
        return encoder.packing.unpack(rows)
    return reshape_from_matrix(rows, [encoder.batch_size, encoder.seq_length, encoder.hidden_size])


# --- Starting weights -----------------------------------------------------------------------------


def get_assignment_map_from_checkpoint(tvars, init_checkpoint):
    """Matches variables with the tensors of a checkpoint by name, for `tf.train.init_from_checkpoint`.

    Args:
      tvars: variables of the current graph.
      init_checkpoint: prefix of a TensorFlow checkpoint.

    Returns:
      ({name in the checkpoint: variable}, {name: 1}), both OrderedDict. The second OrderedDict contains each
      matched variable twice, as "name" and as "name:0".
    """
    variables = {variable.op.name: variable for variable in tvars}
    assignment_map = collections.OrderedDict()
    initialized_names = collections.OrderedDict()
    for name, _ in tf.train.list_variables(init_checkpoint):
        if name in variables:
            assignment_map[name] = variables[name]
            initialized_names[name] = initialized_names[name + ":0"] = 1
    return assignment_map, initialized_names


# --- Shapes ------------------------------------------------------------------------------------------


def get_shape_list(tensor, expected_rank=None, name=None):
    """Returns the list of a tensor's dimensions. Static dimensions are ints, other dimensions are scalar
    tensors.

    Args:
      tensor: any tensor.
      expected_rank: int or list of ints; see `assert_rank`.
      name: name of the tensor in error messages.
    """
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    shape = tensor.shape.as_list()
    if None in shape:
        dynamic = tf.shape(tensor)
        shape = [dynamic[axis] if size is None else size for axis, size in enumerate(shape)]
    return shape


def reshape_to_matrix(input_tensor):
    """Reshapes [..., W] to [rows, W]. A matrix is returned unchanged.

    Raises:
      ValueError: the tensor has fewer than two dimensions.
    """
    rank = input_tensor.shape.ndims
    if rank < 2:
        raise ValueError("A matrix needs at least 2 dimensions; "
                         f"{input_tensor.name} has shape {input_tensor.shape}.")
    if rank == 2:
        return input_tensor
    return tf.reshape(input_tensor, [-1, input_tensor.shape.as_list()[-1]])


def reshape_from_matrix(output_tensor, orig_shape_list):
    """Reshapes a matrix [rows, W] to [..., W]; the inverse of `reshape_to_matrix`.

    Args:
      output_tensor: [rows, W].
      orig_shape_list: list of the original dimensions; the last one is ignored.
    """
    if len(orig_shape_list) == 2:
        return output_tensor
    return tf.reshape(output_tensor, list(orig_shape_list[:-1]) + [get_shape_list(output_tensor)[-1]])


def assert_rank(tensor, expected_rank, name=None):
    """Checks a tensor's number of dimensions.

    Args:
      tensor: any tensor.
      expected_rank: int, or a list of the accepted ranks.
      name: name of the tensor in the error.

    Raises:
      ValueError: the rank of the tensor is not an expected rank.
    """
    allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
    if tensor.shape.ndims not in allowed:
        expected = " or ".join(map(str, allowed))
        raise ValueError(f"{name or tensor.name} has rank {tensor.shape.ndims} (shape {tensor.shape}) in "
                         f"scope {tf.get_variable_scope().name!r}; expected {expected}.")
