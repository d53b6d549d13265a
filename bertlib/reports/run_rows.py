"""Contains the class for the result of a run in a sweep. Ranks the runs, and computes statistics of their
results."""

import dataclasses
import math

import numpy as np

from bertlib.runs import best_weights

DONE, DIVERGED, FAILED, RUNNING = "finished", "diverged", "failed", "running"
NOT_REPEATED = DONE, DIVERGED  # runs with one of these statuses are not repeated
# If a finished run learned nothing, its message begins with this word.
DEGENERATE = "Degenerate"


@dataclasses.dataclass
class Row:
    """The result of a run.

    Attributes:
      settings: {flag: value as text}.
      status: DONE, DIVERGED, FAILED or RUNNING.
      metrics: {name: number}, the results of the evaluation. A number that is not finite is None.
      seconds: total time of the run. If the run was started several times, the times of all starts are added.
      message: the error message of a failed or diverged run, or a warning about the results.
      started: time of the last start, in seconds since 1970.
    """

    settings: dict
    status: str = RUNNING
    metrics: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    started: float = 0.0

    def value(self, metric):
        """Returns the value of a metric; None if the run has no finite value."""
        return self.metrics.get(metric) if self.status == DONE else None


def of_ended_run(row, outcome, results, metric):
    """Sets the status, the metrics and the message in the row of a run that has ended.

    A run diverged if the training stopped because the loss or the gradients were not finite. A run also
    diverged if the value of the metric in the evaluation is not a finite number.

    Args:
      row: the `Row`.
      outcome: the `child_processes.Outcome` of the run.
      results: {metric: value}, the content of eval_results.json; None if there are none.
      metric: name of the metric of the sweep.
    """
    if outcome.exit_code:
        row.status = DIVERGED if outcome.outcome == DIVERGED else FAILED
        row.message = outcome.message or f"The process ended with the exit code {outcome.exit_code}."
        return
    if results is None:
        row.status, row.message = FAILED, ("The run wrote no eval_results.json. Add --do_eval=true to the "
                                           "training command.")
        return
    row.metrics = {name: value if value is not None and math.isfinite(value) else None
                   for name, value in results.items() if value is None or isinstance(value, int | float)}
    row.status, row.message = DONE, ""
    if metric in row.metrics and row.metrics[metric] is None:
        row.status, row.message = DIVERGED, f"{metric} is not a finite number."
    else:
        row.message = _degeneracy(results.get("eval_confusion_matrix"))


def _degeneracy(matrix):
    """Returns a warning if a classifier is not better than a constant answer, otherwise "".

    Args:
      matrix: the confusion matrix (rows are labels, columns are predictions); None if the results have
        no matrix.
    """
    if matrix is None or np.ndim(matrix) != 2:
        return ""
    matrix = np.asarray(matrix)
    if np.count_nonzero(matrix.sum(axis=0)) == 1:
        return f"{DEGENERATE}: the model predicts the same class for all examples."
    right, majority = np.trace(matrix), matrix.sum(axis=1).max()
    if right < majority:
        return (f"{DEGENERATE}: {right} of {matrix.sum()} predictions are right. A constant prediction of "
                f"the most frequent class would have {majority} right.")
    return ""


# --- Ranks and statistics --------------------------------------------------------------------------------


def by_rank(rows, metric):
    """Returns the rows that have a value of the metric, the best row first. Rows with equal values keep their
    order."""
    sign = 1 if best_weights.is_lower_better(metric) else -1
    ranked = [row for row in rows if row.value(metric) is not None]
    return sorted(ranked, key=lambda row: sign * row.value(metric))


def ranks(ranked, metric):
    """Returns {value of the metric: rank, from 1}. Equal values have the same rank.

    Args:
      ranked: the result of `by_rank`.
      metric: name of the metric.
    """
    found = {}
    for number, row in enumerate(ranked, 1):
        found.setdefault(row.value(metric), number)
    return found


def expected_best(values, lower):
    """Returns a list. Its element k - 1 is the expected value of the best of k results. k goes from 1 to the
    number of values.

    The k results are drawn from the values at random, with replacement (Dodge et al. 2019, arXiv:1909.03004,
    and 2020, arXiv:2002.06305). If the n values are sorted in ascending order, value number i is the maximum
    of k draws with the probability (i/n)^k − ((i−1)/n)^k.

    Args:
      values: list of numbers.
      lower: whether the best value is the lowest one.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    ordered = ordered[::-1] if lower else ordered
    shares = np.arange(len(ordered) + 1) / max(1, len(ordered))
    return [float(np.sum(ordered * np.diff(shares ** count))) for count in range(1, len(ordered) + 1)]
