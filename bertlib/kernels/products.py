"""Matrix products of TensorFlow and the gradients of weights, in the dtype of the activations."""

import tensorflow.compat.v1 as tf

from bertlib.kernels import one_dnn


def matmul(a, b, transpose_a=False, transpose_b=False):
    """Returns the product of two matrices, or of each two of a batch, in their dtype."""
    if one_dnn.would_crash(a.dtype):
        a, b, dtype = tf.cast(a, tf.float32), tf.cast(b, tf.float32), a.dtype
        return tf.cast(tf.matmul(a, b, transpose_a, transpose_b), dtype)
    return tf.matmul(a, b, transpose_a, transpose_b)


def concatenate(parameters, axis, dtype):
    """Returns float32 kernels or biases side by side, in that dtype."""
    return tf.cast(parameters[0] if len(parameters) == 1 else tf.concat(parameters, axis), dtype)


def kernel_gradient(inputs, output_gradient):
    """Returns the gradient of a kernel, float32."""
    return tf.cast(matmul(inputs, output_gradient, transpose_a=True), tf.float32)


def bias_gradient(output_gradient):
    """Returns the gradient of a bias added to rows: their sum, float32 of [units]."""
    if output_gradient.dtype == tf.float32:
        return tf.raw_ops.BiasAddGrad(out_backprop=output_gradient)
    # On CPU a product takes a fifth to a half of the time; it too adds in float32.
    ones = tf.ones([1, tf.shape(output_gradient)[0]], output_gradient.dtype)
    return tf.cast(matmul(ones, output_gradient)[0], tf.float32)
