"""Contains the class for a run of a sweep and its result. Ranks the runs, and computes statistics of their
results."""

import dataclasses
import functools
import hashlib
import math
import re

import numpy as np

from bertlib.runs import best_weights
from bertlib.system import files

NEW, DONE, DIVERGED, FAILED, RUNNING = "new", "finished", "diverged", "failed", "running"
SEED = "seed"  # the setting in which repetitions of a run differ
NOT_REPEATED = DONE, DIVERGED  # runs with one of these statuses are not repeated
# If a finished run learned nothing, its message begins with this word.
DEGENERATE = "Degenerate"
# Longest name of a run's directory, without its hash. The names of the run's files add a suffix of up to 13
# bytes, such as ".json.partial", and file systems limit names to 255 bytes.
_MAX_NAME, _MAX_NAME_BYTES = 150, 230


@dataclasses.dataclass
class Run:
    """A run of a sweep, and its result.

    Attributes:
      settings: {flag: value as text}, in the order of the grid.
      status: NEW, RUNNING, DONE, DIVERGED or FAILED.
      metrics: {name: number}, the results of the evaluation. A number that is not finite is None.
      seconds: total time of the run. If the run was started several times, the times of all starts are added.
      message: the error message of a failed or diverged run, or a warning about the results.
      started: time of the last start, in seconds since 1970.
    """

    settings: dict
    status: str = NEW
    metrics: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    started: float = 0.0

    @functools.cached_property
    def name(self):
        """Name of the run's directory. It does not depend on the order of the settings."""
        exact = ".".join(f"{name}={value}" for name, value in sorted(self.settings.items()))
        readable = files.cut_name(re.sub(r"[^\w.+=-]", "_", exact)[:_MAX_NAME], _MAX_NAME_BYTES)
        if readable != exact:
            readable += "." + hashlib.blake2b(exact.encode(), digest_size=4).hexdigest()
        return readable

    def value(self, metric):
        """Returns the value of a metric; None if the run has no finite value."""
        return self.metrics.get(metric) if self.is_evaluated else None

    @property
    def is_evaluated(self):
        """Whether the run has ended with an evaluation, even if a metric is not a finite number."""
        return self.status in NOT_REPEATED and bool(self.metrics)

    def judged_by(self, metric):
        """Returns the run with the status that a metric gives it. A run that was evaluated is DIVERGED if its
        value of this metric is not a finite number, and DONE otherwise. Other runs keep their status."""
        if not self.is_evaluated:
            return self
        if metric in self.metrics and self.metrics[metric] is None:
            return dataclasses.replace(self, status=DIVERGED, message=f"{metric} is not a finite number.")
        return dataclasses.replace(self, status=DONE)


def set_result(run, outcome, results):
    """Sets the status, the metrics and the message of a run that has ended.

    A run diverged if the training stopped because the loss or the gradients were not finite. The metric of
    the sweep can change later, so it has no effect here; see `Run.judged_by`.

    Args:
      run: the `Run`.
      outcome: the `child_processes.Outcome` of the run.
      results: {metric: value}, the content of eval_results.json; None if there are none.
    """
    if outcome.exit_code:
        run.status = DIVERGED if outcome.outcome == DIVERGED else FAILED
        run.message = outcome.message or f"The process ended with the exit code {outcome.exit_code}."
        return
    if results is None:
        run.status, run.message = FAILED, ("The run wrote no eval_results.json. Add --do_eval=true to the "
                                           "training command.")
        return
    run.metrics = {name: value if value is not None and math.isfinite(value) else None
                   for name, value in results.items() if value is None or isinstance(value, int | float)}
    run.status, run.message = DONE, _degeneracy(results.get("eval_confusion_matrix"))


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


def by_rank(runs, metric):
    """Returns the runs that have a value of the metric, the best run first. Runs with equal values keep their
    order."""
    sign = 1 if best_weights.is_lower_better(metric) else -1
    evaluated_runs = [run for run in runs if run.value(metric) is not None]
    return sorted(evaluated_runs, key=lambda run: sign * run.value(metric))


def ranks(ranking, metric):
    """Returns {value of the metric: rank, from 1}. Equal values have the same rank.

    Args:
      ranking: the result of `by_rank`.
      metric: name of the metric.
    """
    rank_of_value = {}
    for number, run in enumerate(ranking, 1):
        rank_of_value.setdefault(run.value(metric), number)
    return rank_of_value


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
    values = np.sort(np.asarray(values, np.float64))
    values = values[::-1] if lower else values
    shares = np.arange(len(values) + 1) / max(1, len(values))
    return [float(np.sum(values * np.diff(shares ** count))) for count in range(1, len(values) + 1)]
