"""`import tf1 as tf`: names that TensorFlow 2 removed.

Their results are compared with NumPy or with counting.

test_tf1_estimator.py tests tf.estimator, tf.contrib.tpu, and the code that runs a program. test_forks.py runs
whole programs.
"""

import itertools
import operator
import time

from graphs import names, normal, run
from helpers import read_batches
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tensorflow.compat.v1 as plain

import tf1 as tf

layers = tf.contrib.layers
# --- Dropout ----------------------------------------------------------------------------------------------

DROPOUTS = {
    "rate": lambda x: tf.nn.dropout(x, rate=0.25),
    "placeholder": lambda x: tf.nn.dropout(x, tf.placeholder_with_default(0.75, [])),
    "layers_tensor": lambda x: tf.layers.dropout(x, 0.25, training=tf.placeholder_with_default(True, [])),
    "Layer_apply": lambda x: tf.layers.Dropout(rate=0.25).apply(x, training=tf.constant(True)),
    "keras": lambda x: tf.keras.layers.Dropout(0.25)(x, training=True),
    "contrib": lambda x: layers.dropout(x, 0.75)}


@pytest.mark.parametrize("dropout", DROPOUTS.values(), ids=DROPOUTS)
def test_dropout_depends_on_seed_and_step_alone_and_keeps_the_mean(dropout):
    x = np.full([100, 40], 3.0, np.float32)
    x[0] = np.inf
    first = run(lambda: dropout(tf.constant(x)), step=7)
    kept = first != 0
    assert_array_equal(first[kept], x[kept] / np.float32(0.75))  # fails if a value is NaN
    assert abs(kept.mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / x.size)

    def elsewhere():
        tf.random.uniform([3])  # another op number
        return dropout(tf.constant(x))
    assert_array_equal(run(elsewhere, step=7), first)
    for changed in (run(lambda: dropout(tf.constant(x)), step=8),
                    run(lambda: dropout(tf.constant(x)), step=7, seed=2)):
        assert 0.5 < (kept == (changed != 0)).mean() < 0.75  # 0.625 if the two masks are independent


@pytest.mark.parametrize("build", [
    lambda x: tf.layers.dropout(x), lambda x: tf.layers.Dropout()(x, training=tf.constant(False)),
    lambda x: tf.keras.layers.Dropout(0)(x, training=True), lambda x: tf.nn.dropout(x, 1.0)])
def test_without_dropout_nothing_changes(build):
    x = normal(5, 6)
    assert_array_equal(run(lambda: build(tf.constant(x))), x)


def test_each_dropout_of_a_graph_has_a_mask_of_its_own():
    def build():
        x = tf.ones([300])
        return [tf.nn.dropout(x, 0.5), tf.nn.dropout(x, 0.5), tf.layers.dropout(x, training=True),
                tf.nn.dropout(x, 0.5, seed=1), tf.nn.dropout(x, 0.5, seed=2),
                tf.keras.layers.Dropout(0.5)(x, training=True)]
    masks = run(build)
    for first, second in itertools.combinations(masks, 2):
        assert 0.35 < (first == second).mean() < 0.65


@pytest.mark.parametrize("dropout", [
    lambda x: tf.nn.dropout(x, 0.5, plain.TensorShape([4, 1, 300])),
    lambda x: tf.keras.layers.Dropout(0.5, [None, 1, None])(x, training=True)])
def test_noise_shape_is_broadcast(dropout):
    mask = run(lambda: dropout(tf.ones([4, 5, 300]))) != 0
    assert_array_equal(mask, np.broadcast_to(mask[:, :1], mask.shape))
    assert 0.4 < mask.mean() < 0.6 and not (mask[0] == mask[1]).all()


def test_dropout_in_half_precision_and_its_gradient():
    def build():
        x = tf.constant(np.float16([np.inf, *[1] * 999]))
        outputs = tf.nn.dropout(x, tf.placeholder_with_default(np.float16(0.5), []))
        return outputs, tf.gradients(outputs, x)[0]
    values, gradient = run(build)
    assert values.dtype == np.float16 and set(values[1:]) == {0, 2} and 0.9 < values[1:].mean() < 1.1
    assert_array_equal(gradient, np.where(values != 0, 2, 0))  # also where x is infinite


@pytest.mark.parametrize("arguments", [{}, dict(keep_prob=0.5, rate=0.5), dict(keep_prob=0.0),
                                       dict(rate=-0.1)])
def test_dropout_refuses_what_is_no_probability(graph, arguments):
    with pytest.raises(ValueError, match=r"tf\.nn\.dropout: .*rate"):
        tf.nn.dropout(tf.ones([2]), **arguments)


# --- tf.data ----------------------------------------------------------------------------------------------


def elements(build, seed=1):
    """Calls build() in a new graph, and returns all elements of its dataset."""
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        return read_batches(build().batch(1000))[0].tolist()


SHUFFLES = {"shuffle": lambda data: data.shuffle(30).repeat(3),
            "v2": lambda data: tf.compat.v2.data.Dataset.range(30).shuffle(30).repeat(3),
            "contrib": lambda data: data.apply(tf.contrib.data.shuffle_and_repeat(buffer_size=30, count=3))}


@pytest.mark.parametrize("shuffle", SHUFFLES.values(), ids=SHUFFLES)
def test_an_unseeded_shuffle_depends_on_the_graphs_seed_alone(shuffle):
    def build():
        return shuffle(tf.data.Dataset.range(30))

    def elsewhere():
        tf.random.uniform([3])  # TensorFlow's default seed of an op depends on the ops before it
        return build()
    order = elements(build)
    rounds = np.reshape(order, [3, 30])
    assert_array_equal(np.sort(rounds), np.tile(np.arange(30), [3, 1]))
    assert len({tuple(one) for one in [*rounds, np.arange(30)]}) == 4
    assert elements(elsewhere) == order and elements(build, seed=2) != order
    assert elements(build, seed=None) != elements(build, seed=None)  # as in TensorFlow 1


def test_two_shuffles_of_one_pipeline_differ_and_a_given_seed_counts():
    def pair(seed):
        return lambda: tf.data.Dataset.zip(tuple(
            tf.data.Dataset.range(30).shuffle(30, seed) for _ in range(2))).map(lambda *pair: tf.stack(pair))
    unseeded, seeded, other = (np.transpose(elements(pair(seed))) for seed in (None, 3, 4))
    assert (unseeded[0] != unseeded[1]).any() and (seeded[0] == seeded[1]).all()
    assert (other[0] != seeded[0]).any()


def test_parallel_interleave_is_never_sloppy():
    def numbers(source):
        def slow(number):
            time.sleep(0.1 if number == 0 else 0)
            return number
        return tf.data.Dataset.range(source, source + 3).map(
            lambda number: tf.reshape(tf.py_func(slow, [number], tf.int64), []))
    found = elements(lambda: tf.data.Dataset.range(0, 30, 10).apply(
        tf.contrib.data.parallel_interleave(numbers, 3, sloppy=True)))
    assert found == [0, 10, 20, 1, 11, 21, 2, 12, 22]


@pytest.mark.parametrize("transform, expected", [
    (lambda: tf.contrib.data.batch_and_drop_remainder(2), [[0, 1], [2, 3]]),
    (lambda: tf.contrib.data.map_and_batch(lambda x: x * 10, 2, drop_remainder=True), [[0, 10], [20, 30]]),
    (lambda: lambda data: data.map(lambda x: x[tf.newaxis]).apply(
        tf.contrib.data.padded_batch_and_drop_remainder(2, [2])), [[[0, 0], [1, 0]], [[2, 0], [3, 0]]])])
def test_batching_transformations(transform, expected):
    assert elements(lambda: tf.data.Dataset.range(5).apply(transform())) == expected


# --- contrib.layers ---------------------------------------------------------------------------------------


def normalized(x, axes, epsilon):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize("options, axes, scope", [
    ({}, (1, 2), "LayerNorm"), (dict(begin_norm_axis=2, scope="mine"), 2, "mine"),
    (dict(begin_norm_axis=-1, activation_fn=plain.nn.relu), 2, "LayerNorm")])
def test_layer_norm(options, axes, scope):
    x, gamma, beta = normal(2, 3, 4) * 5 + 2, normal(4), normal(1, 4)[0]
    found = run(lambda: layers.layer_norm(tf.constant(x), **options),
                values={f"{scope}/gamma": gamma, f"{scope}/beta": beta})
    expected = normalized(x.astype(np.float64), axes, 1e-12) * gamma + beta
    assert_allclose(found, np.maximum(expected, 0) if "activation_fn" in options else expected, atol=1e-5)


@pytest.mark.parametrize("shape, mode", [
    ((6, 3), "tensor"), ((2, 5, 3), "forced"), ((2, 2, 2, 3), "collected"), ((2, 5, 3), "inference")])
def test_batch_norm(shape, mode):
    x, (gamma, beta, mean) = normal(*shape), normal(3, 3)
    variance, axes, training = np.float32([1, 2, 3]), tuple(range(len(shape) - 1)), mode != "inference"

    def build():
        outputs = layers.batch_norm(
            tf.constant(x), decay=0.9, scale=True, epsilon=0.01,
            updates_collections=None if mode == "forced" else tf.GraphKeys.UPDATE_OPS,
            is_training=tf.placeholder_with_default(True, []) if mode == "tensor" else training)
        with tf.control_dependencies([outputs, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)]):
            return outputs, *(variable.read_value() for variable in tf.global_variables()[-2:])
    outputs, *moving = run(build, values={f"BatchNorm/{name}": value for name, value in dict(
        gamma=gamma, beta=beta, moving_mean=mean, moving_variance=variance).items()})
    expected = normalized(x, axes, 0.01) if training else (x - mean) / np.sqrt(variance + 0.01)
    assert_allclose(outputs, expected * gamma + beta, atol=1e-5)
    if training:
        mean = 0.9 * mean + 0.1 * x.mean(axes)
        # For 2 and 4 dimensions, TensorFlow 1.15 had a fused kernel. It uses the unbiased variance.
        variance = 0.9 * variance + 0.1 * x.var(axes, ddof=0 if len(shape) == 3 else 1)
    assert_allclose(moving, [mean, variance], atol=1e-5)


def test_batch_norm_refuses_what_it_does_not_do(graph):
    with pytest.raises(ValueError, match=r"renorm is not supported\. Use tf\.layers"):
        layers.batch_norm(tf.ones([2, 3]), renorm=True)


def test_fully_connected_is_a_relu_by_default():
    x, weights, bias = normal(2, 3, 4), normal(4, 5), normal(5)
    values = {"fully_connected/weights": weights, "fully_connected/biases": bias, "linear/weights": weights}
    relu, linear = run(lambda: [
        layers.fully_connected(tf.constant(x), 5),
        layers.fully_connected(tf.constant(x), 5, None, lambda outputs, factor: outputs * factor,
                               dict(factor=2.0), scope="linear")], values=values)
    assert_allclose(relu, np.maximum(x @ weights + bias, 0), atol=1e-5)
    assert_allclose(linear, x @ weights * 2, atol=1e-5)


def test_layers_register_their_variables_and_losses(graph):
    with tf.contrib.framework.arg_scope([layers.fully_connected], biases_initializer=None):
        outputs = layers.fully_connected(
            tf.placeholder(tf.float32, [None, 3]), 5, weights_regularizer=layers.l2_regularizer(0.1),
            variables_collections=["mine"], outputs_collections=["outputs"])
    assert tf.get_collection("outputs") == [outputs] and outputs.shape.as_list() == [None, 5]
    for collection in ("mine", tf.GraphKeys.MODEL_VARIABLES):
        assert names(tf.get_collection(collection)) == ["fully_connected/weights"]
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 1
    assert layers.flatten(tf.placeholder(tf.float32, [None, 3, 4])).shape.as_list() == [None, 12]


# --- contrib.layers.optimize_loss -------------------------------------------------------------------------

# Initial values of the variables w and v, and the learning rate. The default loss is w² / 2 + 2 v.
W, V, RATE = np.float32([1.0, -2.0]), np.float32([3.0]), 0.1


def optimize(*, rate=RATE, optimizer="SGD", times=1, step=0, read=("w", "v"), **options):
    """Takes training steps, and returns the variables."""
    def build():
        w, v = tf.get_variable("w", initializer=W), tf.get_variable("v", initializer=V)
        loss = tf.reduce_sum(tf.square(w)) / 2 + tf.reduce_sum(2 * v)
        trained = layers.optimize_loss(
            loss, None, rate() if callable(rate) else rate, optimizer, **options)
        with tf.control_dependencies([trained]):
            return [variable.read_value() for name in read for variable in tf.global_variables()
                    if variable.op.name == name]
    return run(build, step=step, times=times)


@pytest.mark.parametrize("name, optimizer", [
    ("SGD", plain.train.GradientDescentOptimizer), ("Adam", plain.train.AdamOptimizer),
    ("Momentum", lambda rate: plain.train.MomentumOptimizer(rate, 0.9)),
    ("Adagrad", plain.train.AdagradOptimizer), ("RMSProp", plain.train.RMSPropOptimizer),
    ("Ftrl", plain.train.FtrlOptimizer)])
def test_optimize_loss_with_a_named_optimizer(name, optimizer):
    found, expected = (optimize(optimizer=either, times=2) for either in (name, optimizer))
    for values, theirs, start in zip(found, expected, (W, V)):
        assert_array_equal(values, theirs)
        assert (values != start).all()


@pytest.mark.parametrize("options, factor", [
    (dict(optimizer=plain.train.GradientDescentOptimizer(0.3)), 3),
    (dict(optimizer=lambda rate: plain.train.GradientDescentOptimizer(rate * 2)), 2),
    (dict(optimizer=lambda: plain.train.GradientDescentOptimizer(0.2), rate=None), 2),
    (dict(rate=1), 10),
    (dict(learning_rate_decay_fn=lambda rate, step: rate * tf.cast(step, tf.float32), step=3), 3),
    (dict(gradient_multipliers={"w": 0.5, "v:0": 0.5}), 0.5), (dict(clip_gradients=100.0), 1),
    (dict(clip_gradients=lambda pairs: [(gradient * 4, variable) for gradient, variable in pairs]), 4),
    (dict(gradient_multipliers={"w": 100.0, "v": 100.0}, clip_gradients=0.3), 0.1),
    (dict(summaries=["loss", "learning_rate", "gradients", "gradient_norm", "global_gradient_norm"]), 1)])
def test_optimize_loss_takes_each_kind_of_setting(options, factor):
    w, v = optimize(**options)  # the global norm of the gradient is 3
    assert_allclose(w, W - RATE * factor * W, rtol=1e-5)
    assert_allclose(v, V - RATE * factor * 2, rtol=1e-5)


def test_optimize_loss_trains_what_it_is_told_and_multiplies_by_variable():
    def build():
        w, v = tf.get_variable("w", initializer=W), tf.get_variable("v", initializer=V)
        update = tf.get_variable("update", initializer=0.0).assign_add(1.0)
        tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, update)
        loss = layers.optimize_loss(tf.reduce_sum(w * v), None, 0.1, "SGD", variables=[w],
                                    gradient_multipliers={w: 2.0}, increment_global_step=False, name="mine")
        with tf.control_dependencies([loss]):
            return loss, *(variable.read_value() for variable in tf.global_variables())
    loss, step, w, v, updated, rate = run(build, step=4)
    assert_allclose([loss, rate, *w], [-3, 0.1, *(W - 0.1 * 2 * 3)], rtol=1e-6)
    assert v == V and step == 4 and updated == 1
    assert optimize(read=["global_step"], times=3, step=5) == [8]


@pytest.mark.parametrize("options, message", [
    (dict(optimizer="Adamax"), "unknown optimizer 'Adamax'; the known names are"),
    (dict(variables=[]), "depends on no trainable variable|No variables")])
def test_optimize_loss_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        optimize(**options)


# --- contrib.crf ------------------------------------------------------------------------------------------

N = 3


@pytest.mark.parametrize("lengths, is_open", [([1, 2, 4], True), ([1, 3, 4], False)])
def test_functions_of_crf_agree(lengths, is_open):
    """tests/tasks/test_tagging.py compares the likelihood and the best tags with all sequences of tags."""
    crf = tf.contrib.crf
    scores, transitions = normal(3, 4, N), normal(N, N)
    own = np.random.RandomState(1).randint(N, size=[3, 4]).astype(np.int64 if is_open else np.int32)

    def build():
        # If the case is open, the shapes are unknown, and the function makes the variable of the transitions.
        inputs = tf.placeholder_with_default(scores, [None, None, N]) if is_open else tf.constant(scores)
        likelihood, used = crf.crf_log_likelihood(inputs, own, lengths,
                                                  None if is_open else tf.constant(transitions))
        assert names(tf.trainable_variables()) == ["transitions"] * is_open
        tags, best = crf.crf_decode(inputs, used, tf.constant(lengths, tf.int64))
        return (likelihood, crf.crf_sequence_score(inputs, own, lengths, used),
                crf.crf_log_norm(inputs, lengths, used), tags, best,
                crf.crf_unary_score(tags, lengths, inputs) + crf.crf_binary_score(tags, lengths, used))
    likelihood, score, log_norm, tags, best, parts = run(build, values={"transitions": transitions})
    assert_allclose(likelihood, score - log_norm, rtol=1e-4)
    assert_allclose([score[0], log_norm[0]], [scores[0, 0, own[0, 0]], np.log(np.exp(scores[0, 0]).sum())],
                    rtol=1e-5)  # the first sequence has one position
    assert_allclose(best, parts, rtol=1e-5)
    for row, length in enumerate(lengths):
        path, score = crf.viterbi_decode(scores[row, :length], transitions)
        assert tags[row].tolist() == path + [0] * (4 - length)
        assert_allclose(score, best[row], rtol=1e-5)


def test_a_sequence_without_positions_has_the_norm_one():
    def build():
        inputs = tf.constant(normal(2, 4, N))
        log_norm = tf.contrib.crf.crf_log_norm(inputs, [0, 4], tf.constant(normal(N, N)))
        return log_norm, tf.gradients(log_norm, inputs)[0]
    found, gradient = run(build)
    assert found[0] == 0 and np.isfinite(gradient).all() and not gradient[0].any()


# --- contrib.seq2seq, contrib.rnn, tf.layers --------------------------------------------------------------


def flat_cross_entropy(labels, logits):
    """A loss function that needs the shapes of TF 1: labels [B · T] and logits [B · T, N]."""
    return -tf.reduce_sum(tf.one_hot(labels, logits.shape[1].value, axis=1) * tf.nn.log_softmax(logits),
                          axis=1)


@pytest.mark.parametrize("over_time, over_batch, function", [
    (True, True, None), (True, False, None), (False, True, flat_cross_entropy), (False, False, None)])
def test_sequence_loss(over_time, over_batch, function):
    logits, targets = normal(2, 3, 4), np.array([[0, 3, 1], [2, 2, 0]])
    weights = np.float32([[1, 1, 0], [1, 0.5, 0.25]])
    odds = np.exp(logits)
    losses = -np.log(np.take_along_axis(odds, targets[..., None], 2)[..., 0] / odds.sum(2)) * weights
    axes = (0,) * over_batch + (1,) * over_time
    expected = losses.sum(axes) / weights.sum(axes) if axes else losses
    found = run(lambda: tf.contrib.seq2seq.sequence_loss(
        *map(tf.constant, (logits, targets, weights)), over_time, over_batch, function))
    assert_allclose(found, expected, rtol=1e-5)


# --- Names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, message", [
    ("contrib.no_such_module.name", "tf.contrib.no_such_module: tf.contrib is gone. tf1 has neither a part "
                                    "of this"),
    ("estimator.DNNRegressor", "Write a model_fn"), ("estimator.export.nothing", "not provided"),
    ("nn.no_such_op", "tf.nn has no attribute"), ("no_such_name", "no attribute"),
    ("mul", "tf.mul: .* Use `tf.multiply`"),
    ("train.SummaryWriter", "tf.train.SummaryWriter: .* Use `tf.summary.FileWriter`"),
    ("autodiff", "tf.autodiff: .* TensorFlow 2. Use `tf.compat.v2.autodiff`")])
def test_a_missing_name_is_an_attribute_error(name, message):
    with pytest.raises(AttributeError, match=message):
        operator.attrgetter(name)(tf)
