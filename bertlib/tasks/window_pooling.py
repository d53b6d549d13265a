"""Combines the predictions for the windows of a text into one prediction for the text."""

import numpy as np


def pooled(rows, counts):
    """Averages the predictions for the windows of each text.

    Args:
      rows: list of {name: array or number}, a prediction for each window. First come all windows of the first
        text, then all windows of the second text, and so on.
      counts: list of positive ints, the number of windows of each text.

    Returns:
      list of {name: array or number}, with the dtypes of `rows`: for each text, the mean over its windows. If
      a text has only one window, the mean is equal to the prediction for this window, bit for bit.
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
