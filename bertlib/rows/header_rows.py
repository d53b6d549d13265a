"""Whether the first row of a file names the columns or is an example, told by the rows after it."""

import collections
import re

from bertlib.rows.tables import parse_number

# Names of the columns of texts that are found without a flag; each tuple is one choice.
TEXTS = (("text",), ("sentence",), ("sentence1", "sentence2"), ("text_a", "text_b"), ("question", "answer"),
         ("premise", "hypothesis"))
LABELS = ("label", "labels", "class", "category", "target", "score")
_USUAL_NAMES = {*(name for names in TEXTS for name in names), *LABELS}
# A name: it begins with a letter, and has no punctuation of a sentence.
_NAME = re.compile(r"#?[^\W\d][\w .#()-]{0,39}")
_MISSING = {"", "-", "na", "n/a", "nan", "null", "none"}


class LabelKind:
    """The values of a column of labels: how labels stand in a field, and which are known."""

    def __init__(self, task_type, separator=",", known=None):
        """Takes the task.

        Args:
          task_type: "classification", "regression" or "multilabel".
          separator: the text between several labels in a field.
          known: iterable of the labels, if they are known.
        """
        self._task_type, self._separator = task_type, separator
        self._known = None if known is None else set(known)

    def split(self, value):
        """Returns the labels in a field."""
        if self._task_type != "multilabel":
            return [value.strip()]
        return [name.strip() for name in value.split(self._separator) if name.strip()]

    def is_label(self, value):
        """Returns whether a field has a label; None if that is not known."""
        if self._task_type == "regression":
            return parse_number(value.strip()) is not None
        return None if self._known is None else bool(self._known.intersection(self.split(value)))

    def is_example(self, value, others):
        """Returns whether the field of a first row is of an example, by the fields of the other rows; None if
        that is not known."""
        if self.is_label(value):
            return True
        if self._task_type == "regression":
            return False if any(map(self.is_label, others)) else None
        if set(self.split(value)) & {name for other in others for name in self.split(other)}:
            return True
        return False if others else None


def looks_like_header(first, others, texts, labels, kind):
    """Returns whether the first row of a file looks like the names of the columns.

    Each of these rules is enough:

    1. A text is one of the usual names of columns, such as "sentence1".
    2. The label is one of the usual names, such as "category".
    3. The label is a name and no known label, and all other rows have known labels, or numbers for a
       regression. If there are no other rows, as at the start of a pipe, the texts have to be names too.
    4. All texts are names; the other rows have numbers in a column, and the first row has a name there.
    5. All texts and the label are names, and nine in ten labels of the other rows occur there more than once.
    6. All texts are names, and shorter, in words, than each text of the other rows. If the file has no
       labels, a text of a single word, and three in each text of the other rows.

    A name begins with a letter, has at most four words and no punctuation of a sentence: a first row with a
    long text is refused by rule 2 and 3 only. If the label of the first row is a known one, or the label of
    another row, only rule 1 applies.

    Args:
      first: list of str.
      others: rows after it, lists of str; rows of another width are left out.
      texts, labels: indices of the columns.
      kind: a `LabelKind`.
    """
    others = [row for row in others if len(row) == len(first)]
    if any(first[place].strip().lower() in _USUAL_NAMES for place in texts):
        return True
    columns = {place: [row[place] for row in others] for place in labels}
    states = {place: kind.is_example(first[place], values) for place, values in columns.items()}
    if True in states.values():
        return False
    foreign = [place for place in labels if states[place] is False]
    if any(first[place].strip().lower() in LABELS for place in labels) or any(
            is_name(first[place]) and all(map(kind.is_label, columns[place])) for place in foreign):
        return True
    if not all(is_name(first[place]) for place in texts):
        return False
    if not others:
        return any(is_name(first[place]) and kind.is_label(first[place]) is False for place in labels)
    return (_has_names_over_numbers(first, others)
            or _has_names_over_texts(first, others, texts, bool(foreign)) or any(
                is_name(first[place]) and _has_repeated_labels(columns[place]) for place in foreign))


def is_name(value):
    """Returns whether a value can be the name of a column."""
    return bool(_NAME.fullmatch(value.strip())) and len(value.split()) <= 4 and (
        value.strip().lower() not in _MISSING)


def _has_names_over_numbers(first, others):
    """Whether the first row has a name where all other rows have a number."""
    return len(others) > 1 and any(
        is_name(name) and all(parse_number(row[place].strip()) is not None for row in others)
        for place, name in enumerate(first))


def _has_names_over_texts(first, others, texts, has_label):
    """Whether the texts of the first row are shorter than all others; see rule 6 of `looks_like_header`."""
    words = [(len(first[place].split()), min((len(row[place].split()) for row in others), default=0))
             for place in texts]
    return len(others) > 2 and all(number < least if has_label else number == 1 and least >= 3
                                   for number, least in words)


def _has_repeated_labels(values):
    """Whether nine in ten labels occur more than once."""
    single = list(collections.Counter(value.strip() for value in values).values()).count(1)
    return len(values) > 2 and (single == 0 or single + 1 <= (len(values) + 1) / 10)
