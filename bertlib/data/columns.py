"""Finds the columns that contain the texts of a file, by name or by number, with or without a header row.

Training, evaluation, prediction and export all read the texts of a file with `TextReader`. So all of them
read the same examples and refuse the same lines.
"""

import dataclasses
import difflib
import itertools
import json
import re
from typing import Any, NamedTuple
import unicodedata

from absl import logging

from bertlib.data import header_rows, tables
from bertlib.data.tables import RowError
from bertlib.system import terminal

# To decide whether the first row is a header row, it is compared with this number of later rows.
LOOKAHEAD_ROWS = 1000
# Maps each value of the flag --header to the value of the argument `header` of `TextReader`. With None,
# `TextReader` decides whether the first row is a header row.
HEADER_VALUES = {"auto": None, "true": True, "false": False}
# Messages show at most this number of characters of a column's name.
_SHOWN_CHARACTERS = 60
_OTHER_DELIMITER = " If another character separates the columns, pass --delimiter."
_NO_HEADER = ". If this row is not a header, pass the numbers of the columns, from 1"


def parse_columns(text, flag="--text_column", by_name=False):
    """Returns the columns in a flag's value: a list with a str for each name and an int for each number.

    Numbers begin at 1. Negative numbers count from the last column, which is -1.

    Args:
      text: the columns, separated by commas.
      flag: name of the flag, for error messages.
      by_name: whether a number is the name of a column. This is true for JSON Lines, whose columns have names
        and no order. A DataFrame may have columns with the names 0 and 1.

    Raises:
      ValueError: a column is empty or is named twice.
    """
    columns = [column.strip() for column in text.split(",")]
    if not all(columns):
        raise ValueError(f"{flag}={text}: the name of a column is empty. If a column has no name in the "
                         "file, pass its number instead (the first column is 1).")
    if len(set(columns)) < len(columns):
        raise ValueError(f"{flag}={text} names a column twice. Each text and the label must be in a "
                         "separate column.")
    # "01" is a name, because no number begins with 0.
    return [int(column) if not by_name and re.fullmatch(r"-?(0|[1-9][0-9]*)", column) else column
            for column in columns]


def column_arguments(setting, by_name):
    """Returns a dict with arguments of `TextReader`: `text`, `label`, `header`,
    `delimiter` and `encoding`.

    Args:
      setting: function that takes (name of a flag, default) and returns the value of the flag. The values may
        be those of this run, or those that a training recorded.
      by_name: function that takes the name of a flag. It returns whether a number in the value of this flag
        is the name of a column; see `parse_columns`.
    """
    def columns_of(flag):
        value = setting(flag, None)
        return None if value is None else parse_columns(value, f"--{flag}", by_name(flag))

    delimiter = setting("delimiter", "auto")
    return {"text": columns_of("text_column"), "label": columns_of("label_column"),
            "header": HEADER_VALUES[setting("header", "auto")],
            "delimiter": tables.DELIMITERS.get(delimiter, delimiter),
            "encoding": setting("encoding", "utf-8")}


def check_header_flag(header, columns, flags):
    """Raises a ValueError if --header=false was passed, but not all columns were passed by number.

    Args:
      header: see `HEADER_VALUES`.
      columns: list of the passed columns, see `parse_columns`; None if no columns were passed.
      flags: names of the flags for columns, for the error message.
    """
    if header is False and (columns is None or any(isinstance(column, str) for column in columns)):
        raise ValueError("--header=false: without a header row, columns have no names. Pass column numbers, "
                         f"from 1, in {flags}.")


# --- Values ----------------------------------------------------------------------------------------------


def is_blank(text):
    """Returns whether a text has no visible character. White space, control characters and format characters
    are not visible."""
    return not text.strip() or all(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text)


def value_to_text(line, value, what, advice=""):
    """Returns a value of a row as text. A number, true and false become text in the same form as in JSON.

    Args:
      line: line of the row, for error messages.
      value: the value.
      what: name of the value in error messages.
      advice: text that is added to error messages.

    Raises:
      RowError: the value is null, a list or an object.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise RowError(line, f"{what} is missing; complete the row or remove it.")
    if isinstance(value, list | dict):
        raise RowError(line, f"{what} is {json.dumps(value)[:40]}, but should be a text.{advice}")
    return json.dumps(value)


def get_value(line, row, place):
    """Returns the value of a row in a column.

    Args:
      line: line of the row, for error messages.
      row: list of values, or a dict for JSON Lines.
      place: index of the column; in JSON Lines, name of the column.

    Raises:
      RowError: a row of JSON Lines lacks the column.
    """
    if isinstance(row, dict) and place not in row:
        raise RowError(line, f"the row has no {place!r}, only {', '.join(map(repr, row))}; complete the row "
                       "or remove it.")
    return row[place]


# --- Names -----------------------------------------------------------------------------------------------


def join_names(names):
    """Returns names as a part of a sentence, such as "text_a and text_b", or "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


# --- Places ----------------------------------------------------------------------------------------------


class ColumnError(RowError):
    """The error for columns that do not exist, or cannot be determined. All rows of the file have the same
    problem, so it is reported before the problems of single rows."""


class ColumnIndex(NamedTuple):
    """Describes a file's columns. The *place* of a column in a row is the column's index; in JSON Lines, it
    is the column's name.

    Attributes:
      line: number of the line that determines the columns.
      names: names of the columns; None without a header row.
      is_json: whether the file is in JSON Lines.
      width: number of columns.
      delimiter: the character between values.
    """

    line: int
    names: list | None
    is_json: bool
    width: int
    delimiter: str | None = None

    def find(self, column, flag, origin=""):
        """Returns the place of a column in a row: the column's index, or in JSON Lines the column's name.

        Args:
          column: name of the column, or its number from 1. Negative numbers count from the last column.
          flag: name of the flag that names the column, for error messages.
          origin: text after this name if the user did not pass the flag, such as " of the training".

        Raises:
          ColumnError: the column does not exist, or several columns have this name.
        """
        if isinstance(column, int) and self.is_json:
            raise self._error(f"{flag}{origin} gives the column {column} by its number, but the columns of "
                              f"these rows have only names. Pass {flag} with names; the columns are "
                              f"{self.names_in_words()}.")
        if isinstance(column, int):
            index = column - 1 if column > 0 else self.width + column
            if not column or not 0 <= index < self.width:
                raise self._error(f"{flag}{origin} names column {column}, but the columns have the numbers 1 "
                                  f"to {self.width}; the last column also has the number -1.{self._hint()}")
            return index
        if self.names is None:
            raise self._error(f"there is no header row, so {flag} must contain column numbers, from 1, "
                              f"instead of {column!r}{origin}.")
        count = self.names.count(column)
        if count == 1:
            return column if self.is_json else self.names.index(column)
        problem = f"{count} columns are named {column!r}" if count else f"there is no column {column!r}"
        names = {name.casefold(): name for name in self.names}
        close = [] if count else difflib.get_close_matches(column.casefold(), names, n=1)
        advice = f" Pass {flag} to name other columns." if origin else ""
        divided = next((name for name in self.names if column in map(str.strip, name.split(","))), None)
        if divided is not None and not count and not self.is_json:
            close, advice = [], (f" The flag separates names at commas. For the column {divided!r}, pass its "
                                 f"number, {self.names.index(divided) + 1}, and --header=true.")
        raise self._error(f"{problem} ({flag}{origin}); the columns are {self.names_in_words()}"
                          f"{'' if self.is_json else _NO_HEADER}.{advice}"
                          + "".join(f" Did you mean {names[name]!r}?" for name in close))

    def _error(self, problem):
        return ColumnError(self.line, problem)

    def has_none(self, columns):
        """Returns whether none of the columns exists."""
        return not any(not self.is_json and abs(column) <= self.width if isinstance(column, int) else
                       column in (self.names or ()) for column in columns)

    def has_all(self, columns):
        """Returns whether each of the columns exists exactly once."""
        try:
            return all(self.find(column, "") is not None for column in columns)
        except RowError:
            return False

    def find_usual(self, lists, what, flag, is_needed=True):
        """Finds the set of usual names whose columns all exist in the file. Returns these names as they are
        written in the file.

        Args:
          lists: lists of sets of names, such as `header_rows.TEXTS`. A later list is used only if the file
            has the columns of no set in the earlier lists.
          what: a noun for the content of the columns, such as "labels", for error messages.
          flag: name of the flag that can name the columns.
          is_needed: whether to raise an error if the columns cannot be determined.

        Returns:
          list of names. If the file has the columns of no set, or of several sets, the result is None.

        Raises:
          ColumnError: the result would be None, but `is_needed` is true.
        """
        # The letter case of names is ignored: "Text" counts as "text". But if the names of two columns differ
        # only in their letter case, the letter case matters.
        spellings = {name.casefold(): name for name in self.names or ()}
        if len(spellings) < len(self.names or ()):
            spellings = {name: name for name in self.names}
        matches = next(filter(None, ([[spellings[name] for name in names] for names in choices
                                      if set(names) <= spellings.keys()] for choices in lists)), [])
        if len(matches) == 1:
            return matches[0]
        if not is_needed:
            return None
        if matches:
            raise self._error(f"several columns could contain the {what}: {_in_words(matches)}. Name the "
                              f"right columns with {flag}; the columns are {self.names_in_words()}.")
        description = "there is no header row, so pass numbers, from 1" if self.names is None else (
            f"the columns are {self.names_in_words()}{'' if self.is_json else _NO_HEADER}")
        raise self._error(f"no column has a usual name for {what}. Name the columns of the {what} with "
                          f"{flag}; {description}.")

    def name_of(self, place):
        """Returns the name of the column at this place.

        Raises:
          RowError: the file has no header row.
        """
        if self.is_json:
            return place
        if self.names is None:
            raise RowError(self.line, "if each label has a separate column, the names of the columns are the "
                           "labels, so a header row is needed.")
        return self.names[place]

    def names_in_words(self):
        """Returns a text that lists the names, with invisible characters as escapes."""
        short = [name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
                 for name in self.names]
        text = ", ".join(repr(name) if is_blank(name) or "," in name or not name.isprintable() else name
                         for name in short)
        return f"{text}{self._hint()}"

    def _hint(self):
        if self.delimiter == "," and ";" in "".join(self.names or ()):
            return (" (a name contains a semicolon: if semicolons separate the columns, pass "
                    "--delimiter=semicolon)")
        if self.is_json or self.width > 1:
            return ""
        return (" (only one column was found: are the columns of a .csv file separated by commas or "
                "semicolons, and those of a .tsv file by tabs? If another character separates the columns "
                "of a .csv file, pass it with --delimiter)")


# --- Rows ------------------------------------------------------------------------------------------------


class TextRow(NamedTuple):
    """A row that was read.

    Attributes:
      line: number of the row's first line.
      values: list of the values in the file; in JSON Lines, a dict. None if the row could not be split.
      texts: tuple of the texts; empty if the row has a problem.
      bad: the `RowError` of the row, or None.
    """

    line: int
    values: object
    texts: tuple = ()
    bad: RowError | None = None

    @property
    def problem(self):
        """A sentence about the problem of the row, or None."""
        return self.bad and self.bad.problem


@dataclasses.dataclass
class TextReader:
    """Describes the columns of files and streams with texts, which `TextFile` reads.

    Attributes:
      text: the columns of the texts, see `parse_columns`; None for columns with usual names, or for those of
        `other_names`. If it is None, `TextFile` sets it to the usual names in the first file.
      label: the columns of the labels, or None. `TextFile` uses them only to decide whether the first row is
        a header row.
      header: whether the first row is a header row. None to decide this by the passed columns: the first row
        is a header row if a column was passed by name, or if no columns of texts were passed.
      delimiter: the character between values of .csv files; None to determine it from the first row.
      encoding: name of the encoding of the files.
      label_kind: a `header_rows.LabelKind` without known labels.
      takes_lists: whether a text in JSON Lines may be a list of words, which is left unchanged.
      other_names: lists of names, which the columns of the texts may also have in a file that lacks the
        columns in `text`. The texts are read from the columns of the first list whose columns all exist. The
        columns are chosen for each file and, in JSON Lines, for each row. None if all files have the same
        columns.
      find_unread: function for a choice from `other_names`, see `answers.Answers.find_unread`.
      text_origin: see the argument `origin` of `ColumnIndex.find`.
      is_quiet: whether nothing is logged, because an earlier command has logged the same.
    """

    text: list | None
    label: list | None
    header: bool | None
    delimiter: str | None
    encoding: str
    label_kind: header_rows.LabelKind
    takes_lists: bool = False
    other_names: list | None = None
    find_unread: Any = None
    text_origin: str = ""
    is_quiet: bool = False


class TextFile:
    """The rows of one file or stream. A row is read when it is asked for.

    Attributes:
      path: name of the file.
      place: the `ColumnIndex` of the file. It is set when the first example has been read. In JSON Lines, it
        may differ between rows.
      text_places: list with the place of each text column: the index of the column, or in JSON Lines its
        name.
      dialect: the `tables.Dialect` for CSV files with results.
      row_of: see `tables.Table.row_of`.
    """

    def __init__(self, reader, stream, path, input_format, known_labels=None, ahead=LOOKAHEAD_ROWS):
        """Opens the table of the rows.

        Args:
          reader: a `TextReader`.
          stream: binary stream, iterated by lines.
          path: name of the file, for error messages and the log.
          input_format: one of `tables.FORMATS`.
          known_labels: the known labels; None if they are not known.
          ahead: number of rows after the first row that may be read before the first example is yielded. They
            are needed to decide whether the first row is a header row. In JSON Lines, no rows are read ahead.
        """
        self._reader, self.path, self._known_labels, self._ahead = reader, path, known_labels, ahead
        self._table = tables.Table(stream, input_format, reader.delimiter, reader.encoding)
        self.dialect, self.row_of = self._table.dialect, self._table.row_of
        self.place = self.text_places = None
        # The rows of JSON Lines may have different names. So further usual names are used only if no row has
        # the first ones.
        self._usual_texts = header_rows.TEXTS if self._table.delimiter else header_rows.TEXTS[:1]

    def __iter__(self):
        """Yields a `TextRow` for each example as soon as the row has been read. Blank lines at the end are
        left out.

        Raises:
          ValueError: the columns do not exist, or cannot be determined with certainty. The message names the
            line.
        """
        rows = _drop_last_blanks(self._table)
        with tables.name_file_in_errors(self.path):
            yield from self._lists(rows) if self._table.delimiter else self._objects(rows)

    def _objects(self, rows):
        """Yields the `TextRow`s of JSON Lines."""
        without_texts = []
        for line, row in rows:
            if isinstance(row, RowError):
                yield TextRow(line, None, bad=row)
                continue
            text_row = self._read_object(line, row)
            if self.place is None:
                # If no row has the columns, their names are wrong: one error, and not one for each row.
                without_texts.append(text_row)
                continue
            yield from without_texts
            without_texts.clear()
            yield text_row
        if without_texts and self._usual_texts != header_rows.TEXTS:
            self._usual_texts = header_rows.TEXTS
            yield from self._objects((row.line, row.values) for row in without_texts)
        elif without_texts:
            raise ColumnError(without_texts[0].line, without_texts[0].problem)

    def _lists(self, rows):
        """Yields the `TextRow`s of separated values."""
        table, reader = self._table, self._reader
        for line, row in rows:
            if isinstance(row, list):
                break
            if row.kind != "blank line":
                is_guessed = "quote" in row.kind and reader.delimiter is None
                raise RowError(line, f"{row.problem}{_OTHER_DELIMITER * is_guessed} Line {line} "
                               "determines the columns, so --skip_bad_lines=true cannot leave it out. "
                               f"Correct line {line}.")
            yield TextRow(line, None, bad=row)
        else:
            return
        head = [(line, row), *itertools.islice(rows, self._ahead)]
        has_header = self._find_columns(head)
        if table.delimiter == ";" and reader.delimiter is None and not (table.is_declared or reader.is_quiet):
            logging.info("%s: the first row has semicolons and no commas, so columns are separated by "
                         "semicolons.", self.path)
        is_checked = reader.is_quiet or tables.is_utf8(reader.encoding)
        for line, row in itertools.chain(head[has_header:], rows):
            if isinstance(row, RowError):
                yield TextRow(line, None, bad=row)
                continue
            is_checked = is_checked or self._warn_of_utf8(line, row)
            yield self._read_list(line, row)

    def _warn_of_utf8(self, line, row):
        """Logs a warning if a row is probably UTF-8, but was decoded with another encoding because of
        --encoding. Returns whether a warning was logged."""
        for value in row:
            right = tables.decode_as_utf8(value, self._reader.encoding)
            if right is not None:
                first = next(index for index, letter in enumerate(value) if not letter.isascii())
                start = max(first - 20, 0)
                logging.warning(
                    "%s:%d: this row is probably UTF-8, but --encoding is %s. It is read as %r. In UTF-8 it "
                    "would be %r. If the text in UTF-8 is right, pass --encoding=utf-8.", self.path, line,
                    self._reader.encoding, value[start:first + 20], right[start:first + 20])
                return True
        return False

    # --- The first row

    def _find_columns(self, head):
        """Finds the columns from the first rows of a file. Returns whether the first row is a header row.

        Args:
          head: list of (line number, row) of the first rows.

        Raises:
          RowError: the columns do not exist, or cannot be determined with certainty.
        """
        line, first = head[0]
        other_rows = [row for _, row in head[1:] if isinstance(row, list)]
        names = [name.strip() for name in first]
        self.place = ColumnIndex(line, names, False, len(first), self._table.delimiter)
        has_header = self._has_header(line, first, other_rows)
        if not has_header:
            self.place = self.place._replace(names=None)
        self.text_places = self._find_texts()
        return has_header

    def _find_texts(self):
        """Returns the places of the texts in the current file or row, whose columns are described by `place`.

        Raises:
          RowError: the columns do not exist, or their names have a problem.
        """
        return [self.place.find(column, "--text_column", self._reader.text_origin)
                for column in self._choose_columns()]

    def _choose_columns(self):
        """Returns the names or the numbers of the columns of the texts; see `_find_texts`.

        Usual names are stored in the reader: its later files must have the same columns, and
        `own_data.OwnData.read` records them.
        """
        reader, place = self._reader, self.place
        if reader.other_names is None:
            if reader.text is None:
                reader.text = place.find_usual(self._usual_texts, "texts", "--text_column")
            return reader.text
        if reader.text is not None and place.has_all(reader.text):
            return reader.text
        columns = next(filter(place.has_all, reader.other_names), reader.text)
        if columns is None:
            raise RowError(place.line, self._describe_missing())
        problem = reader.find_unread(place.names, columns)
        if problem:
            raise RowError(place.line, problem)
        return columns

    def _describe_missing(self):
        """Returns the message for a file that has none of the `other_names`."""
        place = self.place
        if place.names is None:
            return ("there is no header row. Pass --text_column with the numbers of the texts' columns, "
                    "from 1.")
        first, *alternatives = self._reader.other_names
        column = next(name for name in first if not place.has_all([name]))
        advice = "the columns of the texts" if place.is_json else (
            "the columns of the texts; if this row is not a header, with their numbers, from 1")
        also = f" The columns may also be named {_in_words(alternatives)}." if alternatives else ""
        return (f"there is no column {column!r}; the columns are {place.names_in_words()}. Pass "
                f"--text_column with {advice}.{also}")

    def _has_header(self, line, first, other_rows):
        """Returns whether the first row is a header row.

        Args:
          line: line number of the first row.
          first: values of the first row.
          other_rows: list of the values of the other rows.

        Raises:
          RowError: all columns were passed by number, and one of these problems was found: `header` is true,
            but the first row looks like an example; or `header` is None, but the first row looks like a
            header row.
        """
        flag_values = [*(self._reader.text or ()), *(self._reader.label or ())]
        if self._reader.text is None or not all(isinstance(column, int) for column in flag_values):
            return self._reader.header is not False
        width = len(first)
        texts, labels = ([column - 1 if column > 0 else width + column for column in columns or ()
                          if 1 <= abs(column) <= width]
                         for columns in (self._reader.text, self._reader.label))
        # The column of the labels is often passed as -1, the last column. In a file without labels, the last
        # column may be a text. So a column of texts does not count as a column of labels.
        labels = [place for place in labels if place not in texts]
        kind = self._reader.label_kind.with_known(self._known_labels)
        if self._reader.header:
            for place in labels:
                if kind.is_example(first[place], [row[place] for row in other_rows if len(row) == width]):
                    raise RowError(line, f"--header=true, but this row looks like an example: it has "
                                   f"{first[place]!r:.80} in the column of the labels, as other rows do. "
                                   "Pass --header=false, or rename that column.")
            return True
        if header_rows.looks_like_header(first, other_rows, texts, labels, kind):
            text = f"{', '.join(first):.80}"
            if self._reader.header is None:
                raise RowError(line, "the columns are given by number, but this row looks like a header row: "
                               f"{text}. If it is a header row, pass --header=true; if it is an example, "
                               "pass --header=false.")
            logging.warning("%s:%d: this row is an example, because --header is false, but it looks like a "
                            "header row: %s. If it is a header row, pass --header=true.", self.path, line,
                            text)
        return False

    # --- Each row

    def _read_list(self, line, row):
        place = self.place
        if len(row) != place.width:
            advice = "" if place.delimiter == "\t" else (
                f" A text with {place.delimiter!r} has to be in quotes.{_OTHER_DELIMITER}")
            return TextRow(line, row, bad=RowError(
                line, f"the row has {terminal.counted(len(row), 'column')}, but line {place.line} has "
                f"{place.width}; all rows must have the same number of columns.{advice}", "wrong width"))
        return self._read_texts(line, row)

    def _read_object(self, line, row):
        """Returns the `TextRow` for an object of JSON Lines.

        With `other_names`, the columns of the texts are found again for each row. Without, the texts of all
        rows must be in the columns that were found in the first row.
        """
        is_chosen = self._reader.other_names is not None
        if self.place is None or is_chosen:
            self.place = ColumnIndex(line, list(row), True, len(row))
            try:
                self.text_places = self._find_texts()
            except RowError as error:
                if not is_chosen:
                    self.place = None
                return TextRow(line, row, bad=RowError(line, error.problem, "missing text"))
        return self._read_texts(line, row)

    def _read_texts(self, line, row):
        """Returns the `TextRow` for a row whose texts are in `text_places`."""
        try:
            values = [get_value(line, row, place) for place in self.text_places]
            texts = [value if self._reader.takes_lists and isinstance(value, list) else
                     value_to_text(line, value, "the text") for value in values]
        except RowError as error:
            return TextRow(line, row, bad=RowError(line, error.problem, "missing text"))
        empty = [isinstance(text, str) and is_blank(text) for text in texts]
        if not any(empty):
            return TextRow(line, row, tuple(texts))
        where, names = self.text_places[empty.index(True)], self.place.names
        name = names[where] if names and not self.place.is_json else where
        which = "" if len(texts) == 1 else f" in column {name + 1 if isinstance(name, int) else name}"
        return TextRow(line, row, bad=RowError(
            line, f"the text{which} is empty; complete the row or remove it.", "empty text"))


def _in_words(sets):
    """Returns sets of columns as text, such as "text_a,text_b or text". Each set is a list of names."""
    return " or ".join(",".join(names) for names in sets)


def _drop_last_blanks(rows):
    """Yields the rows of a table. A blank row becomes a `RowError`; blank rows at the end are left out."""
    blank = None
    for line, row in rows:
        if not row:
            blank = blank or line
            continue
        for number in range(blank or line, line):
            yield number, RowError(number, "the line is blank; remove it.", "blank line")
        blank = None
        yield line, row
