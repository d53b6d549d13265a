"""A script for TensorFlow 1.12 (tests/tf1/forks/fork_optimizer) runs unchanged, as its users run it.

It trains, evaluates, predicts and exports. If it is killed and started again, it ends with the same weights,
bit for bit.
"""

import os
import random
import re
import shutil
import signal
import time

from helpers import tensors_of
import numpy as np
from numpy.testing import assert_allclose, assert_equal
import pytest
import tiny

SAVE_STEPS, LAST_STEP = 6, 18
TRAIN_SIZE, BATCH_SIZE = 24, 4
LABELS = np.arange(10) % 2


def words(chance):
    return " ".join(chance.choice(tiny.WORDS[:20]) for _ in range(chance.randint(3, 10)))


def probabilities_in(path):
    return np.array([[float(value) for value in line.split("\t")] for line in path.read_text().splitlines()])


# --- Runs ----------------------------------------------------------------------------------------------


class Run(object):
    """The script and its data.

    The constructor trains, evaluates and exports it without interruption, in `output`.
    """

    def __init__(self, scripts, model, directory):
        self.model, self.directory, self._scripts = model, directory, scripts
        chance = random.Random(3)
        for part, size in (("train", TRAIN_SIZE), ("dev", len(LABELS))):
            (directory / f"{part}.tsv").write_text("".join(
                f"{index % 2}\t{words(chance)}\t{words(chance)}\n" for index in range(size)))
        shutil.copyfile(directory / "dev.tsv", directory / "test.tsv")
        self.output = directory / "output"
        self.start(self.output, do_train=True, do_eval=True, do_predict=True,
                   do_export=True).wait().assert_success()

    def start(self, output, **changes):
        flags = {**self.model.flags, "data_dir": self.directory, "output_dir": output, "learning_rate": 0.003,
                 "train_batch_size": BATCH_SIZE,
                 "eval_batch_size": BATCH_SIZE, "num_train_steps": LAST_STEP, "num_warmup_steps": 2,
                 "save_checkpoints_steps": SAVE_STEPS, **changes}
        return self._scripts.start("tests/tf1/forks/start.py", "fork_optimizer/run_pairs.py",
                                   *tiny.flags(**flags), cwd=self.directory)


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    return Run(scripts, tiny_model, tmp_path_factory.mktemp("fork"))


def steps_in(directory):
    """Returns the steps of the checkpoints in a directory."""
    return {int(re.search(r"model\.ckpt-(\d+)\.index", path.name).group(1))
            for path in directory.glob("model.ckpt-*.index")}


# --- Tests ----------------------------------------------------------------------------------------------


def test_it_evaluates_what_it_predicts(trained):
    lines = (trained.output / "eval_results.txt").read_text().splitlines()
    found = {name: float(value) for name, value in (line.split(" = ") for line in lines)}
    probabilities = probabilities_in(trained.output / "test_results.tsv")
    expected = {"eval_accuracy": (probabilities.argmax(axis=1) == LABELS).mean(),
                "eval_loss": -np.log(probabilities[np.arange(len(LABELS)), LABELS]).mean()}
    assert set(found) == {*expected, "loss", "global_step"}
    assert found["global_step"] == LAST_STEP
    for name, value in expected.items():
        assert_allclose(found[name], value, atol=1e-4, err_msg=name)


def test_the_exported_model_predicts_the_same(trained):
    predicted, exported = (trained.output / f"{name}_results.tsv" for name in ("test", "exported"))
    assert_allclose(probabilities_in(exported), probabilities_in(predicted), rtol=1e-5)


def assert_started_with_the_published_weights(trained, directory):
    """Checks that a training started with the published weights, and that it changed them."""
    start, saved = (tensors_of(directory / f"model.ckpt-{step}") for step in (0, SAVE_STEPS))
    weights = {name: values for name, values in trained.model.weights.items() if "layer_1" not in name}
    assert_equal({name: start[name] for name in weights}, weights)
    assert not np.array_equal(saved["bert/embeddings/word_embeddings"],
                              weights["bert/embeddings/word_embeddings"])


def test_it_starts_with_the_published_weights(trained):
    assert_started_with_the_published_weights(trained, trained.output)


@pytest.mark.slow(reason="two whole runs; the conformance suite kills our own commands")
def test_killed_and_started_again_it_ends_in_the_same_weights(trained, tmp_path):
    state = tmp_path / "checkpoint"
    run = trained.start(tmp_path, do_train=True)
    while not (state.exists()
               and f"model.ckpt-{SAVE_STEPS}\"" in state.read_text()) and os.path.exists(f"/proc/{run.pid}"):
        time.sleep(0.001)
    os.kill(run.pid, signal.SIGKILL)
    killed = run.wait()
    assert killed.code == -signal.SIGKILL, killed.err
    assert LAST_STEP not in steps_in(tmp_path)
    assert_started_with_the_published_weights(trained, tmp_path)
    written = os.stat(tmp_path / f"model.ckpt-{SAVE_STEPS}.index").st_mtime_ns

    resumed = trained.start(tmp_path, do_train=True).wait()
    resumed.assert_success()
    assert os.stat(tmp_path / f"model.ckpt-{SAVE_STEPS}.index").st_mtime_ns == written
    # Compares the checkpoints that both directories still contain. Their steps were trained by the killed
    # run, which is a second training from the start, and by the resumed run.
    both = steps_in(tmp_path) & steps_in(trained.output)
    assert both >= {SAVE_STEPS, 2 * SAVE_STEPS, LAST_STEP}
    for step in both:
        assert_equal(*(tensors_of(directory / f"model.ckpt-{step}")
                       for directory in (tmp_path, trained.output)))
