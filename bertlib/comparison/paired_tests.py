"""Uses statistical tests of SciPy to decide whether the results of two trainings differ. Puts the conclusion
into words."""

from typing import NamedTuple
import warnings

import numpy as np

CONFIDENCE = 0.95


class Difference(NamedTuple):
    """The difference of a metric between two trainings.

    Attributes:
      metric: name of the metric.
      values: [value of the first training, value of the second training].
      difference: the value of the second training minus the value of the first training.
      interval: [low, high], the 95 % confidence interval of the difference.
      is_lower_better: whether a lower value of the metric is better, as for a loss.
      unit: "points" for a metric in percent, otherwise "".
    """

    metric: str
    values: list
    difference: float
    interval: list
    is_lower_better: bool = False
    unit: str = "points"

    @property
    def is_evidence(self):
        """Whether 0 is outside of the interval. If so, this is evidence of a difference."""
        return bool(self.interval[0] > 0 or self.interval[1] < 0)


def load_scipy():
    """Returns the module `scipy.stats`.

    Raises:
      ImportError: SciPy is not installed.
    """
    try:
        # The import is here and not at the top, because only the statistical tests need SciPy.
        import scipy.stats
    except ImportError as error:
        raise ImportError(f"SciPy is needed for statistical tests, and cannot be imported ({error}). Install "
                          "it: pip install -r requirements-stats.txt") from error
    return scipy.stats


def bootstrap_interval(metrics, count, resamples, seed):
    """Returns a confidence interval of the difference of a metric, by the paired percentile bootstrap.

    Args:
      metrics: two functions, one for each training. A function takes an int array with the indices of some
        rows, and returns the metric of the training on these rows.
      count: number of rows.
      resamples: number of bootstrap samples.
      seed: int. The same seed gives the same interval.

    Returns:
      [low, high].
    """
    first, second = metrics
    rows = np.arange(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns if the difference is the same in all samples
        interval = load_scipy().bootstrap(
            (rows, rows), lambda one, other: second(other) - first(one), paired=True, vectorized=False,
            n_resamples=resamples, confidence_level=CONFIDENCE, method="percentile",
            rng=np.random.default_rng(seed)).confidence_interval
    return [float(interval.low), float(interval.high)]


def mcnemar(first, second):
    """Returns the result of McNemar's exact test.

    Args:
      first, second: lists of bool, one list for each training, with one element for each row. An element is
        True if the training's prediction for the row is right.

    Returns:
      {"only_first": number of rows for which only the first training is right, "only_second": number of rows
      for which only the second training is right, "discordant": the sum of these two numbers, "p_value"}.
    """
    only_first = sum(one and not other for one, other in zip(first, second))
    only_second = sum(other and not one for one, other in zip(first, second))
    total = only_first + only_second
    p_value = load_scipy().binomtest(only_first, total, 0.5).pvalue if total else 1.0
    return {"only_first": only_first, "only_second": only_second, "discordant": total,
            "p_value": float(p_value)}


def compare_pairs(first, second):
    """Compares paired values by a paired t-test and Wilcoxon's signed-rank test.

    Returns:
      a dict: "test" (name of the first test), "n" (number of pairs), "p_value" (of the t-test),
      "p_value_wilcoxon", and "interval" (confidence interval [low, high] of the mean difference).
    """
    stats, first, second = load_scipy(), np.asarray(first, float), np.asarray(second, float)
    found = {"test": "paired t-test", "n": len(first)}
    differences = second - first
    if np.ptp(differences) == 0:  # the tests would divide by the standard deviation, which is 0
        mean = float(differences.mean())
        return {**found, "p_value": None if mean else 1.0, "p_value_wilcoxon": None if mean else 1.0,
                "interval": [mean, mean]}
    test = stats.ttest_rel(second, first)
    interval = test.confidence_interval(CONFIDENCE)
    return {**found, "p_value": float(test.pvalue),
            "p_value_wilcoxon": float(stats.wilcoxon(second, first).pvalue),
            "interval": [float(interval.low), float(interval.high)]}


def compare_groups(first, second):
    """Compares two groups of values that are not paired, by Welch's t-test.

    Returns:
      {"test", "n": [size of the first group, size of the second group], "p_value", "interval"}.
    """
    stats, first, second = load_scipy(), np.asarray(first, float), np.asarray(second, float)
    found = {"test": "Welch's t-test", "n": [len(first), len(second)]}
    if np.ptp(first) == np.ptp(second) == 0:
        mean = float(second.mean() - first.mean())
        return {**found, "p_value": None if mean else 1.0, "interval": [mean, mean]}
    test = stats.ttest_ind(second, first, equal_var=False)
    interval = test.confidence_interval(CONFIDENCE)
    return {**found, "p_value": float(test.pvalue), "interval": [float(interval.low), float(interval.high)]}


def to_words(difference, names):
    """Returns the conclusion in words, such as "1.2 points, 95 % interval -0.4 to 2.8: no evidence of a
    difference".

    Args:
      difference: a `Difference`.
      names: names of the two trainings.
    """
    def number(value):
        return f"{value:.1f}" if difference.unit else f"{value:.4g}"

    if not difference.is_evidence:
        conclusion = "no evidence of a difference"
    else:
        is_second = (difference.difference > 0) != difference.is_lower_better
        conclusion = f"evidence that {names[is_second]} is better"
    unit = f" {difference.unit}" if difference.unit else ""
    return (f"{difference.metric}: {number(difference.values[0])} -> {number(difference.values[1])}: "
            f"{number(difference.difference)}{unit}, 95 % interval {number(difference.interval[0])} to "
            f"{number(difference.interval[1])}: {conclusion}")
