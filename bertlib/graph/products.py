"""Computes matrix products, and the gradients of kernels and biases, with TensorFlow's ops.

The products are computed in the dtype of the activations, unless oneDNN would crash for this dtype.
"""

import os

import tensorflow.compat.v1 as tf


def matmul(a, b, transpose_a=False, transpose_b=False):
    """Returns the product of two matrices, or of two batches of matrices. The result has their dtype."""
    if would_crash(a.dtype):
        a, b, dtype = tf.cast(a, tf.float32), tf.cast(b, tf.float32), a.dtype
        return tf.cast(tf.matmul(a, b, transpose_a, transpose_b), dtype)
    return tf.matmul(a, b, transpose_a, transpose_b)


def concatenate(parameters, axis, dtype):
    """Concatenates float32 kernels or biases along an axis. Returns the result, cast to `dtype`."""
    return tf.cast(parameters[0] if len(parameters) == 1 else tf.concat(parameters, axis), dtype)


def kernel_gradient(inputs, output_gradient):
    """Returns the gradient of a kernel, float32 [width, units].

    Args:
      inputs: [R, width].
      output_gradient: [R, units].
    """
    return tf.cast(matmul(inputs, output_gradient, transpose_a=True), tf.float32)


def bias_gradient(output_gradient):
    """Returns the gradient of a bias, float32 [units]: the sum of the rows of a gradient [R, units]."""
    if output_gradient.dtype != tf.bfloat16:
        # The sum is computed in float32. In float16, it could exceed the largest number (65,504), because the
        # loss may be scaled by 2¹⁵ or more.
        return tf.raw_ops.BiasAddGrad(out_backprop=tf.cast(output_gradient, tf.float32))
    # On a CPU, a matrix product with ones takes a fifth to a half of the time of BiasAddGrad. In addition,
    # the matrix product computes its sums in float32.
    ones = tf.ones([1, tf.shape(output_gradient)[0]], output_gradient.dtype)
    return tf.cast(matmul(ones, output_gradient)[0], tf.float32)


def would_crash(dtype):
    """Returns whether a matrix product or softmax in a dtype would crash the process.

    TensorFlow uses oneDNN for bfloat16 if the CPU has the instructions. If an environment variable forbids
    oneDNN to use these instructions, the process crashes.
    """
    return dtype == tf.bfloat16 and not one_dnn_may_use(("AVX512", "AVX10"))


def one_dnn_may_use(words):
    """Returns whether the environment variable ONEDNN_MAX_CPU_ISA allows the instructions that `words` name.
    They are allowed if the variable is unset, sets no limit, or contains one of the words."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    return limit in ("", "ALL", "DEFAULT") or any(word in limit for word in words)
