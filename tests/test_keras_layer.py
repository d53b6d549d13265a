"""`bertlib.keras` in programs of users: with Keras 3 and with tf_keras, eager execution on."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import modeling

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_program(model, output, legacy):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": str(int(legacy)),
                   "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, ROOT / "tests" / "keras_program.py", model, output],
                          capture_output=True, encoding="utf-8", env=environment, cwd=output)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), output


@pytest.fixture(scope="module", params=[
    pytest.param((False, False), id="keras 3"),
    pytest.param((True, True), id="tf_keras, Hugging Face", marks=pytest.mark.slow(
        reason="the same program with the other Keras and another format"))])
def program(request, tiny_model, tmp_path_factory):
    """What tests/keras_program.py found, and its output directory."""
    legacy, hugging_face = request.param
    model = tiny_model.hugging_face if hugging_face else tiny_model.directory
    found, output = run_program(model, tmp_path_factory.mktemp("keras"), legacy)
    assert ("tf_keras.api" in found["keras"]) == legacy
    return found, output


def outputs_of_bert_model(checkpoint, config, inputs):
    with tf.Graph().as_default(), tf.Session() as session:
        model = modeling.BertModel(
            modeling.BertConfig.from_json_file(str(config)), False, *(
                tf.constant(inputs[name], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")))
        tf.train.Saver(tf.trainable_variables()).restore(session, str(checkpoint))
        return session.run({"sequence_output": model.get_sequence_output(),
                            "pooled_output": model.get_pooled_output()})


def test_the_layer_computes_the_vectors_of_bert_model(program, tiny_model):
    found, output = program
    arrays = np.load(output / "outputs.npz")
    # "gelu" is a different function in the configuration of a Hugging Face model.
    legacy = "tf_keras.api" in found["keras"]
    config = tiny_model.hugging_face / "config.json" if legacy else tiny_model.config
    expected = outputs_of_bert_model(tiny_model.checkpoint, config, arrays)
    for name, value in expected.items():  # the tiny model's large weights amplify rounding
        np.testing.assert_allclose(arrays[name], value, rtol=0, atol=2e-5)
    assert found["inference"] == 0


def test_keras_knows_each_weight_once_and_trains_all(program, tiny_model):
    found, _ = program
    count = len(tiny_model.weights)
    # The only other weight counts the calls of the training.
    assert (found["trainable"], found["weights"]) == (count, count + 1)
    assert found["gradients"] == count and found["moved"] == count + 1
    assert np.isfinite(found["losses"]).all()
    assert [name.rpartition("/")[2].removesuffix(":0") for name in found["moved_frozen"]] == ["global_step"]


def test_each_training_call_draws_other_dropout_masks(program):
    first, second = program[0]["dropout"]
    assert not np.array_equal(first, second)


def test_a_saved_model_answers_like_the_model(program):
    found, _ = program
    assert found["loaded"] == 0 and len(found["signature"]) == 3


def test_saved_weights_are_a_published_checkpoint(program, tiny_model):
    found, output = program
    assert found["again"] == 0
    directory = output / "checkpoint"
    assert sorted(path.name for path in directory.iterdir()) == [
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "vocab.txt"]
    # The weights were trained, so they differ from the first ones.
    saved = dict(tf.train.list_variables(str(directory / "bert_model.ckpt")))
    assert {name: tuple(shape) for name, shape in saved.items()} == {
        name: value.shape for name, value in tiny_model.weights.items()}
    arrays = np.load(output / "outputs.npz")
    trained = outputs_of_bert_model(directory / "bert_model.ckpt", directory / "bert_config.json", arrays)
    assert np.abs(trained["pooled_output"] - arrays["pooled_output"]).max() > 1e-3


@pytest.mark.slow(reason="a whole training, for what the names and shapes of the checkpoint show")
def test_a_command_trains_from_saved_weights(program, scripts, tiny_model, tmp_path):
    _, output = program
    done = scripts.run("run_classifier.py", "--task_name=MRPC", "--do_train=true", "--max_seq_length=20",
                       "--num_train_epochs=0.1", f"--init_checkpoint={output}/checkpoint/bert_model.ckpt",
                       f"--bert_config_file={output}/checkpoint/bert_config.json",
                       f"--vocab_file={output}/checkpoint/vocab.txt", f"--output_dir={tmp_path}/output",
                       cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"{len(tiny_model.weights)} of {len(tiny_model.weights) + 2} variables" in done.err, done.err


def test_errors_name_the_argument(program):
    found, _ = program
    inputs, missing, precision = found["errors"]
    assert "The inputs of BertEncoder are input_ids, and optionally input_mask and segment_ids" in inputs
    assert missing.startswith("FileNotFoundError: There is no ") and "config_file" in missing
    assert precision.startswith("ValueError: precision='fp8'")
    assert found["eager"] and found["eager_at_the_end"]
