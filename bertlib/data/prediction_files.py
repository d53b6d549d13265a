"""Writes tables of predictions: CSV for spreadsheets and data frames, or JSON Lines."""

import csv
import io
import re

from bertlib.data import row_fields
from bertlib.data.tables import PLAIN
from bertlib.system import files

FORMATS = ("csv", "jsonl")
ANSWER_SEPARATOR = " | "  # separates the accepted answers to a question of SQuAD in a CSV table
# If a cell begins with one of these characters, a spreadsheet program reads the cell as a formula.
_FORMULA_STARTS = tuple("=+-@\t\r")
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?")


def write_predictions(path, rows, predictions_format="csv", csv_safe=False, separator=",",
                      dialect=PLAIN):
    """Writes a table with one row for each example.

    The columns are: line; the columns of the input, with unchanged texts; label; prediction;
    probability_LABEL for each label; is_right; loss; and a column for each of `PredictedRow.details`. In
    JSON Lines, one object "probabilities", {label: probability}, replaces the columns probability_LABEL, and
    several labels of an example are written as a list. If a column of the input has the same name as one of
    the other columns, the column of the input is renamed, see `row_fields.rename_fields`.

    A number is written as the shortest text from which the same number can be read. The file has a temporary
    name until it is complete. Only one row at a time is in memory.

    Args:
      path: path of the file.
      rows: object that can be iterated twice and yields `PredictedRow`s. The first iteration collects the
        names of the columns.
      predictions_format: one of `FORMATS`.
      csv_safe: whether texts that a spreadsheet program would execute get an apostrophe.
      separator: str, the text between several labels in a field of CSV.
      dialect: the `tables.Dialect` of CSV.

    Raises:
      OSError: the file could not be written. The older results are unchanged.
    """
    is_csv = predictions_format == "csv"
    fields, labels, details = _collect_names(rows)
    columns = None  # in JSON, the probabilities of several labels are one object
    if is_csv or "" in labels:
        columns = {label: f"probability_{label}" if label else "probability" for label in labels}
    ours = ["label", "prediction", *(["probabilities"] if columns is None else columns.values()), "is_right",
            "loss", *details]
    table_names = row_fields.rename_fields(fields, ["line", *ours])
    names = ["line", *table_names.values(), *ours]
    with (files.atomic_replacement(path, lambda: "The older results are unchanged.")
          as partial, files.open_file(partial, "wb") as stream):
        if is_csv:
            stream.write(format_csv_header(names, csv_safe, dialect).encode("utf-8", "replace"))
        for row in rows:
            values = _values(row, table_names, columns)
            if is_csv:
                cells = [separator.join(value) if isinstance(value, tuple) else value
                         for value in map(values.get, names)]
                text = format_csv_row(cells, csv_safe, dialect)
            else:
                text = files.json_text(values, ensure_ascii=False) + "\n"
            # A text may contain half of a surrogate pair. UTF-8 cannot encode such a half, so "?" is written
            # instead.
            stream.write(text.encode("utf-8", "replace"))


def format_csv_header(names, csv_safe, dialect):
    """Returns the start of a CSV file: the byte-order mark if the `tables.Dialect` has one, and the header
    row. For the arguments, see `format_csv_row`."""
    return "\ufeff" * dialect.has_mark + format_csv_row(names, csv_safe, dialect)


def format_csv_row(values, csv_safe=False, dialect=PLAIN):
    """Returns a row of CSV with a line end.

    Args:
      values: list of values. None becomes an empty field. True becomes "true", and False becomes "false".
      csv_safe: whether to put an apostrophe before each text that a spreadsheet program would execute as a
        formula. Numbers such as -3.5 are unchanged.
      dialect: a `tables.Dialect`.
    """
    cells = [_cell(value, csv_safe, dialect.decimal) for value in values]
    buffer = io.StringIO()
    # A field that contains "\r" must be written in quotes. Python's csv does so only if the line end contains
    # "\r". So the row is written with "\r\n", which is then replaced by "\n". For the same reason, the line
    # end contains a comma if the delimiter is another character: `tables.Table` would take a comma outside of
    # quotes for the delimiter.
    end = "\r\n" if dialect.delimiter == "," else "\r\n,"
    csv.writer(buffer, delimiter=dialect.delimiter, lineterminator=end).writerow(cells)
    return buffer.getvalue()[:-len(end)] + "\n"


def _cell(value, csv_safe, decimal):
    """Converts a value to the text of a CSV field.

    With `csv_safe`, a text that begins like a formula gets an apostrophe at its start. A spreadsheet program
    then shows this text, and does not evaluate it as a formula.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(value).replace(".", decimal)
    text = str(value)
    if csv_safe and text.startswith(_FORMULA_STARTS) and not _is_number(value):
        return f"'{text}"
    return text


def remove_apostrophe(text):
    """Returns the text of a field without the apostrophe that `format_csv_row` has put before it."""
    rest = text.removeprefix("'")
    return rest if rest.startswith(_FORMULA_STARTS) and not _is_number(rest) else text


def _is_number(value):
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def _collect_names(rows):
    """Collects the names of the columns from all rows.

    Returns:
      three dicts. Their keys are the names of the input columns, the labels that have probabilities, and the
      names of the additional output columns.
    """
    fields, labels, details = {}, {}, {}
    for row in rows:
        fields.update(row.fields)
        labels.update(row.probabilities or {})
        details.update(row.details)
    return fields, labels, details


def _values(row, table_names, columns):
    """Returns the values of a `PredictedRow` as {name in the table: value}.

    Args:
      row: a `PredictedRow`.
      table_names: {name of a field: its name in the table}.
      columns: {label: name of its probability in the table}; None if the table has one object with the
        probabilities of all labels.
    """
    values = {"line": row.line, **{table_names[name]: value for name, value in row.fields.items()},
              "label": row.label, "prediction": row.prediction}
    if row.probabilities is not None and columns is None:
        values["probabilities"] = row.probabilities
    elif row.probabilities is not None:
        values.update((columns[label], number) for label, number in row.probabilities.items())
    return {**values, "is_right": row.is_right, "loss": row.loss, **row.details}
