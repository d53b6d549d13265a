"""run_classifier_with_tfhub.py as a user runs it, on a hub module of the tiny model.

The promises in tests/conformance have its trainings, scores and kills.
"""

import hub_modules
import numpy as np
import pytest
from rows import STEPS
import tensorflow.compat.v1 as tf
import tiny

import run_classifier_with_tfhub

ROW = "hub module"


@pytest.fixture(scope="module")
def weights(tiny_model):
    """The weights of the module, {name in the module: array}."""
    return {name: array for name, array in tiny_model.weights.items() if "layer_1" not in name}


def probabilities_in(directory):
    return np.array([line.split("\t") for line in (directory / "test_results.tsv").read_text().splitlines()],
                    float)


# --- A run -----------------------------------------------------------------------------------------------


def test_it_starts_with_the_modules_weights_and_trains_them(trained, weights):
    start, end = (tf.train.load_checkpoint(str(trained.output / f"model.ckpt-{step}"))
                  for step in (0, STEPS))
    for name, array in weights.items():
        np.testing.assert_array_equal(start.get_tensor(f"module/{name}"), array)
        assert not np.array_equal(end.get_tensor(f"module/{name}"), array), name


def test_it_predicts_what_our_model_predicts_with_these_weights(copy, weights):
    reader = tf.train.load_checkpoint(str(copy.output))
    found = {name: reader.get_tensor(f"module/{name}") for name in weights}
    found.update((name, reader.get_tensor(name)) for name in ("output_weights", "output_bias"))
    tiny.write_tensorflow(copy.directory / "plain" / "bert_model.ckpt", found)
    done = copy.run("run_classifier.py", vocab_file="model/vocab.txt", bert_config_file="model/shallow.json",
                    init_checkpoint="plain/bert_model.ckpt", max_seq_length=tiny.SEQ_LENGTH, task_name="mrpc",
                    data_dir="data", do_predict=True, output_dir="ours")
    done.assert_success()
    ours, theirs = probabilities_in(copy.directory / "ours"), probabilities_in(copy.output)
    assert theirs.shape == (6, 2) and np.ptp(theirs[:, 0]) > 1e-4
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)


# --- Its vocabulary and lengths --------------------------------------------------------------------------


def test_published_functions(trained, weights, graph):
    module = str(trained.directory / "module")
    tokenizer = run_classifier_with_tfhub.create_tokenizer_from_hub_module(module)
    assert list(tokenizer.vocab) == tiny.VOCABULARY and tokenizer.tokenize("Cats") == ["cat", "##s"]
    ids = tf.ones([3, 5], tf.int32)
    built = run_classifier_with_tfhub.create_model(True, ids, ids, ids, tf.constant([0, 1, 1]), 2, module)
    assert [tensor.shape.as_list() for tensor in built] == [[], [3], [3, 2], [3, 2]]
    assert len(tf.trainable_variables()) == len(weights) + 2


@pytest.mark.slow(reason="makes another module, and runs with it")
def test_a_module_without_tokenization_info_is_given_a_vocabulary(untrained, tiny_model):
    hub_modules.write(tiny_model, untrained.directory / "other", config=tiny_model.shallow,
                      tokenization_info=False, length=tiny.SEQ_LENGTH)
    given = dict(bert_hub_module_handle="other", do_train=False, do_eval=False)
    done = untrained.train(**given)
    done.assert_refused("the vocabulary of the module is unknown. Pass --vocab_file")
    done = untrained.train(**given, vocab_file="model/vocab.txt")
    done.assert_refused("--output_dir=output contains no checkpoint, and nothing is trained: the answers "
                        "would come from random weights.")
    done = untrained.train(**given, vocab_file="model/vocab.txt", max_seq_length=12)
    done.assert_refused("accepts only sequences of the length 20. Pass --max_seq_length=20")


# --- Errors ----------------------------------------------------------------------------------------------


def clipped(outputs):
    """Returns outputs whose gradient is a Python function of this process."""
    @tf.custom_gradient
    def identity(value):
        return tf.identity(value), lambda gradient: gradient * 2

    return {name: identity(output) for name, output in outputs.items()}


@pytest.mark.parametrize(("alter", "message"), [
    (clipped, "cannot be trained"),
    (lambda outputs: {name: tf.stop_gradient(output) for name, output in outputs.items()},
     "cannot be trained: its pooled_output has no gradient"),
    (lambda outputs: {"vectors": outputs["pooled_output"]},
     "has the outputs vectors, but should have pooled_output"),
], ids=["gradient", "no gradient", "outputs"])
def test_a_module_that_cannot_be_used(untrained, tiny_model, alter, message):
    hub_modules.write(tiny_model, untrained.directory / "other", config=tiny_model.shallow, alter=alter)
    done = untrained.train(bert_hub_module_handle="other")
    done.assert_refused(message)
    assert not untrained.output.exists()


def test_another_modules_output_directory_is_refused(copy, tiny_model):
    hub_modules.write(tiny_model, copy.directory / "other", config=tiny_model.shallow, seed=2,
                      do_lower_case=False)
    done = copy.train(bert_hub_module_handle="other", num_train_epochs=9)
    done.assert_refused("hub_module: ", "Use another --output_dir")
