"""Tables of predictions that were read again, and the metrics that are computed from them."""

import math
from typing import Any, NamedTuple

import numpy as np


def read_number(value):
    """Returns a number of a table, which may have a decimal comma, as a float.

    Raises:
      TypeError, ValueError: the value is not a number.
    """
    return float(value.replace(",", ".") if isinstance(value, str) else value)


class PredictionTable(NamedTuple):
    """A table of predictions.

    Attributes:
      path: path of the file.
      target: the target of the model, see `bertlib.tasks.target`.
      record: dict, the description of the model, such as the content of its run.json.
      rows: list of {column: text}. In a table of JSON Lines, a value may also be a number or a list.
    """

    path: str
    target: Any
    record: Any
    rows: list

    def label_ids(self, name):
        """Returns the labels in a column as indices into the target's labels, an int array [number of rows].

        Raises:
          ValueError: a value is not one of the labels.
        """
        indices = {label: index for index, label in enumerate(self.target.labels)}
        ids = np.array([indices.get(str(row[name]), -1) for row in self.rows])
        if (ids < 0).any():
            number = int(np.argmax(ids < 0))
            raise ValueError(f"{self.path}: the {name} {self.rows[number][name]!r:.60} in row {number + 1} "
                             f"is not one of the labels {', '.join(indices)}. Restore the file.")
        return ids

    def numbers(self, name):
        """Returns the numbers in a column, a float64 array [number of rows].

        Raises:
          ValueError: a value is not a finite number.
        """
        values = []
        for number, row in enumerate(self.rows, 1):
            try:
                values.append(read_number(row.get(name)))
            except (TypeError, ValueError):
                values.append(math.nan)
            if not math.isfinite(values[-1]):
                raise ValueError(f"{self.path}: the {name} {row.get(name)!r:.60} in row {number} is not a "
                                 "finite number. If the model predicted NaN, train it again; otherwise "
                                 "restore the file.")
        return np.array(values)


class Scored(NamedTuple):
    """The metrics of a table. They are computed over units: rows, sentences or questions.

    Attributes:
      metrics: {name: function}. A function takes an int array with the indices of some units, and returns the
        metric of these units, in points.
      is_right: list of bool, whether the prediction for each unit is right; None for a regression.
      count: number of units.
      unit: name of a unit in the plural, such as "rows" or "sentences".
    """

    metrics: dict
    is_right: Any
    count: int
    unit: str
