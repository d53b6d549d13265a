"""What a layer computes between its matrix products, as TensorFlow's ops: formulas, and gradients by hand.

`native_formulas` has functions of the same names, which are ops in C++. A gradient keeps fewer tensors than
TensorFlow's would: it is a function of the fewest, and computes again what lies between.

Tensors may be float32, bfloat16 or float16, and an output has the dtype of the first argument. Biases, gammas
and betas are float32, and so is all arithmetic. Rows R are the positions of all examples; W is their width.
"""

import math

import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
from bertlib.kernels import products

LAYER_NORM_EPSILON = 1e-12

# gelu is x σ(2z) with 2z = linear·x + cubic·x³.
_GELU_LINEAR = math.sqrt(8.0 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR


def dropout_mask(shape, keep_probability, site):
    """Draws a dropout mask: bool, True with probability `keep_probability`; see `randomness.bernoulli`."""
    return randomness.bernoulli(shape, keep_probability, site)


def duplicate(x):
    """Returns x and x, for two uses of it, whose gradients are added."""
    return [x, x]


def add_bias(inputs, bias):
    """Returns inputs + bias, where the bias has the dtype of the inputs."""
    return tf.nn.bias_add(inputs, bias)


# --- GELU ------------------------------------------------------------------------------------------------


def gelu(inputs, bias, approximate):
    """gelu(inputs + bias); see `gelu_gradient`."""
    x = _with_bias(inputs, bias)
    return tf.cast(x * _gelu_gate(x, approximate), inputs.dtype)


def gelu_gradient(gradient, inputs, bias, approximate):
    """The gradients of `gelu`, and its output once more.

    Args:
      gradient: [R, W], for the output.
      inputs: [R, W].
      bias: float32 [W], or None for none.
      approximate: whether gelu(x) is 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), or 0.5 x (1 + erf(x/√2)).

    Returns:
      (the gradient for the inputs, the output, the gradient for the bias).
    """
    x = _with_bias(inputs, bias)
    gate = _gelu_gate(x, approximate)
    if approximate:  # the derivative of x σ(2z) is σ(2z) (1 + (1 − σ(2z)) x (2z)')
        slope = gate * (1.0 + (1.0 - gate) * (x * (_GELU_LINEAR + (3.0 * _GELU_CUBIC) * tf.square(x))))
    else:  # and that of x Φ(x) is Φ(x) + x φ(x)
        slope = gate + x * (tf.exp(-0.5 * tf.square(x)) * (1.0 / math.sqrt(2.0 * math.pi)))
    input_gradient = tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype)
    bias_gradient = None if bias is None else products.bias_gradient(input_gradient)
    return input_gradient, tf.cast(x * gate, inputs.dtype), bias_gradient


def _gelu_gate(x, approximate):
    """What gelu multiplies x with."""
    if approximate:
        # (1 + tanh z) / 2 = σ(2z), which takes fewer passes.
        return tf.sigmoid(x * (_GELU_LINEAR + _GELU_CUBIC * tf.square(x)))
    return 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5)))


def _with_bias(inputs, bias):
    inputs = tf.cast(inputs, tf.float32)
    return inputs if bias is None else inputs + bias


# --- Layer normalization -----------------------------------------------------------------------------------


def residual_norm(inputs, bias, residual, mask, gamma, beta, mask_scale):
    """Layer normalization of residual + dropout(inputs + bias) over the last dimension.

    Args:
      inputs: [..., W].
      bias: float32 [W], or None.
      residual: a tensor like the inputs, or None.
      mask: bool like the inputs, False where dropout makes a value 0; None for no dropout.
      gamma, beta: float32 [W].
      mask_scale: float, what dropout multiplies the other values with.
    """
    centered, inverse_deviation = _centered(inputs, bias, residual, mask, mask_scale)
    return tf.cast(centered * inverse_deviation * gamma + beta, inputs.dtype)


def residual_norm_gradient(gradient, inputs, bias, residual, mask, gamma, mask_scale):
    """The gradients of `residual_norm` for residual, inputs, bias, gamma and beta."""
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
    """(residual + dropout(inputs + bias) − its mean, 1 / its standard deviation)."""
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
    """softmax(scale · scores + score_bias) over the last dimension, with and without dropout.

    Args:
      scores: [B, N, F, T].
      score_bias: float32 [B, N, F, T], where B, N and F may be 1; None for none.
      mask, mask_scale: of `residual_norm`, like the scores.
      scale: float.

    Returns:
      (the probabilities after dropout, the probabilities).
    """
    total = tf.cast(scores, tf.float32) * scale
    if score_bias is not None:
        total += score_bias
    full = tf.nn.softmax(total)
    probabilities = tf.cast(full, scores.dtype)
    dropped = probabilities if mask is None else tf.cast(_dropout(full, mask, mask_scale), scores.dtype)
    return dropped, probabilities


def softmax_gradient(gradient, probabilities, mask, scale, mask_scale):
    """(the gradient of `softmax` for the scores, the probabilities after dropout once more)."""
    gradient = _dropout(tf.cast(gradient, tf.float32), mask, mask_scale)
    full = tf.cast(probabilities, tf.float32)
    weighted = gradient * full
    score_gradient = (weighted - full * tf.reduce_sum(weighted, axis=-1, keepdims=True)) * scale
    dtype = probabilities.dtype
    dropped = probabilities if mask is None else tf.cast(_dropout(full, mask, mask_scale), dtype)
    return tf.cast(score_gradient, dtype), dropped


# --- Rows, and heads ---------------------------------------------------------------------------------------


def split_heads(rows, number, num_heads, batch_size, length, packing=None):
    """[R, number·N·H] -> list of `number` tensors [B, N, F, H].

    Args:
      rows: [B·F, number·N·H], or the rows of a packing.
      number: how many projections are side by side.
      num_heads: N.
      batch_size, length: B and F, ints or tensors.
      packing: `packing.Packing` of which they are the rows, or None.
    """
    outputs = packing.unpack(rows) if packing else rows
    size = rows.shape.as_list()[1] // (number * num_heads)
    outputs = tf.reshape(outputs, [batch_size, length, number, num_heads, size])
    return tf.unstack(tf.transpose(outputs, [2, 0, 3, 1, 4]))


def merge_heads(heads, batch_size, length, packing=None):
    """[B, N, F, H] -> [B·F, N·H], or the rows of a packing; the arguments are those of `split_heads`."""
    _, num_heads, _, size = heads.shape.as_list()
    outputs = tf.transpose(heads, [0, 2, 1, 3])
    if packing:
        return packing.pack(tf.reshape(outputs, [batch_size, length, num_heads * size]))
    return tf.reshape(outputs, [batch_size * length, num_heads * size])
