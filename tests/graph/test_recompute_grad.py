"""Recomputation changes only memory and time. All computed numbers stay the same."""

import re

from helpers import ancestors, assert_close, evaluate, run_bert
import numpy as np
from numpy.testing import assert_array_equal
import pytest
from scripts import run_fresh
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import rewriter_config_pb2

from bertlib.graph import randomness
from bertlib.graph.recompute_grad import recompute_grad
import modeling

CONFIG = modeling.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=3, num_attention_heads=2,
                             intermediate_size=12, hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.4,
                             max_position_embeddings=8, type_vocab_size=2, initializer_range=0.5)
IDS = np.arange(24).reshape(4, 6) % 20


def gradients(target, sources):
    """Returns dense gradients. A missing gradient is None."""
    return [None if gradient is None else tf.convert_to_tensor(gradient)
            for gradient in tf.gradients(target, sources)]


def weighted_sum(tensor):
    """Returns a scalar whose gradient is different at each position.

    A sum of squares would not work, because its gradient is zero after a layer normalization.
    """
    weights = np.random.RandomState(1).standard_normal(256).astype(np.float32)
    flat = tf.reshape(tensor, [-1])
    return tf.reduce_sum(flat * tf.tile(weights, [8])[:tf.size(flat)])


def build_model(mode="none", segment=1, **options):
    ids = tf.constant(IDS, tf.int32)
    mask = tf.cast(tf.not_equal(ids, 3), tf.int32)
    step_config = modeling.StepConfig(recompute=mode, recompute_segment=segment)
    return modeling.BertModel(CONFIG, True, ids, mask, step_config=step_config, **options)


def pooled_loss(model):
    return weighted_sum(model.get_pooled_output())


def run_model(mode="none", segment=1, loss=pooled_loss):
    config = tf.ConfigProto()
    # The arithmetic optimization changes the order of additions if a sum has another shape. Without it, all
    # numbers are equal to the bit.
    config.graph_options.rewrite_options.arithmetic_optimization = rewriter_config_pb2.RewriterConfig.OFF
    return run_bert(CONFIG, IDS, IDS != 3, loss, 3, config, recompute=mode, recompute_segment=segment)


# --- The encoder --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain():
    return run_model()


@pytest.mark.parametrize("mode", ["attention", "layers"])
def test_activations_gradients_names_and_initial_weights_are_those_without(plain, mode):
    assert_close(run_model(mode), plain, 0)


def test_gradients_reach_every_layer_whose_output_is_used():
    """The loss uses outputs inside and at the end of a segment of two layers.

    The last layer is a separate segment, and nothing uses its output.
    """
    def loss(model):
        return tf.add_n([weighted_sum(model.get_all_encoder_layers()[index]) for index in (0, 1)])

    # If a layer's output has two gradients, they are added in another order.
    assert_close(run_model("layers", 2, loss), run_model(loss=loss), 1e-6)


def test_an_output_in_a_segment_that_nothing_uses_is_not_kept(graph):
    # For an unused output, tf.gradients would create zeros of the same shape, and would keep the output for
    # this.
    found = gradients(pooled_loss(build_model("layers", 2)), tf.trainable_variables())
    assert not [op for op in ancestors(tf.group(*found)) if op.type == "ZerosLike"]


def test_only_training_is_recomputed(graph):
    def identities(training):
        modeling.BertModel(CONFIG, training, tf.constant(IDS), scope=str(training),
                           step_config=modeling.StepConfig(recompute="layers"))
        return [op for op in graph.get_operations() if op.type == "IdentityN"
                and "intermediate" not in op.name]

    assert not identities(False) and identities(True)


def test_unknown_modes_and_segments_are_refused(graph):
    with pytest.raises(ValueError, match="'all'.*none, attention, layers"):
        build_model("all")
    with pytest.raises(ValueError, match="recompute_segment=0"):
        build_model("layers", 0, scope="other")


# --- Any function -------------------------------------------------------------------------------------------


def layer(x, scale):
    """Computes a layer with a variable and a dropout mask: [rows, 4] -> [rows, 4]."""
    with tf.variable_scope("layer", reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [4, 4], initializer=modeling.create_initializer(0.5))
        return modeling.dropout(tf.tanh(tf.matmul(x, kernel)), 0.4) * tf.cast(scale, tf.float32)


X = np.random.RandomState(0).standard_normal([3, 4]).astype(np.float32)


def compare(build, wraps=(recompute_grad, lambda layer: layer)):
    """Asserts that `build` gives the same values with a recomputed `layer` and with the plain one."""
    values = []
    for wrap in wraps:
        with tf.Graph().as_default():
            tf.train.get_or_create_global_step()
            values.append(dict(enumerate(evaluate(build(wrap(layer), tf.constant(X))))))
    assert_close(*values, 1e-6)


def loss_and_gradients(y, x):
    with tf.variable_scope("", reuse=True):
        kernel = tf.get_variable("layer/kernel")
    loss = tf.reduce_sum(tf.square(y))
    return [loss, *gradients(loss, [x, kernel])]


@pytest.mark.parametrize("version", [1, 2])
def test_inside_a_cond(version):
    """In version 2, the branches are functions."""
    (tf.enable_control_flow_v2 if version == 2 else tf.disable_control_flow_v2)()
    try:
        compare(lambda layer, x: loss_and_gradients(
            tf.cond(tf.reduce_sum(x) > -99, lambda: layer(layer(x, 3), 1), lambda: layer(x, 2)), x))
    finally:
        tf.disable_control_flow_v2()


def test_several_outputs_of_which_one_or_another_is_used():
    def build(function, x):
        first, second = function(x)  # a list stays a list
        # The second gradient is sparse.
        return [*loss_and_gradients(second, x), *gradients(tf.gather(first, [1, 1]), [x])]

    def pair(layer):
        return lambda x: [layer(x, 2), layer(x, 3)]

    compare(build, wraps=[lambda layer: recompute_grad(pair(layer)), pair])


@pytest.mark.parametrize("has_step", [True, False])
def test_masks_are_drawn_again_for_the_step_and_the_part_of_the_forward_pass(graph, has_step):
    # The seed, the global step and the part of the batch change between the forward pass and the gradients.
    # They must have no effect on the mask that is drawn again.
    if has_step:
        tf.train.get_or_create_global_step()
    x = tf.ones([20, 4])
    y = recompute_grad(lambda x: modeling.dropout(x, 0.5))(x)
    with tf.control_dependencies([y, tf.assign_add(tf.train.get_or_create_global_step(), 1)]):
        tf.set_random_seed(99)
        randomness.set_micro_batch(tf.constant(1))
        slope, = tf.gradients(y, x)
    mask, slope = evaluate([y, slope])
    assert_array_equal(mask, slope)
    assert 0.2 < (mask == 0).mean() < 0.8


def test_a_captured_tensor_or_variable_is_refused(graph):
    x, weight = tf.constant(X), tf.Variable(2.0)
    outer = x * 2
    with pytest.raises(ValueError, match=f"{outer.name} is used.*argument"):
        tf.gradients(recompute_grad(lambda x: x + outer)(x), x)
    with pytest.raises(ValueError, match="is used.*tf.get_variable"):
        tf.gradients(recompute_grad(lambda x: x * weight)(x), x)
    tf.gradients(recompute_grad(lambda x, other: x + other)(x, outer), x)


def test_random_numbers_with_a_state_are_refused(graph):
    with pytest.raises(ValueError, match="RandomUniform.*`randomness.uniform` or `randomness.bernoulli`"):
        x = tf.constant(X)
        tf.gradients(recompute_grad(lambda x: tf.nn.dropout(x, rate=0.5))(x), x)


# --- Memory -------------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="measures what two processes really allocate, at sizes beside which TensorFlow's "
                  "own memory is small")
@pytest.mark.parametrize("modes", ["none,layers", "none+xla,layers+xla"])
def test_memory_of_a_real_step(modes):
    done = run_fresh("benchmarks/recompute.py", "--memory", f"--modes={modes}", "--num_hidden_layers=12",
                     "--hidden_size=128", "--num_attention_heads=4", "--intermediate_size=512",
                     "--vocab_size=100", "--length=128", "--batch=16", cwd=".")
    assert not done.code, done.err
    none, layers = map(float, re.findall(r"activations +(\d+) MiB", done.out))
    assert none > 100
    assert layers < none / 2
