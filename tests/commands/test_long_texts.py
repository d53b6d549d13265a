"""run_classifier.py with windows of long texts: a prediction is the mean of the predictions of the windows.
"""

import json
import re

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
import tiny

LENGTH, STRIDE = 8, 3


def write_cola(directory, texts, parts=("train", "dev", "test")):
    """Writes texts as a task with single sentences. The labels are 0 and 1 in turn."""
    directory.mkdir()
    for part in parts:
        (directory / f"{part}.tsv").write_text("".join(
            f"source\t{index % 2}\t\t{text}\n" for index, text in enumerate(texts)) if part != "test" else
            "index\tsentence\n" + "".join(f"{index}\t{text}\n" for index, text in enumerate(texts)))
    return directory


def windows_of(text):
    words = text.split()
    return [" ".join(words[start:start + LENGTH - 2])
            for start in range(0, max(1, len(words) - (LENGTH - 2) + STRIDE), STRIDE)]


pytestmark = pytest.mark.slow(
    reason="two whole runs; test_classification_windows.py has windows, their means and metrics")


@pytest.fixture(scope="module")
def runs(scripts, tiny_model, tmp_path_factory):
    """A run of all phases with windows, its texts, and the predictions if each window is a separate text."""
    here = tmp_path_factory.mktemp("long")
    chance = np.random.RandomState(2)
    texts = [" ".join(chance.choice(tiny.WORDS[:20], size)) for size in (3, 6, 7, 20, 9, 12, 4, 30, 8, 6)]
    head = 3 * chance.standard_normal((2, tiny.CONFIG["hidden_size"])).astype(np.float32)
    start = tiny.write_tensorflow(here / "start.ckpt", {**tiny_model.weights, "output_weights": head,
                                                        "output_bias": np.zeros(2, np.float32)})
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, init_checkpoint=start,
                 task_name="CoLA", max_seq_length=LENGTH, output_dir=here / "output", do_predict=True,
                 eval_batch_size=3, predict_batch_size=3)
    whole = scripts.run("run_classifier.py", *tiny.flags(**dict(
        flags, data_dir=write_cola(here / "data", texts), doc_stride=STRIDE, do_train=True, do_eval=True,
        train_batch_size=4, num_train_epochs=1, learning_rate=0.001, class_weights="0:1,1:3",
        label_smoothing=0.1)), cwd=here)
    assert whole.code == 0, whole.err
    windows = [window for text in texts for window in windows_of(text)]
    parts = scripts.run("run_classifier.py", *tiny.flags(**dict(
        flags, data_dir=write_cola(here / "windows", windows, ["test"]), results_dir=here / "parts")),
        cwd=here)
    assert parts.code == 0, parts.err
    return texts, whole.err, parts.err, here


def test_predictions_are_the_means_of_the_windows(runs):
    texts, _, _, here = runs
    found, parts = (np.loadtxt(here / name / "test_results.tsv") for name in ("output", "parts"))
    counts = [len(windows_of(text)) for text in texts]
    assert found.shape == (len(texts), 2) and len(parts) == sum(counts) > 2 * len(texts)
    expected = [rows.mean(axis=0) for rows in np.split(parts, np.cumsum(counts)[:-1])]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    lines = (here / "output" / "test_predictions.tsv").read_text().splitlines()[1:]
    assert lines == [f"{index}\t{best}" for index, best in enumerate(found.argmax(axis=1))]


def test_metrics_are_those_of_texts(runs):
    texts, _, _, here = runs
    text = (here / "output" / "eval_results.txt").read_text()
    found = {name: json.loads(value) for name, value in (line.split(" = ") for line in text.splitlines())}
    steps = sum(len(windows_of(text)) for text in texts) // 4
    # The development set and the test set are equal.
    probabilities = np.loadtxt(here / "output" / "test_results.tsv")
    labels, predicted = np.arange(len(texts)) % 2, probabilities.argmax(axis=1)
    loss = -np.log(probabilities[np.arange(len(texts)), labels]).mean()
    assert np.sum(found["eval_confusion_matrix"]) == len(texts)
    for name, expected in {
            "eval_accuracy": sklearn_metrics.accuracy_score(labels, predicted),
            "eval_f1": sklearn_metrics.f1_score(labels, predicted),
            "eval_matthews": sklearn_metrics.matthews_corrcoef(labels, predicted),
            "eval_loss": loss, "loss": loss, "global_step": steps}.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, err_msg=name)


def test_the_log_counts_windows_and_ends_with_examples(runs):
    texts, whole, parts, here = runs
    windows = sum(len(windows_of(text)) for text in texts)
    steps = windows // 4
    assert (f" Training on {windows} windows: --num_train_epochs=1 means {steps} steps with a batch size of "
            "4.\n"
            in whole)
    for part in ("train", "dev", "test"):
        assert (f" Lengths of {part}: 6 of 10 examples (60.0%) are longer than --max_seq_length=8; the "
                f"longest has 32 tokens. With --doc_stride=3, all examples together have {windows} "
                "windows.\n") in whole
    assert f" Lengths of test: 0 of {windows} examples (0.0%) are longer than --max_seq_length=8;" in parts
    *examples, last = [line.split(" ", 1)[1] for line in whole.splitlines()[-4:]]
    assert last.startswith("CoLA dev: Matthews ")
    for line in examples:
        assert re.fullmatch(r'Example of dev: "[\w .,#]+…?" -> [01], probability [01]\.\d{3} '
                            r"\((right|wrong: label [01])\)", line), line
    assert {"(right)", "(wrong"} <= {re.search(r"\(\w+\)?", line)[0] for line in examples}


def test_the_record_has_what_training_depends_on(runs):
    _, _, parts, here = runs
    settings = json.loads((here / "output" / "run.json").read_text())["settings"]
    assert settings["doc_stride"] == STRIDE and settings["class_weights"] == "0:1,1:3"
    assert settings["label_smoothing"] == 0.1
    assert re.search(r" have their values from the training .*--doc_stride=3", parts)
