"""Formats answers as rows of a CSV table, or as JSON Lines."""

from bertlib.reports.prediction_files import format_csv_row
from bertlib.rows import columns
from bertlib.serving import prediction_inputs


class AnswerTable:
    """Formats answers as rows of CSV. The columns of the input come before the columns of the answer.

    The first usable line determines the columns, because the table may be written before all lines are read.
    If the first lines of the input cannot be used, their rows are kept in memory until the first answer.
    """

    def __init__(self, fields=(), has_errors=False, csv_safe=False, label_separator=",", labels=()):
        """Creates a table without rows.

        Args:
          fields: names of fields that get a column even if the first line lacks them.
          has_errors: whether the table has a column "error", for lines that could not be used.
          csv_safe: see `prediction_files.format_csv_row`.
          label_separator: text between the labels of a multi-label answer.
          labels: labels whose probability gets a column even if the first answer lacks it.
        """
        self._fields, self._has_errors = list(fields), has_errors
        self._csv_safe, self._label_separator = csv_safe, label_separator
        self._probabilities = [f"probability_{label}" for label in labels]
        self._read_fields = columns.FieldReader(None)
        self._is_first = True  # whether no usable line has been checked yet, see `find_problem`
        self._columns = None  # columns that contain the answer; None before the first answer
        self._waiting = []  # unusable lines before the first answer; not written yet

    def find_problem(self, item):
        """Returns a sentence that says why an input cannot have a row in the table; None if it can.

        The fields of the first input become columns of the table. A later input cannot have other fields.

        Args:
          item: a `prediction_inputs.Input` that can be used.
        """
        more = [name for name in item.fields if name not in self._fields]
        if more and not self._is_first:
            return (f"the line has the field {more[0]!r}, which the first line lacks. All rows of a CSV "
                    "table have the same columns. Pass --output_format=jsonl.")
        self._fields += more
        self._is_first = False
        return None

    def format(self, item, answer):
        """Returns the text to write for an answer: one row with its line end.

        The columns are known only after the first answer. So the rows of unusable lines before the first
        answer have to wait: for such a line, the returned text is empty. The text for the first answer begins
        with the header row and the waiting rows.

        Args:
          item: a `prediction_inputs.Input`. If it can be used, `find_problem` has been called.
          answer: a dict, see `Predictor`; {"error": text} if the input cannot be used.

        Raises:
          ValueError: a number of the answer is not finite.
        """
        is_bad = item.problem is not None
        if self._columns is None and is_bad:
            self._waiting.append((item, answer))
            return ""
        answer = answer if is_bad else self._flatten(item, answer)
        start = self._start(item, answer) if self._columns is None else ""
        fields = self._read_fields(item.fields)
        return start + self._row([*map(fields.get, self._fields), *map(answer.get, self._columns)])

    def finish(self):
        """Returns the text to write after the last call of `format`.

        If no line could be used, `format` has returned only empty texts, and has kept the lines. In this
        case, the text contains the header row and the rows of all lines. Otherwise, the text is empty.
        """
        if not self._waiting:
            return ""
        item, answer = next((pair for pair in self._waiting if pair[0].fields), self._waiting[0])
        return self._start(item, answer)

    def _flatten(self, item, answer):
        """Converts an answer to the values of a row. Returns a dict: {name of a column: text or number}."""
        prediction_inputs.to_json(item, answer)  # raises an error if a number is not finite; no other effect
        found = {}
        for name, value in answer.items():
            if name == "probabilities" and isinstance(value, dict):
                found.update((f"probability_{label}", number) for label, number in value.items())
            elif name == "labels":
                found[name] = self._label_separator.join(value)
            elif isinstance(value, dict | list):
                found[name] = prediction_inputs.to_json(item, value)
            else:
                found[name] = value
        return found

    def _start(self, item, answer):
        """Sets the columns of the table to the keys of the first answer. Returns the header row, followed by
        one row for each unusable line that was read earlier and is not written yet."""
        names = [name for name in dict.fromkeys([*answer, *self._probabilities]) if name != "error"]
        self._columns = [*names, *["error"] * self._has_errors]
        self._fields += [name for name in item.fields if name not in self._fields]
        renamed = columns.rename_fields(self._fields, self._columns)
        waiting, self._waiting = self._waiting, []
        return self._row([*renamed.values(), *self._columns]) + "".join(
            self.format(*pair) for pair in waiting)

    def _row(self, values):
        return format_csv_row(values, self._csv_safe)


class AnswerLines:
    """Formats answers as JSON Lines. This class has the same methods as `AnswerTable`."""

    def find_problem(self, item):
        del item

    def format(self, item, answer):
        return prediction_inputs.format_answer(item, answer) + "\n"

    def finish(self):
        return ""
