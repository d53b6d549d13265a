"""Reads the labels of a multi-label row in the notations of other programs.

    good,fun   ['good', 'fun']   ["good", "fun"]   {'good'}   {good,fun}   ['good' 'fun']   [0 1 0]

A list of zeros and ones has a value for each label of the task (multi-hot). Whether a list is multi-hot, and
whether `[good]` is a list or the name of a label, depends on the other rows. So `read` converts one row, and
`compare_rows` then compares all rows of a file.
"""

import ast
import json
import re
from typing import NamedTuple

from absl import logging

from bertlib.data.tables import RowError

FORMS = ("Write the names of the labels, such as good,fun or ['good', 'fun'], or a column with 0 or 1 for "
         "each label.")
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# A string in Python's or JSON's notation. In Python 2, a text is printed as u'a', and in Python 3, bytes are
# printed as b'a'.
_STRING = re.compile(r"""\s*[ub]?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*""", re.DOTALL)
_KEY = re.compile(_STRING.pattern + ":", re.DOTALL)
_BEGINS_LIKE_LIST = re.compile(r"""(?:\w+\()?[\[({]+\s*[ub]?['"]|\w+\(\s*['"\[{]|[\[(]\s*[\[(]\s*\d""")
_NUMPY_VALUE = re.compile(r"\bnp\.\w+\(([^()]*)\)")  # NumPy 2 prints np.int64(1) in a list
_NUMBER = re.compile(r"[+-]?\d+\.?\d*|true|false", re.IGNORECASE)
# Unquoted items of a list that are no labels: missing values, and the values that NumPy leaves out.
_NO_LABELS = {"None", "nan", "NaN", "<NA>", "null", "NULL", "..."}
# Maps each spelling of a multi-hot value, in lower case, to whether the example has the label.
BITS = {**dict.fromkeys(("0", "0.", "0.0", "false"), False),
        **dict.fromkeys(("1", "1.", "1.0", "true"), True)}


class Labels(NamedTuple):
    """The labels of a row.

    Attributes:
      names: list of str.
      plain: list of str, the labels if brackets and quotes are parts of the names.
      is_quoted: whether all names were in quotes, and so cannot be numbers.
      in_brackets: whether brackets enclose the names.
    """

    names: list
    plain: list
    is_quoted: bool = False
    in_brackets: bool = False

    @property
    def bits(self):
        """The values of a multi-hot list as a list of bool; None if the row has other labels, or none."""
        values = [BITS.get(name.lower()) for name in self.names]
        return values if values and None not in values else None


def read(text, separator=",", known_labels=None):
    """Returns the `Labels` in a field.

    Args:
      text: str.
      separator: the text between labels without brackets.
      known_labels: container of the known labels, or None. If all parts of the field are known labels,
        brackets and quotes are parts of the labels.

    Raises:
      ValueError: the field begins like a list, but is not a complete list.
    """
    text = text.strip()
    plain = [name.strip() for name in text.split(separator) if name.strip()]
    if known_labels is not None and plain and all(name in known_labels for name in plain):
        return Labels(plain, plain)
    if text == "set()":  # Python writes an empty set in this way
        text = "[]"
    in_brackets = len(text) > 1 and _BRACKETS.get(text[0]) == text[-1]
    inner = _NUMPY_VALUE.sub(r"\1", text)[1:-1] if in_brackets else text
    items = _split(inner, separator, in_brackets)
    bare = [name for name, is_quoted in items if not is_quoted]
    if in_brackets or len(bare) < len(items):
        if any(name in _NO_LABELS or "..." in name.split() for name in bare):
            raise ValueError(f"the list {text!r:.80} contains a missing value, or is shortened. {FORMS}")
        if all(map(_is_balanced, bare)) and not any(name.startswith("[") for name in bare):
            return Labels([name for name, _ in items], plain, not bare, in_brackets)
        if not all(map(_is_balanced, plain)):
            raise ValueError(f"the list {text!r:.80} is nested or not complete. {FORMS}")
    if _BEGINS_LIKE_LIST.match(text):
        raise ValueError(f"the label {text!r:.80} begins like a list, but is not a complete list. {FORMS}")
    bits = text.split()
    if len(plain) == 1 and len(bits) > 1 and all(bit.lower() in BITS for bit in bits):
        return Labels(bits, plain)
    return Labels(plain, plain)


def is_quoted_list(text):
    """Returns whether a text contains brackets and, inside of them, quoted names."""
    if not _BEGINS_LIKE_LIST.match(text):
        return False
    try:
        labels = read(text)
    except ValueError:
        return False
    return labels.in_brackets and labels.is_quoted


def _split(text, separator, splits_at_spaces):
    """Returns the items of a list as pairs (name, whether the name was in quotes). Empty items are left out.

    Args:
      text: the list without its brackets.
      separator: separates items, as a comma does.
      splits_at_spaces: whether strings and numbers may also be separated by white space, as NumPy prints
        them.
    """
    items, start = [], 0
    ends = separator if separator in text and not _STRING.match(text) else ","
    while start < len(text):
        string = _STRING.match(text, start)
        end = string.end() if string else start
        mark = next((mark for mark in (",", separator) if text.startswith(mark, end)), "")
        if string and (mark or end == len(text) or splits_at_spaces and text[end - 1].isspace()
                       and text[end] in "'\""):
            items.append((_unquote(string[1]), True))
            start = end + len(mark)
            continue
        end = text.find(ends, start) if ends in text[start:] else len(text)
        name = text[start:end].strip()
        numbers = name.split()
        if splits_at_spaces and len(numbers) > 1 and all(map(_NUMBER.fullmatch, numbers)):
            items += [(number, False) for number in numbers]
        elif name:
            items.append((name, False))
        start = end + len(ends)
    return items


def _unquote(text):
    """Returns the value of a string in JSON's or Python's notation."""
    try:
        return json.loads(text) if text[0] == '"' else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text[1:-1]


def _is_balanced(name):
    """Returns whether each bracket of a name has its counterpart, and the name is no quoted text and no entry
    of a dict."""
    return not (_STRING.fullmatch(name) or _KEY.match(name) or _BEGINS_LIKE_LIST.match(name)) and all(
        name.count(opening) == name.count(closing) and name.find(opening) <= name.find(closing)
        for opening, closing in _BRACKETS.items())


# --- All rows of a file ----------------------------------------------------------------------------------


def compare_rows(rows, known_labels, is_ordered):
    """Compares the labels in all rows of a file. Returns for each row the list of its labels, or a
    `RowError` if this row contradicts the other rows.

    Args:
      rows: list of (line number, `Labels`).
      known_labels: list of the labels of the task; None if they are not known.
      is_ordered: whether `known_labels` is in the order of multi-hot lists.

    Raises:
      RowError: all rows are multi-hot, but the labels or their order are not known, or their number is
        different.
    """
    rows = _choose_brackets(rows)
    labelled_rows = [(line, labels) for line, labels in rows if labels.names]
    if _is_multi_hot([labels for _, labels in labelled_rows], known_labels):
        return _read_multi_hot(rows, labelled_rows[0], known_labels, is_ordered)
    has_words = any(_NUMBER.fullmatch(name) is None for _, labels in labelled_rows for name in labels.names)
    return [_check_row(line, labels, has_words, known_labels) for line, labels in rows]


def _choose_brackets(rows):
    """Decides whether `[good]` is a list or the name of a label. It is a list if all rows are in brackets,
    or if other rows contain the label good."""
    def is_open(labels):
        return (labels.in_brackets and not labels.is_quoted and len(labels.names) == len(labels.plain) == 1
                and _NUMBER.fullmatch(labels.names[0]) is None)

    if all(labels.in_brackets or not labels.names for _, labels in rows):
        return rows
    sure = {name for _, labels in rows if not is_open(labels) for name in labels.names}
    return [(line, Labels(labels.plain, labels.plain)
             if is_open(labels) and labels.names[0] not in sure else labels) for line, labels in rows]


def _is_multi_hot(rows, known_labels):
    """Returns whether `Labels` of several rows are multi-hot. In other rows of zeros and ones, the labels
    have the names 0 and 1.

    Args:
      rows: the `Labels` of the rows that have labels.
      known_labels: list of the labels of the task; None if they are not known.
    """
    if not rows or any(labels.bits is None for labels in rows):
        return False
    sizes = {len(labels.names) for labels in rows}
    repeats = any(len(set(labels.bits)) < len(labels.bits) for labels in rows)
    if known_labels is not None and all(name in known_labels for labels in rows for name in labels.names):
        return repeats and sizes == {len(known_labels)}
    is_single = sizes == {1} and (known_labels is None or len(known_labels) > 1)
    return repeats or len(sizes) == 1 and not is_single and not any(labels.is_quoted for labels in rows)


def _read_multi_hot(rows, first, known_labels, is_ordered):
    """Returns the labels of multi-hot rows; see `compare_rows`. `first` is the first row with labels."""
    line, size = first[0], len(first[1].names)
    if known_labels is None or not is_ordered:
        subject = "names of the labels are" if known_labels is None else "order of the labels in the list is"
        raise RowError(line, f"the labels are a list of {size} zeros and ones, and the {subject} "
                       "unknown. Pass --label_file, a file with the names in the order of the list. Or: "
                       f"{FORMS}", "bad label")
    if size != len(known_labels):
        raise RowError(line, f"the labels are a list of {size} zeros and ones, but the task has "
                       f"{len(known_labels)} labels. The list must have one value for each label. Or: "
                       f"{FORMS}", "bad label")
    logging.info("The labels are lists of zeros and ones, in the order %s.", ", ".join(known_labels))
    return [[name for name, bit in zip(known_labels, labels.bits) if bit] if len(labels.names) == size else
            RowError(line, f"the labels are a list of {len(labels.names)} zeros and ones, but the list in "
                     f"line {first[0]} has {size}. Correct the row or remove it.", "bad label")
            for line, labels in rows]


def _check_row(line, labels, has_words, known_labels):
    """Returns the labels of a row that is not multi-hot; a `RowError` if the row looks multi-hot.

    Args:
      line: number of the line.
      labels: the `Labels`.
      has_words: whether a row of the file has a label that is not a number.
      known_labels: list of the labels of the task; None if they are not known.
    """
    bits = labels.bits or ()
    is_list = labels.in_brackets and not labels.is_quoted and len(bits) > 1
    is_known = known_labels is not None and all(name in known_labels for name in labels.names)
    if not is_known and (len(set(bits)) < len(bits) or is_list and has_words):
        return RowError(line, f"the labels {', '.join(labels.names):.80} are zeros and ones, but other rows "
                        f"contain names of labels. {FORMS}", "bad label")
    return labels.names
