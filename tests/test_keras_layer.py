"""`bertlib.keras` in programs of users: in eager mode, with Keras 3 and with tf_keras."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.graph import randomness
import modeling

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOW = pytest.mark.slow(reason="trains several models, in two processes")
INPUTS = ("input_ids", "input_mask", "segment_ids")
OUTPUTS = ("sequence_output", "pooled_output")


PROGRAM = ROOT / "tests" / "keras_program.py"


def run_program(legacy, output, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": str(int(legacy)),
                   "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, encoding="utf-8",
                          env=environment, cwd=output)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=[
    pytest.param((False, False), id="keras 3"),
    pytest.param((True, True), id="tf_keras, Hugging Face", marks=pytest.mark.slow(
        reason="the same program with the other Keras and another format"))])
def program(request, tiny_model, tmp_path_factory):
    """(output of tests/keras_program.py, its output directory, path of the model's configuration)."""
    legacy, hugging_face = request.param
    model = tiny_model.hugging_face if hugging_face else tiny_model.directory
    output = tmp_path_factory.mktemp("keras")
    found = run_program(legacy, output, PROGRAM, model, output, "train")
    assert ("tf_keras.api" in found["keras"]) == legacy
    # "gelu" is a different function in the configuration of a Hugging Face model.
    return found, output, model / "config.json" if hugging_face else tiny_model.config


@pytest.fixture(scope="module", params=[False, True], ids=["keras 3", "tf_keras"])
def more(request, tiny_model, tmp_path_factory):
    """The output of the slow part of tests/keras_program.py, with its output directory and the Keras."""
    output = tmp_path_factory.mktemp("more")
    found = run_program(request.param, output, PROGRAM, tiny_model.directory, output, "more")
    return {**found, "output": output, "legacy": request.param}


def outputs_and_gradients(checkpoint, config, inputs, training):
    """The arrays that the function of the same name in tests/keras_program.py returns, in graph mode."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        graph.seed = randomness.DEFAULT_SEED
        step = tf.train.create_global_step()
        model = modeling.BertModel(
            modeling.BertConfig.from_json_file(str(config)), training,
            *(tf.constant(inputs[name], tf.int32) for name in INPUTS))
        outputs = dict(zip(OUTPUTS, (model.get_sequence_output(), model.get_pooled_output())))
        loss = tf.reduce_sum(outputs["pooled_output"]) + tf.reduce_sum(outputs["sequence_output"][..., 0])
        weights = tf.trainable_variables()
        gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, weights)]
        session.run(step.initializer)
        session.run(step.assign(int(training)))  # the first training call
        tf.train.Saver(weights).restore(session, str(checkpoint))
        return session.run({**outputs, **{weight.op.name: gradient
                                          for weight, gradient in zip(weights, gradients)}})


def check_close(actual, expected):
    """Checks that arrays are close, relative to the largest value in each array.

    The gradient of a key bias is zero in theory. So its tolerance is relative to the gradient of the key
    kernel.
    """
    assert set(actual) == set(expected)
    for name, value in expected.items():
        scale = np.abs(expected[name.replace("key/bias", "key/kernel")]).max()
        # The products of oneDNN round differently in each process. Twelve runs on CPUs with AVX2 and AVX-512
        # differed by up to 2.4e-6 (outputs) and 3.4e-5 (gradients); without oneDNN, by at most 1.2e-6.
        tolerance = 2e-5 if name in OUTPUTS else 2e-4
        assert np.abs(actual[name] - value).max() <= tolerance * scale, name


@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients_are_those_of_bert_model(program, tiny_model, training):
    found, output, config = program
    expected = outputs_and_gradients(tiny_model.checkpoint, config, np.load(output / "inputs.npz"), training)
    check_close(dict(np.load(output / f"outputs_{training}.npz")), expected)
    assert found["inference"] == 0


def test_keras_knows_each_weight_once_and_trains_all(program, tiny_model):
    found, *_ = program
    count = len(tiny_model.weights)
    # The only other weight counts the training calls. It is the last one in the list.
    assert (found["trainable"], found["weights"], found["moved"]) == (count, count + 1, count + 1)
    assert np.isfinite(found["losses"]).all()
    assert found["moved_frozen"] == [count] and found["trainable_frozen"] == 0


def test_each_training_call_draws_other_dropout_masks(program):
    assert program[0]["dropout"] > 1e-3


@SLOW
def test_the_layer_follows_the_policy_of_mixed_precision(more, tiny_model):
    mixed = more["mixed"]
    assert 1e-5 < mixed["difference"] < 0.3 and mixed["finite"]  # the tiny model's weights are large
    assert (mixed["dtypes"], mixed["restored"]) == (["float32"], "bfloat16")
    assert mixed["weights"] == ["float32", "int64"] and mixed["moved"] == len(tiny_model.weights) + 1


@SLOW
def test_two_replicas_train_like_one(more, tiny_model):
    replicas = more["replicas"]
    # All weights have moved, perhaps except for the two key biases: their gradients are zero in theory.
    assert replicas["moved"] >= len(tiny_model.weights) + 1 - 2 and replicas["step"] == 2
    assert replicas["difference"] < 1e-4


@SLOW
def test_saved_models_answer_in_a_new_process(more, tiny_model):
    loaded = run_program(more["legacy"], more["output"], PROGRAM, "unused", more["output"], "load")
    assert set(loaded["differences"]) == {"keras", "saved", "exported"}
    # Outputs of different processes can differ; see `check_close`. On a busy AMD CPU, 2.7e-6 was seen.
    assert max(loaded["differences"].values()) < 2e-5
    assert loaded["weights"] == loaded["moved"] == len(tiny_model.weights) + 3  # counter, head


def test_saved_weights_are_a_published_checkpoint(program, tiny_model):
    found, output, _ = program
    assert found["again"] == 0 and found["second layer"] > 1e-3
    directory = output / "checkpoint"
    assert sorted(path.name for path in directory.iterdir()) == [
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index",
        "tokenizer_config.json", "vocab.txt"]
    assert json.loads((directory / "tokenizer_config.json").read_text()) == {
        "do_lower_case": True, "strip_accents": False}
    saved = dict(tf.train.list_variables(str(directory / "bert_model.ckpt")))
    assert {name: tuple(shape) for name, shape in saved.items()} == {
        name: value.shape for name, value in tiny_model.weights.items()}
    expected = outputs_and_gradients(directory / "bert_model.ckpt", directory / "bert_config.json",
                                     np.load(output / "inputs.npz"), False)
    check_close(dict(np.load(output / "trained.npz")), expected)


def test_a_checkpoint_may_lack_the_pooler(program):
    differences = program[0]["without pooler"]
    assert differences["sequence_output"] == 0 and differences["pooled_output"] > 1e-3


def test_nothing_is_saved_beside_files_that_commands_would_use_instead(program):
    found, output, _ = program
    beside = dict(found["beside"])
    assert beside.pop("ckpt-3.index") is None  # another checkpoint of Keras: no error
    assert (output / "ckpt-3.index_and_more" / "bert_model.ckpt.index").exists()
    for name, (message, files) in beside.items():
        assert f"{name}_and_more contains {name}. Commands would use these" in message and files == [name]


# The errors of `run_bad_inputs` and `run_bad_settings` in tests/keras_program.py.
BAD_INPUTS = [
    "The inputs of BertEncoder are input_ids, and optionally input_mask and segment_ids",
    "input_ids must have the shape [batch, length]",
    "The sequences in input_ids must have 1 to max_position_embeddings=40 ids. Truncate",
    "segment_ids contains a number that is not in the range 0 to 1.",
    "input_mask must have the shape of input_ids.",
    "input_ids has the dtype float64. Pass integers.",
    "input_ids contains a number that is not in the range 0 to 50.",
    "The sequences in input_ids must have 1 to max_position_embeddings=40 ids. Truncate",
    "input_ids contains a number that is not in the range 0 to 50."]
BAD_SETTINGS = [
    "FileNotFoundError: The directory ", "ValueError: The configuration is not usable: vocab_size is None",
    "ValueError: The configuration is not usable: It is None",
    "ValueError: BertEncoder cannot compute in float16 with weights in float32. Pass dtype="]


def test_errors_say_what_to_do(program):
    found, *_ = program
    assert len(found["inputs"]) == len(BAD_INPUTS) and len(found["settings"]) == len(BAD_SETTINGS)
    for error, expected in zip(found["inputs"] + found["settings"], BAD_INPUTS + BAD_SETTINGS):
        assert expected in error
    assert found["eager"] and found["eager_at_the_end"]
