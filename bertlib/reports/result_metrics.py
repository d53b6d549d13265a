"""Computes metrics from the rows of a table of predictions.

The heads compute the official metrics of a task. The functions of this module add the metrics of each label
and the errors of a regression. They use only the rows, so a user can compute the same numbers from the table.
"""

import math

import numpy as np


def metrics_of_rows(rows, labels, task_type):
    """Computes additional metrics, which are not official metrics of the task.

    Rows without a label are left out. If a denominator is 0, the metric is 0.0.

    Args:
      rows: iterable of `PredictedRow`.
      labels: list of str, the labels in the order of the model's outputs; None for a regression.
      task_type: "classification", "multilabel" or "regression".

    Returns:
      a dict that can be written as JSON. For a regression, it contains "eval_mae", the mean absolute error,
      and "eval_rmse", the root of the mean squared error. For the other tasks, it contains "labels":
      {label: {"precision", "recall", "f1", "support"}}. The support is the number of rows with the label.
      For a classification, it also contains "eval_confusion_matrix", a list of lists. Each row of the matrix
      belongs to a label in the data, and each column belongs to a predicted label.
    """
    pairs = ((row.label, row.prediction) for row in rows if row.label is not None)
    if task_type == "regression":
        return _errors(pairs)
    indices = {label: index for index, label in enumerate(labels)}
    if task_type == "multilabel":
        # Three counts for each label: rows that have the label and for which the label was predicted; rows
        # that have the label; rows for which the label was predicted.
        counts = np.zeros((3, len(labels)), np.int64)
        for label, prediction in pairs:
            for count, names in zip(counts, (set(label) & set(prediction), set(label), set(prediction))):
                for name in names:
                    count[indices[name]] += 1
        return {"labels": _scores(labels, *counts)}
    matrix = np.zeros((len(labels), len(labels)), np.int64)
    for label, prediction in pairs:
        matrix[indices[label], indices[prediction]] += 1
    return {"labels": _scores(labels, matrix.diagonal(), matrix.sum(axis=1), matrix.sum(axis=0)),
            "eval_confusion_matrix": matrix.tolist()}


def _errors(pairs):
    errors = np.array([label - prediction for label, prediction in pairs], np.float64)
    if not len(errors):
        return {"eval_mae": 0.0, "eval_rmse": 0.0}
    return {"eval_mae": float(np.abs(errors).mean()), "eval_rmse": math.sqrt(np.square(errors).mean())}


def _scores(labels, hits, actual, predicted):
    """Returns {label: {"precision", "recall", "f1", "support"}}.

    Args:
      labels: list of str.
      hits: int array: for each label, the number of rows that have this label and for which this label was
        predicted.
      actual: int array: for each label, the number of rows that have this label.
      predicted: int array: for each label, the number of rows for which this label was predicted.
    """
    scores = {}
    for label, hit, real, found in zip(labels, hits.tolist(), actual.tolist(), predicted.tolist()):
        scores[label] = {"precision": hit / found if found else 0.0, "recall": hit / real if real else 0.0,
                         "f1": 2 * hit / (real + found) if real + found else 0.0, "support": real}
    return scores
