"""What is private to oneDNN, TensorFlow's library for CPUs: what it can do here, and ops of its own.

TensorFlow's graph optimizer puts such ops into graphs. Here some are used in other ways: products in
inference that keep the weights in oneDNN's order, and convolutions in place of the products of training in 16
bits.
"""

import functools
import os

import tensorflow.compat.v1 as tf

from bertlib.graph import tensorflow_internals

_LAYER_NORM, _FUSED_PRODUCT = "_MklLayerNorm", "_MklNativeFusedMatMul"
_CONVOLUTIONS = _CONVOLUTION, _BIASED_CONVOLUTION, _CONVOLUTION_GRADIENT = (
    "_MklNativeConv2D", "_MklNativeConv2DWithBias", "_MklNativeConv2DBackpropInput")
# The label of these products' kernels.
_LABEL = b"MklNameChangeOp"
# Rows that are taken for the pixels of images: more than so many an image, in one of these numbers of images,
# and with no fewer channels than this before and after.
_PIXELS, _IMAGES, _CHANNELS = 256, [2**power for power in range(8)], 512
# Words of /proc/cpuinfo, one of which a processor has that multiplies in this dtype.
_INSTRUCTIONS = {tf.bfloat16: {"amx_bf16", "avx512_bf16", "bf16"},
                 tf.float16: {"amx_fp16", "avx512_fp16", "asimdhp"}}
# Words of ONEDNN_MAX_CPU_ISA, which lets oneDNN use a part of the CPU's instructions; one of them is in each
# value that leaves those for the dtype, such as AVX512_CORE_BF16 and AVX10_1_512_AMX_FP16.
_LIMITS = {tf.bfloat16: ("BF16", "FP16", "AMX", "AVX10"), tf.float16: ("FP16", "AVX10")}


# --- What oneDNN can do here -------------------------------------------------------------------------------


@functools.cache
def cpu_supports(dtype):
    """Whether the CPU has instructions for that dtype, which oneDNN may use. If nobody knows, it has."""
    if dtype not in _INSTRUCTIONS:
        return True
    if not _environment_allows(_LIMITS[dtype]):
        return False
    if not os.path.exists("/proc/cpuinfo"):
        return True
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as reader:
        return not _INSTRUCTIONS[dtype].isdisjoint(reader.read().split())


def would_crash(dtype):
    """Whether no product and no softmax may be of that dtype.

    TensorFlow gives those in bfloat16 to oneDNN by what the CPU can do, and the process ends where the
    environment keeps the instructions from oneDNN.
    """
    return dtype == tf.bfloat16 and not _environment_allows(("AVX512", "AVX10"))


def _environment_allows(words):
    """Whether the environment leaves oneDNN the instructions of some of these words."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    return limit in ("", "ALL", "DEFAULT") or any(word in limit for word in words)


def _has_op(op_type, dtype):
    """Whether an op can be used: without instructions for the dtype it would end the process."""
    return tensorflow_internals.op_definition(op_type) is not None and cpu_supports(dtype)


# --- Inference ---------------------------------------------------------------------------------------------


def has_fused_product(dtype):
    """Whether `fused_product` takes that dtype, and less time than TensorFlow's ops.

    In float32, where the order of the weights matters less, the op that TensorFlow chooses is the faster one.
    """
    return dtype != tf.float32 and _has_op(_FUSED_PRODUCT, dtype)


def fused_product(inputs, weights, bias, activation=None, residual=None):
    """activation(inputs · weights + bias) + residual in one op, which puts the weights in order once.

    The op that TensorFlow would choose takes the weights as they are, and up to 1.8 times as long. Weights
    that change after a session's first run are not noticed.

    Args:
      inputs: [R, width].
      weights: [width, units] in the dtype of the inputs, as all arguments are.
      bias: [units].
      activation: "GeluExact", "GeluApproximate" or None.
      residual: [R, units], or None.
    """
    added = [] if residual is None else [residual]
    fused = ["BiasAdd", *([activation] if activation else []), *(["Add"] if added else [])]
    return _product(_FUSED_PRODUCT, a=inputs, b=weights, args=[bias, *added], fused_ops=fused,
                    is_filter_const=True, transpose_a=False, transpose_b=False, epsilon=0.0,
                    leakyrelu_alpha=0.0)


def cache_in_variable(weights):
    """The weights in a local variable, to be initialized after what they are computed from."""
    return tf.Variable(weights, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES],
                       name="prepared").read_value()


def has_layer_norm(inputs):
    """Whether `layer_norm` takes these inputs."""
    return inputs.shape.ndims in (2, 3) and _has_op(_LAYER_NORM, inputs.dtype)


def layer_norm(inputs, gamma, beta, epsilon):
    """Layer normalization over the last dimension of [R, W] or [B, F, W]; gamma and beta are [W]."""
    return tensorflow_internals.apply_op(
        _LAYER_NORM, x=inputs, scale=tf.cast(gamma, inputs.dtype), offset=tf.cast(beta, inputs.dtype),
        epsilon=epsilon, name="layer_norm")


# --- Training in 16 bits -----------------------------------------------------------------------------------


def image_shape(rows, units):
    """The shape of rows as the pixels of images, for a product with weights that is a convolution of 1 × 1.

    Where the weights are in TensorFlow's order that takes less time than oneDNN's matrix product, but more in
    narrow models. Images of 256 to 512 pixels are best (`benchmarks/products.py`).

    Args:
      rows: [R, W].
      units: of the weights, [W, units].

    Returns:
      int32 [3], all of the shape but for the W channels; None if the rows are to stay rows.
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
    """inputs · weights + bias, of the same dtype.

    Args:
      inputs: [R, W].
      weights: [W, units].
      bias: [units], or None for none.
      images: `image_shape` the inputs.
    """
    op_type, added = (_CONVOLUTION, {}) if bias is None else (_BIASED_CONVOLUTION, {"bias": bias})
    outputs = _convolution(op_type, input=_rows_to_images(inputs, images),
                           filter=_weights_to_filters(weights),
                           is_filter_const=False, **added)
    return tf.reshape(outputs, [-1, weights.shape.as_list()[1]])


def convolution_gradient(output_gradient, weights, images):
    """The gradient of `convolution` for its inputs, [R, W]."""
    width = weights.shape.as_list()[0]
    gradients = _convolution(_CONVOLUTION_GRADIENT, input_sizes=tf.concat([images, [width]], 0),
                             filter=_weights_to_filters(weights),
                             out_backprop=_rows_to_images(output_gradient, images))
    return tf.reshape(gradients, [-1, width])


def _rows_to_images(rows, images):
    return tf.reshape(rows, tf.concat([images, rows.shape.as_list()[1:]], 0))


def _weights_to_filters(weights):
    return tf.reshape(weights, [1, 1, *weights.shape.as_list()])


def _convolution(op_type, **inputs):
    return _product(op_type, strides=[1] * 4, padding="VALID", dilations=[1] * 4, explicit_paddings=[],
                    data_format="NHWC", use_cudnn_on_gpu=False, **inputs)


def _product(op_type, **arguments):
    product = tensorflow_internals.apply_op(op_type, name="product", **arguments)
    tensorflow_internals.set_attribute(product.op, "_kernel", tf.AttrValue(s=_LABEL))
    return product
