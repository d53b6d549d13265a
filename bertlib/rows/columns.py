"""Which columns of a file hold the texts: given by name or by number, with or without a header row.

Training, evaluation, prediction and export read the texts of a file through `TextReader`, so that all see the
same examples, or refuse the same line.
"""

import itertools
import json
import re
from typing import NamedTuple
import unicodedata

from absl import logging

from bertlib.rows import header_rows, tables
from bertlib.rows.tables import BadRow, RowError

# Rows after the first one that are looked at to tell whether that one is a header row.
LOOKAHEAD_ROWS = 1000
# What the flags --header and --delimiter say; None if the file decides.
HEADER_VALUES = {"auto": None, "true": True, "false": False}
DELIMITERS = {"auto": None, "comma": ",", "semicolon": ";"}
# Characters of a column's name in a message.
_SHOWN_CHARACTERS = 60
_NO_HEADER = " (or if that is no header row, give numbers, from 1)"


def parse_columns(text, flag="--text_column"):
    """Returns the columns that a flag names, list of str (names) and int (numbers from 1; below 0, from the
    end), separated by commas.

    Raises:
      ValueError: one is empty, or is there twice.
    """
    columns = [column.strip() for column in text.split(",")]
    if not all(columns):
        raise ValueError(f"{flag}={text}: a column's name is empty. Give its number, from 1, or rename it.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"{flag}={text} names a column twice. Each text and the label have a column of "
                         "their own.")
    return [int(column) if re.fullmatch(r"-?[0-9]+", column) else column for column in columns]


def check_header_flag(header, columns, flags):
    """Raises a ValueError if --header=false comes with columns that are given by name.

    Args:
      header: see `HEADER_VALUES`.
      columns: list of str and int, or None for the usual names.
      flags: the names of the flags that give columns.
    """
    if header is False and (columns is None or any(isinstance(column, str) for column in columns)):
        raise ValueError(f"--header=false: without a header row columns have no names. Give {flags} by "
                         "number, from 1.")


# --- Values ----------------------------------------------------------------------------------------------


def is_blank(text):
    """Returns whether a text has no visible character: only white space, control and format characters."""
    return not text.strip() or all(
        character.isspace() or unicodedata.category(character) in ("Cc", "Cf") for character in text)


def value_to_text(line, value, what, advice=""):
    """Returns a value of a row as text: numbers, true and false of JSON as they are written.

    Raises:
      RowError: it is null, a list or an object; `advice` is added to the message.
    """
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        raise RowError(line, f"{what} is {json.dumps(value)[:40]}, and should be a text.{advice}")
    return json.dumps(value)


def get_value(line, row, place):
    """Returns what a row has in a place.

    Raises:
      RowError: a row of JSON Lines lacks it.
    """
    if isinstance(row, dict) and place not in row:
        raise RowError(line, f"there is no {place!r}, but {', '.join(map(repr, row))}; complete the row or "
                       "remove it.")
    return row[place]


# --- Places ----------------------------------------------------------------------------------------------


class ColumnIndex(NamedTuple):
    """Where the columns of a file are: the line that says so, the names (None without a header row), whether
    it is of JSON Lines, its width, the character between its values."""

    line: int
    names: list | None
    is_json: bool
    width: int
    delimiter: str | None = None

    def find(self, column, flag):
        """Returns the place of a column in a row: an index, or in JSON Lines a name.

        Raises:
          RowError: there is no such column, or there are two.
        """
        if isinstance(column, int) and not self.is_json:
            index = column - 1 if column > 0 else self.width + column
            if not column or not 0 <= index < self.width:
                raise RowError(self.line, f"{flag} names column {column}, and there are columns 1 to "
                               f"{self.width}; the last one is also -1.{self._hint()}")
            return index
        if self.names is None:
            raise RowError(self.line, f"there is no header row, so {flag} has to give numbers, from 1, and "
                           f"not {column!r}.")
        count = self.names.count(str(column))
        if count == 1:
            return str(column) if self.is_json else self.names.index(column)
        wrong = f"column {column!r} is there {count} times" if count else f"there is no column {column!r}"
        raise RowError(self.line, f"{wrong}, which {flag} names; the columns are {self.names_in_words()}"
                       f"{'' if self.is_json else _NO_HEADER}.")

    def has_none(self, columns):
        """Returns whether none of these columns is there."""
        if self.is_json:
            return not any(str(column) in self.names for column in columns)
        return not any(abs(column) <= self.width if isinstance(column, int) else column in (self.names or ())
                       for column in columns)

    def has_all(self, columns):
        """Returns whether all of these columns are there, each once."""
        try:
            return all(self.find(column, "") is not None for column in columns)
        except RowError:
            return False

    def find_usual(self, choices, what, flag, needed=True):
        """Returns the columns of one of several usual names; None if there is none and none is needed."""
        found = [list(names) for names in choices if set(names) <= set(self.names or ())]
        if len(found) == 1:
            return found[0]
        if not needed:
            return None
        if found:
            which = " or ".join(",".join(names) for names in found)
            raise RowError(self.line, f"the {what} may be in {which}: say with {flag} where; the columns are "
                           f"{self.names_in_words()}.")
        listed = "there is no header row, so give a number, from 1" if self.names is None else (
            f"the columns are {self.names_in_words()}{'' if self.is_json else _NO_HEADER}")
        raise RowError(self.line, f"say with {flag} where the {what} are; {listed}.")

    def name_of(self, place):
        """Returns the name of the column in a place."""
        if self.is_json:
            return place
        if self.names is None:
            raise RowError(self.line, "labels in a column each are called as their columns, for which a "
                           "header row is needed.")
        return self.names[place]

    def names_in_words(self):
        """Returns the names in words, invisible characters as escapes."""
        short = [name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
                 for name in self.names]
        listed = ", ".join(repr(name) if is_blank(name) or "," in name or not name.isprintable() else name
                           for name in short)
        return f"{listed}{self._hint()}"

    def _hint(self):
        if self.is_json or self.width > 1:
            return ""
        return ", a single one (a .csv is separated by commas or semicolons, a .tsv by tabs)"


# --- Rows ------------------------------------------------------------------------------------------------


class FileColumns(NamedTuple):
    """The columns of a file of a known task.

    `text` are the indices of the texts, `has_header` says whether the first row names the columns, `width` is
    the fewest columns of a row, `only` is None or (index, value): rows with another value there are left out.
    """

    text: list
    has_header: bool
    width: int
    only: tuple | None = None


class TextRow(NamedTuple):
    """A row that was read: its `line`; its `values` as the file has them, a list or of JSON Lines a dict; its
    `texts`; and the `problem` with it, a sentence, or None. A row that is no row at all has no values."""

    line: int
    values: object
    texts: tuple = ()
    problem: str | None = None


class TextReader:
    """Reads the texts of a file or a stream, row by row.

    Attributes:
      text: the columns of the texts; if they were not given, those of the first file that was read.
      place: the `ColumnIndex` of the file that is read, from its first example on.
      text_places: the places of the texts in a row of it.
    """

    def __init__(self, text=None, label=None, header=None, delimiter=None, task_type="classification",
                 separator=",", choices=None, find_layout=None, takes_lists=False):
        """Says where the texts are.

        Args:
          text: the columns of one or two texts, see `parse_columns`; None if they are not known.
          label: the columns of the labels, or None. Only the decision on the header row depends on them.
          header: whether the first row names the columns; None if it does when columns are given by name.
          delimiter: "," or ";" of .csv files; None to find out.
          task_type, separator: see `header_rows.LabelKind`.
          choices: lists of names. The texts of a file without the columns `text` are in the columns of the
            first list that it has. None: if `text` is None, they are in columns with a usual name.
          find_layout: function of a first row that returns the `FileColumns` of a file of a known task, or
            None. It is called if `text` is None.
          takes_lists: whether a text of JSON Lines may be a list, of words; it is taken as it is.
        """
        self.text, self.label = text, label
        self.place = self.text_places = None
        self._header, self._delimiter = header, delimiter
        self._task_type, self._separator = task_type, separator
        self._choices, self._find_layout, self._takes_lists = choices, find_layout, takes_lists
        self._layout = None

    def rows(self, stream, path, input_format, known=None, ahead=LOOKAHEAD_ROWS):
        """Yields a `TextRow` of each example, as soon as it is there. Blank lines at the end are left out.

        Args:
          stream: binary, iterated by lines.
          path: its name, for errors and the log.
          input_format: one of `tables.FORMATS`.
          known: the labels that there are, if they are known.
          ahead: rows that may be looked at before the first one is yielded.

        Raises:
          ValueError: the columns are not there, or it is not certain which they are; with the line.
        """
        self.place = self.text_places = self._layout = None
        table = tables.Table(stream, input_format, self._delimiter)
        rows = _drop_last_blanks(table)
        for line, row in rows:
            if isinstance(row, BadRow):
                yield TextRow(line, None, problem=row.problem)
            elif isinstance(row, dict):
                yield self._read_object(line, row)
            else:
                head = [(line, row), *itertools.islice(rows, ahead)]
                break
        else:
            return
        with tables.name_file_in_errors(path):
            has_header = self._find_columns(table, head, known)
        if table.delimiter == ";":
            logging.info("%s: the first row has semicolons and no commas, so columns "
                         "are separated by semicolons.", path)
        for line, row in itertools.chain(head[has_header:], rows):
            if isinstance(row, BadRow):
                yield TextRow(line, None, problem=row.problem)
            elif not self._layout or not self._layout.only or self._is_wanted(row):
                yield self._read_list(line, row)

    # --- The first row

    def _find_columns(self, table, head, known):
        """Finds the columns by the first rows; returns whether the first one names them.

        Raises:
          RowError: they are not there, or it is not certain which they are.
        """
        line, first = head[0]
        others = [row for _, row in head[1:] if isinstance(row, list)]
        names = [name.strip() for name in first]
        self.place = ColumnIndex(line, names, False, len(first), table.delimiter)
        if self.text is None and self._find_layout:
            self._layout = self._find_layout(first)
        if self._layout:
            self.text_places = self._layout.text
            if not self._layout.has_header:
                self.place = self.place._replace(names=None)
            return self._layout.has_header
        has_header = self._has_header(table, line, first, others, known)
        if not has_header:
            self.place = self.place._replace(names=None)
        try:
            columns = self._columns()
            self.text_places = [self.place.find(column, "--text_column") for column in columns]
        except RowError as error:
            advice = " The row has commas and semicolons: pass --delimiter if semicolons separate columns."
            raise RowError(error.line, error.problem + advice * table.is_ambiguous) from None
        return has_header

    def _columns(self):
        """The columns of the texts in a file with this `place`."""
        if self._choices is None:
            if self.text is None:
                self.text = self.place.find_usual(header_rows.TEXTS, "texts", "--text_column")
            return self.text
        if self.text is not None and self.place.has_all(self.text):
            return self.text
        found = next(filter(self.place.has_all, self._choices), self.text)
        if found is None:
            if self.place.names is None:
                raise RowError(self.place.line, "there is no header row. Pass --text_column with the numbers "
                               "of the texts' columns, from 1.")
            missing = next(name for name in self._choices[0] if not self.place.has_all([name]))
            advice = "the columns of the texts" if self.place.is_json else (
                "the columns of the texts; with numbers, from 1, if this is no header row")
            raise RowError(self.place.line, f"there is no column {missing!r}; the columns are "
                           f"{self.place.names_in_words()}. Pass --text_column with {advice}.")
        return found

    def _has_header(self, table, line, first, others, known):
        """Whether the first row names the columns.

        Raises:
          RowError: it looks otherwise, or columns are numbered and it is not certain what separates them.
        """
        given = [*(self.text or ()), *(self.label or ())]
        if self.text is None or not all(isinstance(column, int) for column in given):
            return self._header is not False
        semicolons = {sum(value.count(";") for value in row) for row in [first, *others]}
        if table.is_ambiguous and len(semicolons) == 1:
            raise RowError(line, "the row has commas and semicolons. Pass --delimiter=comma or "
                           "--delimiter=semicolon, whichever separates the columns.")
        width = len(first)
        texts, labels = ([column - 1 if column > 0 else width + column for column in columns or ()
                          if 1 <= abs(column) <= width] for columns in (self.text, self.label))
        # -1 may be the column of the labels in the training and that of a text in a file without labels.
        labels = [place for place in labels if place not in texts]
        kind = header_rows.LabelKind(self._task_type, self._separator, known)
        if self._header:
            for place in labels:
                if kind.is_example(first[place], [row[place] for row in others if len(row) == width]):
                    raise RowError(line, f"--header=true, but {first[place]!r:.80} is in the column of the "
                                   "labels, as in other rows: this looks like an example. Pass "
                                   "--header=false, or name that column otherwise.")
            return True
        if self._header is None and header_rows.looks_like_header(first, others, texts, labels, kind):
            raise RowError(line, "the columns are given by number, and this looks like a header row: "
                           f"{', '.join(first):.80}. Pass --header=true if it is one, --header=false if it "
                           "is an example.")
        return False

    # --- Each row

    def _is_wanted(self, row):
        place, value = self._layout.only
        return len(row) <= place or row[place] == value

    def _read_list(self, line, row):
        """The `TextRow` of a list of values."""
        place = self.place
        if self._layout:
            if len(row) < self._layout.width:
                return TextRow(line, row, problem=f"expected at least {self._layout.width} columns, found "
                               f"{len(row)}; complete the row or remove it.")
        elif len(row) != place.width:
            advice = {",": " A text with a comma has to be in quotes.",
                      ";": " A text with a semicolon has to be in quotes; if commas separate the columns, "
                           "pass --delimiter=comma."}.get(place.delimiter, "")
            return TextRow(line, row, problem=f"{len(row)} columns, but line {place.line} has {place.width}; "
                           f"all rows should have as many.{advice}")
        return self._read_texts(line, row)

    def _read_object(self, line, row):
        """The `TextRow` of an object of JSON Lines. Without a choice of names, all rows have to have the
        columns of the first one."""
        if self.place is None or self._choices is not None:
            self.place = ColumnIndex(line, list(row), True, len(row))
            try:
                self.text_places = [self.place.find(column, "--text_column") for column in self._columns()]
            except RowError as error:
                if self._choices is None:
                    self.place = None
                return TextRow(line, row, problem=error.problem)
        return self._read_texts(line, row)

    def _read_texts(self, line, row):
        """The `TextRow` of a row that has the texts in `text_places`."""
        try:
            values = [get_value(line, row, place) for place in self.text_places]
            texts = [value if self._takes_lists and isinstance(value, list) else
                     value_to_text(line, value, "the text") for value in values]
        except RowError as error:
            return TextRow(line, row, problem=error.problem)
        empty = [isinstance(text, str) and is_blank(text) for text in texts]
        if not any(empty):
            return TextRow(line, row, tuple(texts))
        which = "" if len(texts) < 2 else " first" if empty[0] else " second"
        return TextRow(line, row, problem=f"the{which} text is empty; complete the row or remove it.")


def _drop_last_blanks(rows):
    """Yields the rows of a table. A blank row becomes a `BadRow`; blank rows at the end are left out."""
    blank = None
    for line, row in rows:
        if not row:
            blank = blank or line
            continue
        for number in range(blank or line, line):
            yield number, BadRow("the line is blank; remove it.")
        blank = None
        yield line, row
