"""Scripts for TensorFlow 1.12 (tests/tf1/forks) run as their users run them.

They contain `import tf1 as tf`, or `python -m tf1` runs them unchanged (fork_optimizer). Each script trains,
evaluates, predicts and exports. If a script is killed and started again, it ends with the same weights, bit
for bit.
"""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from helpers import events_in, tensors_of
import numpy as np
import pytest
import scripts as running
import tensorflow.compat.v1 as tf
import tiny

import modeling

FORKS = pathlib.Path(__file__).resolve().parent / "forks"
SAVE_STEPS, LAST_STEP = 6, 18
TRAIN_SIZE, DEV_SIZE, BATCH_SIZE = 24, 10, 4
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]

# --- Data, and the metrics of the predictions -------------------------------------------------------------
#
# In the class of a fork, `examples` returns the content of its files, and `write` writes the files. `metrics`
# computes the metrics that the evaluation must find, from the predictions for the same examples.


def words(chance):
    return [chance.choice(tiny.WORDS[:20]) for _ in range(chance.randint(3, 10))]


def probabilities_in(path):
    return np.array([[float(value) for value in line.split("\t")] for line in path.read_text().splitlines()])


class Pairs(object):
    script = "fork_optimizer/run_pairs.py"
    flags = dict(train_batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE, num_train_steps=LAST_STEP,
                 num_warmup_steps=2, save_checkpoints_steps=SAVE_STEPS)

    def examples(self, chance, size):
        return [(index % 2, " ".join(words(chance)), " ".join(words(chance))) for index in range(size)]

    def write(self, directory, part, examples):
        (directory / f"{part}.tsv").write_text("".join(f"{label}\t{a}\t{b}\n" for label, a, b in examples))

    def metrics(self, path, examples):
        probabilities, labels = probabilities_in(path), np.array([label for label, _, _ in examples])
        return {"eval_accuracy": (probabilities.argmax(axis=1) == labels).mean(),
                "eval_loss": -np.log(probabilities[np.arange(len(labels)), labels]).mean()}


class Tagger(object):
    script = "fork_tagger.py"
    flags = dict(batch_size=BATCH_SIZE, num_train_steps=LAST_STEP, num_warmup_steps=2,
                 save_checkpoints_steps=SAVE_STEPS, learning_rate=0.01)

    def examples(self, chance, size):
        # The tag depends only on the word, and the most frequent tag is not O. So the model can learn the
        # tags.
        tags = ["B-PER", "B-PER", "I-PER", "B-PER", "O", "B-LOC"]
        sentences = [words(chance) for _ in range(size)]
        return [[(word, tags[tiny.WORDS.index(word) % len(tags)]) for word in sentence]
                for sentence in sentences]

    def write(self, directory, part, examples):
        (directory / f"{part}.txt").write_text("\n".join(
            "".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in examples))

    def metrics(self, path, examples):
        # Each word is one token; the first and last tokens, [CLS] and [SEP], have tag O.
        real = [["O", *(tag for _, tag in sentence), "O"] for sentence in examples]
        found = [line.split(" ") for line in path.read_text().splitlines()]
        assert [len(line) for line in found] == [len(line) for line in real]
        real, found = (np.array([TAGS.index(tag) for line in lines for tag in line])
                       for lines in (real, found))
        hits = ((real > 0) & (found > 0)).sum()
        return {"accuracy": (real == found).mean(), "precision": hits / max((found > 0).sum(), 1),
                "recall": hits / (real > 0).sum()}


# --- Runs ----------------------------------------------------------------------------------------------


class Run(object):
    """A fork and its data.

    The constructor trains, evaluates and exports it without interruption, in `output`.
    """

    def __init__(self, fork, scripts, model, directory):
        self.fork = fork
        self.model = model
        self.directory = directory
        self._scripts = scripts
        chance = random.Random(fork.script)
        self.dev = fork.examples(chance, DEV_SIZE)
        for part, examples in (("train", fork.examples(chance, TRAIN_SIZE)), ("dev", self.dev),
                               ("test", self.dev)):
            fork.write(directory, part, examples)
        self.output = directory / "output"
        self.finished = self.start(self.output, do_train=True, do_eval=True, do_predict=True,
                                   do_export=True).wait()

    def flags(self, output, **changes):
        return tiny.flags(**{**self.model.flags, "bert_config_file": self.model.shallow,
                             "data_dir": self.directory,
                             "output_dir": output, "learning_rate": 0.003, **self.fork.flags, **changes})

    def start(self, output, **changes):
        return self._scripts.start("tests/tf1/forks/start.py", self.fork.script,
                                   *self.flags(output, **changes), cwd=self.directory)


_TAGGER = pytest.param(Tagger, marks=pytest.mark.slow(
    reason="a fork's whole run; test_tf1_estimator.py has train_and_evaluate"))


@pytest.fixture(scope="module", params=[Pairs, _TAGGER],
                ids=lambda fork: fork.__name__.lower())
def trained(request, scripts, tiny_model, tmp_path_factory):
    run = Run(request.param(), scripts, tiny_model, tmp_path_factory.mktemp("fork"))
    assert run.finished.code == 0, run.finished.err
    return run


def steps_in(directory):
    """Returns the steps of the checkpoints in a directory."""
    return {int(re.search(r"model\.ckpt-(\d+)\.index", path.name).group(1))
            for path in directory.glob("model.ckpt-*.index")}


def assert_same_tensors(first, second):
    """Checks that two dicts of tensors are equal, bit for bit."""
    assert set(first) == set(second)
    for name, values in first.items():
        assert values.tobytes() == second[name].tobytes(), name


# --- Tests ----------------------------------------------------------------------------------------------


def test_it_evaluates_what_it_predicts(trained):
    lines = (trained.output / "eval_results.txt").read_text().splitlines()
    found = {name: float(value) for name, value in (line.split(" = ") for line in lines)}
    expected = trained.fork.metrics(trained.output / "test_results.tsv", trained.dev)
    assert set(found) == {*expected, "loss", "global_step"}
    assert found["global_step"] == LAST_STEP
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)


def test_the_exported_model_predicts_the_same(trained):
    predicted, exported = (trained.output / f"{name}_results.tsv" for name in ("test", "exported"))
    if isinstance(trained.fork, Tagger):
        assert exported.read_text() == predicted.read_text()
    else:
        np.testing.assert_allclose(probabilities_in(exported), probabilities_in(predicted), rtol=1e-5)


def assert_started_with_the_published_weights(trained, directory):
    """Checks that a training started with the published weights, and that it changed them."""
    start, saved = (tensors_of(directory / f"model.ckpt-{step}") for step in (0, SAVE_STEPS))
    weights = {name: values for name, values in trained.model.weights.items() if "layer_1" not in name}
    assert_same_tensors({name: start[name] for name in weights}, weights)
    assert not np.array_equal(saved["bert/embeddings/word_embeddings"],
                              weights["bert/embeddings/word_embeddings"])


@pytest.mark.parametrize("trained", [Pairs], indirect=True, ids=["pairs"])
def test_it_starts_with_the_published_weights(trained):
    assert_started_with_the_published_weights(trained, trained.output)


@pytest.mark.slow(reason="two whole runs; the conformance suite kills our own commands")
@pytest.mark.parametrize("trained", [Pairs], indirect=True, ids=["pairs"])
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
        assert_same_tensors(*(tensors_of(directory / f"model.ckpt-{step}")
                              for directory in (tmp_path, trained.output)))


@pytest.mark.slow(reason="an interpreter of its own; "
                  "test_rooms.py has a small one with modules that shadow ours")
@pytest.mark.parametrize("trained", [Pairs], indirect=True, ids=["pairs"])
def test_a_forks_own_modeling_comes_before_ours(trained, tmp_path):
    """The fork runs in a new interpreter, from its own directory."""
    output = tmp_path / "output"
    shutil.copytree(trained.output, output)
    predicted = output / "test_results.tsv"
    predicted.unlink()
    path = FORKS / trained.fork.script
    done = subprocess.run(
        [sys.executable, "-m", "tf1", path.name, *trained.flags(output, do_predict=True)], cwd=path.parent,
        capture_output=True,
        env=running.environment(PYTHONPATH=str(running.ROOT)), encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(probabilities_in(predicted),
                               probabilities_in(trained.output / "test_results.tsv"), rtol=1e-6)


@pytest.mark.parametrize("trained", [Pairs], indirect=True, ids=["pairs"])
def test_our_modeling_computes_the_same_from_what_a_forks_own_trained(trained):
    assert (FORKS / trained.fork.script).with_name("modeling.py").exists()
    arrays = tensors_of(trained.output / f"model.ckpt-{LAST_STEP}")
    ids = np.zeros([DEV_SIZE, tiny.SEQ_LENGTH], np.int32)
    segments = np.zeros_like(ids)
    for row, (_, first, second) in enumerate(trained.dev):
        first, second = first.split(), second.split()
        while len(first) + len(second) > tiny.SEQ_LENGTH - 3:
            (first if len(first) > len(second) else second).pop()
        tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
        ids[row, :len(tokens)] = [tiny.VOCABULARY.index(token) for token in tokens]
        segments[row, len(first) + 2:len(tokens)] = 1
    with tf.Graph().as_default(), tf.Session() as session:
        model = modeling.BertModel(modeling.BertConfig.from_json_file(str(trained.model.shallow)), False,
                                   tf.constant(ids), tf.sign(tf.constant(ids)), tf.constant(segments))
        assert {variable.op.name for variable in tf.global_variables()} <= set(arrays)
        probabilities = tf.nn.softmax(model.get_pooled_output() @ arrays["same/kernel"] + arrays["same/bias"])
        session.run(tf.global_variables_initializer())
        tiny.load(session, tf.global_variables(), arrays)
        np.testing.assert_allclose(probabilities_in(trained.output / "test_results.tsv"),
                                   session.run(probabilities), rtol=1e-4)


@pytest.mark.parametrize("trained", [_TAGGER], indirect=True, ids=["tagger"])
def test_train_and_evaluate_evaluates_each_checkpoint(trained):
    steps = [step for step, _ in events_in(trained.output / "eval")["loss"]]
    assert steps == [SAVE_STEPS, 2 * SAVE_STEPS, LAST_STEP]
