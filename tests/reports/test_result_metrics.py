"""Tests metrics_of_rows against scikit-learn."""

import random

import numpy as np
from sklearn import metrics

from bertlib.reports.prediction_rows import PredictedRow
from bertlib.reports.result_metrics import metrics_of_rows

_LABELS = ["a", "b", "c", "never"]


def _rows(pairs):
    return [PredictedRow(None, {}, ("text",), label, prediction) for label, prediction in pairs]


def _check_labels(found, truth, predicted):
    expected = metrics.precision_recall_fscore_support(truth, predicted, zero_division=0.0)
    numbers = [list(found["labels"][label].values()) for label in _LABELS]
    np.testing.assert_allclose(numbers, np.transpose(expected), rtol=1e-12)


def test_classification():
    draw = random.Random(1)
    pairs = [(draw.choice("abc"), draw.choice("abc")) for _ in range(200)]
    found = metrics_of_rows(_rows([*pairs, (None, "a")]), _LABELS, "classification")
    ids = np.array([[_LABELS.index(name) for name in pair] for pair in pairs])
    one_hot = np.eye(len(_LABELS), dtype=int)
    _check_labels(found, one_hot[ids[:, 0]], one_hot[ids[:, 1]])
    assert found["eval_confusion_matrix"] == metrics.confusion_matrix(*ids.T, labels=range(4)).tolist()


def test_multilabel():
    draw = random.Random(2)
    pairs = [[tuple(name for name in "abc" if draw.random() < 0.4) for _ in range(2)] for _ in range(200)]
    found = metrics_of_rows(_rows(pairs), _LABELS, "multilabel")
    truth, predicted = ([[int(name in pair[side]) for name in _LABELS] for pair in pairs] for side in (0, 1))
    _check_labels(found, truth, predicted)


def test_regression():
    draw = random.Random(3)
    pairs = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(50)]
    found = metrics_of_rows(_rows(pairs), None, "regression")
    np.testing.assert_allclose([found["eval_mae"], found["eval_rmse"]],
                               [metrics.mean_absolute_error(*zip(*pairs)),
                                metrics.root_mean_squared_error(*zip(*pairs))], rtol=1e-12)
