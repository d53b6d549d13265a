"""The kernels agree with their formulas, also in their gradients: plain and native, in 32 and 16 bits."""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import math
import multiprocessing
import os
from unittest import mock

from helpers import assert_close, evaluate
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_registry

from bertlib.estimator.step_config import StepConfig
from bertlib.graph import kernel_choice, one_dnn, randomness
from bertlib.graph import native as native_kernels
import optimization

KEEP_PROBABILITY = 0.75
NORM_SHAPES = {"gamma": [6], "beta": [6]}
RESIDUAL_SHAPES = {"inputs": [8, 6], "residual": [8, 6], "bias": [6], **NORM_SHAPES}
ATTENTION_SHAPES = {"query": [2, 3, 5, 4], "key": [2, 3, 6, 4], "value": [2, 3, 6, 4]}
# Arguments that are float32 at every precision.
PARAMETERS = {"bias", "bias_2", "kernel", "kernel_2", "gamma", "beta", "score_bias"}

# Implementations of the kernels. None: ops of TensorFlow. "native": ops in C++ for this machine's CPU.
# "no compiler": the ops that replace native ops on a machine without a compiler. Only in training, there is
# also "xla": formulas that XLA compiles.
MODES = [None, "no compiler", "native"]
PLAIN, COMPILED = StepConfig(), StepConfig(compile_kernels=True)
STEPS = {None: PLAIN, "no compiler": COMPILED, "native": COMPILED, "xla": StepConfig(use_xla=True)}
CHOSEN = {"step": PLAIN}  # the step whose kernels are tested, see `made_by`
NEEDS_ONE_DNN = pytest.mark.skipif(
    op_def_registry.get("_MklNativeFusedMatMul") is None or not one_dnn.cpu_supports(tf.bfloat16),
    reason="TensorFlow has no oneDNN here, or the CPU no bfloat16")

# --- The formulas, for TensorFlow to differentiate ---------------------------------------------------------


def plain_gelu(x):
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def plain_gelu_erf(x):
    return 0.5 * x * (1.0 + tf.math.erf(x / math.sqrt(2.0)))


def plain_norm(inputs, gamma, beta):
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    return (inputs - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


def plain_dropout(x, mask):
    return x if mask is None else x * tf.cast(mask, tf.float32) / KEEP_PROBABILITY


def plain_residual_norm(inputs, residual, bias, gamma, beta, mask=None):
    return plain_norm(residual + plain_dropout(inputs + bias, mask), gamma, beta)


def plain_attention(query, key, value, score_bias=0.0, mask=None):
    scores = tf.einsum("bnfh,bnth->bnft", query, key) / math.sqrt(query.shape.as_list()[-1]) + score_bias
    return tf.matmul(plain_dropout(tf.nn.softmax(scores), mask), value)


def residual_norm(kernels, inputs, residual, bias, gamma, beta, mask=None):
    return kernels.residual_norm(inputs, bias, residual, mask, 1.0 if mask is None else KEEP_PROBABILITY,
                                 gamma, beta)


def attention(kernels, query, key, value, score_bias=None, mask=None):
    return kernels.attention(query, key, value, score_bias, mask, 1.0 if mask is None else KEEP_PROBABILITY)


def linear_norm(kernels, inputs, kernel, bias, residual, gamma, beta):
    return kernels.linear_norm(inputs, (kernel, bias), residual, 0.0, (gamma, beta))


def plain_linear_norm(inputs, kernel, bias, residual, gamma, beta):
    return plain_norm(residual + inputs @ kernel + bias, gamma, beta)


def gelu_norm(kernels, inputs, kernel, bias, kernel_2, bias_2, gamma, beta, approximate=True):
    return kernels.gelu_norm(inputs, (kernel, bias), (kernel_2, bias_2), 0.0, (gamma, beta),
                             approximate)


def plain_gelu_norm(inputs, kernel, bias, kernel_2, bias_2, gamma, beta, activation=plain_gelu):
    return plain_norm(inputs + activation(inputs @ kernel + bias) @ kernel_2 + bias_2, gamma, beta)


# `kernel`: function whose first argument is the choice of kernels. `plain`: its formula. `shapes`: {argument:
# shape}.
Case = collections.namedtuple("Case", ["kernel", "plain", "shapes"])


def gelu_cases(suffix, activation, approximate):
    return {
        f"gelu{suffix}": Case(lambda kernels, x: kernels.gelu(x, approximate=approximate), activation,
                              {"x": [8, 6]}),
        f"gelu_linear{suffix}": Case(
            lambda kernels, inputs, bias, kernel: kernels.gelu_linear(inputs, bias, kernel, approximate),
            lambda inputs, bias, kernel: activation(inputs + bias) @ kernel,
            {"inputs": [8, 6], "bias": [6], "kernel": [6, 4]})}


CASES = {
    "linear": Case(lambda kernels, inputs, kernel: kernels.linear(inputs, [kernel]),
                   lambda inputs, kernel: inputs @ kernel, {"inputs": [8, 6], "kernel": [6, 4]}),
    "linear-bias": Case(lambda kernels, inputs, kernel, bias: kernels.linear(inputs, [kernel], [bias]),
                        lambda inputs, kernel, bias: inputs @ kernel + bias,
                        {"inputs": [8, 6], "kernel": [6, 4], "bias": [4]}),
    "linear-two": Case(
        lambda kernels, inputs, kernel, kernel_2, bias,
        bias_2: kernels.linear(inputs, [kernel, kernel_2], [bias, bias_2]),
        lambda inputs, kernel, kernel_2, bias,
        bias_2: tf.concat([inputs @ kernel + bias, inputs @ kernel_2 + bias_2], 1),
        {"inputs": [8, 6], "kernel": [6, 4], "kernel_2": [6, 3], "bias": [4], "bias_2": [3]}),
    **gelu_cases("", plain_gelu, True), **gelu_cases("-erf", plain_gelu_erf, False),
    "layer_norm": Case(lambda kernels, inputs, gamma, beta: kernels.layer_norm(inputs, gamma, beta),
                       plain_norm, {"inputs": [2, 4, 6], **NORM_SHAPES}),
    "residual_norm": Case(residual_norm, plain_residual_norm, RESIDUAL_SHAPES),
    "residual_norm-mask": Case(residual_norm, plain_residual_norm, {**RESIDUAL_SHAPES, "mask": [8, 6]}),
    "attention": Case(attention, plain_attention, ATTENTION_SHAPES),
    "attention-bias": Case(attention, plain_attention, {**ATTENTION_SHAPES, "score_bias": [2, 1, 1, 6]}),
    "attention-mask": Case(attention, plain_attention, {**ATTENTION_SHAPES, "mask": [2, 3, 5, 6]}),
    "attention-bias-mask": Case(attention, plain_attention, {
        **ATTENTION_SHAPES, "score_bias": [2, 1, 1, 6], "mask": [2, 3, 5, 6]}),
}
# Several kernels in a row. In inference, they become other ops.
GELU_NORM_SHAPES = {"inputs": [8, 6], "kernel": [6, 4], "bias": [4], "kernel_2": [4, 6], "bias_2": [6],
                    **NORM_SHAPES}
CHAINS = {
    "linear_norm": Case(linear_norm, plain_linear_norm,
                        {**RESIDUAL_SHAPES, "inputs": [8, 4], "kernel": [4, 6]}),
    "gelu_norm": Case(gelu_norm, plain_gelu_norm, GELU_NORM_SHAPES),
    "gelu_norm-erf": Case(functools.partial(gelu_norm, approximate=False),
                          functools.partial(plain_gelu_norm, activation=plain_gelu_erf), GELU_NORM_SHAPES),
}
# The cases that inference uses.
IN_INFERENCE = ["linear-bias", "linear-two", "gelu", "gelu-erf", "layer_norm", "attention", "attention-bias",
                *CHAINS]
# The cases with native and XLA versions of the kernel.
COMPILABLE = [name for name in CASES if not name.startswith("linear")]


def choose(is_training, dtype):
    return kernel_choice.choose_kernels(is_training, dtype, CHOSEN["step"])


def trained(kernel):
    """Returns the kernel of a case with the chosen kernels for training.

    The choice depends on the dtype of the first argument.
    """
    def run(**arguments):
        dtype = next(iter(arguments.values())).dtype
        return kernel(choose(True, dtype), **arguments)

    return run


def arrays_of(case):
    """Returns {argument: array} for a case."""
    chance = np.random.RandomState(len(case.shapes))
    return {name: chance.random_sample(shape) < KEEP_PROBABILITY if name == "mask"
            else chance.standard_normal(shape).astype(np.float32) for name, shape in case.shapes.items()}


def gradient_for(shape):
    """Returns a gradient for an output of this shape. All its numbers are different."""
    return np.cos(np.arange(math.prod(shape), dtype=np.float32)).reshape(shape)


@contextlib.contextmanager
def made_by(mode):
    """A context manager: `choose` returns the kernels of a mode of `MODES`, or of "xla"."""
    if mode == "native" and native_kernels.load_ops() is None:
        pytest.skip("no native kernels on this machine")
    with (mock.patch.dict(CHOSEN, step=STEPS[mode]),
          contextlib.nullcontext() if mode == "native"
          else mock.patch.object(native_kernels, "load_ops", lambda: None)):
        yield


@pytest.fixture
def native():
    """The native ops. Without them, the test is skipped."""
    return native_kernels.load_ops() or pytest.skip("no native kernels on this machine")


@contextlib.contextmanager
def derivative(function, arrays, dtype=tf.float32, mode=None, check=None):
    """Yields a function of {argument: array} that returns the result of `differentiate`.

    Its arrays must have the shapes of `arrays`.
    """
    with tf.Graph().as_default() as graph, tf.Session() as session, made_by(mode):
        arguments = {name: tf.placeholder(array.dtype if array.dtype == bool or name in PARAMETERS else dtype,
                                          array.shape)
                     for name, array in arrays.items()}
        output = function(**arguments)
        forward = graph.get_operations()
        targets = {name: tensor for name, tensor in arguments.items() if name not in ("mask", "score_bias")}
        output_gradient = tf.cast(gradient_for(output.shape.as_list()), dtype)
        gradients = dict(zip(targets, tf.gradients(output, list(targets.values()), [output_gradient])))
        if check:
            check(arguments, gradients, forward)
        yield lambda arrays: session.run(
            {"output": output, **gradients}, {tensor: arrays[name] for name, tensor in arguments.items()})


def differentiate(function, arrays, dtype=tf.float32, mode=None, check=None):
    """Returns {name: array}: the output of a function and all gradients of its arguments, from a new graph.

    Args:
      function: function that gets the arguments by name.
      arrays: {argument: array}.
      dtype: dtype of the arguments that are not in `PARAMETERS`.
      mode: one of `MODES`, or "xla".
      check: function that is called with (arguments, their gradients, ops of the forward pass).
    """
    with derivative(function, arrays, dtype, mode, check) as run:
        return run(arrays)


def makers(ops):
    """Returns the subset of {"native", "xla"} to which some of these ops belong."""
    return {"xla" if op.type == "PartitionedCall" else "native" for op in ops
            if op.type == "PartitionedCall" or op.type.startswith("Bert")}


# --- Kernels and formulas --------------------------------------------------------------------------------


def expect_makers(mode):
    """Returns a `check` of the ops in both passes.

    Ops in C++ must be in the forward and in the backward pass if `mode` is "native", and ops compiled by XLA
    if it is "xla". In other modes, they must be in neither pass.
    """
    def check(arguments, gradients, forward):
        made = set(tf.get_default_graph().get_operations()) - set(forward)
        assert [makers(forward), makers(made)] == [{mode} & {"native", "xla"}] * 2
    return check


@pytest.mark.parametrize("name, mode, dtype", [
    *[(name, None, tf.float32) for name in [*CASES, *CHAINS]],
    *itertools.product([*COMPILABLE, *CHAINS], ["no compiler", "native"], [tf.float32]),
    *[(name, "xla", tf.float32) for name in ("gelu_linear", "gelu-erf", "layer_norm", "attention-bias-mask")],
    *[(name, None, tf.bfloat16) for name in CASES], *[(name, "native", tf.bfloat16) for name in COMPILABLE],
    *[(name, mode, dtype) for name in ("linear", "linear-two", "gelu_linear", "residual_norm-mask",
                                       "attention-bias-mask")
      for mode, dtype in ((None, tf.float16), ("no compiler", tf.bfloat16))],
    ("attention-bias-mask", "native", tf.float16),
    ("attention-bias-mask", "xla", tf.float16), ("residual_norm-mask", "xla", tf.bfloat16)])
def test_output_and_gradients_have_the_dtype_of_their_inputs_and_are_those_of_the_formula(
        name, mode, dtype, monkeypatch):
    monkeypatch.setattr(one_dnn, "_CHANNELS", 1)
    case = {**CASES, **CHAINS}[name]
    arrays = arrays_of(case)
    # There are no native kernels in float16.
    maker = None if mode == "native" and dtype == tf.float16 else mode
    found = differentiate(trained(case.kernel), arrays, dtype, mode, expect_makers(maker))
    assert {name: array.dtype for name, array in found.items()} == {
        name: np.float32 if name in PARAMETERS else dtype.as_numpy_dtype for name in found}
    # Inputs, outputs and values between two products are rounded to 8 bits (bfloat16) or 11 bits (float16).
    assert_close(found, differentiate(case.plain, arrays),
                 {tf.float32: 1e-5, tf.bfloat16: 2**-5, tf.float16: 2**-8}[dtype])


@pytest.mark.parametrize("dtype, tolerance", [(tf.bfloat16, 2**-6), (tf.float16, 2**-9)])
def test_in_training_a_session_may_run_batches_of_all_sizes(dtype, tolerance, session):
    # The rows are pixels of 1, 2, 4 or 8 images. 523 rows cannot be divided into images, so they are one
    # image.
    chance = np.random.RandomState(0)
    kernel = chance.standard_normal([512, 576]).astype(np.float32)
    bias = chance.standard_normal([576]).astype(np.float32)
    inputs, targets = tf.placeholder(tf.float32, [None, 512]), tf.placeholder(tf.float32, [None, 576])
    arguments = [tf.cast(inputs, dtype), tf.constant(kernel), tf.constant(bias)]
    kernels = kernel_choice.choose_kernels(True, dtype, COMPILED)
    outputs = kernels.linear(arguments[0], arguments[1:2], arguments[2:])
    gradients = tf.gradients(outputs, arguments, [tf.cast(targets, dtype)])
    for size in (600, 1, 0, 523, 1792, 4096):
        rows, target = [chance.standard_normal([size, width]).astype(np.float32) for width in (512, 576)]
        found = session.run([outputs, *gradients], {inputs: rows, targets: target})
        expected = [rows @ kernel + bias, target @ kernel.T, rows.T @ target, target.sum(axis=0)]
        for ours, theirs in zip(found, expected):
            assert_allclose(ours.astype(np.float32), theirs, rtol=0,
                            atol=tolerance * np.abs(theirs).max(initial=0.0))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 1e-5), (tf.bfloat16, 2**-5), (tf.float16, 2**-8)])
def test_in_inference_outputs_are_those_of_the_formula_too(dtype, tolerance, mode, graph, session):
    found, expected, feed = {}, {}, {}
    for name in IN_INFERENCE:
        case = {**CASES, **CHAINS}[name]
        arguments = {argument: tf.placeholder(tf.float32, array.shape)
                     for argument, array in arrays_of(case).items()}
        feed.update(zip(arguments.values(), arrays_of(case).values()))
        expected[name] = case.plain(**arguments)
        with made_by(mode):
            found[name] = case.kernel(choose(False, dtype), **{
                argument: tensor if argument in PARAMETERS else tf.cast(tensor, dtype)
                for argument, tensor in arguments.items()})
    assert not makers(graph.get_operations()) and "IdentityN" not in {
        op.type for op in graph.get_operations()}
    assert bool(tf.local_variables()) == bool(mode)
    session.run(tf.local_variables_initializer(), feed)
    found, expected = session.run([found, expected], feed)
    assert {array.dtype for array in found.values()} == {np.dtype(dtype.as_numpy_dtype)}
    assert_close(found, expected, tolerance)


@NEEDS_ONE_DNN
def test_in_inference_a_product_and_what_follows_are_one_op_that_keeps_the_weights_in_order(graph):
    kernel, bias = tf.ones([6, 6]), tf.ones([6])
    gelu_norm(kernel_choice.choose_kernels(False, tf.bfloat16, COMPILED), tf.ones([8, 6], tf.bfloat16),
              kernel, bias, kernel, bias, bias, bias)
    fused = [op for op in graph.get_operations() if op.type == "_MklNativeFusedMatMul"]
    assert [op.get_attr("is_filter_const") for op in fused] == [True, True]


@NEEDS_ONE_DNN
@pytest.mark.parametrize("width, convolutions, products", [(512, 1, 2), (504, 0, 4)])
def test_in_training_many_channels_are_multiplied_by_convolutions(width, convolutions, products, graph):
    inputs, kernel, bias = tf.ones([8, width], tf.bfloat16), tf.ones([width, 512]), tf.ones([512])
    kernels = kernel_choice.choose_kernels(True, tf.bfloat16, COMPILED)
    tf.gradients(kernels.linear(inputs, [kernel], [bias]), [inputs, kernel, bias])
    found = [op.type for op in graph.get_operations()]
    names = ["_MklNativeConv2DWithBias", "_MklNativeConv2DBackpropInput", "MatMul"]
    # The gradients of the kernel and of the bias are products.
    assert [found.count(name) for name in names] == [convolutions, convolutions, products]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("name", ["linear-bias", "gelu_linear"])
def test_the_gradient_of_a_bias_is_summed_in_32_bits(name, dtype, graph):
    # In 16 bits, a sum of ones does not exceed 256 (bfloat16) or 2048 (float16). At the bias of 10, gelu is
    # the identity.
    kernel, bias = tf.ones([6, 1]), tf.fill([1 if name == "linear-bias" else 6], 10.0)
    output = trained(CASES[name].kernel)(inputs=tf.zeros([4096, 6], dtype), kernel=kernel, bias=bias)
    gradient, = tf.gradients(tf.cast(output, tf.float32), bias)
    assert set(evaluate(gradient)) == {4096.0}


@pytest.mark.parametrize("name", ["gelu", "gelu_linear"])
def test_gelu_of_large_values_in_fp16_has_a_finite_gradient(name):
    # From 41 on, powers of x in the formula exceed the range of float16.
    x = np.float32([[-1000, -41, 41, 1000]])
    arrays = {"gelu": {"x": x}, "gelu_linear": {"inputs": x, "bias": np.zeros(4, np.float32),
                                                "kernel": np.eye(4, dtype=np.float32)}}[name]
    found = differentiate(trained(CASES[name].kernel), arrays, tf.float16)
    assert_array_equal(found["output"], [[0, 0, 41, 1000]])
    assert_array_equal(found[next(iter(arrays))], [0, 0, 1, 1] * gradient_for([1, 4]).astype(np.float16))


# --- Native kernels --------------------------------------------------------------------------------------

def resized(name, sizes, **others):
    """Returns (name of a case, its shapes with other sizes). `others` are whole shapes."""
    shapes = {argument: [sizes.get(size, size) for size in shape]
              for argument, shape in CASES[name].shapes.items()}
    return name, {**shapes, **others}


# (name of a case, shapes). The kernels use vectors, blocks of 64 rows, and blocks of 16 rows in attention.
# These shapes are not multiples of these sizes, or have one column, or no rows.
ODD = [
    *[resized(name, {8: 131, 6: 83}) for name in ("gelu", "gelu-erf", "gelu_linear", "residual_norm-mask")],
    *[resized(name, {8: 131, 6: 1}) for name in ("gelu", "residual_norm-mask")],
    *[resized(name, {8: 0, 6: 83}) for name in ("gelu_linear", "residual_norm-mask")],
    *[resized("layer_norm", sizes) for sizes in ({4: 131, 6: 1}, {2: 3, 4: 5, 6: 83}, {2: 0, 6: 83})],
    resized("attention-bias", {4: 8, 6: 37}, score_bias=[2, 1, 5, 37]),
    *[resized("attention-bias-mask", {2: batch, 4: 8, 6: width}, score_bias=bias)
      for batch, width, bias in ((2, 37, [1, 3, 5, 37]), (2, 37, [2, 3, 1, 37]), (2, 37, [1, 1, 1, 37]),
                                 (2, 1, [2, 1, 1, 1]), (0, 37, [0, 1, 1, 37]))],
]
WIDE = [(name, shapes) for name, shapes in ODD
        if all(shape[0] and shape[-1] > 1 for shape in shapes.values())]
# Two NaNs and both infinities. The second NaN has all bits of the mantissa set.
NOT_FINITE = np.uint32([0x7fc00000, 0x7fffffff, 0x7f800000, 0xff800000]).view(np.float32)


def name_of(value):
    return value if isinstance(value, str) else value.name if isinstance(value, tf.DType) else "_".join(
        "x".join(map(str, shape)) for shape in value.values()) if isinstance(value, dict) else None


@pytest.mark.parametrize("name, shapes", ODD, ids=name_of)
def test_native_kernels_take_all_shapes(name, shapes):
    case = CASES[name]._replace(shapes=shapes)
    arrays = arrays_of(case)
    expected = differentiate(case.plain, arrays)
    assert_close(differentiate(trained(case.kernel), arrays, mode="native"), expected, 1e-5)
    rounded = differentiate(trained(case.kernel), arrays, tf.bfloat16, "native")
    assert_close(rounded, differentiate(trained(case.kernel), arrays, tf.bfloat16), 2**-7)
    assert_close(rounded, expected, 2**-5)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=name_of)
@pytest.mark.parametrize("name, shapes", WIDE, ids=name_of)
def test_what_is_not_finite_comes_out_of_native_kernels_as_the_formula_has_it(
        name, shapes, dtype, monkeypatch):
    def softmax(scores):  # not tf.nn.softmax, which has NaN at only one place of the row
        powers = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        return powers / tf.reduce_sum(powers, axis=-1, keepdims=True)

    monkeypatch.setattr(tf.nn, "softmax", softmax)
    case = CASES[name]._replace(shapes=shapes)
    arrays = arrays_of(case)
    kernel = trained(case.kernel)
    with derivative(kernel, arrays, dtype, "native") as native, derivative(kernel, arrays, dtype) as plain:
        for argument, value in itertools.product(set(shapes) - {"mask"}, NOT_FINITE):
            array = arrays[argument].astype(np.float32 if argument in PARAMETERS else dtype.as_numpy_dtype)
            bits = array.view({2: np.uint16, 4: np.uint32}[array.itemsize])
            bits.flat[[3, -1]] = value.view(np.uint32) >> 32 - 8 * array.itemsize
            expected = plain({**arrays, argument: array})
            assert np.isfinite(expected["output"].astype(np.float32)).all() == (
                argument == "score_bias" and value == -np.inf)
            assert_close(native({**arrays, argument: array}), expected,
                         1e-5 if dtype == tf.float32 else 2**-6)


def test_native_kernels_round_to_the_nearest_bfloat16_and_halves_to_the_even_one():
    bfloat16 = tf.bfloat16.as_numpy_dtype
    bits = np.random.RandomState(0).randint(0, 2**32, 4099, np.uint32)
    bits[::2] = bits[::2] >> 16 << 16 | 0x8000  # in the middle between two bfloat16 numbers
    bits[:3] = 0x7f7fffff, 0xff7f8000, 0x7f7f7fff  # the first two round to infinity, the third just does not
    bits[(bits & 0x7f800000) == 0] |= 0x3f800000  # numbers that are large enough not to be flushed to 0
    numbers = bits.view(np.float32)
    ones = np.ones_like(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = {"inputs": np.zeros([2, 4099], np.float32), "gamma": ones, "beta": numbers}
        found = differentiate(trained(CASES["layer_norm"].kernel), arrays, tf.bfloat16, "native")
        expected = numbers.astype(bfloat16).astype(np.float32)
    assert_array_equal(found["output"].astype(np.float32), np.stack([expected] * 2))
    assert np.isnan(numbers).any()


# The numbers of rows are not multiples of 64 or 16.
LARGE = [*[resized(name, {8: 1003, 6: 509})
           for name in ("gelu_linear", "gelu_linear-erf", "residual_norm-mask")],
         resized("attention-bias-mask", {2: 4, 3: 6, 5: 31, 4: 8, 6: 67})]


def _run_native_kernels(number_of_threads):
    """Returns the bytes of the results of native kernels. Must run in a process that has no session yet."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(number_of_threads)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    found = [draw([1003, 509], mode="native")]
    for (name, shapes), dtype in itertools.product(LARGE, [tf.float32, tf.bfloat16]):
        arrays = arrays_of(CASES[name]._replace(shapes=shapes))
        found += differentiate(trained(CASES[name].kernel), arrays, dtype, "native").values()
    return [array.tobytes() for array in found]


@pytest.mark.slow(reason="large arrays, several times")
def test_native_kernels_return_the_same_bits_on_any_number_of_threads(native):
    found = []
    for number in (1, 4):
        context = multiprocessing.get_context("forkserver")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as process:
            found.append(process.submit(_run_native_kernels, number).result())
    assert found[0] == found[1]


def adam_steps(mode):
    """Returns the weights before each of four steps with clipping and weight decay.

    The values come from an op that reads the weights in the step. So they change if the step overwrites them.
    """
    start = np.random.RandomState(0).standard_normal([257, 259]).astype(np.float32)
    with tf.Graph().as_default() as graph, tf.Session() as session, made_by(mode):
        weights = tf.get_variable("kernel", initializer=start)
        before = weights.read_value()
        with tf.control_dependencies([before]):
            update = optimization.create_optimizer(
                tf.nn.l2_loss(weights), 0.1, 10, 0, False,
                step_config=StepConfig(weight_decay=0.1, compile_kernels=mode is not None))
        assert makers(graph.get_operations()) == {mode} & {"native", "xla"}
        session.run(tf.global_variables_initializer())
        return [session.run([before, update])[0] for _ in range(4)]


@pytest.mark.parametrize("mode", ["no compiler", "native"])
def test_adam_in_one_pass_takes_the_same_steps_and_overwrites_nothing_that_is_held(mode):
    assert_allclose(adam_steps(mode), adam_steps(None), rtol=0, atol=1e-5)


# --- Dropout masks ------------------------------------------------------------------------------------------


def draw(shape, probability=0.9, step=0, mode=None):
    """Returns a mask that is drawn once, in a new graph and session."""
    with tf.Graph().as_default(), tf.Session() as session, made_by(mode):
        global_step = tf.train.get_or_create_global_step()
        mask = randomness.bernoulli(shape, probability, "bert/embeddings/dropout#0",
                                    choose(True, tf.float32).mask_op)
        global_step.load(step, session)
        return session.run(mask)


@pytest.mark.parametrize("mode", MODES)
def test_booleans_are_what_they_were_when_this_was_written(mode):
    # A resumed run must continue with the same masks, also if an older version of this project started it.
    found = draw([40], 0.5, step=700, mode=mode)
    assert "".join("01"[int(mask)] for mask in found) == "0110010101000010101001000111100010010000"
    assert_array_equal(draw([4099], mode=mode), draw([4099]))


@pytest.mark.parametrize("threshold", [-2**15, -77, 2**15 - 1])
@pytest.mark.parametrize("low, high", [  # the two halves of the counter, which carry in most cases
    (0, 0), (5, 2**40), (2**64 - 3, 5), (2**64 - 3, 2**64 - 1), (2**32 - 3, 0), (2**63 - 3, 2**32 - 1)])
def test_native_booleans_are_those_of_tensorflow(low, high, threshold, native, graph):
    stream = {"key": np.uint64([2**63 + 11]), "counter": np.uint64([low, high])}
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(shape=[50_002], **stream, alg=1, dtype=tf.uint32)
    shapes = [[1], [8], [257], [3, 0, 5], [7, 11, 13], [], [100_003]]
    words, found = evaluate([words, [native.bert_dropout_mask(shape=shape, **stream, threshold=threshold)
                                     for shape in shapes]])
    expected = words.view(np.int16) >= threshold
    for shape, mask in zip(shapes, found):
        assert_array_equal(mask, expected[:math.prod(shape)].reshape(shape))
