"""How metrics change while a model trains: evaluations at checkpoints, as a table and as a picture."""

import csv
import io
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.runs import charts
from bertlib.system import files


class LearningCurve(tf.train.CheckpointSaverListener):
    """Evaluates each checkpoint when it is saved, and writes what it found: learning_curve.tsv and .svg.

    A run that is resumed goes on with the table of the run before.
    """

    def __init__(self, directory, evaluate, title, shown):
        """Creates the listener.

        Args:
          directory: where the files go.
          evaluate: function without arguments that evaluates the newest checkpoint: {metric: number}.
          title: of the picture.
          shown: {metric: its name in the picture} of those that the picture shows; numbers from 0 to 1.
        """
        self._path = os.path.join(directory, "learning_curve")
        self._evaluate = evaluate
        self._title = title
        self._shown = shown

    def after_save(self, session, global_step_value):
        del session
        rows = [row for row in self._read() if row["global_step"] < global_step_value]
        rows.append({name: value for name, value in sorted(self._evaluate().items()) if np.ndim(value) == 0})
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[-1]), dialect="excel-tab", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files.write_text(self._path + ".tsv", table.getvalue())
        series = {name: [(row["global_step"], row[metric]) for row in rows]
                  for metric, name in self._shown.items()}
        files.write_text(self._path + ".svg", charts.line_chart(self._title, series))

    def _read(self):
        """The table's rows, [{metric: number}]; none if there is no table, or it is one of other metrics."""
        if not tf.gfile.Exists(self._path + ".tsv"):
            return []
        with tf.gfile.GFile(self._path + ".tsv") as reader:
            rows = list(csv.DictReader(reader.read().splitlines(), dialect="excel-tab"))
        needed = {"global_step", *self._shown}
        return [{name: json.loads(value) for name, value in row.items()} for row in rows
                if needed <= set(row)]
