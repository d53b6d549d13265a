"""The evaluations during a training: checks their flags, reads their table, learning_curve.tsv, and decides
from it whether the training stops early. `bertlib.tasks.training_with_evaluations` evaluates and writes the
table.

Early stopping reads its state from this table. In the rows up to the newest checkpoint, it finds the best
evaluation, and counts the evaluations after the best one. A training that continues from a checkpoint first
removes the rows of later steps. So a killed training continues as if it had not been killed.
"""

import contextlib
import csv
import fnmatch
import io
import math
import os

from bertlib.runs import best_weights, record_comparison
from bertlib.system import files

FILES = TABLE, PICTURE = "learning_curve.tsv", "learning_curve.svg"
_SETTINGS = ("eval_each_checkpoint", *record_comparison.EVALUATIONS)


# --- Flags -----------------------------------------------------------------------------------------------


def is_requested(settings):
    """Returns whether the flags request evaluations during the training."""
    return bool(settings.eval_each_checkpoint or settings.eval_every_steps)


def check_flags(settings, needs_do_eval=True):
    """Checks that the flags for evaluations during a training agree with the other flags and with the files
    in --output_dir. Writes nothing.

    Args:
      settings: a `Settings`.
      needs_do_eval: whether the command reads the development set only if --do_eval=true is given.

    Raises:
      ValueError: flags are missing or contradict each other, or --output_dir contains the best weights of a
        different training.
    """
    if settings.do_train and files.exists(os.path.join(settings.output_dir, best_weights.FILE)):
        raise ValueError(f"--output_dir={settings.output_dir} contains the best weights of a training, "
                         "without the state of the optimizer. A training cannot continue from them. To start "
                         f"from these weights, pass --init_checkpoint={settings.output_dir} and another "
                         "--output_dir.")
    if any(getattr(settings, name) not in (None, False) for name in _SETTINGS):
        _check_given_flags(settings, needs_do_eval)


def _check_given_flags(settings, needs_do_eval):
    """Checks the flags in `_SETTINGS`; see `check_flags`."""
    if is_requested(settings):
        name = "eval_every_steps" if settings.eval_every_steps else "eval_each_checkpoint"
        for needed in ["do_train", "do_eval"] if needs_do_eval else ["do_train"]:
            if not getattr(settings, needed):
                value = settings.eval_every_steps or "true"
                raise ValueError(f"--{name}={value} needs --{needed}=true: the model is evaluated during the "
                                 f"training, with the data of --do_eval. Pass --{needed}=true, or leave "
                                 f"--{name} out.")
    if settings.early_stopping_evals is not None and settings.keep_best is None:
        raise ValueError(f"--early_stopping_evals={settings.early_stopping_evals} needs --keep_best=METRIC, "
                         "the metric that has to improve. Pass --keep_best, such as --keep_best=eval_loss.")
    if settings.keep_best is None:
        return
    if not is_requested(settings):
        raise ValueError(f"--keep_best={settings.keep_best} needs evaluations during the training. Pass "
                         "--eval_every_steps=N or --eval_each_checkpoint=true.")
    rows, newest_step = restorable_rows(settings.output_directory)
    names = {name for row in rows for name in row} - {"global_step"}
    if not settings.keep_best or names and settings.keep_best not in names:
        raise ValueError(describe_unknown_metric("keep_best", settings.keep_best, names))
    best_weights.BestWeights(settings.output_directory, settings.keep_best).plan(
        finite_values(rows, settings.keep_best), newest_step)


def check_metric(flag, metric, names):
    """Checks the metric that a flag names, before any training.

    Args:
      flag, metric: the name of the flag, and its value.
      names: see `known_metrics` of `bertlib.tasks.target`. Without names, nothing is checked.

    Raises:
      ValueError: the evaluations will not have the metric.
    """
    if names and not any(fnmatch.fnmatchcase(metric, name) for name in names):
        raise ValueError(describe_unknown_metric(flag, metric, names))


def describe_unknown_metric(flag, metric, names):
    """Returns the error message for a flag whose metric the evaluations do not have."""
    known = (f"The metrics of this command are {', '.join(sorted(names))}." if names
             else "Name a metric in eval_results.txt or eval_results.json, such as eval_loss.")
    hint = f" Did you mean eval_{metric}?" if f"eval_{metric}" in names else ""
    return f"--{flag}={metric}: the evaluation has no such metric.{hint} {known}"


# --- The table -------------------------------------------------------------------------------------------


def read_rows(directory):
    """Returns the rows of the table in a directory as a list of {metric: text}, sorted by step. The list is
    empty if there is no table. Rows without a step are left out."""
    path = os.path.join(directory, TABLE)
    if not files.exists(path):
        return []
    rows = csv.DictReader(io.StringIO(files.read_text(path)), dialect="excel-tab")
    return sorted(({name: text for name, text in row.items() if name and text} for row in rows
                   if (row.get("global_step") or "").isdecimal()), key=lambda row: int(row["global_step"]))


def restorable_rows(training):
    """Returns (the rows of the table up to the newest checkpoint, the step of this checkpoint). Without a
    checkpoint, returns ([], None). `training` is an `OutputDirectory`."""
    step = training.step
    rows = [] if step is None else read_rows(training.path)
    return [row for row in rows if int(row["global_step"]) <= step], step


def finite_values(rows, metric):
    """Returns a list of (step, value of a metric) from rows of the table. Values that are missing, NaN or
    infinite are left out, for example a correlation that is not defined."""
    values = []
    for row in rows:
        with contextlib.suppress(KeyError, ValueError):
            values.append((int(row["global_step"]), float(row[metric])))
    return [(step, value) for step, value in values if math.isfinite(value)]


def points(rows, metric_titles, full_score=1.0):
    """Returns the points of the curves in the picture, {name of a curve: list of (step, value / full_score)}.

    Args:
      rows: list of {metric: text}, sorted by step.
      metric_titles: {metric: name of its curve}.
      full_score: the best possible value of the metrics, which the picture shows as 100 %.
    """
    return {name: [(step, value / full_score) for step, value in finite_values(rows, metric)]
            for metric, name in metric_titles.items()}


# --- Early stopping --------------------------------------------------------------------------------------


def is_early_stop(settings, best_so_far, rows):
    """Returns whether a training ends early: --early_stopping_evals or more evaluations follow the best one.

    Args:
      settings: a `Settings`.
      best_so_far: the `best_weights.BestWeights` of the training.
      rows: all evaluations, a list of {metric: text}.
    """
    if settings.early_stopping_evals is None:
        return False
    values = finite_values(rows, settings.keep_best)
    best = best_so_far.choose(values)
    return best is not None and sum(step > best[0] for step, _ in values) >= settings.early_stopping_evals


def find_early_stop(settings):
    """Returns the step at which early stopping has ended the training in --output_dir; None if early stopping
    has not ended the training.

    Args:
      settings: a `Settings` of a training with --early_stopping_evals.
    """
    rows, newest_step = restorable_rows(settings.output_directory)
    best = best_weights.BestWeights(settings.output_directory, settings.keep_best)
    return newest_step if is_early_stop(settings, best, rows) else None
