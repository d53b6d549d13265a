"""Layer-wise decay of the learning rate and frozen layers: updates, slots, norms, gradients and memory."""


from helpers import evaluate, initialize
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.estimator.step_config import StepConfig
import modeling
import optimization

DEPTH = 3
NAMES = ["bert/embeddings/word_embeddings", "bert/embeddings/LayerNorm/beta",
         *(f"bert/encoder/layer_{index}/output/dense/kernel" for index in range(DEPTH)),
         "bert/pooler/dense/kernel", "output_weights"]
CONFIG = {**tiny.CONFIG, "num_hidden_layers": 3}


def build_problem():
    """Returns a loss whose gradient is 2 w, for variables of every depth."""
    variables = [tf.get_variable(name, initializer=np.linspace(0.5, 1.0 + index, 6, dtype=np.float32))
                 for index, name in enumerate(NAMES)]
    return tf.add_n([tf.reduce_sum(variable ** 2) for variable in variables])


def train(steps=3, rate=0.01, **options):
    """Returns {name: value} of all variables after some steps, and the gradient norm of the first step."""
    with tf.Graph().as_default(), tf.Session() as session:
        update = optimization.create_optimizer(build_problem(), rate, 10, 0, False,
                                               StepConfig(**{"clip_norm": 0, **options}))
        norm, = (tensor for tensor in tf.get_collection(optimization.LOGGED_SCALARS)
                 if tensor.op.name == "gradient_norm")
        initialize(session)
        accumulation = tf.get_collection(optimization.GRADIENT_ACCUMULATION)
        norms = []
        for _ in range(steps):
            for _ in range(accumulation[0].num_micro_batches - 1 if accumulation else 0):
                session.run(accumulation[0].accumulate_op)
            norms.append(session.run([norm, update])[0])
        return session.run({variable.op.name: variable for variable in tf.global_variables()}), norms[0]


# --- Decay of the rate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name, index", [
    (NAMES[1], -1), (NAMES[5], None), ("encoder/layer_11/attention/self/query/bias", 11),
    ("module/bert/encoder/layer_0/x", 0), ("word_embeddings/x", None), ("encoder/layer_norm/x", None)])
def test_the_layer_of_a_variable(name, index):
    assert optimization.layer_index(name) == index


@pytest.mark.parametrize("settings", [
    dict(adam_bias_correction=True), dict(compile_kernels=True),  # an op in C++
    dict(optimizer="sgdm", gradient_accumulation_steps=2, precision="fp16")], ids=str)
def test_each_layer_is_updated_as_with_its_own_rate(settings, monkeypatch):
    def trained(rate=0.01, **decay):
        return train(rate=rate, **settings, **decay)[0]

    monkeypatch.setattr(optimization, "_WORTH_ONE_PASS", 1)
    decayed, plain, expected = trained(layer_decay=0.5), trained(), trained(0.01 * 0.5**4)
    for name in NAMES[:2]:
        assert_array_equal(decayed[name], expected[name], err_msg=name)
        assert not np.array_equal(decayed[name], plain[name])
    for name in NAMES[5:]:
        assert_array_equal(decayed[name], plain[name])


# --- Frozen layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("freeze, count, options", [
    (dict(freeze_embeddings=True), 2, dict(optimizer="adamw")),
    (dict(freeze_layers=1), 3, dict(optimizer="lamb", gradient_accumulation_steps=2)),
    (dict(freeze_layers=2, freeze_embeddings=True), 4, dict(precision="fp16"))],
    ids=["embeddings", "1", "2"])
def test_frozen_variables_keep_their_values_and_have_no_slots(freeze, count, options, graph):
    build_problem()
    before = evaluate({variable.op.name: variable for variable in tf.trainable_variables()})
    after, norm = train(**freeze, **options)
    for name in NAMES[:count]:
        assert_array_equal(after[name], before[name])
    trained = {name: before[name].shape for name in NAMES[count:]}
    for name in trained:
        assert not np.array_equal(after[name], before[name])
    slots = optimization.slot_shapes(trained, options.get("optimizer", "adamw"))
    others = {"global_step", *(name for name in after if name.startswith("loss_scale/"))}
    assert set(after) == {*before, *slots} | others
    assert_allclose(norm, np.sqrt(sum((4 * before[name]**2).sum() for name in trained)), rtol=1e-6)


def build_model_without_layers():
    return tf.get_variable("w", initializer=1.0)


WITHOUT_LAYERS = "no variable of this model belongs to a"


@pytest.mark.parametrize("build, options, message", [
    (build_problem, dict(layer_decay=0.0), "layer_decay=0.0: pass a number above 0"),
    (build_problem, dict(layer_decay=float("nan")), "layer_decay=nan: pass a number above 0"),
    (build_problem, dict(freeze_layers=DEPTH), "freeze_layers=3: the model has 3 layers, and at least one"),
    (build_problem, dict(freeze_layers=-1), "freeze_layers=-1: the model has 3 layers"),
    *((build_model_without_layers, options, WITHOUT_LAYERS) for options in (
        dict(layer_decay=0.5), dict(freeze_layers=1), dict(freeze_embeddings=True)))])
def test_values_that_cannot_be_are_refused(build, options, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        optimization.create_optimizer(build(), 0.1, 10, 0, False, StepConfig(**options))


# --- The model -------------------------------------------------------------------------------------------


def gradients_of_model(freeze, **options):
    """Returns {name: gradient} of the variables that are trained, and the ops of the graph."""
    config = modeling.BertConfig.from_dict(CONFIG)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.set_random_seed(3)
        tf.train.get_or_create_global_step()
        ids = tf.constant([[2, 7, 8, 9], [2, 10, 11, 3]])
        model = modeling.BertModel(config, True, ids, step_config=StepConfig(freeze_layers=freeze, **options))
        variables = optimization.trained_variables(tf.trainable_variables(), freeze)
        loss = 1e4 * tf.reduce_sum(model.get_pooled_output() ** 2)
        gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, variables)]
        session.run(tf.global_variables_initializer())
        names = [variable.op.name for variable in variables]
        return dict(zip(names, session.run(gradients))), graph.get_operations()


def test_recomputation_of_a_model_with_frozen_layers_changes_no_gradient():
    freeze = 1
    whole, all_ops = gradients_of_model(0)
    plain, plain_ops = gradients_of_model(freeze)
    recomputed, ops = gradients_of_model(freeze, recompute="layers", recompute_segment=2)
    assert set(plain) == {name for name in whole if not optimization.is_frozen(name, freeze)}
    for name, gradient in plain.items():
        rounding = max(1e-5 * np.abs(gradient).max(), 1e-6)
        for found in (whole, recomputed):  # different dropout masks would change each gradient
            assert_allclose(found[name], gradient, rtol=0, atol=rounding, err_msg=name)

    def products(operations):
        return sum("MatMul" in op.type for op in operations)

    # The backward pass computes the trained layers again, and no other layer.
    _, all_recomputed = gradients_of_model(0, recompute="layers", recompute_segment=2)
    assert products(plain_ops) < products(all_ops)
    assert products(ops) - products(plain_ops) < products(all_recomputed) - products(all_ops)
