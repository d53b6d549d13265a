"""Windows of a text: what is predicted of each, made one prediction of the text."""

import numpy as np


def pooled(rows, counts):
    """Averages what is predicted of each text's windows.

    Args:
      rows: list of {name: array or number}, predictions of windows, text after text.
      counts: the number of windows of each text, positive ints.

    Returns:
      list of {name: float32 array or number}: for each text the mean over its windows. Of a single window
      that is its prediction, bit for bit.
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
