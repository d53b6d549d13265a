"""Uses ops of oneDNN, and finds out whether this machine supports them. oneDNN is a library that TensorFlow
uses on CPUs.

These ops are private: normally only TensorFlow's graph optimizer adds them to graphs. This module adds some
of them directly. For inference, it adds layer normalizations and matrix products. These matrix products keep
their weights in oneDNN's memory layout. For training in 16 bits, it adds convolutions, which replace matrix
products.
"""

import functools

import tensorflow.compat.v1 as tf

from bertlib.graph import native, products, tensorflow_internals

_LAYER_NORM, _FUSED_PRODUCT = "_MklLayerNorm", "_MklNativeFusedMatMul"
_CONVOLUTIONS = _CONVOLUTION, _BIASED_CONVOLUTION, _CONVOLUTION_GRADIENT = (
    "_MklNativeConv2D", "_MklNativeConv2DWithBias", "_MklNativeConv2DBackpropInput")
# TensorFlow registers the kernels of oneDNN's ops with this label.
_LABEL = b"MklNameChangeOp"
# Limits for `image_shape`, which uses the rows of a matrix as the pixels of images. An image has more than
# `_PIXELS` pixels, and the number of images is one of `_IMAGES`. Each pixel has at least `_CHANNELS`
# channels, both in the inputs and in the outputs.
_PIXELS, _IMAGES, _CHANNELS = 256, [2**power for power in range(8)], 512
# Arguments that all ops of convolutions have.
_CONVOLUTION_OPTIONS = dict(strides=[1] * 4, padding="VALID", dilations=[1] * 4, explicit_paddings=[],
                            data_format="NHWC", use_cudnn_on_gpu=False)
# {dtype: words of /proc/cpuinfo}. A CPU with one of these words has instructions for products in this dtype.
_INSTRUCTIONS = {tf.bfloat16: {"amx_bf16", "avx512_bf16", "bf16"},
                 tf.float16: {"amx_fp16", "avx512_fp16", "asimdhp"}}
# The environment variable ONEDNN_MAX_CPU_ISA limits the instructions that oneDNN may use. Examples of its
# value are AVX512_CORE_BF16 and AVX10_1_512_AMX_FP16. This dict maps a dtype to texts. If the value contains
# one of these texts, oneDNN may use the instructions for the dtype.
_LIMITS = {tf.bfloat16: ("BF16", "FP16", "AMX", "AVX10"), tf.float16: ("FP16", "AVX10")}


# --- Support by this machine -------------------------------------------------------------------------------


@functools.cache
def cpu_supports(dtype):
    """Returns whether two conditions are met: the CPU has instructions for a dtype, and oneDNN is allowed to
    use these instructions."""
    if dtype not in _INSTRUCTIONS:
        return True
    if not products.one_dnn_may_use(_LIMITS[dtype]):
        return False
    return not _INSTRUCTIONS[dtype].isdisjoint(" ".join(native.cpuinfo()).split())


def _has_op(op_type, dtype):
    """Returns whether an op can be used with a dtype. On a CPU without instructions for the dtype, the op
    would crash."""
    return tensorflow_internals.op_definition(op_type) is not None and cpu_supports(dtype)


# --- Inference ---------------------------------------------------------------------------------------------


def has_fused_product(dtype):
    """Returns whether `fused_product` supports a dtype and is faster than TensorFlow's ops.

    For float32, the result is False, because the op that TensorFlow chooses is faster than `fused_product`.
    In float32, the memory layout of the weights matters less than in 16 bits.
    """
    return dtype != tf.float32 and _has_op(_FUSED_PRODUCT, dtype)


def fused_product(inputs, weights, bias, activation, residual):
    """Returns activation(inputs · weights + bias) + residual, computed by one op.

    In the first run of a session, the op stores the weights in oneDNN's memory layout. Later runs use the
    stored weights, so a change of the weights after the first run has no effect. TensorFlow's own op does not
    change the layout, and takes up to 1.8 times as long.

    Args:
      inputs: [R, width].
      weights: [width, units]. All arguments have the dtype of the inputs.
      bias: [units].
      activation: "GeluExact", "GeluApproximate" or None.
      residual: [R, units], or None.

    Returns:
      [R, units].
    """
    residuals = [] if residual is None else [residual]
    fused = ["BiasAdd", *([activation] if activation else []), *(["Add"] if residuals else [])]
    return _product(_FUSED_PRODUCT, dict(
        a=inputs, b=weights, args=[bias, *residuals], fused_ops=fused, is_filter_const=True,
        transpose_a=False, transpose_b=False, epsilon=0.0, leakyrelu_alpha=0.0))


def has_layer_norm(inputs):
    """Returns whether `layer_norm` supports these inputs."""
    return inputs.shape.ndims in (2, 3) and _has_op(_LAYER_NORM, inputs.dtype)


def layer_norm(inputs, gamma, beta, epsilon):
    """Returns the layer normalization of `inputs` over the last dimension. `inputs` has the shape [R, W] or
    [B, F, W], and `gamma` and `beta` have the shape [W]."""
    return tensorflow_internals.apply_op(
        _LAYER_NORM, x=inputs, scale=tf.cast(gamma, inputs.dtype), offset=tf.cast(beta, inputs.dtype),
        epsilon=epsilon, name="layer_norm")


# --- Training in 16 bits -----------------------------------------------------------------------------------


def image_shape(rows, units):
    """Returns the shape of images whose pixels are the rows of a matrix.

    If rows are pixels, a matrix product with weights [W, units] is a 1 × 1 convolution. For weights in
    TensorFlow's memory layout, oneDNN's convolution takes less time than oneDNN's matrix product. Narrow
    models are an exception. The convolution is fastest for images of 256 to 512 pixels. In bfloat16 and with
    1,024 rows, the four dense layers of a layer of BERT-Base and the gradients for their inputs took 54 ms
    instead of 69 ms on one core with AMX.

    Args:
      rows: [R, W].
      units: number of columns of the weights.

    Returns:
      int32 [3]: (number of images, height, width); the W channels are left out. None if a matrix product
      should be used instead of a convolution.
    """
    if (rows.dtype == tf.float32 or min(rows.shape.as_list()[1], units) < _CHANNELS
            or not all(_has_op(op_type, rows.dtype) for op_type in _CONVOLUTIONS)):
        return None
    count = tf.shape(rows)[0]
    fits = tf.logical_and(tf.equal(count % _IMAGES, 0),
                          tf.greater(count, [_PIXELS * number for number in _IMAGES]))
    number = tf.reduce_max(tf.where_v2(fits, _IMAGES, 1))
    return tf.stack([number, 1, count // number])


def convolution(inputs, weights, bias, images):
    """Returns inputs · weights + bias, [R, units]. All arguments have the same dtype.

    Args:
      inputs: [R, W].
      weights: [W, units].
      bias: [units]; None for no bias.
      images: the `image_shape` of the inputs.
    """
    op_type, bias_input = (_CONVOLUTION, {}) if bias is None else (_BIASED_CONVOLUTION, {"bias": bias})
    outputs = _product(op_type, dict(_CONVOLUTION_OPTIONS, input=_rows_to_images(inputs, images),
                                     filter=_weights_to_filters(weights), is_filter_const=False,
                                     **bias_input))
    return tf.reshape(outputs, [-1, weights.shape.as_list()[1]])


def convolution_gradient(output_gradient, weights, images):
    """Returns the gradient with respect to the argument `inputs` of `convolution`, [R, W]."""
    width = weights.shape.as_list()[0]
    gradients = _product(_CONVOLUTION_GRADIENT, dict(
        _CONVOLUTION_OPTIONS, input_sizes=tf.concat([images, [width]], 0),
        filter=_weights_to_filters(weights), out_backprop=_rows_to_images(output_gradient, images)))
    return tf.reshape(gradients, [-1, width])


def _rows_to_images(rows, images):
    return tf.reshape(rows, tf.concat([images, rows.shape.as_list()[1:]], 0))


def _weights_to_filters(weights):
    return tf.reshape(weights, [1, 1, *weights.shape.as_list()])


def _product(op_type, arguments):
    product = tensorflow_internals.apply_op(op_type, name="product", **arguments)
    tensorflow_internals.set_attribute(product.op, "_kernel", tf.AttrValue(s=_LABEL))
    return product
