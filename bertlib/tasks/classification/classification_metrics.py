"""Metrics of classifications, multi-label classifications and regressions, computed from NumPy arrays.

All results of these tasks come from the functions of this module: eval_results.txt and eval_results.json, the
reports, the history of a training, and the comparisons of compare_results.py.

In the shapes, N is the number of examples, and C is the number of classes or labels. If a denominator is 0,
the metric is 0.
"""

import collections
import itertools

import numpy as np

from bertlib.system import terminal

# Scores are nearly constant if their standard deviation is less than this share of that of the true scores.
_LEAST_SPREAD = 0.05


def divide(numbers, by):
    """Returns `numbers` / `by` in float64, element by element. The quotient is 0 where `by` is 0."""
    numbers, by = np.asarray(numbers, np.float64), np.asarray(by, np.float64)
    return np.divide(numbers, by, out=np.zeros_like(numbers), where=by != 0)


def label_scores(labels, hits, actual, predicted):
    """Returns {label: {"precision", "recall", "f1", "support"}}. The support is the number of examples with
    the label.

    Args:
      labels: list of str, the names of the C labels.
      hits: int [C], the numbers of examples that have a label and for which this label was predicted.
      actual: int [C], the numbers of examples that have a label.
      predicted: int [C], the numbers of examples for which a label was predicted.
    """
    columns = (divide(hits, predicted), divide(hits, actual), divide(2 * hits, actual + predicted), actual)
    return {label: dict(zip(("precision", "recall", "f1", "support"), row))
            for label, *row in zip(labels, *(column.tolist() for column in columns))}


def log_losses(probabilities):
    """Returns -log(p) of float32 probabilities as float64. A probability of 0 has a finite loss."""
    return -np.log(np.maximum(probabilities, np.finfo(np.float32).tiny, dtype=np.float64))


# --- One class for each text -----------------------------------------------------------------------------


def confusion_matrix(labels, predicted, size):
    """Returns the confusion matrix, int64 [C, C]. A row belongs to a label, and a column to a predicted
    class.

    Args:
      labels, predicted: int [N].
      size: int, C.
    """
    return np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)


def accuracy(matrix):
    """Returns the share of right predictions. `matrix` is a `confusion_matrix`."""
    return float(divide(matrix.trace(), matrix.sum()))


def class_f1(matrix):
    """Returns the F1 of class 1 if C = 2, otherwise the mean of the F1 of all classes. `matrix` is a
    `confusion_matrix`."""
    scores = divide(2 * matrix.diagonal(), matrix.sum(0) + matrix.sum(1))
    return float(scores[1] if len(matrix) == 2 else scores.mean())


def matthews(matrix):
    """Returns Gorodkin's R_K (2004, equation 8), which for C = 2 is Matthews' coefficient. `matrix` is a
    `confusion_matrix`."""
    matrix = matrix.astype(np.float64)
    total, actual, predicted = matrix.sum(), matrix.sum(1), matrix.sum(0)
    return float(divide(matrix.trace() * total - (actual * predicted).sum(), np.sqrt(
        (total**2 - (predicted**2).sum()) * (total**2 - (actual**2).sum()))))


def constant_answer_warning(labels, predicted):
    """Returns a warning (str) if the predictions for all examples are the same, although the labels of the
    examples differ, or if scores are hardly better than the mean score. Otherwise returns None.

    Accuracy and F1 do not show this problem: both can be high if the prediction is the label of most
    examples.

    Args:
      labels, predicted: sequences with the label and the prediction of each example. Each of them is a str, a
        float for a score, or a tuple of str if an example may have several labels.
    """
    only = predicted[0]
    if len(set(labels)) == 1:
        return None
    if isinstance(only, float):
        return _constant_score_warning(np.array(labels), np.array(predicted))
    if len(set(predicted)) != 1:
        return None
    if isinstance(only, tuple):
        only = f"the labels {', '.join(only)}" if only else "no label"
    return (f"All {len(predicted)} predictions are {only}; {labels.count(predicted[0])} of the true labels "
            "are the same. The model does not distinguish the examples, and the metrics are those of a "
            "constant prediction.")


def _constant_score_warning(labels, predicted):
    """Returns the warning of `constant_answer_warning` for scores, float64 [N]."""
    error, constant = np.abs(labels - predicted).mean(), np.abs(labels - labels.mean()).mean()
    if predicted.std() >= _LEAST_SPREAD * labels.std() and error < constant:
        return None
    return (f"The predictions are from {predicted.min():.4g} to {predicted.max():.4g}, but the true scores "
            f"are from {labels.min():.4g} to {labels.max():.4g}. The mean absolute error is {error:.3g}; "
            f"without a model, it would be {constant:.3g} if each prediction were the mean score. Scale the "
            "scores to a small range around 0, for example from -2 to 2: see the section \"Scores\" of "
            "docs/howto/classification.md. Or train longer.")


def never_predicted_warning(labels, predicted):
    """Returns a warning (str) that names the labels of examples that are predicted for no example; None if
    there are no such labels. The arguments are those of `constant_answer_warning`, but not scores."""
    label_counts, predicted_counts = (collections.Counter(itertools.chain.from_iterable(
        answer if isinstance(answer, tuple) else (answer,) for answer in answers))
        for answers in (labels, predicted))
    never = [f"{label} ({terminal.counted(count, 'example')})" for label, count in label_counts.most_common()
             if label not in predicted_counts]
    if not never:
        return None
    return (f"never predicted: {', '.join(never[:20])}{', …' * (len(never) > 20)}. Usually, the training "
            "file has too few examples of such a label, or the training is too short.")


# --- Any number of labels for each text ------------------------------------------------------------------


def roc_areas(labels, probabilities, names):
    """Returns {name of a metric: area under a ROC curve}. eval_auc_NAME is the area of the label NAME, and
    eval_auc is the mean of the areas that are not NaN.

    Args:
      labels: int [N, C], 0 or 1.
      probabilities: float32 [N, C].
      names: list of str, the labels.
    """
    areas = [roc_auc(*columns) for columns in zip(labels.T, probabilities.T)]
    defined = [area for area in areas if np.isfinite(area)]
    return {"eval_auc": np.mean(defined) if defined else np.nan,
            **{f"eval_auc_{name}": area for name, area in zip(names, areas)}}


def count_sets(labels, predicted):
    """Counts examples for each label. Returns (hits, actual, predicted), the arguments of `label_scores`.

    Args:
      labels, predicted: int or bool [N, C], whether an example has a label.
    """
    labels, predicted = labels > 0, predicted > 0
    return (labels & predicted).sum(0), labels.sum(0), predicted.sum(0)


def micro_f1(hits, total):
    """Returns a single F1 over all pairs of an example and a label.

    Args:
      hits: int [C], see `label_scores`.
      total: int [C], the sum of `actual` and `predicted` of `label_scores`.
    """
    return float(divide(2 * hits.sum(), total.sum()))


def macro_f1(hits, total):
    """Returns the mean of the F1 of each label. For the arguments, see `micro_f1`."""
    return float(divide(2 * hits, total).mean())


def roc_auc(labels, scores):
    """Returns the area under the ROC curve.

    The area is the probability that an example with the label has a higher score than an example without the
    label (Mann and Whitney's U; Hanley and McNeil 1982). The area is NaN if all or none of the examples have
    the label.

    Args:
      labels: int [N], 0 or 1.
      scores: float [N].
    """
    positive = int(labels.sum())
    negative = len(labels) - positive
    wins = ranks(scores)[labels > 0].sum() - positive * (positive + 1) / 2
    return wins / (positive * negative) if positive and negative else np.nan


# --- A score for each text -------------------------------------------------------------------------------


def regression_errors(labels, scores):
    """Returns {"eval_mae": mean absolute error, "eval_rmse": root of the mean squared error}.

    Args:
      labels: float64 [N].
      scores: float32 [N].
    """
    difference = labels - printable_scores(scores)
    return {"eval_mae": float(np.abs(difference).mean()),
            "eval_rmse": float(np.sqrt(np.square(difference).mean()))}


def printable_scores(scores):
    """Returns float32 scores as the float64 numbers that stand in the file of predictions. This file contains
    the shortest decimal number that identifies a float32."""
    return np.array([float(str(score)) for score in scores], np.float64)


def pearson(x, y):
    """Returns Pearson's correlation coefficient of two float64 arrays [N]; 0 if one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (np.sqrt((x * x).sum()) * np.sqrt((y * y).sum())))


def spearman(x, y):
    """Returns Spearman's rank correlation of two float64 arrays [N]: Pearson's correlation of the ranks of
    their values."""
    return pearson(ranks(x), ranks(y))


def ranks(values):
    """Returns the ranks of values [N] as float64. The lowest value has rank 1. Equal values have the mean of
    their ranks, and NaN has the rank NaN."""
    ordered = np.sort(values)
    below, not_above = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), np.nan, (below + not_above + 1) / 2)


# --- Metrics of a part of the examples -------------------------------------------------------------------


def _of_rows(functions, arguments_of, right, predicted):
    """Returns metrics of a part of the examples, as {name of a metric: function}. A function takes an int
    array with the indices of some examples.

    Args:
      functions: {name of a metric: function that computes it}.
      arguments_of: function that converts the labels and the predictions of some examples to the arguments of
        these functions.
      right, predicted: arrays with the label and the prediction of each example.
    """
    def metric(function):
        return lambda rows: function(*arguments_of(right[rows], predicted[rows]))

    return {name: metric(function) for name, function in functions.items()}


def class_functions(right, predicted, size):
    """Returns metrics of a part of the examples, see `_of_rows`.

    Args:
      right, predicted: int [N], the labels and the predicted classes.
      size: int, C.
    """
    return _of_rows({"eval_accuracy": accuracy, "eval_f1": class_f1, "eval_matthews": matthews},
                    lambda *ids: [confusion_matrix(*ids, size)], right, predicted)


def set_functions(right, predicted):
    """Returns metrics of a part of the examples, see `_of_rows`. For the arguments, see `count_sets`."""
    def counts(*sets):
        hits, actual, predicted_labels = count_sets(*sets)
        return hits, actual + predicted_labels

    return _of_rows({"eval_f1_micro": micro_f1, "eval_f1_macro": macro_f1}, counts, right, predicted)


def number_functions(right, predicted):
    """Returns metrics of a part of the examples, see `_of_rows`. The arguments are float64 [N].

    A user who computes the correlations from the files of the labels and the predictions must get the same
    values. For this reason, the labels must not be rounded to float32; for the scores, see `written`.
    """
    return _of_rows({"eval_pearson": pearson, "eval_spearman": spearman}, lambda *numbers: numbers,
                    right, predicted)
