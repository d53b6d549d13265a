"""The metrics of an evaluation agree with the predictions in the written files.

scikit-learn and SciPy compute the metrics again from test_results.tsv. The weights of the heads are so small
that many predictions are equal after rounding.
"""

import csv
import json
import random

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics
import tiny

LABELS = ["a", "b", "c"]
SIZE = 40


def written(directory, task_type):
    """Writes a file of texts with labels. Returns (its path, its labels)."""
    chance = random.Random(task_type)
    labels = {"classification": lambda: chance.choice(LABELS),
              "regression": lambda: repr(chance.uniform(-3, 3)),
              "multilabel": lambda: ",".join(label for label in LABELS if chance.random() < 0.5)}[task_type]
    rows = [(tiny.sentence(chance), labels()) for _ in range(SIZE)]
    with open(directory / "texts.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return [label for _, label in rows]


def results_of(path):
    return {name: json.loads(value) for name, value in (
        line.split(" = ") for line in path.read_text().splitlines())}


def run(scripts, tiny_model, here, task_type, **more):
    """Evaluates and predicts a file with an untrained head. Returns (its labels, `Finished`)."""
    labels = written(here, task_type)
    (here / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    outputs = 1 if task_type == "regression" else len(LABELS)
    head = np.random.RandomState(2).standard_normal((outputs, tiny.CONFIG["hidden_size"]))
    tiny.write_tensorflow(here / "head.ckpt", {
        **tiny_model.weights, "output_weights": (FLAT[task_type] * head).astype(np.float32),
        "output_bias": np.full(outputs, 1.0 if task_type == "regression" else 0.0, np.float32)})
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, init_checkpoint=here / "head.ckpt",
                 task_type=task_type, output_dir=here / "output", dev_file="texts.csv", test_file="texts.csv",
                 do_eval=True, do_predict=True, eval_batch_size=7, predict_batch_size=3, **more)
    if task_type != "regression":
        flags["label_file"] = here / "labels.txt"
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here)
    assert finished.code == 0, finished.err
    return labels, finished


FLAT = {"classification": 1e-8, "regression": 1e-7, "multilabel": 1e-7}


def of_classification(labels, file):
    best = [LABELS[row.argmax()] for row in np.loadtxt(file, dtype=np.float32)]
    accuracy = np.float32(sklearn_metrics.accuracy_score(labels, best))
    return {"eval_accuracy": float(str(accuracy)),  # as in the written file
            "eval_f1": sklearn_metrics.f1_score(labels, best, labels=LABELS, average="macro",
                                                zero_division=0),
            "eval_matthews": sklearn_metrics.matthews_corrcoef(labels, best),
            "eval_confusion_matrix": sklearn_metrics.confusion_matrix(labels, best, labels=LABELS)}


def of_regression(labels, file):
    scores, numbers = np.loadtxt(file), np.array(labels, np.float64)
    return {"eval_pearson": stats.pearsonr(numbers, scores).statistic,
            "eval_spearman": stats.spearmanr(numbers, scores).statistic}


def of_several_labels(labels, file):
    probabilities = np.loadtxt(file)
    right = np.array([[label in names.split(",") for label in LABELS] for names in labels])
    predicted = probabilities >= 0.5
    areas = sklearn_metrics.roc_auc_score(right, probabilities, average=None)
    return {"eval_f1_micro": sklearn_metrics.f1_score(right, predicted, average="micro", zero_division=0),
            "eval_f1_macro": sklearn_metrics.f1_score(right, predicted, average="macro", zero_division=0),
            **{f"eval_auc_{label}": area for label, area in zip(LABELS, areas)}}


@pytest.mark.parametrize("task_type, expected", [
    pytest.param("classification", of_classification, marks=pytest.mark.slow(
        reason="a whole run; test_run_classifier.py has the metrics of written probabilities")),
    pytest.param("regression", of_regression, marks=pytest.mark.soak(
        reason="a whole run; test_glue_tasks.py has the metrics of written scores")),
    pytest.param("multilabel", of_several_labels, marks=pytest.mark.soak(
        reason="a whole run; test_own_data_command.py has the metrics of several labels"))])
def test_metrics_are_those_of_the_written_predictions(task_type, expected, scripts, tiny_model, tmp_path):
    labels, finished = run(scripts, tiny_model, tmp_path, task_type)
    output = tmp_path / "output"
    found = results_of(output / "test_eval_results.txt")
    rows = np.loadtxt(output / "test_results.tsv", dtype=np.float32).reshape(SIZE, -1)
    assert len(np.unique(rows)) < rows.size  # some values are equal
    for name, value in expected(labels, output / "test_results.tsv").items():
        # The scores differ only from the 7th digit on. So their deviations from the mean have only 9 exact
        # digits.
        rtol = 1e-7 if name == "eval_pearson" else 1e-12
        np.testing.assert_allclose(found[name], value, rtol=rtol, err_msg=name)
    assert "Own data dev: " in finished.err and "; test: " in finished.err
    if task_type == "classification":
        assert_development_set_is_scored_by_its_predictions_too(labels, output)


def assert_development_set_is_scored_by_its_predictions_too(labels, output):
    found = results_of(output / "eval_results.txt")
    for name, value in of_classification(labels, output / "test_results.tsv").items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
    # The names are those of the published results file. Its loss is computed from the logits.
    assert set(found) == {"eval_accuracy", "eval_confusion_matrix", "eval_f1", "eval_loss", "eval_matthews",
                          "global_step", "loss"}
