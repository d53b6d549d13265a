"""run_classifier_with_tfhub.py as a user runs it, on a hub module of the tiny model."""

import csv
import re
import shutil

import hub_modules
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

import run_classifier_with_tfhub

SCRIPT = "run_classifier_with_tfhub.py"
SAVE_STEPS, LAST_STEP = 2, 6
TEST_SIZE = 10


@pytest.fixture(scope="module")
def module(tiny_model, tmp_path_factory):
    return hub_modules.write(tiny_model, tmp_path_factory.mktemp("hub") / "module", config=tiny_model.shallow)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tiny.write_task(tmp_path_factory.mktemp("mrpc"), "mrpc", train=8, dev=6, test=TEST_SIZE)


@pytest.fixture(scope="module")
def flags(module, data):
    def build(**changes):
        values = dict(bert_hub_module_handle=module, task_name="MRPC", data_dir=data, train_batch_size=4,
                      max_seq_length=tiny.SEQ_LENGTH, save_checkpoints_steps=SAVE_STEPS, learning_rate=0.003)
        changed = {**values, **changes}
        return tiny.flags(**{name: value for name, value in changed.items() if value is not None})
    return build


@pytest.fixture(scope="module")
def output(scripts, flags, tmp_path_factory):
    """The output directory of a whole run."""
    directory = tmp_path_factory.mktemp("output")
    done = scripts.run(SCRIPT, *flags(output_dir=directory, do_train=True, do_eval=True, do_predict=True),
                       cwd=directory)
    assert done.code == 0, done.err
    return directory


@pytest.fixture(scope="module")
def weights(tiny_model):
    """The weights of the module, {name in the module: array}."""
    return {name: array for name, array in tiny_model.weights.items() if "layer_1" not in name}


def tensors_of(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def metrics_in(path):
    return dict(line.split(" = ") for line in path.read_text().splitlines())


def probabilities_in(path):
    return np.array([line.split("\t") for line in path.read_text().splitlines()], float)


# --- A run -----------------------------------------------------------------------------------------------


def test_it_starts_with_the_modules_weights_and_trains_them(output, weights):
    start, end = (tensors_of(output / f"model.ckpt-{step}") for step in (0, LAST_STEP))
    for name, array in weights.items():
        np.testing.assert_array_equal(start[f"module/{name}"], array)
        assert not np.array_equal(end[f"module/{name}"], array), name


def test_the_directory_says_what_it_predicts(output, tiny_model):
    assert (output / "labels.txt").read_text() == "0\n1\n" and not (output / "bert_config.json").exists()
    assert (output / "vocab.txt").read_bytes() == tiny_model.vocab.read_bytes()


def test_it_predicts_what_our_model_predicts_with_these_weights(output, scripts, tiny_model, weights, data,
                                                                tmp_path):
    found = tensors_of(output / f"model.ckpt-{LAST_STEP}")
    trained = {name: found[f"module/{name}"] for name in weights}
    trained.update((name, found[name]) for name in ("output_weights", "output_bias"))
    checkpoint = tiny.write_tensorflow(tmp_path / "trained" / "bert_model.ckpt", trained)
    given = {**tiny_model.flags, "bert_config_file": tiny_model.shallow, "init_checkpoint": checkpoint}
    done = scripts.run("run_classifier.py", *tiny.flags(
        **given, task_name="mrpc", data_dir=data, do_predict=True, output_dir=tmp_path / "out"), cwd=tmp_path)
    assert done.code == 0, done.err
    ours, theirs = (probabilities_in(directory / "test_results.tsv")
                    for directory in (tmp_path / "out", output))
    assert theirs.shape == (TEST_SIZE, 2) and np.ptp(theirs[:, 0]) > 1e-3
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)


def test_it_evaluates_what_it_predicts(output):
    probabilities = probabilities_in(output / "test_results.tsv")
    labels = np.arange(TEST_SIZE) % 2  # see tiny.write_task
    found = metrics_in(output / "test_eval_results.txt")
    np.testing.assert_allclose(float(found["eval_accuracy"]), (probabilities.argmax(1) == labels).mean())
    loss = -np.log(probabilities[np.arange(TEST_SIZE), labels]).mean()
    np.testing.assert_allclose(float(found["eval_loss"]), loss, rtol=1e-4)
    assert metrics_in(output / "eval_results.txt")["global_step"] == str(LAST_STEP)
    named = (output / "test_predictions.tsv").read_text().splitlines()
    assert named == ["index\tprediction", *(f"{index}\t{label}" for index, label
                                            in enumerate(probabilities.argmax(1)))]


@pytest.mark.soak(reason="simulates training steps, as test_run_classifier.py does")
def test_micro_batches_are_found_by_simulation(scripts, flags, tmp_path):
    done = scripts.run(SCRIPT, *flags(output_dir=tmp_path, do_train=True, num_train_epochs=0.5,
                                      gradient_accumulation_steps=0, memory_limit_gb=0.00018), cwd=tmp_path)
    assert done.code == 0, done.err
    assert re.search(r"--gradient_accumulation_steps=[24]: a micro-batch of [12] needs", done.err)


# --- Its vocabulary and lengths --------------------------------------------------------------------------


def test_published_functions(module, weights, graph):
    tokenizer = run_classifier_with_tfhub.create_tokenizer_from_hub_module(str(module))
    assert list(tokenizer.vocab) == tiny.VOCABULARY and tokenizer.tokenize("Cats") == ["cat", "##s"]
    ids = tf.ones([3, 5], tf.int32)
    built = run_classifier_with_tfhub.create_model(True, ids, ids, ids, tf.constant([0, 1, 1]), 2,
                                                   str(module))
    assert [tensor.shape.as_list() for tensor in built] == [[], [3], [3, 2], [3, 2]]
    assert len(tf.trainable_variables()) == len(weights) + 2


@pytest.mark.slow(reason="makes another module, and runs with it")
def test_a_module_without_tokenization_info_is_given_a_vocabulary(scripts, flags, tiny_model, tmp_path):
    module = hub_modules.write(tiny_model, tmp_path / "module", config=tiny_model.shallow,
                               tokenization_info=False, length=tiny.SEQ_LENGTH)
    given = dict(bert_hub_module_handle=module, do_predict=True, output_dir=tmp_path / "out")
    done = scripts.run(SCRIPT, *flags(**given), cwd=tmp_path)
    assert done.code == 1 and "the vocabulary of the module is unknown. Pass --vocab_file" in done.err
    assert not (tmp_path / "out").exists()
    done = scripts.run(SCRIPT, *flags(**given, vocab_file=tiny_model.vocab), cwd=tmp_path)
    assert done.code == 0, done.err
    assert "and nothing is trained: the classifier's weights are random" in done.err
    assert probabilities_in(tmp_path / "out" / "test_results.tsv").shape == (TEST_SIZE, 2)
    done = scripts.run(SCRIPT, *flags(**given, vocab_file=tiny_model.vocab, max_seq_length=12), cwd=tmp_path)
    assert done.code == 1 and "accepts only sequences of the length 20. Pass --max_seq_length=20" in done.err


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "message"), [
    (dict(bert_hub_module_handle=None), "--bert_hub_module_handle is required"),
    (dict(bert_hub_module_handle=""), "--bert_hub_module_handle is empty"),
    (dict(bert_hub_module_handle="nothing"), "--bert_hub_module_handle: The hub module nothing was not"),
    (dict(bert_hub_module_handle="."), "has no saved_model.pb. Name the directory"),
    (dict(bert_hub_module_handle="https://tfhub.dev/google/b/1"), "modules are not downloaded"),
    (dict(init_checkpoint="bert_model.ckpt"), "--init_checkpoint=bert_model.ckpt: a hub module is used"),
    (dict(precision="bf16"), "--precision=bf16: a hub module is used with its own weights"),
    (dict(compile_kernels=True), "--compile_kernels=true: a hub module is used with its own weights"),
    (dict(layer_decay=0.9), "--layer_decay=0.9: a hub module is used with its own weights"),
    (dict(reinit_layers=1), "--reinit_layers=1: a hub module is used with its own weights"),
    (dict(freeze_layers=1), "--freeze_layers=1: a hub module is used with its own weights"),
    (dict(freeze_embeddings=True), "--freeze_embeddings=true: a hub module is used with its own weights"),
    (dict(vocab_file="vocab.txt"), "--vocab_file=vocab.txt: the hub module has its own vocabulary"),
    (dict(do_lower_case=False), "--do_lower_case=false, but the hub module says do_lower_case=true"),
    (dict(max_seq_length=41), "--max_seq_length=41: the hub module has only 40 positions"),
    (dict(task_name="nothing"), "nothing"),
    (dict(use_tpu=True), "TPUs are not supported"),
], ids=lambda value: "=".join(map(str, next(iter(value.items())))) if isinstance(value, dict) else "")
def test_wrong_flags(scripts, flags, tmp_path, changes, message):
    done = scripts.run(SCRIPT, *flags(output_dir="out", do_train=True, **changes), cwd=tmp_path)
    assert done.code == 1 and message in done.err and "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


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
def test_a_module_that_cannot_be_used(scripts, flags, tiny_model, tmp_path, alter, message):
    module = hub_modules.write(tiny_model, tmp_path / "module", config=tiny_model.shallow, alter=alter)
    done = scripts.run(SCRIPT, *flags(bert_hub_module_handle=module, output_dir="out", do_train=True),
                       cwd=tmp_path)
    assert done.code == 1 and message in done.err and "Traceback" not in done.err
    assert not (tmp_path / "out").exists()


def test_another_modules_output_directory_is_refused(output, scripts, flags, tiny_model, tmp_path):
    module = hub_modules.write(tiny_model, tmp_path / "module", config=tiny_model.shallow, seed=2,
                               do_lower_case=False)
    given = dict(bert_hub_module_handle=module, output_dir=output, do_train=True, num_train_epochs=9)
    done = scripts.run(SCRIPT, *flags(**given), cwd=tmp_path)
    assert done.code == 1 and "hub_module: " in done.err and "Use another --output_dir" in done.err
    deep = hub_modules.write(tiny_model, tmp_path / "deep")
    done = scripts.run(SCRIPT, *flags(**{**given, "bert_hub_module_handle": deep}), cwd=tmp_path)
    assert done.code == 1 and "contains checkpoints that do not fit this run" in done.err


def test_nothing_is_written_over_the_module(scripts, flags, module, tmp_path):
    shutil.copytree(module, tmp_path / "module")
    (tmp_path / "test_results.tsv").symlink_to("module/assets/vocab.txt")
    done = scripts.run(SCRIPT, *flags(bert_hub_module_handle="module", output_dir=".", do_predict=True),
                       cwd=tmp_path)
    assert done.code == 1 and "which --bert_hub_module_handle reads. Pass another --output_dir" in done.err


# --- Your own data ---------------------------------------------------------------------------------------


@pytest.mark.soak(reason="a whole run; test_own_data_command.py has pairs")
def test_own_pairs(scripts, flags, tmp_path):
    rows = [["title", "kind", "text"], ["a cat", "pet", "sees"], ["a stone", "thing", "breaks"],
            ["a dog", "pet", "eats, or not"], ["paper", "thing", "sells"]]
    for name, columns in (("train", rows), ("test", [[row[0], row[2]] for row in rows])):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(columns)
    done = scripts.run(SCRIPT, *flags(
        task_name=None, data_dir=None, train_file="train.csv", dev_file="train.csv", test_file="test.csv",
        text_column="title,text", label_column="kind", class_weights="pet:3", num_train_epochs=1),
                       cwd=tmp_path)
    assert done.code == 0, done.err
    assert "[CLS] a cat [SEP] see" in done.err
    assert "mean weight of all examples is 1): pet 1.5 (2), thing 0.5 (2)." in (
        done.err)
    output = tmp_path / "output" / "train_with_tfhub"
    assert (output / "labels.txt").read_text() == "pet\nthing\n"
    best = probabilities_in(output / "test_results.tsv").argmax(1)
    assert (output / "test_predictions.tsv").read_text().splitlines() == [
        "index\tprediction", *(f"{index}\t{['pet', 'thing'][label]}" for index, label in enumerate(best))]
    assert len(best) == 4 and "eval_matthews" in metrics_in(output / "eval_results.txt")


@pytest.mark.soak(reason="a whole run; test_own_data_command.py has several labels")
def test_own_data_with_several_labels(scripts, flags, tmp_path):
    rows = ["text\tlabels", "a cat\tpet,animal", "a dog\tpet", "a bird\tanimal", "a stone\t"]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    done = scripts.run(SCRIPT, *flags(
        task_name=None, data_dir=None, train_file="train.tsv", dev_file="train.tsv", task_type="multilabel",
        test_file="train.tsv", num_train_epochs=1), cwd=tmp_path)
    assert done.code == 0, done.err
    output = tmp_path / "output" / "train_with_tfhub"
    assert done.err.splitlines()[-1].split(" ", 1)[1].startswith("Own data dev: micro F1 ")
    assert {"eval_auc_animal", "eval_auc_pet"} <= set(metrics_in(output / "eval_results.txt"))
    assert probabilities_in(output / "test_results.tsv").shape == (4, 2)
