"""Computes the parts of a layer between its matrix products, and the gradients of these parts.

The functions of this module use TensorFlow's ops. `native_formulas` has functions with the same names, but
they call ops in C++. The gradients are hand-written. A hand-written gradient keeps fewer tensors in memory
than TensorFlow's gradient, because it computes intermediate results again.

Tensors may be float32, bfloat16 or float16. An output has the dtype of the first argument. Biases, gammas and
betas are float32, and all arithmetic is float32. A row belongs to one position of one example. R is the
number of rows of all examples, and W is the width of a row.
"""

import math

import tensorflow.compat.v1 as tf

from bertlib.graph import products

# Layer normalization adds this number to the variance.
LAYER_NORM_EPSILON = 1e-12
# The approximate gelu(x) is x · σ(2z). σ is the sigmoid, and 2z = _GELU_LINEAR · x + _GELU_CUBIC · x³.
_GELU_LINEAR = math.sqrt(8.0 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR


# --- GELU ------------------------------------------------------------------------------------------------


def gelu(inputs, bias, approximate):
    """Returns gelu(inputs + bias); see `gelu_gradient` for the arguments."""
    x = _with_bias(inputs, bias)
    return tf.cast(x * _gelu_gate(x, approximate), inputs.dtype)


def gelu_gradient(gradient, inputs, bias, approximate):
    """Returns the gradients of `gelu`, and the output of `gelu`, which is computed again.

    Args:
      gradient: gradient for the output, [R, W].
      inputs: [R, W].
      bias: float32 [W]; None for no bias.
      approximate: True for gelu(x) = 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), False for
        gelu(x) = 0.5 x (1 + erf(x/√2)).

    Returns:
      (gradient for the inputs [R, W]; output [R, W]; gradient for the bias float32 [W], None without a bias).
    """
    x = _with_bias(inputs, bias)
    gate = _gelu_gate(x, approximate)
    if approximate:  # the derivative of x σ(2z) is σ(2z) (1 + (1 − σ(2z)) x (2z)')
        slope = gate * (1.0 + (1.0 - gate) * (x * (_GELU_LINEAR + (3.0 * _GELU_CUBIC) * tf.square(x))))
    else:  # the derivative of x Φ(x) is Φ(x) + x φ(x)
        slope = gate + x * (tf.exp(-0.5 * tf.square(x)) * (1.0 / math.sqrt(2.0 * math.pi)))
    input_gradient = tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype)
    bias_gradient = None if bias is None else products.bias_gradient(input_gradient)
    return input_gradient, tf.cast(x * gate, inputs.dtype), bias_gradient


def _gelu_gate(x, approximate):
    """Returns gelu(x) / x, the factor by which gelu multiplies x."""
    if approximate:
        # σ(2z) is equal to (1 + tanh z) / 2, but needs fewer passes through memory.
        return tf.sigmoid(x * (_GELU_LINEAR + _GELU_CUBIC * tf.square(x)))
    return 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5)))


def _with_bias(inputs, bias):
    inputs = tf.cast(inputs, tf.float32)
    return inputs if bias is None else inputs + bias


# --- Layer normalization -----------------------------------------------------------------------------------


def residual_norm(inputs, bias, residual, mask, gamma, beta, mask_scale):
    """Returns the layer normalization of residual + dropout(inputs + bias) over the last dimension.

    Args:
      inputs: [..., W].
      bias: float32 [W]; None for no bias.
      residual: tensor with the shape and dtype of the inputs; None for no residual.
      mask: bool tensor with the shape of the inputs, False where dropout makes a value 0; None for no
        dropout.
      gamma, beta: float32 [W].
      mask_scale: float, factor by which dropout multiplies the values where the mask is True.
    """
    centered, inverse_deviation = _centered(inputs, bias, residual, mask, mask_scale)
    return tf.cast(centered * inverse_deviation * gamma + beta, inputs.dtype)


def residual_norm_gradient(gradient, inputs, bias, residual, mask, gamma, mask_scale):
    """Returns the gradients of `residual_norm` for (residual, inputs, bias, gamma, beta)."""
    gradient = tf.cast(gradient, tf.float32)
    centered, inverse_deviation = _centered(inputs, bias, residual, mask, mask_scale)
    normalized = centered * inverse_deviation
    scaled = gradient * gamma
    mean, slope = (tf.reduce_mean(values, axis=-1, keepdims=True) for values in (scaled, scaled * normalized))
    sum_gradient = inverse_deviation * (scaled - mean - normalized * slope)
    input_gradient = _dropout(sum_gradient, mask, mask_scale)
    return (tf.cast(sum_gradient, inputs.dtype), tf.cast(input_gradient, inputs.dtype),
            tf.reduce_sum(input_gradient, axis=0), tf.reduce_sum(gradient * normalized, axis=0),
            tf.reduce_sum(gradient, axis=0))


def _centered(inputs, bias, residual, mask, mask_scale):
    """Returns (x minus its mean, 1 / its standard deviation) for x = residual + dropout(inputs + bias)."""
    total = _dropout(_with_bias(inputs, bias), mask, mask_scale)
    if residual is not None:
        total += tf.cast(residual, tf.float32)
    centered = total - tf.reduce_mean(total, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True)
    return centered, tf.rsqrt(variance + LAYER_NORM_EPSILON)


def _dropout(values, mask, mask_scale):
    return values if mask is None else tf.where_v2(mask, values * mask_scale, tf.zeros([], values.dtype))


# --- Softmax -----------------------------------------------------------------------------------------------


def softmax(scores, score_bias, mask, scale, mask_scale):
    """Returns softmax(scale · scores + score_bias) over the last dimension, once with and once without
    dropout.

    Args:
      scores: [B, N, F, T].
      score_bias: float32 [B, N, F, T], where B, N and F may be 1; None for no bias.
      mask: bool [B, N, F, T], False where dropout makes a value 0; None for no dropout.
      scale: float.
      mask_scale: float, factor by which dropout multiplies the values where the mask is True.

    Returns:
      (probabilities after dropout, probabilities without dropout), both [B, N, F, T].
    """
    total = tf.cast(scores, tf.float32) * scale
    if score_bias is not None:
        total += score_bias
    full = tf.nn.softmax(total)
    probabilities = tf.cast(full, scores.dtype)
    return probabilities if mask is None else _dropped(full, mask, mask_scale, scores.dtype), probabilities


def softmax_gradient(gradient, probabilities, mask, scale, mask_scale):
    """Returns two tensors: the gradient of `softmax` with respect to the scores; and the probabilities after
    dropout. The probabilities after dropout are computed again, because they were not kept in memory."""
    if mask is not None:
        gradient = tf.where_v2(mask, gradient, tf.zeros([], gradient.dtype))
    full = tf.cast(probabilities, tf.float32)
    weighted = tf.cast(gradient, tf.float32) * mask_scale * full
    score_gradient = (weighted - full * tf.reduce_sum(weighted, axis=-1, keepdims=True)) * scale
    dtype = probabilities.dtype
    return (tf.cast(score_gradient, dtype),
            probabilities if mask is None else _dropped(full, mask, mask_scale, dtype))


def _dropped(full, mask, mask_scale, dtype):
    """Applies dropout to the float32 probabilities `full`. Returns the result in `dtype`."""
    # The cast runs before tf.where, so that tf.where copies numbers of 16 bits. In float32, it would copy
    # twice as many bytes.
    return tf.where_v2(mask, tf.cast(full * mask_scale, dtype), tf.zeros([], dtype))


# --- Attention heads ---------------------------------------------------------------------------------------


def split_heads(rows, number, num_heads, batch_size, length, packing):
    """Splits rows [R, number·N·H] into the heads of attention: a list of `number` tensors [B, N, F, H].

    Args:
      rows: [B·F, number·N·H], or the R packed rows of `packing`.
      number: number of concatenated projections, such as 3 for query, key and value.
      num_heads: N, number of heads.
      batch_size, length: B and F, ints or tensors.
      packing: the `packing.Packing` of the rows; None for rows of all positions.
    """
    outputs = packing.unpack(rows) if packing else rows
    size = rows.shape.as_list()[1] // (number * num_heads)
    outputs = tf.reshape(outputs, [batch_size, length, number, num_heads, size])
    return tf.unstack(tf.transpose(outputs, [2, 0, 3, 1, 4]))


def merge_heads(heads, batch_size, length, packing):
    """Merges heads [B, N, F, H] into rows [B·F, N·H]. If `packing` is given, returns only the R rows of this
    packing; see `split_heads`."""
    _, num_heads, _, size = heads.shape.as_list()
    outputs = tf.transpose(heads, [0, 2, 1, 3])
    if packing:
        return packing.pack(tf.reshape(outputs, [batch_size, length, num_heads * size]))
    return tf.reshape(outputs, [batch_size * length, num_heads * size])


# --- XLA ---------------------------------------------------------------------------------------------------


class XlaFormulas:
    """Contains the functions of this module for one model. XLA compiles each of them into a few kernels.

    TensorFlow's ops start one kernel for each step of a formula, and each kernel reads its inputs from the
    memory of the device and writes its output there. A compiled function reads each input about once and
    keeps intermediate values in registers. Compilation helps most in 16 bits, where TensorFlow's ops also
    write the float32 copies of the tensors. The results are the same, except for rounding.

    A function is compiled once for each shape of its arguments, when this shape first occurs. Matrix products
    and random numbers are not compiled, so the dropout masks are the same as without XLA. Recomputation also
    works as without XLA. Each call is one op of the graph, and contains ops of either the forward or the
    backward pass. So XLA cannot merge a computation of the forward pass with its repetition in the backward
    pass.

    A compiled function keeps a reference to each graph in which it was called, so these graphs stay in
    memory. For this reason, each model has separate instances of this class.
    """

    split_heads = staticmethod(split_heads)
    merge_heads = staticmethod(merge_heads)

    def __init__(self):
        for function in (gelu, gelu_gradient, residual_norm, residual_norm_gradient, softmax,
                         softmax_gradient):
            compiled = tf.compat.v2.function(function, jit_compile=True, autograph=False)
            setattr(self, function.__name__, compiled)
