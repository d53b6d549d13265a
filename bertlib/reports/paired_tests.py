"""Uses statistical tests of SciPy to decide whether the results of two trainings differ. Puts the conclusion
into words."""

import functools

import numpy as np

from bertlib.reports import intervals


def compare_values(metric, values, interval, is_lower_better=False, unit="points"):
    """Returns the difference of a metric between two trainings, as a dict that can be written as JSON.

    Args:
      metric: name of the metric.
      values: [value of the first training, value of the second training].
      interval: [low, high], the 95 % confidence interval of the second value minus the first value.
      is_lower_better: whether a lower value of the metric is better, as for a loss.
      unit: "points" for a metric in percent, otherwise "".

    Returns:
      the arguments; "difference", the second value minus the first value; and "is_evidence", whether 0 is
      outside of the interval, which is evidence of a difference.
    """
    return {"metric": metric, "values": values, "difference": values[1] - values[0], "interval": interval,
            "is_lower_better": is_lower_better, "unit": unit,
            "is_evidence": bool(interval[0] > 0 or interval[1] < 0)}


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
    differences = np.subtract(second, first)
    t_test = {"test": "paired t-test", "n": len(differences),
              **_test(load_scipy().ttest_1samp, differences.mean(), np.ptp(differences), differences, 0)}
    is_constant = np.ptp(differences) == 0
    wilcoxon = t_test["p_value"] if is_constant else float(load_scipy().wilcoxon(second, first).pvalue)
    return {**t_test, "p_value_wilcoxon": wilcoxon}


def compare_groups(first, second):
    """Compares two groups of values that are not paired, by Welch's t-test.

    Returns:
      {"test", "n": [size of the first group, size of the second group], "p_value", "interval"}.
    """
    return {"test": "Welch's t-test", "n": [len(first), len(second)],
            **_test(functools.partial(load_scipy().ttest_ind, equal_var=False),
                    np.mean(second) - np.mean(first), np.ptp(first) + np.ptp(second), second, first)}


def _test(test, difference, spread, *values):
    """Returns the p-value of a test of SciPy, and the confidence interval of a difference. A test would
    divide by the standard deviation. So without a spread of the values, the interval is the difference
    itself."""
    if spread == 0:
        return {"p_value": None if difference else 1.0, "interval": [float(difference)] * 2}
    result = test(*values)
    interval = result.confidence_interval(intervals.CONFIDENCE)
    return {"p_value": float(result.pvalue), "interval": [float(interval.low), float(interval.high)]}


def to_words(result, names):
    """Returns the conclusion in words, such as "1.2 points, 95 % interval -0.4 to 2.8: no evidence of a
    difference".

    Args:
      result: the result of `describe`.
      names: names of the two trainings.
    """
    unit = result["unit"]
    first, second, difference, low, high = (
        f"{value:.1f}" if unit else f"{value:.4g}"
        for value in (*result["values"], result["difference"], *result["interval"]))
    conclusion = "no evidence of a difference"
    if result["is_evidence"]:
        is_second = (result["difference"] > 0) != result["is_lower_better"]
        conclusion = f"evidence that {names[is_second]} is better"
    return (f"{result['metric']}: {first} -> {second}: {difference}{f' {unit}' * bool(unit)}, 95 % interval "
            f"{low} to {high}: {conclusion}")
