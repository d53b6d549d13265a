"""Writes the learning curve of a training: the metrics of each checkpoint, as a table and as a picture
(--eval_each_checkpoint).

The commands evaluate during a training only with the listener that `start_learning_curve` returns. Three
other triggers of an evaluation during a training do not use this module:

- an evaluator process of TF_CONFIG (`bertlib.command_line.evaluator_process`)
- `train_and_evaluate` of tf1
- `InMemoryEvaluatorHook` of tf1

docs/development/paths.md#evaluation-during-a-training shows the calls of all four triggers.
"""

import csv
import functools
import io
import math
import os

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats, metrics_history
from bertlib.replicas import replica_group
from bertlib.reports import charts
from bertlib.system import files

TABLE, PICTURE = "learning_curve.tsv", "learning_curve.svg"


def check(settings, needs_do_eval=True):
    """Checks that --eval_each_checkpoint agrees with the other flags.

    Args:
      settings: a `Settings`.
      needs_do_eval: whether the command reads the development set only with --do_eval.

    Raises:
      ValueError: a flag is missing.
    """
    if not settings.eval_each_checkpoint:
        return
    if not settings.do_train:
        raise ValueError("--eval_each_checkpoint=true needs --do_train=true: a checkpoint is evaluated when "
                         "the training saves it. Pass --do_train=true, or leave --eval_each_checkpoint out.")
    if needs_do_eval and not settings.do_eval:
        raise ValueError("--eval_each_checkpoint=true needs --do_eval=true: without it, the data to evaluate "
                         "on is not read. Pass --do_eval=true, or leave --eval_each_checkpoint out.")


def start_learning_curve(settings, make_input_fn, evaluate_input, title, shown, full_score=1.0):
    """Evaluates the newest checkpoint if the learning curve has no row for it. Returns the listeners for
    `Estimator.train`.

    The row is missing if an earlier run was killed after it saved the checkpoint and before it evaluated the
    checkpoint. All replicas must call this function before the training.

    Args:
      settings: a `Settings`, checked.
      make_input_fn: function without arguments that writes the features of the development set and returns
        the input_fn that reads these features.
      evaluate_input: function that takes the result of `make_input_fn`, evaluates the newest checkpoint and
        returns {metric: number}.
      title, shown, full_score: see `LearningCurve`.

    Returns:
      a list with one `LearningCurve` if --eval_each_checkpoint is given, otherwise an empty list.
    """
    if not settings.eval_each_checkpoint:
        return []
    evaluate = functools.partial(evaluate_input, make_input_fn())
    curve = LearningCurve(settings.output_dir, evaluate, title, shown, full_score)
    step, group = curve.missing_step(), replica_group.current()
    step = group.broadcast(step) if group else step
    if step is not None:
        curve.evaluate_and_add(step)
    return [curve]


def read_points(directory, shown, full_score=1.0):
    """Returns the points of a learning curve, {name in the picture: list of (step, share of the full score)}.
    The lists are empty if the directory has no learning_curve.tsv.

    Args:
      directory: output directory of a training.
      shown, full_score: see `LearningCurve`.
    """
    curve = LearningCurve(directory, None, None, shown, full_score)
    return curve.points(curve.read())


class LearningCurve(tf.train.CheckpointSaverListener):
    """Evaluates each checkpoint when it is saved. Writes learning_curve.tsv and learning_curve.svg, and adds
    the metrics to metrics.jsonl.

    A resumed run continues the table and keeps the rows of earlier steps.
    """

    def __init__(self, directory, evaluate, title, shown, full_score=1.0):
        """Creates the listener.

        Args:
          directory: directory of the checkpoints. The table and the picture are also written to this
            directory.
          evaluate: function without arguments that evaluates the newest checkpoint and returns {metric:
            number}.
          title: title of the picture.
          shown: {metric: its name in the picture}. The picture shows only these metrics.
          full_score: the value of the shown metrics that the picture shows as 100 %, such as 1.0 or 100.0.
        """
        self._directory, self._evaluate = directory, evaluate
        self._title, self._shown, self._full_score = title, shown, full_score

    def after_save(self, session, global_step_value):
        del session
        self.evaluate_and_add(global_step_value)

    def missing_step(self):
        """Returns the step of the newest checkpoint if the table has no row for this step; otherwise None."""
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        step = checkpoint_formats.read_global_step(newest) if newest else None
        return None if step in [int(row["global_step"]) for row in self.read()] else step

    def evaluate_and_add(self, step):
        """Evaluates the newest checkpoint and adds its row to the table. Existing rows of this step and of
        later steps are removed.

        Args:
          step: the step of the newest checkpoint.
        """
        rows = [row for row in self.read() if int(row["global_step"]) < step]
        metrics = self._evaluate()
        rows.append({name: str(value) for name, value in metrics.items() if np.ndim(value) == 0})
        table = io.StringIO()
        # A later row may have a metric that earlier rows lack, such as the F1 of an entity type that was not
        # predicted before.
        writer = csv.DictWriter(table, sorted(set().union(*rows)), dialect="excel-tab", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        picture = charts.line_chart(self._title, self.points(rows))
        # The table is written last, so that a step with a row is also in the history and in the picture.
        metrics_history.MetricsHistory(self._directory).add_evaluation(step, "dev", metrics)
        files.write_text(os.path.join(self._directory, PICTURE), picture)
        files.write_text(os.path.join(self._directory, TABLE), table.getvalue())

    def points(self, rows):
        """Returns {name in the picture: list of (step, share of the full score)} for rows of the table.
        Values that are NaN are left out, for example a correlation that is not defined."""
        curves = {name: [(int(row["global_step"]), float(row[metric]) / self._full_score) for row in rows]
                  for metric, name in self._shown.items()}
        return {name: [(step, value) for step, value in points if math.isfinite(value)]
                for name, points in curves.items()}

    def read(self):
        """Returns the rows of the table as a list of {metric: text}. The list is empty if there is no table.
        Damaged rows are left out. Rows of another command are also left out, because they lack a metric of
        the picture."""
        path = os.path.join(self._directory, TABLE)
        if not files.exists(path):
            return []
        rows = csv.DictReader(io.StringIO(files.read_text(path)), dialect="excel-tab")
        return [{name: text for name, text in row.items() if name and text}
                for row in rows if self._is_usable(row)]

    def _is_usable(self, row):
        try:
            int(row["global_step"]), [float(row[metric]) for metric in self._shown]
        except (KeyError, TypeError, ValueError):
            return False
        return True
