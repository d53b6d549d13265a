"""Examples of one's own for classification, in the files of `tables`, read by the columns that hold the texts
and the labels."""

import collections
import itertools
import json
import math
import re
from typing import NamedTuple

from bertlib.runtime import files
from bertlib.tasks import text_keys
from bertlib.tasks.classifier_data import DataProcessor, InputExample
from bertlib.tasks.tables import read_rows

TASK = "own data"  # its name in run.json
# What is taken if no columns are named and the file has one of these.
_TEXTS = (("text",), ("sentence",), ("sentence1", "sentence2"), ("text_a", "text_b"), ("question", "answer"),
          ("premise", "hypothesis"))
_LABELS = ("label", "labels", "class", "category", "target", "score")
_DECISIONS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
_LARGEST = 3.4e38  # of a float32
_NO_HEADER = " (or if that is no header row, give numbers, from 1)"
_METRICS = {"classification": ("accuracy", "f1"), "regression": ("pearson", "spearman"),
            "multilabel": ("f1_micro", "f1_macro")}


class Row(NamedTuple):
    """An example: the line that it begins in, its texts (the second may be None), and its label: a str, a
    float, or a tuple of str; None without labels."""

    line: int
    text_a: str
    text_b: str | None
    label: object


class Part(NamedTuple):
    """What was read of a file: its `path`, list of `Row`, and whether they have labels."""

    path: str
    rows: list
    is_labelled: bool

    def error(self, row, problem):
        """Returns the ValueError of a problem in a row."""
        return ValueError(f"{self.path}:{row.line}: {problem}")


# --- Columns ---------------------------------------------------------------------------------------------


def columns_of(text):
    """Returns the columns that a flag names, list of str (names) and int (numbers from 1; below 0, from the
    end): what is between commas."""
    columns = [column.strip() for column in text.split(",")]
    return [int(column) if re.fullmatch(r"-?\d+", column) else column for column in columns]


class Reader:
    """Reads files whose examples are in the same columns.

    Attributes:
      text, label: see `__init__`; columns that were not given are there after the first file was read.
    """

    def __init__(self, task_type, text=None, label=None, header=None, separator=","):
        """Says what is where.

        Args:
          task_type: "classification", "regression" or "multilabel".
          text: the columns of one or two texts, see `columns_of`; None for those with a usual name.
          label: the columns of the labels, of which only "multilabel" may have several; None likewise.
          header: whether the first row names the columns; None if it does when columns are named.
          separator: what is between the labels in a field, with "multilabel".
        """
        self.text, self.label = text, label
        self._task_type, self._header, self._separator = task_type, header, separator
        self._width = None  # of files that are numbered and labelled

    def read(self, path, needs_labels=True, known=None):
        """Reads a file.

        Args:
          path: the file.
          needs_labels: whether it has to have labels.
          known: list of the labels that there are, if that is known.

        Returns:
          a `Part`.

        Raises:
          FileNotFoundError, ValueError: it cannot be used; with the line.
        """
        rows = read_rows(path)
        is_json = isinstance(rows[0][1], dict)
        names = list(rows[0][1]) if is_json else None
        if not is_json and self._has_header(path, rows):
            names = [name.strip() for name in rows[0][1]]
            rows = rows[1:]
            if not rows:
                raise ValueError(f"{path}:1: there is a header row and nothing after it; the file should "
                                 "hold examples.")
        place = _Places(path, rows[0][0] if names is None else 1, names, is_json, len(rows[0][1]))
        if self.text is None:
            self.text = place.usual(_TEXTS, "texts", "--text_column")
        texts = [place.of(column, "--text_column") for column in self.text]
        labels = self._label_places(place, texts, rows, needs_labels, known)
        if len({*texts, *(labels or ())}) < len(texts) + len(labels or ()):
            raise ValueError(f"{path}: --text_column and --label_column name a column twice. Each text and "
                             "the label have a column of their own.")
        for where in labels if labels and len(labels) > 1 else ():
            _check_name(path, place.line, place.name_of(where), self._separator)
        taken = [Row(line, *self._texts(path, line, row, texts),
                     None if labels is None else self._label(place, line, row, labels)) for line, row in rows]
        return Part(path, taken, labels is not None)

    # --- Header rows

    def _has_header(self, path, rows):
        """Whether the first row names the columns.

        Raises:
          ValueError: it looks otherwise.
        """
        given = [*(self.text or ()), *(self.label or ())]
        is_numbered = self.text is not None and all(isinstance(column, int) for column in given)
        if not is_numbered:
            return True
        width = len(rows[0][1])
        texts, labels = ([column - (column > 0) for column in columns or () if -width <= column <= width]
                         for columns in (self.text, self.label))
        first, others = rows[0][1], [row for _, row in rows[1:]]
        if self._header:
            if any(self._could_be_label(first[place], [row[place] for row in others]) for place in labels):
                raise ValueError(f"{path}:1: --header=true, but {first[labels[0]]!r} is in the column of the "
                                 "labels, as in other rows: this looks like an example. Pass --header=false, "
                                 "or name that column otherwise.")
            return True
        usual = {*itertools.chain(*_TEXTS), *_LABELS}
        named = any(first[place].strip().lower() in usual for place in (*texts, *labels))
        if self._header is None and (named or self._looks_like_name(first, others, labels)):
            raise ValueError(f"{path}:1: the columns are given by number, and this looks like a header row: "
                             f"{', '.join(first):.80}. Pass --header=true if it is one, --header=false if it "
                             "is an example.")
        return False

    def _could_be_label(self, value, others):
        """Whether the value of a first row is what the others have there."""
        if self._task_type == "regression":
            return _number(value) is not None
        if self._task_type == "multilabel" and len(self.label) == 1:
            return bool(set(self._split(value)) & {name for other in others for name in self._split(other)})
        return value.strip() in {other.strip() for other in others}

    def _looks_like_name(self, first, others, labels):
        """Whether in the column of the labels the first row is the only one of its kind."""
        for place in labels:
            values = [row[place] for row in others]
            if self._could_be_label(first[place], values):
                return False
            if self._task_type == "regression":
                return any(_number(value) is not None for value in values)
            return len(values) > 2 and min(collections.Counter(values).values()) > 1
        return False

    # --- Labels

    def _label_places(self, place, texts, rows, needs_labels, known):
        """The places of the labels in a row; None if there are none."""
        if self.label is None:
            self.label = place.usual([(name,) for name in _LABELS], "labels", "--label_column", needs_labels)
        if self.label is None or not needs_labels and place.lacks(self.label):
            return None
        places = [place.of(column, "--label_column") for column in self.label]
        if needs_labels:
            self._width = place.width
            return places
        if all(row.get(where) in (None, "", []) if place.is_json else not row[where].strip()
               for _, row in rows for where in places):
            return None
        if place.is_json or not any(isinstance(column, int) for column in self.label):
            return places
        # Without a name a column of labels is known by its number and by what is in it.
        if set(places) & set(texts) or self._width not in (None, place.width):
            return None
        if self._width is None and not all(self._is_known(row, places, known) for _, row in rows):
            return None
        return places

    def _is_known(self, row, places, known):
        """Whether a row of a file without names has a label in these places."""
        if len(places) > 1:
            return all(row[where].strip().lower() in _DECISIONS for where in places)
        value = row[places[0]]
        if self._task_type == "regression":
            return _number(value) is not None
        return set(self._split(value) if self._task_type == "multilabel" else [value.strip()]) <= set(known)

    def _split(self, value):
        """The labels in a field."""
        return [name.strip() for name in value.split(self._separator) if name.strip()]

    def _label(self, place, line, row, places):
        """The label of a row; see `Row`."""
        if len(places) > 1:
            return tuple(place.name_of(where) for where in places if _decision(place, line, row, where))
        value = _value(place.path, line, row, places[0])
        if self._task_type == "multilabel":
            found = [_text(place.path, line, name, "a label") for name in value] if isinstance(
                value, list) else self._split(_text(place.path, line, value, "the label"))
            for name in found:
                _check_name(place.path, line, name, self._separator)
            return tuple(dict.fromkeys(found))
        several = " If a text may have several labels, pass --task_type=multilabel." if isinstance(
            value, list) else ""
        text = _text(place.path, line, value, "the label", several).strip()
        if self._task_type == "regression":
            number = _number(text)
            if number is None:
                header = "" if place.names or line > place.line else (
                    " If this is a header row, pass --header=true.")
                raise ValueError(f"{place.path}:{line}: the score {text!r:.80} is no finite number; correct "
                                 f"the row or remove it.{header}")
            return number
        _check_name(place.path, line, text)
        return text

    def _texts(self, path, line, row, places):
        """The two texts of a row, the second None if there is one only."""
        found = [_text(path, line, _value(path, line, row, where), "the text") for where in places]
        if not all(text.strip() for text in found):
            which = "" if len(found) < 2 else " first" if not found[0].strip() else " second"
            raise ValueError(f"{path}:{line}: the{which} text is empty; complete the row or remove it.")
        return [*found, None][:2]


class _Places(NamedTuple):
    """Where the columns of a file are: its path, the line that says so, the names (None without a header
    row), whether it is of JSON Lines, its width."""

    path: str
    line: int
    names: list | None
    is_json: bool
    width: int

    def of(self, column, flag):
        """The place of a column in a row: an index, or in JSON Lines a name."""
        if isinstance(column, int) and not self.is_json:
            index = column - 1 if column > 0 else self.width + column
            if not column or not 0 <= index < self.width:
                raise ValueError(f"{self.path}:{self.line}: {flag} names column {column}, and there are "
                                 f"columns 1 to {self.width}; the last one is also -1.")
            return index
        count = self.names.count(str(column))
        if count == 1:
            return str(column) if self.is_json else self.names.index(column)
        wrong = f"column {column!r} is there {count} times" if count else f"there is no column {column!r}"
        raise ValueError(f"{self.path}:{self.line}: {wrong}, which {flag} names; the columns are "
                         f"{self._listed()}{'' if self.is_json else _NO_HEADER}.")

    def lacks(self, columns):
        """Whether none of these columns is there."""
        if self.is_json:
            return not any(str(column) in self.names for column in columns)
        return not any(abs(column) <= self.width if isinstance(column, int) else column in self.names
                       for column in columns)

    def usual(self, choices, what, flag, needed=True):
        """The columns of one of several usual names; None if there is none and none is needed."""
        found = [list(names) for names in choices if set(names) <= set(self.names or ())]
        if len(found) == 1:
            return found[0]
        if not needed:
            return None
        if found:
            which = " or ".join(",".join(names) for names in found)
            raise ValueError(f"{self.path}:{self.line}: the {what} may be in {which}: say with {flag} where; "
                             f"the columns are {self._listed()}.")
        listed = "there is no header row, so give a number, from 1" if self.names is None else (
            f"the columns are {self._listed()}{'' if self.is_json else _NO_HEADER}")
        raise ValueError(f"{self.path}:{self.line}: say with {flag} where the {what} are; {listed}.")

    def name_of(self, where):
        """The name of the column in a place."""
        if self.is_json:
            return where
        if self.names is None:
            raise ValueError(f"{self.path}: labels in a column each are called as their columns, for which a "
                             "header row is needed.")
        return self.names[where].strip()

    def _listed(self):
        listed = ", ".join(repr(name) if not name.strip() or "," in name else name for name in self.names)
        if self.is_json or self.width > 1:
            return listed
        return f"{listed}, a single one (a .csv is separated by commas, a .tsv by tabs)"


# --- Values ----------------------------------------------------------------------------------------------


def _value(path, line, row, where):
    """What a row has in a place."""
    if isinstance(row, dict) and where not in row:
        raise ValueError(f"{path}:{line}: there is no {where!r}, but {', '.join(map(repr, row))}; complete "
                         "the row or remove it.")
    return row[where]


def _text(path, line, value, what, advice=""):
    """A value as text: of JSON numbers, true and false too. `advice` is for what is none."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, list | dict):
        raise ValueError(f"{path}:{line}: {what} is {json.dumps(value)[:40]}, and should be a text.{advice}")
    return json.dumps(value)


def _number(text):
    """A text as a number; None if it is none, or none that is finite."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) <= _LARGEST else None


def _decision(place, line, row, where):
    """Whether an example has the label of a column."""
    value = _value(place.path, line, row, where)
    found = _DECISIONS.get(_text(place.path, line, value, "the label").strip().lower())
    if found is None:
        raise ValueError(f"{place.path}:{line}: {value!r:.80} in column {place.name_of(where)!r} should be 1 "
                         "or 0: whether the example has that label.")
    return found


def _check_name(path, line, name, separator=None):
    """Raises a ValueError if the name of a label could not be written to a file."""
    if not name.strip():
        raise ValueError(f"{path}:{line}: the label is empty; complete the row or remove it.")
    if len(name.splitlines()) > 1 or "\t" in name:
        raise ValueError(f"{path}:{line}: the label {name!r:.80} has a line end or a tab in it. Is this the "
                         "column of the labels? Else say with --label_column which one is.")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{path}:{line}: the label {ascii(name):.80} has half of a surrogate pair in it, "
                         "which no file can hold; correct the row or remove it.")
    if separator is not None and separator in name:
        raise ValueError(f"{path}:{line}: the label {name!r:.80} has {separator!r} in it, which separates "
                         "labels. Pass another --label_separator.")


# --- Labels ----------------------------------------------------------------------------------------------


def names_in(label):
    """The names in a row's label."""
    return label if isinstance(label, tuple) else (label,)


def counts_of(rows):
    """Returns how many rows have each label, {label: int}, sorted: numbers as numbers if all are."""
    counts = collections.Counter(name for row in rows for name in names_in(row.label))
    numbers = {name: _number(name) for name in counts}
    all_numbers = None not in numbers.values()
    return {name: counts[name] for name in sorted(
        counts, key=lambda name: (numbers[name], name) if all_numbers else name)}


def read_labels(path):
    """Returns the labels in a file, one a line, in its order.

    Raises:
      FileNotFoundError, ValueError: the file is missing or empty, or has one twice; with the line.
    """
    lines = [line.strip() for line in files.read_text(path).split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise ValueError(f"{path}: the file is empty; it should have a label a line.")
    for number, line in enumerate(lines, 1):
        if not line or line in lines[:number - 1]:
            wrong = f"{line!r} is there twice" if line else "the line is blank"
            raise ValueError(f"{path}:{number}: {wrong}; there should be a different label in each line.")
        _check_name(path, number, line)
    return lines


def check_labels(part, labels, source):
    """Raises a ValueError, with the line, if a row has a label that is none of `labels`; `source` says where
    these are from."""
    known = set(labels)
    for row in part.rows:
        for name in names_in(row.label):
            if name not in known:
                some = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
                meant = [label for label in labels if text_keys.visible(label) == text_keys.visible(name)]
                hint = (f" {ascii(name)} looks like {ascii(meant[0])}: the two differ in white space, "
                        "invisible characters or the encoding of accents alone.") if meant else ""
                raise part.error(row, f"the label {name!r:.80} is not one of {some}, which {source}; correct "
                                 f"the row or remove it.{hint}")


def look_alikes(labels):
    """Returns the labels that differ in letter case, or as spellings of a number, alone: list of lists."""
    groups = collections.defaultdict(list)
    for label in labels:
        number = _number(label)
        groups[text_keys.of_texts(label) if number is None else number].append(label)
    return [group for group in groups.values() if len(group) > 1]


def check_visible(places):
    """Checks that a reader can tell labels apart.

    Args:
      places: {label: where it is first, in words such as "train.csv:7"}.

    Raises:
      ValueError: two labels look the same, or one looks like nothing; with both places.
    """
    seen = {}
    for label, place in places.items():
        shown = text_keys.visible(label)
        if not shown:
            raise ValueError(f"{place}: the label {ascii(label):.80} has no visible character. Correct the "
                             "label or remove the row.")
        if shown in seen:
            other = seen[shown]
            raise ValueError(f"{place}: the label {ascii(label):.80} looks like the label {ascii(other):.80} "
                             f"({places[other]}): they differ in white space, invisible characters or the "
                             "encoding of accents alone. Write both the same.")
        seen[shown] = label


def check_variety(part):
    """Raises a ValueError if all rows have the same label, so that there is nothing to learn."""
    if len({row.label for row in part.rows}) < 2:
        label = ", ".join(map(str, names_in(part.rows[0].label))) or "no label"
        raise ValueError(f"{part.path}: all {len(part.rows)} examples have the same label, {label}: there is "
                         "nothing to learn. If the labels are in another column, say so with --label_column.")


# --- Processor -------------------------------------------------------------------------------------------


class OwnProcessor(DataProcessor):
    """Examples that were read already; data directories are not looked at."""

    name = "Own data"

    def __init__(self, parts, target, dev_rows=None):
        """Takes what was read.

        Args:
          parts: {"train", "dev", "test": `Part`}.
          target: see `targets`.
          dev_rows: of a training whose development set was taken out of its training file, what its directory
            keeps of it; see `bertlib.runs.dev_rows`.
        """
        self.task_type, self.metrics = target.task_type, _METRICS[target.task_type]
        self.target, self.dev_rows, self._parts = target, dev_rows, parts

    def get_train_examples(self, data_dir):
        return self._examples("train")

    def get_dev_examples(self, data_dir):
        return self._examples("dev")

    def get_test_examples(self, data_dir):
        return self._examples("test")

    def get_test_labels(self, data_dir):
        part = self._parts["test"]
        return [row.label for row in part.rows] if part.is_labelled else None

    def get_labels(self):
        return self.target.labels

    def _examples(self, name):
        return [InputExample(f"{name}-{row.line}", row.text_a, row.text_b,
                             self.target.stand_in if row.label is None else row.label)
                for row in self._parts[name].rows]
