"""Compares the first row of a file with other rows, to decide whether it is a header row or an example."""

import collections
from collections.abc import Collection
import dataclasses
import re

from bertlib.data import label_lists
from bertlib.data.tables import parse_number

# Usual names of the columns of texts. Each inner tuple is one set of names. If a file has the columns of one
# set, the user does not have to name these columns with a flag. The sets of the second list are used only if
# the file has the columns of no set in the first list, because such columns are often additional ones.
TEXTS = ((("text",), ("sentence",), ("sentence1", "sentence2"), ("text_a", "text_b"), ("question", "answer"),
          ("premise", "hypothesis")),
         (("body",), ("message",), ("comment",), ("description",), ("review",), ("content",), ("tweet",)))
# The same for the column of the labels.
LABELS = ((("label",), ("labels",), ("class",), ("category",), ("target",), ("score",)),
          (("sentiment",), ("intent",), ("topic",)))
_LABEL_NAMES = {name for choices in LABELS for names in choices for name in names}
_USUAL_NAMES = _LABEL_NAMES | {name for choices in TEXTS for names in choices for name in names}
# Matches a text that may be the name of a column. It begins with a letter or "_", and has at most 40 letters,
# digits, spaces and characters of "_.#()-". A "#" may precede it.
_NAME = re.compile(r"#?[^\W\d][\w .#()-]{0,39}")
# Texts that mean a missing value. They cannot be names of columns.
_MISSING = {"", "-", "na", "n/a", "nan", "null", "none"}


@dataclasses.dataclass(frozen=True)
class LabelKind:
    """Describes the format of the labels in a column, and the known labels.

    Attributes:
      is_score: whether a label is a number.
      is_multilabel: whether a field may contain several labels.
      separator: the text between two labels in a field. It is used only if a field may contain several.
      known_labels: collection of the known labels; None if the labels are not known.
    """

    is_score: bool = False
    is_multilabel: bool = False
    separator: str = ","
    known_labels: Collection | None = None

    def with_known(self, labels):
        """Returns a copy with the known labels, an iterable or None."""
        return dataclasses.replace(self, known_labels=None if labels is None else frozenset(labels))

    def split(self, value):
        """Returns the list of labels in a field."""
        if not self.is_multilabel:
            return [value.strip()]
        try:
            return label_lists.read(value, self.separator, self.known_labels).names
        except ValueError:  # the row is refused when its labels are read
            return [value.strip()]

    def is_label(self, value):
        """Returns whether a field contains a label. For a regression, each number is a label. For the other
        task types, only the known labels are labels. If the known labels were not passed, returns None."""
        if self.is_score:
            return parse_number(value.strip().replace(",", ".")) is not None
        return None if self.known_labels is None else bool(self.known_labels.intersection(self.split(value)))

    def is_example(self, value, other_values):
        """Returns whether the first row is an example. Only the labels are used for this decision.

        Returns True for an example, False for a header row, and None if the labels are not enough for a
        decision.

        Args:
          value: the label field of the first row.
          other_values: the label fields of the other rows.
        """
        if self.is_label(value):
            return True
        if self.is_score:
            return False if any(map(self.is_label, other_values)) else None
        if set(self.split(value)) & {name for field in other_values for name in self.split(field)}:
            return True
        return False if other_values else None


def looks_like_header(first, other_rows, texts, labels, kind):
    """Returns whether the first row of a file looks like a header row.

    The first row looks like a header row if one of the rules below applies. In these rules, a *name* is a
    text that begins with a letter, has at most four words, and contains no punctuation of a sentence.

    1. A text of the first row is one of the usual names of columns, such as "sentence1". Or the first row
       consists of the numbers 0, 1 and so on, which pandas writes for columns without names.
    2. The label of the first row is one of the usual names, such as "category".
    3. The label of the first row is a name but not a known label, and all other rows have known labels
       (numbers for a regression). If no other row has been read yet, all texts of the first row must also be
       names. This happens at the start of input from a pipe.
    4. All texts and the label of the first row are names. The labels of the other rows repeat: about 90% of
       these rows, or more, have a label that also occurs in a second one of these rows.

    If the label of the first row is a known label, or is also the label of another row, only rule 1 can
    apply.

    Args:
      first: values of the first row, list of str.
      other_rows: the rows after the first row, lists of str. Rows that have more or fewer values than the
        first row are ignored.
      texts, labels: indices of the columns of texts and of labels.
      kind: a `LabelKind`.
    """
    other_rows = [row for row in other_rows if len(row) == len(first)]
    if any(first[place].strip().lower() in _USUAL_NAMES for place in texts) or len(first) > 1 and (
            first == list(map(str, range(len(first))))):
        return True
    columns = {place: [row[place] for row in other_rows] for place in labels}
    states = {place: kind.is_example(first[place], values) for place, values in columns.items()}
    if True in states.values():
        return False
    foreign = [place for place in labels if states[place] is False]
    if any(first[place].strip().lower() in _LABEL_NAMES for place in labels) or any(
            _is_name(first[place]) and all(map(kind.is_label, columns[place])) for place in foreign):
        return True
    if not all(_is_name(first[place]) for place in texts):
        return False
    if not other_rows:
        return any(_is_name(first[place]) and kind.is_label(first[place]) is False for place in labels)
    return any(_is_name(first[place]) and _has_repeated_labels(columns[place]) for place in foreign)


def _is_name(value):
    return bool(_NAME.fullmatch(value.strip())) and len(value.split()) <= 4 and (
        value.strip().lower() not in _MISSING)


def _has_repeated_labels(values):
    """Returns whether about 90% of the values, or more, occur more than once in the list."""
    single = list(collections.Counter(value.strip() for value in values).values()).count(1)
    return len(values) > 2 and (single == 0 or single + 1 <= (len(values) + 1) / 10)
