"""The encoder against the recording of the published code, and each layer against NumPy."""

import json
import math

from helpers import Recording, evaluate
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
import pytest
import tensorflow.compat.v1 as tf
import tiny

import modeling

pytestmark = pytest.mark.usefixtures("graph")

TINY = dict(vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
            max_position_embeddings=6, type_vocab_size=2)


def random(*shape):
    return np.random.RandomState(len(shape)).standard_normal(shape).astype(np.float32)


# --- The recording of the published code --------------------------------------------------------------------


@pytest.fixture(scope="module", params=["gelu", "relu"])
def replay(request):
    """(recording, {"out/…" or "grad/…": the same array computed here}, {name of a variable: shape})."""
    recording = Recording(request.param)
    with tf.Graph().as_default(), tf.Session() as session:
        model = recording.build_model()
        logits, loss = recording.build_loss(model)
        variables = tf.trainable_variables()
        tensors = {f"out/layer_{index}": layer for index, layer in enumerate(model.get_all_encoder_layers())}
        tensors.update({
            "out/embedding_output": model.get_embedding_output(),
            "out/sequence_output": model.get_sequence_output(),
            "out/pooled_output": model.get_pooled_output(), "out/logits": logits, "out/loss": loss})
        tensors.update({f"grad/{variable.op.name}": tf.convert_to_tensor(gradient)
                        for variable, gradient in zip(variables, tf.gradients(loss, variables))})
        recording.load_weights(session)
        shapes = {variable.op.name: tuple(variable.shape.as_list()) for variable in variables}
        return recording, session.run(tensors), shapes


def test_activations_pooled_output_logits_and_loss_are_the_recorded_ones(replay):
    recording, computed, _ = replay
    recorded = recording.group("out")
    del recorded["losses"]  # losses of a training, see test_optimization.py
    assert len(recorded) == recording.config.num_hidden_layers + 5
    for name, values in recorded.items():
        assert_allclose(computed[f"out/{name}"], values, rtol=0, atol=1e-5, err_msg=name)


def test_gradients_are_the_recorded_ones(replay):
    recording, computed, _ = replay
    recorded = recording.group("grad")
    assert {f"grad/{name}" for name in recorded} == {name for name in computed if name.startswith("grad/")}
    for name, values in recorded.items():
        tolerance = 1e-5 * np.abs(values).max()
        if name.endswith("/self/key/bias"):
            # A key bias adds the same number q·b to all scores of a query, and the softmax cancels it. So the
            # gradient is zero in theory. The recorded values of about 1e-11 are rounding errors, and they
            # change with the order of additions.
            tolerance = 1e-9
        assert_allclose(computed[f"grad/{name}"], values, rtol=0, atol=tolerance, err_msg=name)


def test_variable_shapes_tells_a_models_variables_without_building_it(replay):
    recording, _, shapes = replay
    encoder = {name: shape for name, shape in shapes.items() if name.startswith("bert/")}
    assert modeling.variable_shapes(recording.config) == encoder
    renamed = modeling.variable_shapes(recording.config, scope="teacher/bert")
    assert renamed == {f"teacher/{name}": shape for name, shape in encoder.items()}


def test_one_hot_embeddings_give_the_recorded_activations_too(session):
    recording = Recording("relu")
    model = recording.build_model(use_one_hot_embeddings=True)
    recording.load_weights(session)
    assert_allclose(session.run(model.get_sequence_output()),
                    recording.arrays["out/sequence_output"], rtol=0, atol=1e-5)


def test_batch_and_length_may_be_unknown_when_the_graph_is_built(session):
    recording = Recording("relu")
    inputs = [tf.placeholder(tf.int32, [None, None]) for _ in recording.inputs]
    model = modeling.BertModel(recording.config, True, *inputs)
    recording.load_weights(session)
    feed = dict(zip(inputs, recording.inputs))
    assert_allclose(session.run(model.get_pooled_output(), feed),
                    recording.arrays["out/pooled_output"], rtol=0, atol=1e-5)
    too_long = np.ones([1, recording.config.max_position_embeddings + 1], np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(model.get_pooled_output(), dict.fromkeys(inputs, too_long))


# --- BertModel ----------------------------------------------------------------------------------------------


def tiny_model(ids, is_training=False, config=None, **options):
    return modeling.BertModel(config or modeling.BertConfig(**TINY), is_training, tf.constant(ids, tf.int32),
                              **options)


def test_without_training_dropout_is_off_and_by_default_all_tokens_are_of_the_first_segment():
    config = modeling.BertConfig(**TINY, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    before, first_segment = config.to_dict(), {"token_type_ids": tf.zeros([1, 3], tf.int32)}
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        models = [tiny_model([[1, 2, 3]], is_training, config, scope="bert", **options)
                  for is_training, options in ((False, {}), (False, first_segment), (True, {}))]
    a, b, training = evaluate([model.get_sequence_output() for model in models])
    assert_array_equal(a, b)
    assert np.abs(a - training).max() > 1e-2
    assert config.to_dict() == before


def test_a_second_model_without_a_scope_gets_its_own_weights():
    tiny_model([[1, 2]])
    tiny_model([[1, 2]])
    names = [variable.op.name for variable in tf.trainable_variables()]
    shapes = modeling.variable_shapes(modeling.BertConfig(**TINY))
    assert set(names) == set(shapes) | {name.replace("bert/", "bert_1/", 1) for name in shapes}


# --- BertConfig ---------------------------------------------------------------------------------------------


def test_unknown_keys_of_a_config_are_kept():
    # Some published models have such keys, for example the multilingual models.
    published = {"vocab_size": 5, "hidden_size": 4, "directionality": "bidi", "pooler_fc_size": 768}
    config = modeling.BertConfig.from_dict(published)
    assert config.directionality == "bidi"
    assert json.loads(config.to_json_string()).items() >= published.items()
    assert config.num_attention_heads == 12  # a missing key has its default


@pytest.mark.parametrize("theirs, ours",
                         [("gelu", "gelu_erf"), ("gelu_new", "gelu"), ("gelu_pytorch_tanh", "gelu"),
                          ("relu", "relu")])
def test_hugging_faces_activation_names_are_translated(theirs, ours):
    for mark in ({"model_type": "bert"}, {"transformers_version": "4.8.2"}):
        assert modeling.BertConfig.from_dict({"vocab_size": 5, "hidden_act": theirs,
                                              **mark}).hidden_act == ours


def test_a_config_json_of_safetensors_weights_is_hugging_faces(tmp_path):
    # Old models of Hugging Face have no "model_type".
    for name in ("config.json", "bert_config.json"):
        (tmp_path / name).write_text(json.dumps({"vocab_size": 5, "hidden_act": "gelu"}))
    assert modeling.BertConfig.from_json_file(tmp_path / "config.json").hidden_act == "gelu"
    (tmp_path / "model.safetensors").touch()
    assert modeling.BertConfig.from_json_file(tmp_path / "config.json").hidden_act == "gelu_erf"
    assert modeling.BertConfig.from_json_file(tmp_path / "bert_config.json").hidden_act == "gelu"


# --- Activations, normalization, dropout --------------------------------------------------------------------


@pytest.mark.parametrize("name, activation", [
    ("gelu", modeling.gelu), ("GELU", modeling.gelu), ("gelu_erf", modeling.gelu_erf), ("relu", tf.nn.relu),
    ("tanh", tf.tanh), ("linear", None), ("", None), (None, None), (tf.nn.elu, tf.nn.elu)])
def test_get_activation_knows_the_published_names(name, activation):
    assert modeling.get_activation(name) is activation


# --- Attention ----------------------------------------------------------------------------------------------


FROM, TO = random(2, 3, 6), random(2, 5, 4)
MASK = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]])


def test_attention_between_two_sequences_is_the_papers():
    """Compares attention with two heads of 4 numbers from `FROM` to `TO` with the formula of the paper."""
    layer = modeling.attention_layer(
        tf.constant(FROM), tf.constant(TO), tf.constant(np.repeat(MASK[:, None, :], 3, axis=1)), 2, 4,
        tf.tanh, tf.sin, tf.nn.relu, initializer_range=1.0)
    output, weights = evaluate([layer, {variable.op.name: variable for variable in tf.trainable_variables()}])
    assert {name: array.shape for name, array in weights.items()} == {
        "query/kernel": (6, 8), "key/kernel": (4, 8), "value/kernel": (4, 8),
        "query/bias": (8,), "key/bias": (8,), "value/bias": (8,)}
    query, key, value = [act(x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]).reshape(2, -1, 2, 4)
                         for x, name, act in ((FROM, "query", np.tanh), (TO, "key", np.sin),
                                              (TO, "value", lambda x: np.maximum(x, 0)))]
    powers = np.exp(np.einsum("bfnh,btnh->bnft", query, key) / math.sqrt(4)) * MASK[:, None, None]
    expected = np.einsum("bnft,btnh->bfnh", powers / powers.sum(-1, keepdims=True), value).reshape(2, 3, 8)
    assert_allclose(output, expected, rtol=0, atol=1e-5)


# --- Shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build, message", [
    (lambda: tiny_model([[1] * 7]), "7.*max_position_embeddings=6"),
    (lambda: tiny_model([[1]], config=modeling.BertConfig(**{**TINY, "num_attention_heads": 3})),
     "hidden_size=8.*num_attention_heads=3"),
    (lambda: tiny_model([1, 2]), "rank 1"),
    (lambda: modeling.embedding_postprocessor(tf.zeros([1, 2, 4]), use_token_type=True), "token_type_ids"),
    (lambda: modeling.attention_layer(tf.zeros([6, 6]), tf.zeros([6, 6]), batch_size=2, from_seq_length=3),
     "batch_size, from_seq_length and to_seq_length"),
    (lambda: modeling.attention_layer(tf.constant(FROM), tf.zeros([6, 6])), "rank 3.*2"),
    (lambda: modeling.transformer_model(tf.constant(FROM), hidden_size=8, num_attention_heads=2),
     "is 6, and hidden_size is 8"),
    (lambda: modeling.reshape_to_matrix(tf.zeros([3])), "at least 2"),
    (lambda: modeling.get_activation("swish"), "'swish'.*gelu, gelu_erf, linear, relu, tanh")])
def test_what_cannot_be_built_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


# --- Starting weights ---------------------------------------------------------------------------------------


def test_assignment_map_matches_by_name_and_init_from_checkpoint_takes_it(tmp_path):
    prefix = str(tiny.write_tensorflow(tmp_path / "model.ckpt", {
        "bert/kept": np.float32([1, 2]), "bert/not_in_the_model": np.float32(3)}))
    kept = tf.get_variable("bert/kept", initializer=[0.0, 0.0])
    new = tf.get_variable("output_bias", initializer=[0.0])
    assignments, names = modeling.get_assignment_map_from_checkpoint([kept, new], prefix)
    assert list(assignments) == ["bert/kept"]
    assert dict(names) == {"bert/kept": 1, "bert/kept:0": 1}
    tf.train.init_from_checkpoint(prefix, assignments)
    assert_array_equal(evaluate(kept), [1.0, 2.0])
