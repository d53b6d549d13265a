"""The BERT encoder (Devlin et al. 2018, arXiv:1810.04805).

Shape legend, used throughout:
  B  examples in the batch           N  attention heads
  F  positions that attend ("from")  H  size of one head
  T  positions attended to ("to")    W  hidden size, N·H in the encoder
  I  intermediate size               R  rows: B·F, or fewer without padding
In self-attention F = T. A comment at the end of a line has the shape of what the line computes.

Inside the encoder activations are kept as matrices [R, W]: reshaping back and forth between the layers
costs time on some devices and buys nothing.
"""

import collections
import copy
import functools
import json

import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import RECOMPUTE
from bertlib.graph import randomness, recompute_grad
from bertlib.kernels import kernel_choice
from bertlib.kernels.formulas import LAYER_NORM_EPSILON  # noqa: F401  a public name of this module
from bertlib.kernels.packing import Packing
from bertlib.system import files

# Added to the score of a masked position: far below any real score, and no infinity to turn into NaN.
_MASKED_SCORE = -10000.0
# The dtypes that the encoder's layers may compute in.
PRECISIONS = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


class BertConfig(object):
    """The hyperparameters of a BERT encoder, as in `bert_config.json`."""

    def __init__(self, vocab_size, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                 intermediate_size=3072, hidden_act="gelu", hidden_dropout_prob=0.1,
                 attention_probs_dropout_prob=0.1, max_position_embeddings=512, type_vocab_size=16,
                 initializer_range=0.02):
        """Creates a configuration.

        Args:
          vocab_size: number of entries of the vocabulary.
          hidden_size: W, the width of the encoder.
          num_hidden_layers: number of encoder layers.
          num_attention_heads: N; divides hidden_size.
          intermediate_size: width of the feed-forward layer.
          hidden_act: its activation, a name for `get_activation` or a function.
          hidden_dropout_prob: dropout after the embeddings and after both sublayers' output projections.
          attention_probs_dropout_prob: dropout of the attention probabilities.
          max_position_embeddings: longest sequence the position embeddings allow.
          type_vocab_size: number of segment ids.
          initializer_range: standard deviation of the (truncated normal) initial weights.
        """
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range

    @classmethod
    def from_dict(cls, json_object):
        """Builds a configuration from a dict; keys that the constructor does not know become attributes.

        A Hugging Face `config.json` is understood as such: its "gelu" is the erf form, here "gelu_erf".
        """
        config = cls(vocab_size=None)
        for key, value in json_object.items():
            setattr(config, key, value)
        if "model_type" in json_object or "transformers_version" in json_object:
            config.hidden_act = _HUGGING_FACE_ACTIVATIONS.get(config.hidden_act, config.hidden_act)
        return config

    @classmethod
    def from_json_file(cls, json_file):
        """Builds a configuration from a JSON file, published or Hugging Face's."""
        return cls.from_dict(files.read_json_object(json_file))

    def to_dict(self):
        """Returns a deep copy of the configuration as a dict."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self):
        """Returns the configuration as indented JSON with sorted keys and a final newline."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"


class BertModel(object):
    """The encoder with its pooler, built into the current graph.

        model = modeling.BertModel(config=config, is_training=True, input_ids=input_ids,
                                   input_mask=input_mask, token_type_ids=segment_ids)
        logits = tf.matmul(model.get_pooled_output(), output_weights, transpose_b=True)
    """

    def __init__(self, config, is_training, input_ids, input_mask=None, token_type_ids=None,
                 use_one_hot_embeddings=False, scope=None, recompute="none", recompute_segment=1,
                 precision="fp32", first_token_only=False, compile_kernels=False, remove_padding=False):
        """Builds the encoder.

        Args:
          config: a `BertConfig`.
          is_training: bool; False turns all dropout off, whatever the configuration says.
          input_ids: int32 [B, F], vocabulary ids.
          input_mask: int32 [B, F], 1 for real tokens and 0 for padding; all ones if None.
          token_type_ids: int32 [B, F], segment ids below `config.type_vocab_size`; all zeros if None.
          use_one_hot_embeddings: look words up by a matrix product instead of a gather.
          scope: variable scope; "bert" if None.
          recompute, recompute_segment: the parts that the backward pass recomputes to save memory; see
            `transformer_model`. Without effect unless `is_training`.
          precision: data type of the encoder's layers, a name in `PRECISIONS`: of matrix products and the
            tensors between them. Sums, softmax and normalization are float32 (Micikevicius et al. 2017,
            arXiv:1710.03740). Variables, embeddings, pooler and all outputs are float32 in any case. The
            gradient of fp16 needs a scaled loss; see `optimization.create_optimizer`.
          first_token_only: compute the last layer at the first position, [CLS], only: all that the pooler
            looks at. The last layer's output is then [B, 1, W].
          compile_kernels: use kernels for this machine's CPU; see `bertlib.kernels.kernel_choice`.
          remove_padding: in training, let the encoder compute real tokens only; all of its outputs are zero
            at padding, apart from a few positions (see `packing`). Masks then differ from those with
            padding, and a micro-batch's masks are not slices of the whole batch's.

        Raises:
          ValueError: a shape or a setting of the configuration does not fit.
        """
        if precision not in PRECISIONS:
            raise ValueError(f"Unknown precision={precision!r}; known: {', '.join(PRECISIONS)}.")
        if compile_kernels:
            kernel_choice.compile_kernels()
        config = copy.deepcopy(config)
        if not is_training:
            config.hidden_dropout_prob = 0.0
            config.attention_probs_dropout_prob = 0.0
            recompute = "none"

        self._build(config, is_training, input_ids, input_mask, token_type_ids, use_one_hot_embeddings, scope,
                    PRECISIONS[precision], remove_padding and is_training,
                    {"recompute": recompute, "recompute_segment": recompute_segment,
                     "first_token_only": first_token_only})

    def _build(self, config, is_training, input_ids, input_mask, token_type_ids, use_one_hot_embeddings,
               scope, dtype, remove_padding, encoder_options):
        """Builds the encoder. encoder_options are arguments of `transformer_model`."""
        # For embeddings and pooler, in float32. The encoder's kernels are chosen for its own dtype below.
        kernels = kernel_choice.choose_kernels(is_training, tf.float32)
        batch_size, seq_length = get_shape_list(input_ids, expected_rank=2)
        if input_mask is None:
            input_mask = tf.ones([batch_size, seq_length], tf.int32)
        if token_type_ids is None:
            token_type_ids = tf.zeros([batch_size, seq_length], tf.int32)
        if remove_padding:
            # Micro-batches differ in their numbers of rows, whatever their shapes.
            randomness.mark_unequal_micro_batches()

        with tf.variable_scope(scope, default_name="bert"):
            with tf.variable_scope("embeddings"):
                word_embeddings, self.embedding_table = embedding_lookup(
                    input_ids, config.vocab_size, config.hidden_size, config.initializer_range,
                    use_one_hot_embeddings=use_one_hot_embeddings)
                # [B, F, W]
                self.embedding_output = embedding_postprocessor(
                    word_embeddings, use_token_type=True, token_type_ids=token_type_ids,
                    token_type_vocab_size=config.type_vocab_size, initializer_range=config.initializer_range,
                    max_position_embeddings=config.max_position_embeddings,
                    dropout_prob=config.hidden_dropout_prob, kernels=kernels)

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
                    packing=Packing(input_mask) if remove_padding else None,
                    kernels=kernel_choice.choose_kernels(is_training, dtype), **encoder_options)
            # A list of [B, F, W].
            self.all_encoder_layers = [tf.cast(layer, tf.float32) for layer in layers]
            self.sequence_output = self.all_encoder_layers[-1]

            with tf.variable_scope("pooler"):
                # [B, W]: the position of [CLS] speaks for the sequence.
                first_token = tf.cast(layers[-1][:, 0, :], tf.float32)
                self.pooled_output = _dense(first_token, config.hidden_size, "dense",
                                            config.initializer_range, tf.tanh, kernels)

    def get_pooled_output(self):
        """Returns float [B, W]: the last layer at [CLS], through a dense layer and tanh."""
        return self.pooled_output

    def get_sequence_output(self):
        """Returns float [B, F, W]: the last encoder layer."""
        return self.sequence_output

    def get_all_encoder_layers(self):
        """Returns a list of float [B, F, W], first layer first."""
        return self.all_encoder_layers

    def get_embedding_output(self):
        """Returns float [B, F, W]: the sum of the embeddings after layer normalization (and dropout)."""
        return self.embedding_output

    def get_embedding_table(self):
        """Returns the word embeddings, float [vocab_size, W]."""
        return self.embedding_table


# --- Activations, normalization, dropout ---------------------------------------------------------


def gelu(x):
    """Gaussian error linear unit in its tanh form (Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2).

    0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). The published models were trained with it.
    """
    return kernel_choice.choose_kernels(is_training=True, dtype=x.dtype).gelu(x)


def gelu_erf(x):
    """Gaussian error linear unit, exactly: 0.5 x (1 + erf(x/√2)). Hugging Face's "gelu"."""
    return kernel_choice.choose_kernels(is_training=True, dtype=x.dtype).gelu(x, approximate=False)


_ACTIVATIONS = {"linear": None, "relu": tf.nn.relu, "gelu": gelu, "gelu_erf": gelu_erf, "tanh": tf.tanh}
# Hugging Face's name -> ours. The names not listed mean the same in both.
_HUGGING_FACE_ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}


def get_activation(activation_string):
    """Returns the activation function of that name; None for "linear", an empty name and None.

    Anything that is not a string is returned as it is.

    Raises:
      ValueError: there is no activation of that name.
    """
    if not isinstance(activation_string, str):
        return activation_string
    name = activation_string.lower()
    if not name:
        return None
    if name not in _ACTIVATIONS:
        known = ", ".join(sorted(_ACTIVATIONS))
        raise ValueError(f"Unknown activation {activation_string!r}; known: {known}.")
    return _ACTIVATIONS[name]


def dropout(input_tensor, dropout_prob):
    """Zeroes each value with a probability and scales the others to keep the mean (Srivastava et al. 2014).

    The mask is a function of the graph's seed, the global step and the position in the model; see
    `randomness`.

    Args:
      input_tensor: float tensor; its first dimension runs over the examples (or over B·F rows, example by
        example).
      dropout_prob: probability of a zero; None and 0.0 return the input.
    """
    # The kernels only draw the mask, so their dtype has no effect.
    kernels = kernel_choice.choose_kernels(is_training=True, dtype=tf.float32)
    mask = kernels.dropout_mask(input_tensor, tf.shape(input_tensor), dropout_prob)
    if mask is None:
        return input_tensor
    # tf.where instead of a product: the backward pass keeps one byte for each value of the mask, not a float.
    return tf.where_v2(mask, input_tensor * (1.0 / (1.0 - dropout_prob)), tf.zeros([], input_tensor.dtype))


def layer_norm(input_tensor, name=None, kernels=None):
    """Layer normalization over the last dimension (Ba et al. 2016, arXiv:1607.06450).

    The variables are gamma and beta.

    Args:
      input_tensor: float [..., W].
      name: of the variables' scope; "LayerNorm" if None.
      kernels: see `transformer_model`.
    """
    norm = _norm_parameters(input_tensor.shape.as_list()[-1], name)
    kernels = kernels or kernel_choice.choose_kernels(is_training=True, dtype=input_tensor.dtype)
    return kernels.layer_norm(input_tensor, *norm)


def _norm_parameters(width, name=None):
    """The variables gamma and beta, as tensors."""
    with tf.variable_scope(name, default_name="LayerNorm"):
        beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
        return tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)


def layer_norm_and_dropout(input_tensor, dropout_prob, name=None, kernels=None):
    """`layer_norm`, then `dropout`."""
    return dropout(layer_norm(input_tensor, name, kernels), dropout_prob)


def create_initializer(initializer_range=0.02):
    """Returns an initializer: a truncated normal of that standard deviation, keyed by the seed."""
    def initialize(shape, dtype=tf.float32, partition_info=None):
        del partition_info
        site = randomness.new_site("initializer")
        return randomness.truncated_normal(shape, initializer_range, site, dtype)
    return initialize


def _dense(inputs, units, name, initializer_range, activation, kernels):
    """activation(inputs · kernel + bias), inputs [rows, width]; variables <name>/kernel and <name>/bias."""
    kernel, bias = _dense_parameters(inputs.shape.as_list()[-1], units, name, initializer_range)
    outputs = kernels.linear(inputs, [kernel], [bias])
    return outputs if activation is None else activation(outputs)


def _dense_parameters(width, units, name, initializer_range):
    """The variables <name>/kernel and <name>/bias, as tensors."""
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [width, units], initializer=create_initializer(initializer_range))
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return tf.convert_to_tensor(kernel), tf.convert_to_tensor(bias)


# --- Embeddings ------------------------------------------------------------------------------------


def embedding_lookup(input_ids, vocab_size, embedding_size=128, initializer_range=0.02,
                     word_embedding_name="word_embeddings", use_one_hot_embeddings=False):
    """Looks up the embeddings of ids.

    Args:
      input_ids: int32 [B, F] or [B, F, K].
      vocab_size: number of rows of the table.
      embedding_size: width of the table.
      initializer_range: see `create_initializer`.
      word_embedding_name: name of the table's variable.
      use_one_hot_embeddings: multiply one-hot vectors with the table instead of gathering rows.

    Returns:
      (float [B, F, K·embedding_size] with K = 1 if absent, the table [vocab_size, embedding_size]).
    """
    if input_ids.shape.ndims == 2:
        input_ids = tf.expand_dims(input_ids, axis=[-1])
    table = tf.get_variable(word_embedding_name, [vocab_size, embedding_size],
                            initializer=create_initializer(initializer_range))
    flat_ids = tf.reshape(input_ids, [-1])
    if use_one_hot_embeddings:
        output = tf.matmul(tf.one_hot(flat_ids, depth=vocab_size), table)
    else:
        output = tf.gather(table, flat_ids)
    batch_size, seq_length, ids_per_position = get_shape_list(input_ids)
    return tf.reshape(output, [batch_size, seq_length, ids_per_position * embedding_size]), table


def embedding_postprocessor(input_tensor, use_token_type=False, token_type_ids=None, token_type_vocab_size=16,
                            token_type_embedding_name="token_type_embeddings", use_position_embeddings=True,
                            position_embedding_name="position_embeddings", initializer_range=0.02,
                            max_position_embeddings=512, dropout_prob=0.1, kernels=None):
    """Adds segment and position embeddings, then normalizes and applies dropout.

    Args:
      input_tensor: float [B, F, W].
      use_token_type: add segment embeddings.
      token_type_ids: int32 [B, F]; needed with `use_token_type`.
      token_type_vocab_size: number of segment ids.
      token_type_embedding_name: name of the segment table's variable.
      use_position_embeddings: add position embeddings.
      position_embedding_name: name of the position table's variable.
      initializer_range: see `create_initializer`.
      max_position_embeddings: rows of the position table; at least F.
      dropout_prob: see `dropout`.
      kernels: see `transformer_model`.

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
        # With so few rows a product with one-hot vectors beats a gather, and its gradient is dense.
        one_hot = tf.one_hot(tf.reshape(token_type_ids, [-1]), depth=token_type_vocab_size)
        output += tf.reshape(tf.matmul(one_hot, table), [batch_size, seq_length, width])

    if use_position_embeddings:
        if isinstance(seq_length, int) and seq_length > max_position_embeddings:
            raise ValueError(f"Sequence length {seq_length} exceeds "
                             f"max_position_embeddings={max_position_embeddings}.")
        table = tf.get_variable(position_embedding_name, [max_position_embeddings, width],
                                initializer=create_initializer(initializer_range))
        # [F, W] broadcasts over the batch: position i is row i. A slice past the table's end fails.
        output += tf.slice(table, [0, 0], [seq_length, -1])

    return layer_norm_and_dropout(output, dropout_prob, kernels=kernels)


# --- Encoder -----------------------------------------------------------------------------------------


def create_attention_mask_from_input_mask(from_tensor, to_mask):
    """Lets every position attend to all real positions.

    Args:
      from_tensor: [B, F] or [B, F, …]; only its shape is used.
      to_mask: int32 [B, T], 1 for real tokens.

    Returns:
      float32 [B, F, T], 1.0 where position f may attend to t.
    """
    batch_size, from_seq_length = get_shape_list(from_tensor, expected_rank=[2, 3])[:2]
    to_seq_length = get_shape_list(to_mask, expected_rank=2)[1]
    to_mask = tf.cast(tf.reshape(to_mask, [batch_size, 1, to_seq_length]), tf.float32)
    return tf.ones([batch_size, from_seq_length, 1], tf.float32) * to_mask


def attention_layer(from_tensor, to_tensor, attention_mask=None, num_attention_heads=1, size_per_head=512,
                    query_act=None, key_act=None, value_act=None, attention_probs_dropout_prob=0.0,
                    initializer_range=0.02, do_return_2d_tensor=False, batch_size=None, from_seq_length=None,
                    to_seq_length=None, recompute=False, from_packing=None, to_packing=None, kernels=None):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, equation 1).

    softmax(Q Kᵀ / √H + mask) V for each head; self-attention if both tensors are the same.

    Args:
      from_tensor: float [B, F, width] or [B·F, width].
      to_tensor: float [B, T, width] or [B·T, width].
      attention_mask: [B, F, T], 1 where attending is allowed and 0 elsewhere; None allows all.
      num_attention_heads: N.
      size_per_head: H.
      query_act, key_act, value_act: activations of the three projections, or None.
      attention_probs_dropout_prob: dropout of the probabilities.
      initializer_range: see `create_initializer`.
      do_return_2d_tensor: return [B·F, N·H] instead of [B, F, N·H].
      batch_size, from_seq_length, to_seq_length: B, F and T; needed if the inputs are matrices.
      recompute: bool, the "attention" of `transformer_model`: keep Q, K and V for the backward pass, but no
        scores and probabilities, which it computes again.
      from_packing, to_packing: `Packing` of which from_tensor and to_tensor, matrices, are rows.
      kernels: see `transformer_model`.

    Returns:
      float [B, F, N·H], or [B·F, N·H]; with `from_packing` its rows [R, N·H].

    Raises:
      ValueError: the tensors' ranks differ, or are matrices and B, F or T is missing.
    """
    batch_size, from_seq_length, to_seq_length = _attention_sizes(
        from_tensor, to_tensor, [batch_size, from_seq_length, to_seq_length])
    kernels = kernels or kernel_choice.choose_kernels(is_training=True, dtype=from_tensor.dtype)
    project = functools.partial(_project, num_heads=num_attention_heads, size=size_per_head,
                                batch_size=batch_size, initializer_range=initializer_range, kernels=kernels)
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
        attend = recompute_grad.recompute_grad(attend)
    mask = [] if attention_mask is None else [attention_mask]
    context = attend(query, key, value, *mask)                                          # [B, N, F, H]
    rows = kernels.merge_heads(context, batch_size, from_seq_length, from_packing)      # [R, N·H]
    if do_return_2d_tensor or from_packing:
        return rows
    return tf.reshape(rows, [batch_size, from_seq_length, num_attention_heads * size_per_head])


def _attention_sizes(from_tensor, to_tensor, given):
    """B, F and T of the arguments of `attention_layer`; of matrices, those given."""
    from_shape = get_shape_list(from_tensor, expected_rank=[2, 3])
    to_shape = get_shape_list(to_tensor, expected_rank=[2, 3])
    if len(from_shape) != len(to_shape):
        raise ValueError(f"from_tensor has rank {len(from_shape)}, to_tensor {len(to_shape)}: "
                         "they must be the same.")
    if len(from_shape) == 3:
        return [*from_shape[:2], to_shape[1]]
    if any(size is None for size in given):
        raise ValueError("With matrices as inputs, batch_size, from_seq_length and to_seq_length are needed.")
    return given


def _project(rows, length, packing, activations, num_heads, size, batch_size, initializer_range, kernels):
    """Projections of rows by one product: [R, width] -> [B, N, length, H] for each name.

    Args:
      activations: {name of the projection's variables: its activation, or None}.
    """
    width = rows.shape.as_list()[-1]
    weights, biases = zip(*(_dense_parameters(width, num_heads * size, name, initializer_range)
                            for name in activations))
    outputs = kernels.linear(rows, list(weights), list(biases))                         # [R, projections·N·H]
    outputs = kernels.split_heads(outputs, len(activations), num_heads, batch_size, length, packing)
    return [output if act is None else act(output) for act, output in zip(activations.values(), outputs)]


def _attend(query, key, value, attention_mask=None, dropout_prob=0.0, kernels=None):
    """The formula of `attention_layer`: Q [B, N, F, H], K, V [B, N, T, H], mask [B, F, T] -> [B, N, F, H]."""
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
        "attention_dropout_prob", "initializer_range", "recompute", "recompute_segment", "first_token_only",
        "packing", "batch_size", "seq_length", "kernels"])):
    """Values that all layers of an encoder share: arguments of `transformer_model`, and B and F."""


def transformer_model(input_tensor, attention_mask=None, hidden_size=768, num_hidden_layers=12,
                      num_attention_heads=12, intermediate_size=3072, intermediate_act_fn=gelu,
                      hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, initializer_range=0.02,
                      do_return_all_layers=False, recompute="none", recompute_segment=1,
                      first_token_only=False, packing=None, kernels=None):
    """The Transformer encoder (Vaswani et al. 2017), normalizing after each residual connection.

    Args:
      input_tensor: float [B, F, W].
      attention_mask: [B, F, F], see `attention_layer`.
      hidden_size: W.
      num_hidden_layers: number of layers.
      num_attention_heads: N; divides W.
      intermediate_size: width of the feed-forward layer.
      intermediate_act_fn: its activation.
      hidden_dropout_prob: dropout of both sublayers' outputs.
      attention_probs_dropout_prob: dropout of the attention probabilities.
      initializer_range: see `create_initializer`.
      do_return_all_layers: return every layer's output, not only the last one's.
      recompute: what the backward pass computes again, in order not to keep it. "none"; "attention": the
        scores and probabilities, which are most of the memory of long sequences and a small part of the
        arithmetic; "layers": everything but the input of each segment of layers. No number changes.
      recompute_segment: layers in a segment. A segment is held as a whole while the backward pass is in it.
      first_token_only: compute the last layer at the first position only.
      packing: `Packing` of the positions to compute; None for all.
      kernels: the `TrainingKernels` or `InferenceKernels` that compute the parts of a layer, from
        `kernel_choice.choose_kernels`; None for those of training.

    Returns:
      [B, F, W] in the dtype of the input, or a list of them. With `first_token_only` the last one is [B, 1,
      W]. Zero where nothing was computed.

    Raises:
      ValueError: N does not divide W, W is not the input's width, or `recompute` or its segment is none of
        these.
    """
    batch_size, seq_length, input_width = get_shape_list(input_tensor, expected_rank=3)
    encoder = _Encoder(
        hidden_size=hidden_size, num_layers=num_hidden_layers, num_heads=num_attention_heads,
        intermediate_size=intermediate_size, activation=intermediate_act_fn,
        hidden_dropout_prob=hidden_dropout_prob, attention_dropout_prob=attention_probs_dropout_prob,
        initializer_range=initializer_range, recompute=recompute, recompute_segment=recompute_segment,
        first_token_only=first_token_only, packing=packing, batch_size=batch_size, seq_length=seq_length,
        kernels=kernels or kernel_choice.choose_kernels(is_training=True, dtype=input_tensor.dtype))
    _check_encoder(encoder, input_width)

    mask = [] if attention_mask is None else [attention_mask]                           # [B, F, F]
    outputs = [packing.pack(input_tensor) if packing else reshape_to_matrix(input_tensor)]     # [R, W]
    # Without recomputation a segment has no effect.
    for first in range(0, num_hidden_layers, recompute_segment):
        segment = functools.partial(_layers, encoder, first)
        if recompute == "layers":
            segment = recompute_grad.recompute_grad(segment)
        outputs += segment(outputs[-1], *mask)                                          # each [R, W]

    last = outputs[-1][:, tf.newaxis, :] if first_token_only else _whole(encoder, outputs[-1])
    outputs = [_whole(encoder, output) for output in outputs[1:-1]] + [last]            # each [B, F, W]
    return outputs if do_return_all_layers else last


def _check_encoder(encoder, input_width):
    """Raises the ValueErrors of `transformer_model`."""
    if encoder.hidden_size % encoder.num_heads != 0:
        raise ValueError(f"hidden_size={encoder.hidden_size} is not a multiple of "
                         f"num_attention_heads={encoder.num_heads}.")
    if input_width != encoder.hidden_size:
        raise ValueError("The residual connections need input width = hidden_size; got "
                         f"{input_width}, {encoder.hidden_size}.")
    if encoder.recompute not in RECOMPUTE:
        raise ValueError(f"Unknown recompute={encoder.recompute!r}; known: {', '.join(RECOMPUTE)}.")
    if encoder.recompute_segment < 1:
        raise ValueError(f"recompute_segment={encoder.recompute_segment} layers: it must be at least 1.")


def _layers(encoder, first, rows, attention_mask=None):
    """The outputs of the layers of a segment, `first` and those after it: [R, W] each."""
    outputs = []
    for index in range(first, min(first + encoder.recompute_segment, encoder.num_layers)):
        at_first_token = encoder.first_token_only and index == encoder.num_layers - 1
        with tf.variable_scope(f"layer_{index}"):
            rows = _layer(encoder, rows, attention_mask, at_first_token)                # [R, W]
        outputs.append(rows)
    return outputs


def _layer(encoder, rows, attention_mask, at_first_token):
    """[R, W] -> [R, W], or [B, W] if it is to be computed at the first position only."""
    if at_first_token:
        queries, residual = encoder.kernels.duplicate(_whole(encoder, rows)[:, 0, :])        # [B, W]
        length, packing = 1, None
        attention_mask = None if attention_mask is None else attention_mask[:, :1, :]   # [B, 1, T]
    else:
        rows, residual = encoder.kernels.duplicate(rows)                                     # [R, W]
        queries, length, packing = rows, encoder.seq_length, encoder.packing
    with tf.variable_scope("attention"):
        context = _self_attention(encoder, queries, rows, attention_mask, length, packing)
        attention = _add_and_norm(encoder, context, residual)                           # [R, W]
    attention, residual = encoder.kernels.duplicate(attention)                               # [R, W]
    return _feed_forward(encoder, attention, residual)                                  # [R, W]


def _self_attention(encoder, queries, rows, attention_mask, length, packing):
    """`attention_layer` of all rows, asked at `length` positions of each example: [R, W]."""
    with tf.variable_scope("self"):
        return attention_layer(
            queries, rows, attention_mask, encoder.num_heads, encoder.hidden_size // encoder.num_heads,
            attention_probs_dropout_prob=encoder.attention_dropout_prob,
            initializer_range=encoder.initializer_range, do_return_2d_tensor=True,
            batch_size=encoder.batch_size, from_seq_length=length,
            to_seq_length=encoder.seq_length, recompute=encoder.recompute == "attention",
            from_packing=packing, to_packing=encoder.packing, kernels=encoder.kernels)


def _add_and_norm(encoder, inputs, residual):
    """LayerNorm(residual + dropout(dense(inputs))): [R, width] -> [R, W]."""
    input_width, width = inputs.shape.as_list()[-1], encoder.hidden_size
    with tf.variable_scope("output"):
        dense = _dense_parameters(input_width, width, "dense", encoder.initializer_range)
        norm = _norm_parameters(width)
        return encoder.kernels.linear_norm(inputs, dense, residual, encoder.hidden_dropout_prob, norm)


def _feed_forward(encoder, inputs, residual):
    """LayerNorm(residual + dropout(dense(activation(dense(inputs))))): [R, W] -> [R, W]."""
    width, inner_width, act = encoder.hidden_size, encoder.intermediate_size, encoder.activation
    if act not in (gelu, gelu_erf):
        with tf.variable_scope("intermediate"):
            inner = _dense(inputs, inner_width, "dense", encoder.initializer_range, act, encoder.kernels)
        return _add_and_norm(encoder, inner, residual)                                  # [R, W]
    # With gelu the kernels compute the whole sublayer.
    with tf.variable_scope("intermediate"):
        inner = _dense_parameters(width, inner_width, "dense", encoder.initializer_range)
    with tf.variable_scope("output"):
        outer = _dense_parameters(inner_width, width, "dense", encoder.initializer_range)
        norm = _norm_parameters(width)
        return encoder.kernels.gelu_norm(inputs, inner, outer, residual, encoder.hidden_dropout_prob, norm,
                                         approximate=act is gelu)                       # [R, W]


def _whole(encoder, rows):
    """[R, W] -> [B, F, W]."""
    if encoder.packing:
        return encoder.packing.unpack(rows)
    return reshape_from_matrix(rows, [encoder.batch_size, encoder.seq_length, encoder.hidden_size])


# --- Starting weights -----------------------------------------------------------------------------


def variable_shapes(config, scope="bert"):
    """Returns the variables of a `BertModel` without building it: {name: shape as a tuple of ints}."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes = {}

    def dense(name, inputs, outputs):
        shapes[f"{scope}/{name}/dense/kernel"] = (inputs, outputs)
        shapes[f"{scope}/{name}/dense/bias"] = (outputs,)

    def normalization(name):
        shapes[f"{scope}/{name}/LayerNorm/beta"] = shapes[f"{scope}/{name}/LayerNorm/gamma"] = (width,)

    shapes[f"{scope}/embeddings/word_embeddings"] = (config.vocab_size, width)
    shapes[f"{scope}/embeddings/token_type_embeddings"] = (config.type_vocab_size, width)
    shapes[f"{scope}/embeddings/position_embeddings"] = (config.max_position_embeddings, width)
    normalization("embeddings")
    for index in range(config.num_hidden_layers):
        layer = f"encoder/layer_{index}"
        for projection in ("query", "key", "value"):
            shapes[f"{scope}/{layer}/attention/self/{projection}/kernel"] = (width, width)
            shapes[f"{scope}/{layer}/attention/self/{projection}/bias"] = (width,)
        dense(f"{layer}/attention/output", width, width)
        normalization(f"{layer}/attention/output")
        dense(f"{layer}/intermediate", width, inner)
        dense(f"{layer}/output", inner, width)
        normalization(f"{layer}/output")
    dense("pooler", width, width)
    return shapes


def get_assignment_map_from_checkpoint(tvars, init_checkpoint):
    """Matches variables with a checkpoint's tensors by name, for `tf.train.init_from_checkpoint`.

    Args:
      tvars: variables of the current graph.
      init_checkpoint: a TensorFlow checkpoint.

    Returns:
      ({name in the checkpoint: variable}, {name and "name:0" of each variable found: 1}), both ordered.
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
    """Returns a tensor's dimensions: ints where known when the graph is built, scalar tensors elsewhere.

    Args:
      tensor: any tensor.
      expected_rank: int or list of ints; see `assert_rank`.
      name: the tensor's name in the error.
    """
    if expected_rank is not None:
        assert_rank(tensor, expected_rank, name)
    shape = tensor.shape.as_list()
    if None in shape:
        dynamic = tf.shape(tensor)
        shape = [dynamic[axis] if size is None else size for axis, size in enumerate(shape)]
    return shape


def reshape_to_matrix(input_tensor):
    """Reshapes [..., W] to [rows, W]; a matrix is returned as it is.

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
    """Reshapes [rows, W] to the leading dimensions of `orig_shape_list` and W. Undoes `reshape_to_matrix`."""
    if len(orig_shape_list) == 2:
        return output_tensor
    return tf.reshape(output_tensor, list(orig_shape_list[:-1]) + [get_shape_list(output_tensor)[-1]])


def assert_rank(tensor, expected_rank, name=None):
    """Checks a tensor's number of dimensions.

    Args:
      tensor: any tensor.
      expected_rank: int, or a list of the ranks allowed.
      name: the tensor's name in the error.

    Raises:
      ValueError: it is another one.
    """
    allowed = [expected_rank] if isinstance(expected_rank, int) else list(expected_rank)
    if tensor.shape.ndims not in allowed:
        expected = " or ".join(map(str, allowed))
        raise ValueError(f"{name or tensor.name} has rank {tensor.shape.ndims} (shape {tensor.shape}) in "
                         f"scope {tf.get_variable_scope().name!r}; expected {expected}.")
