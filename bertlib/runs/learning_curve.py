"""The learning curve of a training: the metrics of each checkpoint, as a table and as a picture.

`create_listeners` is the place for listeners that evaluate during a training: the curve is one listener.
"""

import csv
import functools
import io
import math
import os

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.replicas import replica_group
from bertlib.runs import charts
from bertlib.system import files

TABLE, PICTURE = "learning_curve.tsv", "learning_curve.svg"


def check(settings, needs_do_eval=True):
    """Checks that --eval_each_checkpoint agrees with the other flags.

    Args:
      settings: a `Settings`.
      needs_do_eval: whether the command reads the data to evaluate on with --do_eval only.

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


def create_listeners(settings, make_input_fn, evaluate, title, shown, full_score=1.0):
    """Returns the listeners with which `Estimator.train` evaluates as the flags ask: with
    --eval_each_checkpoint a `LearningCurve`, otherwise none.

    Evaluates the newest checkpoint at once if a killed run saved it and did not evaluate it. So all replicas
    have to call this, before the training.

    Args:
      settings: a `Settings`, checked.
      make_input_fn: function without arguments that writes the data to evaluate on and returns its input_fn.
      evaluate: function of this input_fn that evaluates the newest checkpoint: {metric: number}.
      title, shown, full_score: see `LearningCurve`.
    """
    if not settings.eval_each_checkpoint:
        return []
    curve = LearningCurve(settings.output_dir, functools.partial(evaluate, make_input_fn()), title, shown,
                          full_score)
    step, group = curve.missing_step(), replica_group.current()
    step = group.broadcast(step) if group else step
    if step is not None:
        curve.add(step)
    return [curve]


class LearningCurve(tf.train.CheckpointSaverListener):
    """Evaluates each checkpoint when it is saved, and writes learning_curve.tsv and learning_curve.svg.

    A run that is resumed continues the table of the run before: rows of earlier steps stay.
    """

    def __init__(self, directory, evaluate, title, shown, full_score=1.0):
        """Creates the listener.

        Args:
          directory: of the checkpoints and of the files.
          evaluate: function without arguments that evaluates the newest checkpoint: {metric: number}.
          title: of the picture.
          shown: {metric: its name in the picture} of the metrics that the picture shows.
          full_score: value of these metrics that the picture shows as 100 %.
        """
        self._directory, self._evaluate = directory, evaluate
        self._title, self._shown, self._full_score = title, shown, full_score

    def after_save(self, session, global_step_value):
        del session
        self.add(global_step_value)

    def missing_step(self):
        """Returns the step of the newest checkpoint if the table has no row for it, else None."""
        newest = checkpoint_formats.latest_checkpoint(self._directory)
        step = checkpoint_formats.read_global_step(newest) if newest else None
        return None if step in [int(row["global_step"]) for row in self._read()] else step

    def add(self, step):
        """Evaluates the newest checkpoint, of this step; writes its row in the place of those from this step
        on."""
        rows = [row for row in self._read() if int(row["global_step"]) < step]
        rows.append({name: str(value) for name, value in self._evaluate().items() if np.ndim(value) == 0})
        table = io.StringIO()
        # Metrics may appear late, such as those of an entity type that was not predicted before.
        writer = csv.DictWriter(table, sorted(set().union(*rows)), dialect="excel-tab", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        picture = charts.line_chart(self._title, {
            name: self._points(rows, metric) for metric, name in self._shown.items()})
        # The table comes last: a step with a row is complete.
        files.write_text(os.path.join(self._directory, PICTURE), picture)
        files.write_text(os.path.join(self._directory, TABLE), table.getvalue())

    def _points(self, rows, metric):
        """Returns [(step, share of the full score)] of a metric; a correlation may be NaN, which has no
        place."""
        points = [(int(row["global_step"]), float(row[metric]) / self._full_score) for row in rows]
        return [(step, value) for step, value in points if math.isfinite(value)]

    def _read(self):
        """Returns the rows of the table as {metric: text}; without a table none. Rows of other metrics, such
        as another command's, are left out, as are damaged ones."""
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
