"""The kernels are the formulas they stand for, with gradients by hand: compiled or not, in 32 bits and in 16."""

import collections
import math

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from helpers import ancestors
from tensorflow.python.framework import op_def_registry

import kernels
import randomness
from recompute_grad import recompute_grad

KEEP_PROBABILITY = 0.75
NORM_SHAPES = {"gamma": [6], "beta": [6]}
RESIDUAL_SHAPES = {"inputs": [8, 6], "residual": [8, 6], "bias": [6], **NORM_SHAPES}
ATTENTION_SHAPES = {"query": [2, 3, 5, 4], "key": [2, 3, 6, 4], "value": [2, 3, 6, 4]}
# What stays float32 whatever the precision.
PARAMETERS = {"bias", "bias_2", "kernel", "kernel_2", "gamma", "beta", "score_bias"}

NEEDS_ONE_DNN = pytest.mark.skipif(
    op_def_registry.get("_MklNativeFusedMatMul") is None or not kernels.cpu_supports(tf.bfloat16),
    reason="TensorFlow has no oneDNN here, or the CPU no bfloat16")

# --- The formulas, for TensorFlow to differentiate ---------------------------------------------------------


def plain_gelu(x):
    return 0.5 * x * (1.0 + tf.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def plain_gelu_erf(x):
    return 0.5 * x * (1.0 + tf.math.erf(x / math.sqrt(2.0)))


def plain_norm(inputs, gamma, beta):
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    return (inputs - mean) / tf.sqrt(variance + 1e-12) * gamma + beta


def plain_dropout(x, keep):
    return x if keep is None else x * tf.cast(keep, tf.float32) / KEEP_PROBABILITY


def plain_residual_norm(inputs, residual, bias, gamma, beta, keep=None):
    return plain_norm(residual + plain_dropout(inputs + bias, keep), gamma, beta)


def plain_attention(query, key, value, score_bias=0.0, keep=None):
    scores = tf.einsum("bnfh,bnth->bnft", query, key) / math.sqrt(query.shape.as_list()[-1]) + score_bias
    return tf.matmul(plain_dropout(tf.nn.softmax(scores), keep), value)


def residual_norm(inputs, residual, bias, gamma, beta, keep=None):
    return kernels.residual_norm(inputs, bias, residual, keep, 1.0 if keep is None else KEEP_PROBABILITY, gamma, beta)


def attention(query, key, value, score_bias=None, keep=None):
    return kernels.attention(query, key, value, score_bias, keep, 1.0 if keep is None else KEEP_PROBABILITY)


# Kernel, formula, {argument: shape}, whether there is something to compile.
Case = collections.namedtuple("Case", ["kernel", "plain", "shapes", "compiles"])
CASES = {
    "linear": Case(lambda inputs, kernel: kernels.linear(inputs, [kernel]), lambda inputs, kernel: inputs @ kernel,
                   {"inputs": [8, 6], "kernel": [6, 4]}, False),
    "linear-bias": Case(lambda inputs, kernel, bias: kernels.linear(inputs, [kernel], [bias]),
                        lambda inputs, kernel, bias: inputs @ kernel + bias,
                        {"inputs": [8, 6], "kernel": [6, 4], "bias": [4]}, False),
    "linear-two": Case(
        lambda inputs, kernel, kernel_2, bias, bias_2: kernels.linear(inputs, [kernel, kernel_2], [bias, bias_2]),
        lambda inputs, kernel, kernel_2, bias, bias_2: tf.concat([inputs @ kernel + bias, inputs @ kernel_2 + bias_2], 1),
        {"inputs": [8, 6], "kernel": [6, 4], "kernel_2": [6, 3], "bias": [4], "bias_2": [3]}, False),
    "gelu": Case(kernels.gelu, plain_gelu, {"x": [8, 6]}, True),
    "gelu_linear": Case(lambda inputs, bias, kernel: kernels.gelu_linear(inputs, bias, kernel),
                        lambda inputs, bias, kernel: plain_gelu(inputs + bias) @ kernel,
                        {"inputs": [8, 6], "bias": [6], "kernel": [6, 4]}, True),
    "gelu-erf": Case(lambda x: kernels.gelu(x, approximate=False), plain_gelu_erf, {"x": [8, 6]}, True),
    "gelu_linear-erf": Case(lambda inputs, bias, kernel: kernels.gelu_linear(inputs, bias, kernel, approximate=False),
                            lambda inputs, bias, kernel: plain_gelu_erf(inputs + bias) @ kernel,
                            {"inputs": [8, 6], "bias": [6], "kernel": [6, 4]}, True),
    "layer_norm": Case(lambda inputs, gamma, beta: kernels.layer_norm(inputs, gamma, beta), plain_norm,
                       {"inputs": [2, 4, 6], **NORM_SHAPES}, True),
    "residual_norm": Case(residual_norm, plain_residual_norm, RESIDUAL_SHAPES, True),
    "residual_norm-keep": Case(residual_norm, plain_residual_norm, {**RESIDUAL_SHAPES, "keep": [8, 6]}, True),
    "attention": Case(attention, plain_attention, ATTENTION_SHAPES, True),
    "attention-bias": Case(attention, plain_attention, {**ATTENTION_SHAPES, "score_bias": [2, 1, 1, 6]}, True),
    "attention-keep": Case(attention, plain_attention, {**ATTENTION_SHAPES, "keep": [2, 3, 5, 6]}, True),
    "attention-bias-keep": Case(attention, plain_attention, {
        **ATTENTION_SHAPES, "score_bias": [2, 1, 1, 6], "keep": [2, 3, 5, 6]}, True),
}
# In inference what follows a product may become one op with it.
CHAINS = {
    "linear-gelu_linear": Case(
        lambda inputs, kernel, bias, kernel_2: kernels.gelu_linear(kernels.linear(inputs, [kernel]), bias, kernel_2),
        lambda inputs, kernel, bias, kernel_2: plain_gelu(inputs @ kernel + bias) @ kernel_2,
        {"inputs": [8, 6], "kernel": [6, 4], "bias": [4], "kernel_2": [4, 3]}, True),
    "linear-gelu_linear-erf": Case(
        lambda inputs, kernel, bias, kernel_2: kernels.gelu_linear(
            kernels.linear(inputs, [kernel]), bias, kernel_2, approximate=False),
        lambda inputs, kernel, bias, kernel_2: plain_gelu_erf(inputs @ kernel + bias) @ kernel_2,
        {"inputs": [8, 6], "kernel": [6, 4], "bias": [4], "kernel_2": [4, 3]}, True),
    "linear-residual_norm": Case(
        lambda inputs, kernel, **others: residual_norm(kernels.linear(inputs, [kernel]), **others),
        lambda inputs, kernel, **others: plain_residual_norm(inputs @ kernel, **others),
        {**RESIDUAL_SHAPES, "inputs": [8, 4], "kernel": [4, 6]}, True),
}
COMPILABLE = [name for name, case in CASES.items() if case.compiles]


def arrays_of(case):
    """{argument: array}."""
    chance = np.random.RandomState(len(case.shapes))
    return {name: chance.random_sample(shape) < KEEP_PROBABILITY if name == "keep"
            else chance.standard_normal(shape).astype(np.float32) for name, shape in case.shapes.items()}


def gradient_for(shape):
    """A gradient for an output of that shape, other numbers everywhere."""
    return np.cos(np.arange(math.prod(shape), dtype=np.float32)).reshape(shape)


def differentiate(function, arrays, dtype=tf.float32, compiled=False, check=None):
    """{name: array} of the function's output and the gradients of all arguments that have one, in a graph of its own.

    Args:
      function: takes the arguments by name.
      arrays: {argument: array}.
      dtype: of the arguments that are no parameters.
      compiled: whether to compile the kernels.
      check: called with (arguments, their gradients, ops that were there before these).
    """
    with tf.Graph().as_default() as graph, tf.Session() as session:
        if compiled:
            kernels.compile_in_graph()
        arguments = {name: tf.placeholder(array.dtype if array.dtype == bool or name in PARAMETERS else dtype, array.shape)
                     for name, array in arrays.items()}
        output = function(**arguments)
        forward = graph.get_operations()
        targets = {name: tensor for name, tensor in arguments.items() if name not in ("keep", "score_bias")}
        output_gradient = tf.cast(gradient_for(output.shape.as_list()), dtype)
        gradients = dict(zip(targets, tf.gradients(output, list(targets.values()), [output_gradient])))
        if check:
            check(arguments, gradients, forward)
        feed = {tensor: arrays[name] for name, tensor in arguments.items()}
        return session.run({"output": output, **gradients}, feed)


def assert_close(ours, expected, tolerance):
    """Equal up to `tolerance` of an array's largest value."""
    assert ours.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(ours[name].astype(np.float32), values, rtol=0, atol=tolerance * np.abs(values).max(),
                                   err_msg=name)


def is_compiled(op):
    return "_XlaMustCompile" in op.node_def.attr and op.get_attr("_XlaMustCompile")


# --- Kernels and formulas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, compiled", [(name, False) for name in CASES] + [(name, True) for name in COMPILABLE])
def test_output_and_gradients_are_those_of_the_formula(name, compiled):
    def check(arguments, gradients, forward):
        made = set(tf.get_default_graph().get_operations()) - set(forward)
        # The forward and the backward pass of each have something to compile.
        assert [any(map(is_compiled, ops)) for ops in (forward, made)] == [compiled, compiled]

    case = CASES[name]
    arrays = arrays_of(case)
    assert_close(differentiate(case.kernel, arrays, compiled=compiled, check=check), differentiate(case.plain, arrays), 1e-5)


@pytest.mark.parametrize("name, dtype, compiled", [
    *[(name, dtype, False) for name in CASES for dtype in (tf.bfloat16, tf.float16)],
    *[(name, dtype, True) for name in ("linear", "linear-two", "gelu_linear", "residual_norm-keep", "attention-bias-keep")
      for dtype in (tf.bfloat16, tf.float16)]])
def test_in_16_bits_outputs_and_gradients_have_the_dtype_of_their_inputs_and_are_close(name, dtype, compiled, monkeypatch):
    monkeypatch.setattr(kernels, "_CHANNELS", 1)
    case = CASES[name]
    arrays = arrays_of(case)
    found = differentiate(case.kernel, arrays, dtype, compiled)
    assert {name: array.dtype for name, array in found.items()} == {
        name: np.float32 if name in PARAMETERS else dtype.as_numpy_dtype for name in found}
    # Inputs, outputs and what is between two products are rounded, to 8 and 11 bits.
    assert_close(found, differentiate(case.plain, arrays), {tf.bfloat16: 2**-5, tf.float16: 2**-8}[dtype])


@pytest.mark.parametrize("dtype, tolerance", [(tf.bfloat16, 2**-6), (tf.float16, 2**-9)])
def test_in_training_a_session_may_run_batches_of_all_sizes(dtype, tolerance, graph):
    # As pixels of 1, 2, 4 and 8 images; 523 rows stay one.
    kernels.compile_in_graph()
    chance = np.random.RandomState(0)
    kernel, bias = chance.standard_normal([512, 576]).astype(np.float32), chance.standard_normal([576]).astype(np.float32)
    inputs, targets = tf.placeholder(tf.float32, [None, 512]), tf.placeholder(tf.float32, [None, 576])
    arguments = [tf.cast(inputs, dtype), tf.constant(kernel), tf.constant(bias)]
    outputs = kernels.linear(arguments[0], arguments[1:2], arguments[2:])
    gradients = tf.gradients(outputs, arguments, [tf.cast(targets, dtype)])
    with tf.Session() as session:
        for size in (600, 1, 0, 523, 1792, 4096):
            rows, target = [chance.standard_normal([size, width]).astype(np.float32) for width in (512, 576)]
            found = session.run([outputs, *gradients], {inputs: rows, targets: target})
            expected = [rows @ kernel + bias, target @ kernel.T, rows.T @ target, target.sum(axis=0)]
            for ours, theirs in zip(found, expected):
                np.testing.assert_allclose(ours.astype(np.float32), theirs, rtol=0,
                                           atol=tolerance * np.abs(theirs).max(initial=0.0))


def kept_by(gradients, forward):
    """Tensors of the forward pass that gradients are computed from; what only passes them on counts as they do."""
    forward, seen, kept = set(forward), set(), set()
    waiting = [gradient.op for gradient in gradients]
    while waiting:
        op = waiting.pop()
        for tensor in op.inputs:
            if tensor.op not in forward:
                if tensor.op not in seen:
                    seen.add(tensor.op)
                    waiting.append(tensor.op)
                continue
            while tensor.op.type in ("Identity", "IdentityN"):
                tensor = tensor.op.inputs[tensor.value_index]
            if tensor.op.type not in ("Const", "Shape"):
                kept.add(tensor.ref())
    return kept


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_keep_the_inputs_and_of_attention_the_probabilities(name, dtype, graph):
    case = CASES[name]
    arguments = {name: tf.placeholder(tf.bool if name == "keep" else tf.float32 if name in PARAMETERS else dtype, shape)
                 for name, shape in case.shapes.items()}
    output = case.kernel(**arguments)
    forward = graph.get_operations()
    gradients = [gradient for gradient in tf.gradients(output, list(arguments.values())) if gradient is not None]
    others = kept_by(gradients, forward) - {tensor.ref() for tensor in arguments.values()}
    if "attention" not in name:
        assert not others
    else:
        probabilities, = [reference.deref() for reference in others]
        assert (probabilities.shape, probabilities.dtype) == ([2, 3, 5, 6], dtype)
        # Before dropout, so that there is nothing random in them.
        assert "keep" not in case.shapes or arguments["keep"].op not in ancestors(probabilities.op)



@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [(tf.float32, 1e-5), (tf.bfloat16, 2**-5), (tf.float16, 2**-8)])
def test_in_inference_outputs_are_those_of_the_formula_too(dtype, tolerance, compiled, graph):
    if compiled:
        kernels.compile_in_graph()
    found, expected, feed = {}, {}, {}
    for name, case in {**CASES, **CHAINS}.items():
        if "keep" not in case.shapes:
            arguments = {argument: tf.placeholder(tf.float32, array.shape) for argument, array in arrays_of(case).items()}
            feed.update(zip(arguments.values(), arrays_of(case).values()))
            expected[name] = case.plain(**arguments)
            with kernels.inference():
                found[name] = case.kernel(**{argument: tensor if argument in PARAMETERS else tf.cast(tensor, dtype)
                                             for argument, tensor in arguments.items()})
    assert not any(is_compiled(op) or op.type == "IdentityN" for op in graph.get_operations())
    assert bool(tf.local_variables()) == compiled
    with tf.Session() as session:
        session.run(tf.local_variables_initializer(), feed)
        found, expected = session.run([found, expected], feed)
    assert {array.dtype for array in found.values()} == {np.dtype(dtype.as_numpy_dtype)}
    assert_close(found, expected, tolerance)


def inference_ops(dtype, product=None):
    """Types of the ops of gelu_linear of a product and of residual_norm, in inference with kernels of this machine."""
    kernels.compile_in_graph()
    with kernels.inference():
        kernel = tf.ones([6, 6])
        product = kernels.linear(tf.ones([8, 6], dtype), [kernel]) if product is None else product
        output = kernels.gelu_linear(product, tf.ones([6]), kernel)
        kernels.residual_norm(output, tf.ones([6]), tf.ones([8, 6], dtype), None, 1.0, tf.ones([6]), tf.ones([6]))
    return [op.type for op in tf.get_default_graph().get_operations()]


@NEEDS_ONE_DNN
def test_in_inference_products_with_weights_and_what_follows_are_one_op_that_keeps_the_weights_in_order(graph):
    assert inference_ops(tf.bfloat16).count("_MklNativeFusedMatMul") == 2
    for op in graph.get_operations():
        if op.type == "_MklNativeFusedMatMul":
            assert op.get_attr("is_filter_const")


def test_in_inference_a_session_may_run_batches_of_all_sizes(graph):
    # oneDNN chooses the order of the weights by the size of the first.
    kernels.compile_in_graph()
    chance = np.random.RandomState(0)
    kernel, bias = chance.standard_normal([64, 48]).astype(np.float32), chance.standard_normal([48]).astype(np.float32)
    inputs = tf.placeholder(tf.float32, [None, 64])
    with kernels.inference():
        found = kernels.linear(tf.cast(inputs, tf.bfloat16), [tf.constant(kernel)], [tf.constant(bias)])
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for size in (7, 600, 1, 33, 600):
            rows = chance.standard_normal([size, 64]).astype(np.float32)
            assert_close({"output": session.run(found, {inputs: rows})}, {"output": rows @ kernel + bias}, 2**-6)


def test_a_product_of_two_activations_is_not_taken_for_one_with_weights(graph):
    inputs = tf.ones([8, 6], tf.bfloat16)
    assert inference_ops(tf.bfloat16, tf.matmul(inputs, tf.ones([6, 6], tf.bfloat16))).count("_MklNativeFusedMatMul") <= 1


def training_ops(dtype, width=512):
    """Types of the ops of a linear layer and of its gradients, with kernels of this machine."""
    kernels.compile_in_graph()
    inputs, kernel, bias = tf.ones([8, width], dtype), tf.ones([width, 512]), tf.ones([512])
    tf.gradients(kernels.linear(inputs, [kernel], [bias]), [inputs, kernel, bias])
    return [op.type for op in tf.get_default_graph().get_operations()]


@NEEDS_ONE_DNN
@pytest.mark.parametrize("width, convolutions, products", [(512, 1, 2), (504, 0, 4)])
def test_in_training_many_channels_are_multiplied_by_convolutions(width, convolutions, products, graph):
    found = training_ops(tf.bfloat16, width)
    assert [found.count(name) for name in ("_MklNativeConv2DWithBias", "_MklNativeConv2DBackpropInput", "MatMul")
            ] == [convolutions, convolutions, products]  # the gradients of the kernel and of the bias are products


@pytest.mark.parametrize("ops", [inference_ops, training_ops])
def test_without_instructions_for_the_dtype_there_are_no_ops_of_one_dnn(ops, graph, monkeypatch):
    monkeypatch.setattr(kernels, "cpu_supports", lambda dtype: dtype == tf.float32)
    assert not [name for name in ops(tf.bfloat16) if name.startswith("_Mkl")]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("name", ["linear-bias", "gelu_linear"])
def test_the_gradient_of_a_bias_is_summed_in_32_bits(name, dtype, graph):
    # In 16 bits a sum of ones gets no further than 256, or 2048.
    kernel, bias = tf.ones([6, 1]), tf.fill([1 if name == "linear-bias" else 6], 10.0)  # where gelu is the identity
    output = CASES[name].kernel(inputs=tf.zeros([4096, 6], dtype), kernel=kernel, bias=bias)
    gradient, = tf.gradients(tf.cast(output, tf.float32), bias)
    with tf.Session() as session:
        assert set(session.run(gradient)) == {4096.0}


@pytest.mark.parametrize("name", ["gelu", "gelu_linear"])
def test_gelu_of_large_values_in_fp16_has_a_finite_gradient(name):
    # Its powers leave float16's range at 41.
    x = np.float32([[-1000, -41, 41, 1000]])
    arrays = {"x": x}
    if name == "gelu_linear":
        arrays = {"inputs": x, "bias": np.zeros(4, np.float32), "kernel": np.eye(4, dtype=np.float32)}
    found = differentiate(CASES[name].kernel, arrays, tf.float16)
    np.testing.assert_array_equal(found["output"], [[0, 0, 41, 1000]])
    np.testing.assert_array_equal(found.get("x", found.get("inputs")), [0, 0, 1, 1] * gradient_for([1, 4]).astype(np.float16))
    with kernels.inference():
        assert differentiate(CASES[name].kernel, arrays, tf.float16)["output"].tolist() == [[0, 0, 41, 1000]]


def test_normalization_of_large_values_in_fp16_is_finite():
    # Their squares leave float16's range.
    arrays = arrays_of(CASES["residual_norm"])
    arrays["inputs"] *= 1000
    assert_close(differentiate(residual_norm, arrays, tf.float16), differentiate(plain_residual_norm, arrays), 2**-8)


def test_other_graphs_are_not_compiled(graph):
    with tf.Graph().as_default():
        kernels.compile_in_graph()
    kernels.gelu(tf.zeros([2]))
    assert not any(map(is_compiled, graph.get_operations()))


@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_kernels_draw_the_same_masks_and_have_the_same_gradients(compiled):
    def block(inputs, kernel, bias, gamma, beta):
        def keep(tensor):
            return randomness.bernoulli(tf.shape(tensor), KEEP_PROBABILITY, randomness.new_site("dropout"))

        heads = tf.reshape(inputs, [2, 1, 4, 6])
        attended = kernels.attention(heads, heads, heads, None, keep(tf.zeros([2, 1, 4, 4])), KEEP_PROBABILITY)
        output = kernels.gelu_linear(tf.reshape(attended, [8, 6]), bias, kernel)
        return kernels.residual_norm(output, bias, inputs, keep(output), KEEP_PROBABILITY, gamma, beta)

    shapes = {"inputs": [8, 6], "kernel": [6, 6], "bias": [6], **NORM_SHAPES}
    arrays = {name: np.random.RandomState(1).standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    recomputed = recompute_grad(block)
    assert_close(differentiate(lambda **arguments: recomputed(*arguments.values()), arrays, compiled=compiled),
                 differentiate(block, arrays, compiled=compiled), 1e-6)


# --- Where dropout keeps ------------------------------------------------------------------------------------


def draw(shape, probability=0.9, part=None, step=0, unequal=False):
    """One draw in a graph and a session of its own."""
    with tf.Graph().as_default(), tf.Session() as session:
        global_step = tf.train.get_or_create_global_step()
        if part is not None:
            randomness.set_part(tf.constant(part))
        if unequal:
            randomness.unequal_parts()
        keep = randomness.bernoulli(shape, probability, "bert/embeddings/dropout#0")
        global_step.load(step, session)
        return session.run(keep)


def test_booleans_are_what_they_were_when_this_was_written():
    # A resumed run must go on with the masks of the version that began it.
    assert "".join("01"[int(keep)] for keep in draw([40], 0.5, step=700)) == "0110010101000010101001000111100010010000"


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_booleans_have_their_share(probability):
    keep = draw([100, 1000], probability)
    assert keep.dtype == bool
    # 0 and 1 are exact, the others within five standard deviations; in all columns, so in all places of a block.
    assert abs(keep.mean() - probability) <= 5 * (probability * (1 - probability) / keep.size)**0.5
    for place in range(8):
        share = keep.reshape(-1, 8)[:, place].mean()
        assert abs(share - probability) <= 5 * (probability * (1 - probability) * 8 / keep.size)**0.5


@pytest.mark.parametrize("shape", [[1], [7], [3, 5], [0, 4], [2, 3, 3]])
def test_booleans_of_any_number_are_the_first_of_more(shape):
    found = draw(shape, 0.5)
    assert found.shape == tuple(shape)
    np.testing.assert_array_equal(found.ravel(), draw([64], 0.5)[:found.size])


@pytest.mark.parametrize("parts", [2, 4])
def test_a_part_of_the_effective_batch_draws_its_slice_of_the_wholes_booleans(parts):
    whole, size = draw([8, 20], 0.5), 8 // parts  # 40 booleans in the smallest part, 8 to a block
    for part in range(parts):
        np.testing.assert_array_equal(draw([size, 20], 0.5, part), whole[part * size:(part + 1) * size])


def test_parts_that_fill_no_whole_blocks_start_at_the_next_one():
    whole = draw([64], 0.5)
    for part in range(3):
        np.testing.assert_array_equal(draw([13], 0.5, part), whole[16 * part:16 * part + 13])


def test_unequal_parts_share_no_booleans():
    first, second = draw([500], 0.5, 0, unequal=True), draw([300], 0.5, 1, unequal=True)
    np.testing.assert_array_equal(first, draw([500], 0.5))
    stretches = {first[start:start + 64].tobytes() for start in range(len(first) - 63)}
    assert not stretches & {second[start:start + 64].tobytes() for start in range(len(second) - 63)}
