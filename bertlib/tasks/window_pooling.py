"""Combines the predictions for the windows of a text into one prediction for the text."""

import numpy as np


def pooled(rows, counts):
    """Averages the predictions for the windows of each text.

    Args:
      rows: list of {name: array or number}, a prediction for each window, in the order of the texts.
      counts: the number of windows of each text, positive ints.

    Returns:
      list of {name: float32 array or number}: for each text, the mean over its windows. For a text with a
      single window, this is the prediction for the window, bit for bit.
    """
    if not rows:
        return []
    starts = np.cumsum([0, *counts[:-1]])
    means = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        sums = np.add.reduceat(values.astype(np.float64), starts)
        means[name] = (sums.T / counts).T.astype(values.dtype)
    return [{name: values[index] for name, values in means.items()} for index in range(len(counts))]
