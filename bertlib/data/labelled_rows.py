"""Reads the user's own examples: texts and labels in columns of CSV, TSV or JSON Lines."""

import re
from typing import NamedTuple

from bertlib.data import columns, faults, header_rows, label_lists, row_fields, tables, text_keys
from bertlib.data.tables import RowError

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # the comma may also be a decimal comma
# {whether the other scores of the file have a decimal comma: the problem of a score with other signs}
_WRONG_SIGNS = {
    False: "the score has a decimal comma, or separators between thousands. Write 1234.5 instead of 1.234,5 "
           "or 1,234.5. A spreadsheet program does this if you set its decimal separator to a point, hide "
           "separators between thousands and save the file again.",
    True: "the score has a point or separators between thousands, but other scores of the file have a "
          "decimal comma. Write 1234,5 instead of 1.234,5 or 1234.5. A spreadsheet program does this if the "
          "cells contain numbers instead of texts, you hide separators between thousands and save the file "
          "again.",
}


class Row(NamedTuple):
    """One example, read from a file.

    Attributes:
      line: int, the number of the line in which the example begins.
      texts: tuple of str.
      label: str; in a regression, a float; in a multi-label task, a tuple of str. None if the file has no
        labels.
      values: all values of the row in the file, a list of str; for JSON Lines, a dict. None if they are
        unknown or no longer needed.
    """

    line: int
    texts: tuple
    label: object
    values: object = None

    @property
    def text_a(self):
        """The text, or the first text of a pair."""
        return self.texts[0]

    @property
    def text_b(self):
        """The second text of a pair; None for a single text."""
        return self.texts[1] if len(self.texts) > 1 else None


class ExampleFile(NamedTuple):
    """The examples of a file.

    Attributes:
      path: str, the file.
      rows: list of `Row`.
      is_labelled: whether the rows have labels.
      names: names of the columns, or None for a file without a header row.
      dialect: the `tables.Dialect` for tables of predictions.
      row_of: see `tables.Table.row_of`.
    """

    path: str
    rows: list
    is_labelled: bool
    names: list | None = None
    dialect: tables.Dialect = tables.PLAIN
    row_of: object = None

    def field_reader(self):
        """Returns the `row_fields.field_reader` of the rows' values."""
        return row_fields.field_reader(self.names)

    def in_words(self, pairs):
        """Returns the lines of at most three pairs of `Row`s as text, such as "2 and 7, 3 and 9". If fields
        have several lines, the text also names the rows in a spreadsheet program."""
        def place(row):
            number = self.row_of(row.line)
            return f"{row.line} (spreadsheet row {number})" if number else str(row.line)

        return ", ".join(" and ".join(map(place, pair)) for pair in pairs[:3])


# --- Reading ---------------------------------------------------------------------------------------------


class ExampleReader(columns.TextReader):
    """Reads files that all have the same columns for texts and labels.

    Attributes:
      no_label: values of the column of the labels in a file without labels.
      text, label: lists of the columns of the texts and of the labels. If the flags do not name them, these
        are the columns that were found in the first file.
      skipped: list of `faults.Fault`, one for each line that was left out. The list contains the lines of
        all files that were read so far.
      unused: set of str, the labels in --label_map that no file contains.
    """

    no_label = (None, "", [])

    def __init__(self, label_kind, setting, by_name, skip_bad_lines):
        """Creates a reader.

        Args:
          label_kind: a `header_rows.LabelKind` without known labels.
          setting, by_name: see `columns.column_arguments`. `setting` is also called for "mapped_labels":
            {label in a file: label that replaces it}.
          skip_bad_lines: whether bad lines are left out. If false, a bad line is an error. If it is None, the
            error does not advise --skip_bad_lines.
        """
        super().__init__(**columns.column_arguments(setting, by_name), label_kind=label_kind)
        self.skipped, self._skips_bad_lines = [], skip_bad_lines
        self._width = None  # number of columns of the training file
        self._label_map = setting("mapped_labels", None) or {}
        self.unused = set(self._label_map)

    def map_label(self, name):
        """Returns the label that replaces a label of a file."""
        self.unused.discard(name)
        return self._label_map.get(name, name)

    def read(self, path, needs_labels=True, known_labels=None, find_problem=None, is_ordered=True):
        """Reads a file.

        Args:
          path: the file.
          needs_labels: whether a file without labels is an error.
          known_labels: list of the valid labels; None if they are not known yet.
          find_problem: function that takes a `columns.TextRow` and its label. It returns an error message if
            the label is unknown, otherwise None. By default, all labels are valid.
          is_ordered: whether `known_labels` is in the order of multi-hot lists.

        Returns:
          an `ExampleFile`.

        Raises:
          FileNotFoundError, ValueError: the file is missing or has errors. The message names the lines.
        """
        input_format = tables.format_from_name(path)
        with tables.open_table(path) as stream:
            file = columns.TextFile(self, stream, path, input_format,
                                    known_labels and [*known_labels, *self._label_map])
            bad_lines, rows = faults.FileFaults(path, self._skips_bad_lines, file.row_of), []
            try:
                for row in file:
                    if row.bad:
                        bad_lines.add(row.bad, row.values, file.place and file.place.delimiter)
                    else:
                        rows.append(row)
                if not bad_lines:
                    _check_not_empty(path, rows, file.place)
                examples = self._to_file(file, rows, needs_labels, known_labels, find_problem, bad_lines,
                                         is_ordered)
            except columns.ColumnError:
                raise
            except ValueError:
                # A bad line may be the cause of this ValueError. So if there are bad lines and they are not
                # skipped, `check` raises a different error, which lists the bad lines.
                bad_lines.check(len(rows))
                raise
        bad_lines.check(len(examples.rows))
        if not self.is_quiet:
            self.skipped += bad_lines.log_skipped()
        return examples

    def _to_file(self, file, rows, needs_labels, known_labels, find_problem, bad_lines, is_ordered):
        """Returns the `ExampleFile` of a file, from its `columns.TextRow`s. Adds rows with faults to
        `bad_lines`.

        See `read`.
        """
        path, place = file.path, file.place
        if not rows:
            return ExampleFile(path, [], False)
        if place.is_json:  # collect the keys of all rows, because the first row may lack the label
            place = place._replace(names=list({name: None for row in rows for name in row.values}))
        texts = file.text_places
        labels = self._label_places(place, texts, rows, needs_labels, known_labels)
        if len({*texts, *(labels or ())}) < len(texts) + len(labels or ()):
            raise ValueError(f"{path}: --text_column and --label_column name a column twice. Each text and "
                             "the label must be in a separate column.")
        for where in labels if labels and len(labels) > 1 else ():
            check_name(place.line, place.name_of(where), self.label_kind.separator)
        lists = self._label_lists(rows, labels[0], known_labels, is_ordered) if (
            self.label_kind.is_multilabel and labels is not None and len(labels) == 1) else None
        decimal = self._decimal_sign(place, rows, labels)
        examples, label = [], None
        for row in rows:
            if len(row.texts) != len(rows[0].texts):
                bad_lines.add(RowError(row.line, f"the row has {len(row.texts)} texts, but the first row has "
                                       f"{len(rows[0].texts)}; all rows must have the same number of texts.",
                                       "wrong width"), row.values, place.delimiter)
                continue
            if labels is not None:
                try:
                    label = (self._checked_names(row.line, lists[row.line]) if lists is not None else
                             self._label(place, row.line, row.values, labels, known_labels, decimal))
                    if problem := find_problem and find_problem(row, label):
                        raise RowError(row.line, problem, "unknown label")
                except RowError as error:
                    error.kind = error.kind or "missing label"
                    bad_lines.add(error, row.values, place.delimiter)
                    continue
            examples.append(Row(row.line, row.texts, label, row.values))
        return ExampleFile(path, examples, labels is not None, place.names,
                           file.dialect._replace(decimal=decimal), file.row_of)

    def _decimal_sign(self, place, rows, labels):
        """Returns the decimal sign of the scores in a file, "," or ".". `labels` are their places, or None.

        A comma counts only in a file with another delimiter. The texts "1,234" to "999,999" do not count:
        their comma may be a separator between thousands.
        """
        if not (self.label_kind.is_score and labels) or place.delimiter in (None, ","):
            return "."
        signs = [sign for text in (row.values[labels[0]].strip() for row in rows) for sign in ".,"
                 if sign in text and parse_score(text.replace(sign, ".")) is not None
                 and not _THOUSANDS.fullmatch(text)]
        return "," if 2 * signs.count(",") > len(signs) else "."

    def _label_places(self, place, texts, rows, needs_labels, known_labels):
        """Finds the columns of the labels. Returns a list of their positions in a row, or of their names in
        JSON Lines. Returns None if the file has no labels."""
        if self.label is None:
            # A file that needs no labels often has other columns, such as a topic.
            self.label = place.find_usual(header_rows.LABELS if needs_labels else header_rows.LABELS[:1],
                                          "labels", "--label_column", needs_labels)
        if self.label is None or not needs_labels and place.has_none(self.label):
            return None
        places = [place.find(column, "--label_column") for column in self.label]
        if needs_labels:
            self._width = place.width
            return places
        values = (row.values.get(where) if place.is_json else row.values[where].strip()
                  for row in rows for where in places)
        if all(value in self.no_label for value in values):
            return None
        if place.is_json or not any(isinstance(column, int) for column in self.label):
            return places
        # This file may have no labels, and its columns have no names. So the column at the position of the
        # label may contain other data. It counts as the column of the labels in two cases. In the first case,
        # a training file was read, and this file has as many columns as the training file. In the second
        # case, no training file was read, and more than half of the rows have a known label in this column.
        # If the column counts as the column of the labels, an unknown label in it is an error.
        if set(places) & set(texts) or self._width not in (None, place.width):
            return None
        if self._width is None and len(rows) >= 2 * sum(
                bool(self._is_known(row, places, known_labels)) for row in rows):
            return None
        return places

    def _is_known(self, row, places, known_labels):
        """Returns whether a row of a file without column names has valid labels at the positions `places`."""
        if len(places) > 1:
            return all(row.values[where].strip().lower() in label_lists.BITS for where in places)
        known = known_labels and [*known_labels, *self._label_map]
        return self.label_kind.with_known(known).is_label(row.values[places[0]])

    def _label_lists(self, rows, where, known_labels, is_ordered):
        """Reads the column of the labels in a multi-label task. Returns {line of a row: list of its labels,
        or a `RowError`}.

        Args:
          rows: list of `columns.TextRow`.
          where: place of the column.
          known_labels, is_ordered: see `read`.

        Raises:
          RowError: see `label_lists.compare_rows`.
        """
        errors, readable, names = {}, [], known_labels and frozenset(known_labels)
        for row in rows:
            try:
                value = columns.get_value(row.line, row.values, where)
                readable.append((row.line, self._read_labels(row.line, value, names)))
            except RowError as error:
                errors[row.line] = error
        lines = [line for line, _ in readable]
        return {**errors, **dict(zip(lines, label_lists.compare_rows(readable, known_labels, is_ordered)))}

    def _read_labels(self, line, value, known_labels):
        """Returns the `label_lists.Labels` of a value: a list in JSON Lines, otherwise a text."""
        if isinstance(value, list):
            names = [columns.value_to_text(line, name, "a label") for name in value]
            return label_lists.Labels(names, names, all(isinstance(name, str) for name in value), True)
        text = columns.value_to_text(line, value, "the label")
        try:
            return label_lists.read(text, self.label_kind.separator, known_labels)
        except ValueError as error:
            raise RowError(line, str(error), "bad label") from None

    def _checked_names(self, line, names):
        """Checks the names of a row's labels. Returns the labels that replace them, as a tuple without
        repetitions."""
        if isinstance(names, RowError):
            raise names
        for name in names:
            check_name(line, name, self.label_kind.separator)
        return tuple(dict.fromkeys(map(self.map_label, names)))

    def _label(self, place, line, row, places, known_labels, decimal):
        """Returns the label of a row; see `Row`. For the labels in one column of a multi-label task, see
        `_label_lists`. `decimal` is the decimal sign of scores."""
        if len(places) > 1:
            return tuple(dict.fromkeys(self.map_label(place.name_of(where)) for where in places
                                       if _parse_decision(place, line, row, where)))
        value = columns.get_value(line, row, places[0])
        several = (" If a text may have several labels, pass --task_type=multilabel."
                   if isinstance(value, list) else "")
        what = "the score" if self.label_kind.is_score else "the label"
        text = self.map_label(columns.value_to_text(line, value, what, several).strip())
        if self.label_kind.is_score:
            is_comma = decimal == ","
            number = None if is_comma and "." in text else parse_score(text.replace(decimal, "."))
            if number is None and tables.parse_number(re.sub(r"[.,'’\s]", "", text)) is not None:
                raise RowError(line, _WRONG_SIGNS[is_comma], "bad score", value=f"{text!r:.80}")
            if number is None:
                header = "" if place.names or line > place.line else (
                    " If this is a header row, pass --header=true.")
                raise RowError(line, f"the score {text!r:.80} is not a finite number; correct the row or "
                               f"remove it.{header}", "bad score")
            return number
        if text not in (known_labels or ()) and label_lists.is_quoted_list(text):
            raise RowError(line, f"the label {text!r:.80} is a list. If a text may have several labels, pass "
                           "--task_type=multilabel. Otherwise, write the label without brackets and quotes.",
                           "bad label")
        check_name(line, text)
        return text


def _check_not_empty(path, rows, place):
    """Raises a ValueError if a file has no examples."""
    if not rows and place:
        raise RowError(place.line, "the file has only a header row; after this row, it "
                       "should contain examples.")
    if not rows:
        raise ValueError(f"{path}: the file is empty; it should contain examples.")


# --- Values of labels ------------------------------------------------------------------------------------


def parse_score(text):
    """Returns the number in a text; None if the text is not a number, or if the number is too large for
    float32."""
    number = tables.parse_number(text)
    return number if number is not None and abs(number) <= tables.MAX_SCORE else None


def _parse_decision(place, line, row, where):
    """Reads the column of one label of a multi-label task. Returns whether the example has this label; see
    `label_lists.BITS`."""
    value = columns.get_value(line, row, where)
    decision = label_lists.BITS.get(columns.value_to_text(line, value, "the label").strip().lower())
    if decision is None:
        raise RowError(line, f"the column {place.name_of(where)!r} contains {value!r:.80}. It should contain "
                             "1 if the example has this label, otherwise 0.", "bad label")
    return decision


def check_name(line, name, separator=None):
    """Raises a RowError if a label cannot be written into the files of a run: if it looks empty, or if it
    contains a line end, a tab or the separator of labels."""
    if not text_keys.visible_text(name):
        raise RowError(line, "the label is empty; complete the row or remove it.")
    if len(name.splitlines()) > 1 or "\t" in name:
        raise RowError(line, f"the label {name!r:.80} contains a line end or a tab. If the labels are in "
                       "another column, name it with --label_column.", "bad label")
    if separator is not None and separator in name:
        raise RowError(line, f"the label {name!r:.80} contains {separator!r}, which separates labels. Pass "
                       "another --label_separator.", "bad label")
