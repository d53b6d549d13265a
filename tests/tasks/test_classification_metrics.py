"""The metrics of classifications, multi-label classifications and regressions agree with scikit-learn and
SciPy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from bertlib.tasks.classification import classification_metrics, classification_target

NAMES = ["blue", "green", "red"]


def softmax(logits):
    return (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)


def check_metrics(found, expected):
    assert set(found) == set(expected), "Add the expected value of each metric."
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6 if name == "eval_loss" else 1e-12,
                                   err_msg=name)


def check_labels(found, labels, predicted):
    """Compares the metrics of each label. `labels` and `predicted` are [N, C], 0 or 1."""
    expected = sklearn_metrics.precision_recall_fscore_support(labels, predicted, zero_division=0.0)
    np.testing.assert_allclose([list(row.values()) for row in found.values()], np.transpose(expected),
                               rtol=1e-12)


# --- One class for each text -----------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_of_classes(classes):
    generator = np.random.RandomState(classes)
    labels = generator.randint(0, classes - 1, 40) + (classes > 2)  # a class has no example
    probabilities = softmax(2 * generator.standard_normal((40, classes)) + np.eye(classes)[labels])
    target = classification_target.SingleLabel([f"class {index}" for index in range(classes)])
    losses = target.losses(labels, probabilities)
    found = target.metrics(labels, probabilities, losses)
    predicted, every = probabilities.argmax(axis=1), np.arange(classes)
    expected = {
        "eval_accuracy": sklearn_metrics.accuracy_score(labels, predicted),
        "eval_f1": sklearn_metrics.f1_score(labels, predicted, labels=every, zero_division=0.0,
                                            average="binary" if classes == 2 else "macro"),
        "eval_matthews": sklearn_metrics.matthews_corrcoef(labels, predicted),
        "eval_confusion_matrix": sklearn_metrics.confusion_matrix(labels, predicted, labels=every),
        "eval_loss": sklearn_metrics.log_loss(labels, probabilities, labels=every)}
    check_metrics(found, expected)
    functions = target.metric_functions(labels, predicted)
    assert [f"eval_{name}" for name in target.metric_names] == list(functions), (
        "`metric_names` names the metrics of `metric_functions`")
    assert losses.dtype == np.float32
    check_labels(target.further_metrics(labels, probabilities)["labels"], np.eye(classes)[labels],
                 np.eye(classes)[predicted])


def test_a_mean_loss_of_many_examples_is_computed_in_float64():
    labels, losses = np.zeros(10, int), np.float32([1e8, *[1] * 9])
    target = classification_target.SingleLabel(["no", "yes"])
    found = target.metrics(labels, np.eye(2, dtype=np.float32)[labels], losses)
    assert found["eval_loss"] == (1e8 + 9) / 10


def test_a_probability_of_0_has_a_finite_loss():
    probabilities = np.array([[0, 1]], np.float32)
    assert 80 < classification_target.SingleLabel("ab").losses(np.array([0]), probabilities)[0] < 100
    assert 40 < classification_target.MultiLabel("ab").losses(np.array([[1, 1]]), probabilities)[0] < 50


def test_matthews_of_many_examples_does_not_overflow():
    matrix = np.array([[3, 1], [1, 3]])
    assert classification_metrics.matthews(matrix * 10**6) == pytest.approx(0.5)


# --- Any number of labels for each text ------------------------------------------------------------------


@pytest.mark.parametrize("threshold, ties", [(0.5, False), (0.3, True)])
def test_metrics_of_sets(threshold, ties):
    generator = np.random.RandomState(60)
    labels = (generator.random_sample((60, 3)) < (0.5, 0.2, 0.7)).astype(int)
    probabilities = 1 / (1 + np.exp(-labels - generator.standard_normal((60, 3)) + 0.5))
    probabilities = (np.round(probabilities, 1) if ties else probabilities).astype(np.float32)
    target = classification_target.MultiLabel(NAMES, threshold)
    losses = target.losses(labels, probabilities)
    found = target.metrics(labels, probabilities, losses)
    predicted = (probabilities >= np.float32(threshold)).astype(int)
    areas = sklearn_metrics.roc_auc_score(labels, probabilities, average=None)
    expected = {
        "eval_loss": np.mean([sklearn_metrics.log_loss(*columns, labels=[0, 1])
                              for columns in zip(labels.T, probabilities.T)]),
        "eval_auc": areas.mean(), **{f"eval_auc_{name}": area for name, area in zip(NAMES, areas)},
        **{f"eval_f1_{average}": sklearn_metrics.f1_score(labels, predicted, average=average, zero_division=0)
           for average in ("micro", "macro")}}
    check_metrics(found, expected)
    check_labels(target.further_metrics(labels, probabilities)["labels"], labels, predicted)


def test_a_label_that_all_or_no_examples_have_has_no_area_and_f1_is_then_0_for_none():
    labels = np.array([[1, 0, 1], [0, 0, 1]])
    probabilities = np.array([[0.9, 0.2, 0.8], [0.1, 0.3, 0.7]], np.float32)
    found = classification_target.MultiLabel(NAMES, 0.5).metrics(labels, probabilities, np.ones(2))
    assert found["eval_auc_blue"] == found["eval_auc"] == 1
    assert np.isnan(found["eval_auc_green"]) and np.isnan(found["eval_auc_red"])
    np.testing.assert_allclose([found["eval_f1_macro"], found["eval_f1_micro"]], [2 / 3, 1])


@pytest.mark.parametrize("labels, predicted, said", [
    (["a", "b", "b"], ["b"] * 3, "All 3 predictions are b; 2 of the true labels are the same."),
    ([("a",), ("a", "b"), ()], [("a",)] * 3, "All 3 predictions are the labels a; 1 of the true labels"),
    ([("a",), (), ()], [()] * 3, "All 3 predictions are no label; 2 of the true labels are the same."),
    ([0.0, 5.0, 10.0], [5.4408, 5.4409, 5.4412], "The predictions are from 5.441 to 5.441, but the true "
     "scores are from 0 to 10. The mean absolute error is 3.48; without a model, it would be 3.33"),
    (["a", "b"], ["b", "a"], None), (["a"] * 2, ["a"] * 2, None),
    (["a", "b", "c", "c"], ["a", "a", "a", "b"], "never predicted: c (2 examples). Usually"),
    ([("a", "b"), ("c",), ("b",)], [("a",), (), ()], "never predicted: b (2 examples), c (1 example).")])
def test_the_same_labels_for_all_examples_and_labels_that_are_never_predicted(labels, predicted, said):
    warning = classification_metrics.constant_answer_warning(
        labels, predicted) or classification_metrics.never_predicted_warning(labels, predicted)
    assert warning is None if said is None else warning.startswith(said)


# --- A score for each text -------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_of_scores(ties):
    generator = np.random.RandomState(40)
    labels = generator.randint(0, 26, 40) / 5
    scores = (labels + generator.standard_normal(40)).astype(np.float32)
    scores = np.round(scores) if ties else scores
    target = classification_target.Score()
    found = {**target.metrics(labels, scores, target.losses(labels, scores)),
             **target.further_metrics(labels, scores)}
    decimal = np.array([float(str(score)) for score in scores])
    expected = {"eval_pearson": stats.pearsonr(labels, decimal)[0],
                "eval_spearman": stats.spearmanr(labels, decimal)[0],
                "eval_loss": sklearn_metrics.mean_squared_error(labels, scores),
                "eval_mae": sklearn_metrics.mean_absolute_error(labels, decimal),
                "eval_rmse": sklearn_metrics.root_mean_squared_error(labels, decimal)}
    check_metrics(found, expected)


@pytest.mark.parametrize("scores, expected", [([0.1] * 5, 0), ([0.1, np.nan, 0.3, 0.4, 0.5], np.nan)])
def test_correlations_of_constant_and_of_missing_scores(scores, expected):
    found = classification_target.Score().metrics(np.arange(5.0), np.float32(scores), np.ones(5))
    np.testing.assert_equal([found["eval_pearson"], found["eval_spearman"]], [expected] * 2)
