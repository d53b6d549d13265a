"""How metrics change while a model trains: evaluations at checkpoints, as a table and as a picture."""

import csv
import io
import json
import os
import xml.sax.saxutils

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.runtime import files

_COLORS = ("#4878a8", "#c05a28", "#4a9a5a", "#8a62a8")
# The plot within the picture: left, top, right, bottom.
_LEFT, _TOP, _RIGHT, _BOTTOM = 70, 40, 590, 330


class LearningCurve(tf.train.CheckpointSaverListener):
    """Evaluates each checkpoint when it is saved, and writes what was found so far: learning_curve.tsv and .svg.

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
        series = {name: [(row["global_step"], row[metric]) for row in rows] for metric, name in self._shown.items()}
        files.write_text(self._path + ".svg", line_chart(self._title, series))

    def _read(self):
        """The table's rows, [{metric: number}]; none if there is no table, or it is one of other metrics."""
        if not tf.gfile.Exists(self._path + ".tsv"):
            return []
        with tf.gfile.GFile(self._path + ".tsv") as reader:
            rows = list(csv.DictReader(reader.read().splitlines(), dialect="excel-tab"))
        needed = {"global_step", *self._shown}
        return [{name: json.loads(value) for name, value in row.items()} for row in rows if needed <= set(row)]


def line_chart(title, series):
    """Returns lines over the training steps as SVG.

    Args:
      title: str.
      series: {name: [(step, value from 0 to 1), …]}; steps ascend.
    """
    last_step = max([step for points in series.values() for step, _ in points] + [1])

    def place(step, value):
        return f"{_LEFT + (_RIGHT - _LEFT) * step / last_step:.1f},{_BOTTOM - (_BOTTOM - _TOP) * value:.1f}"

    def text(x, y, content, anchor="start", color="black"):
        return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{xml.sax.saxutils.escape(content)}</text>'

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 380" width="820" height="380" font-family="sans-serif" '
             'font-size="13">', '<rect width="100%" height="100%" fill="white"/>', text(_LEFT, 24, title),
             text((_LEFT + _RIGHT) // 2, _BOTTOM + 42, "training steps", "middle")]
    for fifth in range(6):
        y, x = _BOTTOM - (_BOTTOM - _TOP) * fifth // 5, _LEFT + (_RIGHT - _LEFT) * fifth // 5
        parts += [f'<path d="M{_LEFT},{y}H{_RIGHT}" stroke="#ddd"/>', text(_LEFT - 8, y + 4, f"{20 * fifth} %", "end"),
                  text(x, _BOTTOM + 20, f"{last_step * fifth / 5:g}", "middle")]
    for (name, points), color in zip(series.items(), _COLORS):
        line = " ".join(place(*point) for point in points)
        x, y = place(*points[-1]).split(",")
        parts += [f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
                  text(float(x) + 8, float(y) + 4, f"{name}: {100 * points[-1][1]:.1f} %", color=color)]
    return "\n".join([*parts, "</svg>", ""])
