"""The encoder's chains of elementwise operations, each with a gradient of its own that keeps few tensors.

A chain of TensorFlow ops reads and writes memory once for each op, and its gradient keeps most of what lies between. Here
gradients are written by hand from the fewest tensors, and on request (`compile_in_graph`) each chain and each gradient makes
one pass through memory: they are the ops of `native` or, where those cannot be had, XLA compiles the formulas of this
file. Matrix products stay TensorFlow's.

Inputs may be float32, bfloat16 or float16; an output has the dtype of the first input. Biases, gammas, betas and kernels are
float32, and so is, but for `inference`, all arithmetic outside of matrix products. Rows R run over the positions of all
examples.
"""

import contextlib
import functools
import inspect
import math
import os
import threading

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_library, op_def_registry

from bertlib.kernels import native
from bertlib.runtime import graph_keys, randomness
from bertlib.runtime.own_gradient import with_own_gradient

LAYER_NORM_EPSILON = 1e-12

# Ops of oneDNN that TensorFlow's graph optimizer uses, or does not use yet, and the label of the products' kernels.
_ONE_DNN_LAYER_NORM, _ONE_DNN_PRODUCT = "_MklLayerNorm", "_MklNativeFusedMatMul"
_ONE_DNN_LABEL = b"MklNameChangeOp"
_ONE_DNN_CONVOLUTIONS = (
    _ONE_DNN_CONVOLUTION, _ONE_DNN_BIASED_CONVOLUTION, _ONE_DNN_CONVOLUTION_GRADIENT
) = "_MklNativeConv2D", "_MklNativeConv2DWithBias", "_MklNativeConv2DBackpropInput"
# Rows that are taken for the pixels of images: more than so many an image, in one of these numbers of images, and with no
# fewer channels than this before and after.
_PIXELS, _IMAGES, _CHANNELS = 256, [2**power for power in range(8)], 512
# Words of /proc/cpuinfo, one of which a processor has that multiplies in this dtype.
_INSTRUCTIONS = {tf.bfloat16: {"amx_bf16", "avx512_bf16", "bf16"}, tf.float16: {"amx_fp16", "avx512_fp16", "asimdhp"}}
# Words of ONEDNN_MAX_CPU_ISA, which lets oneDNN use a part of the CPU's instructions; one of them is in each value that leaves
# those for the dtype, such as AVX512_CORE_BF16 and AVX10_1_512_AMX_FP16.
_LIMITS = {tf.bfloat16: ("BF16", "FP16", "AMX", "AVX10"), tf.float16: ("FP16", "AVX10")}
# Attribute of an op that multiplies with weights of the model, in inference.
_OF_WEIGHTS = "_of_weights"
_local = threading.local()
# Parameters of kernels that may be None.
_MAY_BE_NONE = {"bias", "residual", "keep", "score_bias"}
# gelu is x σ(2z) with 2z = linear·x + cubic·x³.
_GELU_LINEAR = math.sqrt(8.0 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR


def compile_in_graph():
    """Has the current graph's kernels made for this machine's CPU, and no other.

    Those of training are ops in C++, built when they are first needed on a machine, which takes ten seconds. In float16, or
    without a compiler, XLA takes their place, and a tenth of a second for each kernel and each new shape. Those of
    `inference` use oneDNN where TensorFlow has it, and prepare the weights once: what they are cast and joined to is kept in
    local variables, which a session has to initialize after the weights, and oneDNN brings them into an order of its own when
    a session first runs. Weights that change later are not noticed.
    """
    tf.get_collection_ref(graph_keys.COMPILED_KERNELS)[:] = [True]


def are_compiled():
    """Whether the current graph's kernels are made for this machine's CPU."""
    return bool(tf.get_collection(graph_keys.COMPILED_KERNELS))


@functools.cache
def cpu_supports(dtype):
    """Whether the CPU has instructions for arithmetic in that dtype, which oneDNN may use. If nobody knows, it has."""
    if dtype not in _INSTRUCTIONS:
        return True
    if not _allows(_LIMITS[dtype]):
        return False
    if not os.path.exists("/proc/cpuinfo"):
        return True
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as reader:
        return not _INSTRUCTIONS[dtype].isdisjoint(reader.read().split())


def _allows(words):
    """Whether the environment leaves oneDNN the instructions of some of these words."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    return limit in ("", "ALL", "DEFAULT") or any(word in limit for word in words)


def _one_dnn_fails(dtype):
    """Whether an op that TensorFlow gives to oneDNN is to be one of float32.

    TensorFlow does so with bfloat16 by what the CPU can do, and the process ends where the environment keeps the instructions
    from oneDNN.
    """
    return dtype == tf.bfloat16 and not _allows(("AVX512", "AVX10"))


def _has_one_dnn(op_type, dtype):
    """Whether an op of oneDNN is to be used: without instructions for the dtype it would end the process."""
    return are_compiled() and op_def_registry.get(op_type) is not None and cpu_supports(dtype)


@contextlib.contextmanager
def inference():
    """In this block kernels are plain ops, with TensorFlow's gradients, in forms that it fuses with the matrix products.

    Arithmetic between matrix products is then in the dtype of the inputs, except for softmax and normalization.
    """
    _local.inference = True
    try:
        yield
    finally:
        _local.inference = False


def _is_inference():
    return getattr(_local, "inference", False)


def _with_gradient(outputs, inputs, gradient):
    return outputs if _is_inference() else with_own_gradient(outputs, inputs, gradient)


def native_ops(dtype):
    """The ops of `native`, if the current graph is to use them and has them for this dtype; otherwise None."""
    return native.ops() if are_compiled() and not _is_inference() and dtype in (tf.float32, tf.bfloat16) else None


def _kernel(native, **attributes):
    """Decorates a function of tensors that are only read and written elementwise, or reduced.

    Args:
      native: name of the native op that takes its place, whose inputs and attributes have the names of the function's
        parameters, and are lists where a parameter may be None. The op may have more outputs.
      **attributes: further attributes of the op.
    """
    def decorate(function):
        compiled = tf.compat.v2.function(function, jit_compile=True, autograph=False)
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*arguments):
            ops = native_ops(arguments[0].dtype)
            if ops is None:
                return (compiled if are_compiled() and not _is_inference() else function)(*arguments)
            named = {name: [value] * (value is not None) if name in _MAY_BE_NONE else value
                     for name, value in zip(parameters, arguments)}
            return getattr(ops, native)(**named, **attributes)
        return call
    return decorate


def bernoulli(shape, probability, site):
    """`randomness.bernoulli`, the same booleans in half of the time if the graph's kernels are native."""
    ops = native_ops(tf.float32)
    return randomness.bernoulli(shape, probability, site, draw=ops.bert_keep if ops else None)


# --- Matrix products -------------------------------------------------------------------------------------


def _matmul(a, b, transpose_a=False, transpose_b=False):
    """The product of two matrices, or of each two of a batch, in their dtype.

    """
    if _one_dnn_fails(a.dtype):
        return tf.cast(tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), transpose_a, transpose_b), a.dtype)
    return tf.matmul(a, b, transpose_a, transpose_b)


def linear(inputs, kernels, biases=()):
    """inputs · [kernels] + [biases], the kernels side by side: one product for projections of the same inputs.

    Args:
      inputs: [R, width].
      kernels: list of float32 [width, units]. What they are cast and joined to is made again for the gradient, not kept.
      biases: list of float32 [units]; empty for none.

    Returns:
      [R, sum of units].
    """
    def joined(parts, axis):
        return _prepared(tf.cast(parts[0] if len(parts) == 1 else tf.concat(parts, axis), inputs.dtype), parts[0])

    def product(inputs, *parameters):
        return _product(inputs, joined(parameters[:len(kernels)], 1), joined(parameters[len(kernels):], 0) if biases else None,
                        images)

    images = _images_of(inputs, sum(kernel.shape.as_list()[1] for kernel in kernels))
    outputs = product(inputs, *kernels, *biases)
    if len(kernels) == 1 and inputs.dtype == tf.float32:
        return outputs
    sizes = [kernel.shape.as_list()[1] for kernel in kernels]

    def split(gradient, axis):
        return [gradient] if len(sizes) == 1 else tf.split(gradient, sizes, axis)

    def gradient(output_gradient, inputs, *parameters):
        for_inputs = _input_gradient(output_gradient, joined(parameters[:len(kernels)], 1), images)
        for_kernels = split(_kernel_gradient(inputs, output_gradient), 1)
        return [for_inputs, *for_kernels, *(split(_bias_gradient(output_gradient), 0) if biases else [])]

    return _like(_with_gradient(outputs, [inputs, *kernels, *biases], gradient), images)


def _product(inputs, weights, bias, images):
    """inputs · weights + bias, all of the same dtype; a bias of None adds nothing."""
    if images is not None:
        op_type, added = (_ONE_DNN_CONVOLUTION, {}) if bias is None else (_ONE_DNN_BIASED_CONVOLUTION, {"bias": bias})
        pixels, filters = _pixels(inputs, images), _filters(weights)
        outputs = _convolution(op_type, input=pixels, filter=filters, is_filter_const=False, **added)
        return tf.reshape(outputs, [-1, weights.shape.as_list()[1]])
    outputs = _matmul(inputs, weights)
    if _is_inference():
        outputs.op._set_attr(_OF_WEIGHTS, tf.AttrValue(b=True))
    return outputs if bias is None else _plus_bias(outputs, bias)


def _input_gradient(output_gradient, weights, images):
    """The gradient for the rows that were multiplied with the weights."""
    if images is None:
        return _matmul(output_gradient, weights, transpose_b=True)
    width = weights.shape.as_list()[0]
    gradients = _convolution(_ONE_DNN_CONVOLUTION_GRADIENT, input_sizes=tf.concat([images, [width]], 0),
                             filter=_filters(weights), out_backprop=_pixels(output_gradient, images))
    return tf.reshape(gradients, [-1, width])


def _images_of(rows, units):
    """The shape of rows [R, W] as the pixels of images, but for the W channels: int32 [3], or None if they are to stay rows.

    In training in 16 bits a product of rows with weights [W, units] is a convolution of 1 × 1, if TensorFlow has oneDNN. Where
    the weights are in TensorFlow's order it takes less time than oneDNN's matrix product, but more in narrow models. Images of
    256 to 512 pixels are best (`benchmarks/products.py`).
    """
    if (rows.dtype == tf.float32 or _is_inference() or min(rows.shape.as_list()[1], units) < _CHANNELS
            or not all(_has_one_dnn(op_type, rows.dtype) for op_type in _ONE_DNN_CONVOLUTIONS)):
        return None
    if not hasattr(rows.op, "images"):
        count = tf.shape(rows)[0]
        fits = tf.logical_and(tf.equal(count % _IMAGES, 0), tf.greater(count, [_PIXELS * number for number in _IMAGES]))
        number = tf.reduce_max(tf.where_v2(fits, _IMAGES, 1))
        rows.op.images = tf.stack([number, 1, count // number])
    return rows.op.images


def _like(outputs, images):
    """The outputs, as many rows as those that `images` was made from: so it need not be made again."""
    if images is not None:
        outputs.op.images = images
    return outputs


def _pixels(rows, images):
    return tf.reshape(rows, tf.concat([images, rows.shape.as_list()[1:]], 0))


def _filters(weights):
    return tf.reshape(weights, [1, 1, *weights.shape.as_list()])


def _convolution(op_type, **inputs):
    return _one_dnn_product(op_type, strides=[1] * 4, padding="VALID", dilations=[1] * 4, explicit_paddings=[],
                            data_format="NHWC", use_cudnn_on_gpu=False, **inputs)


def _one_dnn_product(op_type, **arguments):
    with tf.get_default_graph()._attr_scope({"_kernel": tf.AttrValue(s=_ONE_DNN_LABEL)}):
        return op_def_library.apply_op(op_type, name="product", **arguments)


def _plus_bias(inputs, bias, activation=None, residual=None):
    """activation(inputs + bias), or inputs + bias + residual, in the dtype of the inputs.

    If the inputs are a product with weights, kernels are those of this machine and TensorFlow has oneDNN, all of it is one op
    that keeps the weights in the order that suits it. The op that TensorFlow would choose takes them as they are, and up to
    1.8 times as long; in float32, where the order matters less, it is the faster one.

    Args:
      inputs: [R, width].
      bias: [width] in any floating dtype.
      activation: "GeluExact" or "GeluApproximate".
      residual: [R, width].
    """
    bias = tf.cast(bias, inputs.dtype)
    if (inputs.dtype != tf.float32 and _OF_WEIGHTS in inputs.op.node_def.attr
            and _has_one_dnn(_ONE_DNN_PRODUCT, inputs.dtype)):
        added = [] if residual is None else [residual]
        fused = ["BiasAdd", *([activation] if activation else []), *(["Add"] if added else [])]
        return _one_dnn_product(
            _ONE_DNN_PRODUCT, a=inputs.op.inputs[0], b=inputs.op.inputs[1], args=[bias, *added], fused_ops=fused,
            is_filter_const=True, transpose_a=False, transpose_b=False, epsilon=0.0, leakyrelu_alpha=0.0)
    # With a float32 product TensorFlow fuses it; others, with weights in any order, would take longer than apart.
    outputs = (tf.nn.bias_add if inputs.dtype == tf.float32 else _add_bias)(inputs, bias)
    if activation:
        outputs = tf.compat.v2.nn.gelu(outputs, approximate=activation == "GeluApproximate")
    return outputs if residual is None else outputs + residual


@_kernel("bert_add_bias")
def _add_bias(inputs, added):
    return tf.nn.bias_add(inputs, added)


def _prepared(weights, master):
    """The weights, in inference kept from one run of the graph to the next if they are not the master itself."""
    if weights is master or not (_is_inference() and are_compiled()):
        return weights
    return tf.Variable(weights, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="prepared").read_value()


def _kernel_gradient(inputs, output_gradient):
    """The gradient of a kernel, float32."""
    return tf.cast(_matmul(inputs, output_gradient, transpose_a=True), tf.float32)


def _bias_gradient(output_gradient):
    """The gradient of a bias added to rows: their sum, float32 of [units]."""
    if output_gradient.dtype == tf.float32:
        return tf.raw_ops.BiasAddGrad(out_backprop=output_gradient)
    # On CPU a product takes a fifth to a half of the time; it too adds in float32.
    ones = tf.ones([1, tf.shape(output_gradient)[0]], output_gradient.dtype)
    return tf.cast(_matmul(ones, output_gradient)[0], tf.float32)


# --- GELU ------------------------------------------------------------------------------------------------


def gelu(x, approximate=True):
    """0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), or 0.5 x (1 + erf(x/√2)); its gradient keeps x only."""
    def gradient(output_gradient, x):
        return [_gelu_gradient(output_gradient, x, None, approximate)[0]]

    return _with_gradient(_gelu(x, None, approximate), [x], gradient)


def gelu_linear(inputs, bias, kernel, approximate=True):
    """gelu(inputs + bias) · kernel; the gradient keeps neither the sum nor the activation.

    Args:
      inputs: [R, width].
      bias: float32 [width].
      kernel: float32 [width, units].
      approximate: the form of `gelu`.

    Returns:
      [R, units].
    """
    images = _images_of(inputs, kernel.shape.as_list()[1])
    outputs = _product(_gelu(inputs, bias, approximate), _prepared(tf.cast(kernel, inputs.dtype), kernel), None, images)

    def gradient(output_gradient, inputs, bias, kernel):
        activation_gradient = _input_gradient(output_gradient, tf.cast(kernel, inputs.dtype), images)
        input_gradient, activation, *sums = _gelu_gradient(activation_gradient, inputs, bias, approximate)
        bias_gradient = sums[0] if sums else _bias_gradient(input_gradient)
        return [input_gradient, bias_gradient, _kernel_gradient(activation, output_gradient)]

    return _like(_with_gradient(outputs, [inputs, bias, kernel], gradient), images)


@_kernel("bert_gelu")
def _gelu(inputs, bias, approximate):
    if _is_inference():
        if bias is None:
            return tf.compat.v2.nn.gelu(inputs, approximate=approximate)
        return _plus_bias(inputs, bias, activation="GeluApproximate" if approximate else "GeluExact")
    x = _biased(inputs, bias)
    return tf.cast(x * _gelu_share(x, approximate), inputs.dtype)


@_kernel("bert_gelu_gradient")
def _gelu_gradient(gradient, inputs, bias, approximate):
    """(the gradient for the inputs, the activation); a native kernel also returns the gradient for the bias."""
    x = _biased(inputs, bias)
    share = _gelu_share(x, approximate)
    if approximate:  # the derivative of x σ(2z) is σ(2z) (1 + (1 − σ(2z)) x (2z)')
        slope = share * (1.0 + (1.0 - share) * (x * (_GELU_LINEAR + (3.0 * _GELU_CUBIC) * tf.square(x))))
    else:  # and that of x Φ(x) is Φ(x) + x φ(x)
        slope = share + x * (tf.exp(-0.5 * tf.square(x)) * (1.0 / math.sqrt(2.0 * math.pi)))
    return tf.cast(tf.cast(gradient, tf.float32) * slope, inputs.dtype), tf.cast(x * share, inputs.dtype)


def _gelu_share(x, approximate):
    """What gelu multiplies x with."""
    if approximate:
        # (1 + tanh z) / 2 = σ(2z), which takes fewer passes.
        return tf.sigmoid(x * (_GELU_LINEAR + _GELU_CUBIC * tf.square(x)))
    return 0.5 * (1.0 + tf.math.erf(x * math.sqrt(0.5)))


def _biased(inputs, bias):
    inputs = tf.cast(inputs, tf.float32)
    return inputs if bias is None else inputs + bias


# --- Layer normalization -----------------------------------------------------------------------------------


def layer_norm(inputs, gamma, beta):
    """Layer normalization over the last dimension; its gradient keeps the inputs only.

    Args:
      inputs: [..., W].
      gamma, beta: float32 [W].
    """
    def gradient(output_gradient, inputs, gamma, beta):
        width = inputs.shape.as_list()[-1]
        sums_gradient, _, *others = _norm_gradient(tf.reshape(output_gradient, [-1, width]), tf.reshape(inputs, [-1, width]),
                                                   None, None, None, gamma, 1.0)
        return [tf.reshape(sums_gradient, tf.shape(inputs)), *others[1:]]

    return _with_gradient(_norm(inputs, None, None, None, gamma, beta, 1.0), [inputs, gamma, beta], gradient)


def residual_norm(inputs, bias, residual, keep, keep_probability, gamma, beta):
    """Layer normalization of residual + dropout(inputs + bias), which ends both sublayers.

    Args:
      inputs, residual: [R, W].
      bias, gamma, beta: float32 [W].
      keep: bool [R, W], where dropout keeps a value; None for no dropout.
      keep_probability: float.

    Returns:
      [R, W].
    """
    scale = 1.0 / keep_probability
    masks = [] if keep is None else [keep]

    def gradient(output_gradient, inputs, bias, residual, gamma, beta, *masks):
        residual_gradient, input_gradient, *others = _norm_gradient(
            output_gradient, inputs, bias, residual, masks[0] if masks else None, gamma, scale)
        bias_gradient, gamma_gradient, beta_gradient = others
        return [input_gradient, bias_gradient, residual_gradient, gamma_gradient, beta_gradient, *[None for _ in masks]]

    outputs = _norm(inputs, bias, residual, keep, gamma, beta, scale)
    outputs = _with_gradient(outputs, [inputs, bias, residual, gamma, beta, *masks], gradient)
    return _like(outputs, getattr(inputs.op, "images", None))


@_kernel("bert_norm", epsilon=LAYER_NORM_EPSILON)
def _norm(inputs, bias, residual, keep, gamma, beta, scale):
    if _is_inference() and keep is None:
        if bias is not None:
            inputs = _plus_bias(inputs, bias, residual=residual)
        elif residual is not None:
            inputs += residual
        bias = residual = None
        if inputs.shape.ndims in (2, 3) and _has_one_dnn(_ONE_DNN_LAYER_NORM, inputs.dtype):
            return op_def_library.apply_op(
                _ONE_DNN_LAYER_NORM, x=inputs, scale=tf.cast(gamma, inputs.dtype), offset=tf.cast(beta, inputs.dtype),
                epsilon=LAYER_NORM_EPSILON, name="layer_norm")
    centered, inverse_deviation = _centered(inputs, bias, residual, keep, scale)
    return tf.cast(centered * inverse_deviation * gamma + beta, inputs.dtype)


@_kernel("bert_norm_gradient", epsilon=LAYER_NORM_EPSILON)
def _norm_gradient(gradient, inputs, bias, residual, keep, gamma, scale):
    """The gradients for residual, inputs, bias, gamma and beta."""
    gradient = tf.cast(gradient, tf.float32)
    centered, inverse_deviation = _centered(inputs, bias, residual, keep, scale)
    normalized = centered * inverse_deviation
    scaled = gradient * gamma
    sum_gradient = inverse_deviation * (scaled - tf.reduce_mean(scaled, axis=-1, keepdims=True)
                                        - normalized * tf.reduce_mean(scaled * normalized, axis=-1, keepdims=True))
    input_gradient = _dropped(sum_gradient, keep, scale)
    return (tf.cast(sum_gradient, inputs.dtype), tf.cast(input_gradient, inputs.dtype),
            tf.reduce_sum(input_gradient, axis=0), tf.reduce_sum(gradient * normalized, axis=0),
            tf.reduce_sum(gradient, axis=0))


def _centered(inputs, bias, residual, keep, scale):
    """(residual + dropout(inputs + bias) − its mean, 1 / its standard deviation)."""
    total = _dropped(_biased(inputs, bias), keep, scale)
    if residual is not None:
        total += tf.cast(residual, tf.float32)
    centered = total - tf.reduce_mean(total, axis=-1, keepdims=True)
    return centered, tf.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + LAYER_NORM_EPSILON)


def _dropped(values, keep, scale):
    """Dropout: the values times `scale` where kept, 0 elsewhere."""
    return values if keep is None else tf.where_v2(keep, values * scale, tf.zeros([], values.dtype))


# --- Rows, and heads ---------------------------------------------------------------------------------------


def twice(x):
    """x and x, for two uses of it: on CPU the sum of their gradients takes less time than TensorFlow's."""
    ops = native_ops(x.dtype)
    if not ops:
        return [x, x]
    first, second = _with_gradient([x, x], [x], lambda first, second, _: [ops.bert_add(a=first, b=second)])
    return [_like(first, getattr(x.op, "images", None)), second]


def split_heads(rows, number, num_heads, batch_size, length, packed=None):
    """[R, number·N·H] -> list of `number` tensors [B, N, F, H].

    Args:
      rows: [B·F, number·N·H], or the rows of a packing.
      number: how many projections are side by side.
      num_heads: N.
      batch_size, length: B and F, ints or tensors.
      packed: `packing.Packing` of which they are the rows, or None.
    """
    ops = native_ops(rows.dtype)
    if not ops:
        outputs = packed.unpack(rows) if packed else rows
        size = rows.shape.as_list()[1] // (number * num_heads)
        outputs = tf.reshape(outputs, [batch_size, length, number, num_heads, size])
        return tf.unstack(tf.transpose(outputs, [2, 0, 3, 1, 4]))

    def gradient(*gradients):
        return [_native_rows(ops, gradients[:number], packed)]

    return _with_gradient(_native_heads(ops, rows, number, num_heads, batch_size, length, packed), [rows], gradient)


def merge_heads(heads, batch_size, length, packed=None):
    """[B, N, F, H] -> [B·F, N·H], or the rows of a packing; the arguments are those of `split_heads`."""
    _, num_heads, _, size = heads.shape.as_list()
    ops = native_ops(heads.dtype)
    if not ops:
        outputs = tf.transpose(heads, [0, 2, 1, 3])
        if packed:
            return packed.pack(tf.reshape(outputs, [batch_size, length, num_heads * size]))
        return tf.reshape(outputs, [batch_size * length, num_heads * size])

    def gradient(output_gradient, _):
        return _native_heads(ops, output_gradient, 1, num_heads, batch_size, length, packed)

    return _with_gradient(_native_rows(ops, [heads], packed), [heads], gradient)


def _native_heads(ops, rows, number, num_heads, batch_size, length, packed):
    return ops.bert_split_heads(rows=rows, row_of=[packed.rows] if packed else [], shape=tf.stack([batch_size, length]),
                                number=number, heads=num_heads)


def _native_rows(ops, heads, packed):
    return ops.bert_merge_heads(inputs=heads, places=[packed.positions] if packed else [])


# --- Attention -------------------------------------------------------------------------------------------


def attention(query, key, value, score_bias, keep, keep_probability):
    """dropout(softmax(Q Kᵀ / √H + score_bias)) V. The gradient keeps, of all that is as large as the scores, only the
    probabilities and `keep`.

    Args:
      query: [B, N, F, H].
      key, value: [B, N, T, H].
      score_bias: float32 [B, N, F, T], where B, N and F may be 1: added to the scores; no gradient reaches it. None for none.
      keep: bool [B, N, F, T], where dropout keeps a probability; None for no dropout.
      keep_probability: float.

    Returns:
      [B, N, F, H].
    """
    shrink, scale = 1.0 / math.sqrt(query.shape.as_list()[-1]), 1.0 / keep_probability
    masks = [] if keep is None else [keep]
    dropped, probabilities = _softmax(_matmul(query, key, transpose_b=True), score_bias, keep, shrink, scale)

    def gradient(output_gradient, query, key, value, probabilities, *masks):
        score_gradient, dropped = _softmax_gradient(_matmul(output_gradient, value, transpose_b=True), probabilities,
                                                    masks[0] if masks else None, shrink, scale)
        return [_matmul(score_gradient, key), _matmul(score_gradient, query, transpose_a=True),
                _matmul(dropped, output_gradient, transpose_a=True), None, *[None for _ in masks]]

    return _with_gradient(_matmul(dropped, value), [query, key, value, probabilities, *masks], gradient)


@_kernel("bert_softmax")
def _softmax(scores, score_bias, keep, shrink, scale):
    """(the probabilities after dropout, and before)."""
    total = (scores if _is_inference() and not _one_dnn_fails(scores.dtype) else tf.cast(scores, tf.float32)) * shrink
    if score_bias is not None:
        total += tf.cast(score_bias, total.dtype)
    probabilities = tf.nn.softmax(total)
    kept = tf.cast(probabilities, scores.dtype)
    return kept if keep is None else tf.cast(_dropped(probabilities, keep, scale), scores.dtype), kept


@_kernel("bert_softmax_gradient")
def _softmax_gradient(gradient, probabilities, keep, shrink, scale):
    """(the gradient for the scores, the probabilities after dropout)."""
    gradient = _dropped(tf.cast(gradient, tf.float32), keep, scale)
    full = tf.cast(probabilities, tf.float32)
    weighted = gradient * full
    score_gradient = (weighted - full * tf.reduce_sum(weighted, axis=-1, keepdims=True)) * shrink
    dropped = probabilities if keep is None else tf.cast(_dropped(full, keep, scale), probabilities.dtype)
    return tf.cast(score_gradient, probabilities.dtype), dropped
