"""Computes 95 % confidence intervals of the metrics of an evaluation."""

import numpy as np

CONFIDENCE = 0.95
# An interval of more examples would be narrow.
_MAX_EXAMPLES, _RESAMPLES, _SEED = 2000, 1000, 0
_NORMAL_QUANTILE = 1.959963984540054  # a normal variable is between -q and q with the probability 0.95


def of_metrics(functions, count):
    """Returns {metric: [low, high]}. The interval of the accuracy is Wilson's; all others are bootstrapped.
    The result is empty if there are more than `_MAX_EXAMPLES` examples.

    Args:
      functions: {metric: function for `bootstrap`}.
      count: number of examples.
    """
    if count > _MAX_EXAMPLES:
        return {}
    return {metric: wilson(function(slice(None)), count) if metric == "eval_accuracy" else
            bootstrap(function, count, _RESAMPLES, _SEED) for metric, function in functions.items()}


def wilson(share, count):
    """Returns [low, high], Wilson's score interval (1927) of a share such as the accuracy.

    Args:
      share: the observed share, from 0 to 1.
      count: number of examples.
    """
    squared = _NORMAL_QUANTILE**2 / count
    half = _NORMAL_QUANTILE * np.sqrt(share * (1 - share) / count + squared / (4 * count))
    return [float((share + squared / 2 + sign * half) / (1 + squared)) for sign in (-1, 1)]


def bootstrap(metric, count, resamples, seed):
    """Returns [low, high], the percentile bootstrap interval of a metric.

    Args:
      metric: function that takes an int array with the indices of some rows, and returns the metric of these
        rows.
      count: number of rows.
      resamples: number of bootstrap samples.
      seed: int. The same seed gives the same interval.
    """
    chance = np.random.default_rng(seed)
    values = [metric(chance.integers(count, size=count)) for _ in range(resamples)]
    return np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
