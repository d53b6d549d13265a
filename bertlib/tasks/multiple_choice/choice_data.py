"""Reads questions with several endings, such as SWAG, and converts them to features.

A row contains a sentence (sent1), the start of the next sentence (sent2), several possible endings of the
next sentence (ending0, ending1, …), and the number of the right ending (label). The model reads one sequence
for each ending: sent1 as the first text, and sent2 together with the ending as the second text (Devlin et al.
2019, section 4.4).
"""

import dataclasses
import re
from typing import Any, NamedTuple

from absl import logging

from bertlib.data import example_encoding, features_cache, record_files, text_lengths
from bertlib.rows import columns, faults, tables
from bertlib.rows.tables import BadRow, RowError
from bertlib.system import files, workers
from bertlib.tasks.classification import classifier_features
from bertlib.tasks.classification.classifier_features import SEQUENCES

# Smallest and largest number of endings of a question, and the number of endings in SWAG.
MIN_CHOICES, MAX_CHOICES, SWAG_CHOICES = 2, 26, 4
_LABEL = "label"  # usual name of the column of the labels
_UNKNOWN = "-1", -1  # label of a test question in the Hugging Face Hub's copy of SWAG
_SENTENCES = ("sent1", "sent2")
_ENDING = re.compile("ending[0-9]+", re.IGNORECASE)


def column_names(num_choices):
    """Returns the usual names of the columns with the texts of a question, a tuple of str."""
    return (*_SENTENCES, *(f"ending{index}" for index in range(num_choices)))


def label_names(num_choices):
    """Returns the names of the endings in tables and answers. The name of an ending is its number, from 0, as
    in SWAG."""
    return [str(index) for index in range(num_choices)]


def labels_of_columns(names):
    """Returns the names of the endings whose columns are in `names`; see `column_names` and `label_names`."""
    return label_names(max(0, len(names) - len(_SENTENCES)))


def unread_ending(names, found):
    """Returns an error message if the file has a column of endings that would not be read; None if all
    columns of endings are read.

    For example, if a file has the columns ending0, ending1 and ending3, but no ending2, only ending0 and
    ending1 would be read.

    Args:
      names: list of str, the names of all columns in the file.
      found: sequence of str, the names of the columns that are read; see `column_names`.
    """
    unread = [name for name in names if _ENDING.fullmatch(name) and name not in found]
    if not unread:
        return None
    count = len(found) - len(_SENTENCES)
    following = f"ending{count}"
    if names.count(following) > 1:
        return f"{names.count(following)} columns are named {following!r}. Rename or remove one of them."
    if following in names:
        return f"there is a column {following!r}, but only {count} endings can be read. Remove the column."
    return f"there is a column {unread[0]!r}, but no column {following!r}. The endings are numbered from 0 " \
           "without gaps. Correct the names of the columns, or name the columns with --text_column."


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with several endings.

    Attributes:
      line: int, number of the line in which the row begins.
      sent1, sent2: str, the sentence, and the start of the next sentence.
      endings: tuple of str.
      label: int, number of the right ending, counted from 0; None if it is unknown.
      values: the row as read from the file: a list of its values, or a dict for JSON Lines.
    """

    line: int
    sent1: str
    sent2: str
    endings: tuple[str, ...]
    label: int | None = None
    values: Any = None


class QuestionFile(NamedTuple):
    """The questions of a file.

    Attributes:
      path: str, the file.
      questions: list of `Question`.
      num_choices: int, number of endings of each question.
      is_labelled: whether the labels are known.
      names: names of the columns, or None for a file without a header row.
      skipped: list of `faults.Fault`, the lines that were left out.
    """

    path: str
    questions: list
    num_choices: int
    is_labelled: bool
    names: list | None
    skipped: list


# --- Reading ---------------------------------------------------------------------------------------------


def read_questions(path, setting, needs_labels=True, skip_bad_lines=False, by_name=lambda flag: False):
    """Reads a file in CSV, TSV or JSON Lines; returns a `QuestionFile`.

    Args:
      path: the file.
      setting: function that takes (name of a flag, default) and returns the value of the flag. It is called
        for the flags that describe the columns, such as "text_column".
      needs_labels: whether a file without labels is an error. If it is false, a file whose labels are all
        empty has no labels.
      skip_bad_lines: True to leave out lines that cannot be used; False to raise an error for them. With
        None, the error does not advise the flag --skip_bad_lines.
      by_name: see `columns.column_arguments`.

    Raises:
      FileNotFoundError, ValueError: the file is missing or has errors. The message names the lines.
    """
    advice = {"advice": faults.ADVICE_WITHOUT_FLAG} if skip_bad_lines is None else {}
    input_format, found = tables.format_from_name(path), faults.FileFaults(path, skip_bad_lines, **advice)
    arguments = columns.column_arguments(setting, by_name)
    reader = columns.TextReader(**arguments, choices=None if arguments["text"] else [
        column_names(number) for number in range(MAX_CHOICES, MIN_CHOICES - 1, -1)],
        find_problem=unread_ending)
    parse = _RowParser(arguments["label"], needs_labels)
    questions = []
    with tables.open_table(path) as stream, tables.name_file_in_errors(path):
        try:
            rows = reader.rows(stream, path, input_format)
            for row in rows:
                question = parse(row, rows.place)
                if isinstance(question, Question):
                    questions.append(question)
                    continue
                place = rows.place
                found.add(row.line, question.kind, question.problem,
                          question.text if row.values is None else row.values, place and place.delimiter)
                if place is None and input_format != "jsonl" and question.kind != "blank line":
                    found.stop(f"Line {row.line} determines the columns. Correct this line.")
            is_labelled = parse.is_labelled and any(question.label is not None for question in questions)
            if is_labelled:
                for question in (question for question in questions if question.label is None):
                    found.add(question.line, "missing label", "the label is empty, but other rows have "
                              "labels; complete the row.", question.values, rows.place.delimiter)
                questions = [question for question in questions if question.label is not None]
            if not questions and not found:
                raise ValueError(f"{path}: the file contains no question.")
        except ValueError:
            # A bad line may be the cause of this ValueError. So if there are bad lines and they are not
            # skipped, `check` raises a different error, which lists the bad lines.
            found.check(len(questions))
            raise
    found.check(len(questions))
    if found:
        logging.warning("%s: %d bad lines are left out, because --skip_bad_lines=true: %s. The first is in "
                        "line %d.", path, len(found.found), found.summary(), found.found[0].line)
    return QuestionFile(path, questions, parse.num_choices, is_labelled, rows.place.names,
                        list(found.found))


class _RowParser:
    """Converts the rows of a file to questions. The first row determines the number of endings, and whether
    the rows have labels."""

    def __init__(self, label, needs_labels):
        self._label, self._needs_labels = label, needs_labels
        self.num_choices, self.is_labelled = None, None

    def __call__(self, row, place):
        """Returns the `Question` of a `columns.TextRow`; a `BadRow` if the row cannot be used. `place` is the
        `columns.ColumnIndex` of the file."""
        if row.bad:
            return row.bad
        if self.num_choices is None:
            self._read_layout(row, place)
        if len(row.texts) != self.num_choices + len(_SENTENCES):
            return BadRow(f"the row has {len(row.texts) - len(_SENTENCES)} endings, but the first row has "
                          f"{self.num_choices}; all rows must have the same number of endings.",
                          "wrong width")
        label = None
        if self.is_labelled:
            try:
                label = self._read_label(row, place)
            except RowError as error:
                return BadRow(error.problem, error.kind or "missing label")
        sent1, sent2, *endings = row.texts
        return Question(row.line, sent1, sent2, tuple(endings), label, row.values)

    def _read_layout(self, row, place):
        """Reads the number of endings, and finds the column of the labels.

        Raises:
          RowError: there are too few endings, or there is no column of labels.
        """
        number = len(row.texts) - len(_SENTENCES)
        if number < MIN_CHOICES:
            raise RowError(place.line, f"--text_column names {len(row.texts)} columns. Name the column of "
                           "the first sentence, the column of the start of the next sentence, and at least "
                           f"{MIN_CHOICES} columns of endings.")
        if self._label is None:
            self._label = place.find_usual([(_LABEL,)], "labels", "--label_column", self._needs_labels)
        self.num_choices = number
        self.is_labelled = self._label is not None and (self._needs_labels or not place.has_none(self._label))

    def _read_label(self, row, place):
        """Returns the label of a row. Returns None if the label is empty or unknown, and the file needs no
        labels.

        Raises:
          RowError: the row has no label, or its label is not the number of an ending.
        """
        value = columns.get_value(row.line, row.values, place.find(self._label[0], "--label_column"))
        if not self._needs_labels and (value in (None, *_UNKNOWN) or isinstance(value, str)
                                       and columns.is_blank(value)):
            return None
        text = columns.value_to_text(row.line, value, "the label")
        if text.strip() in label_names(self.num_choices):
            return int(text)
        raise RowError(row.line, f"the label is {text!r:.80}, but it should be the number of the right "
                       f"ending, from 0 to {self.num_choices - 1}.", "bad label")


# --- Features --------------------------------------------------------------------------------------------


def feature_fields(seq_length, num_choices=SWAG_CHOICES):
    """Returns the fields of a stored question. `record_files` writes these fields, and `input_pipeline` reads
    them.

    Args:
      seq_length: int, F, number of tokens in a sequence, including padding.
      num_choices: int, C, number of sequences of a question.

    Returns:
      list of `example_encoding.Field`: input_mask, input_ids and segment_ids [C, F], and label_ids, a scalar.
    """
    bounds = {"input_mask": (0, 1)}
    return [*(example_encoding.Field(name, "int64", (num_choices, seq_length),
                                     bounds.get(name, example_encoding.ANY_ID)) for name in SEQUENCES),
            example_encoding.Field("label_ids", "int64", (), (0, num_choices - 1))]


def make_sequences(sent1, sent2, endings, max_seq_length, tokenizer):
    """Converts a question to the sequences that the model reads.

    Args:
      sent1, sent2, endings: see `Question`.
      max_seq_length: int, largest number of tokens of a sequence. Longer sequences are truncated; see
        `classifier_features.cut_into_windows`.
      tokenizer: a tokenizer of `tokenization`.

    Returns:
      (sequences, longest). `sequences` is a list with a dict for each ending. The keys are "input_ids",
      "input_mask" and "segment_ids". Each value is a list of int without padding. `longest` is the number of
      tokens of the longest sequence before truncation.
    """
    sequences, sizes = [], []
    for ending in endings:
        example = classifier_features.InputExample("question", sent1, f"{sent2} {ending}")
        ((first, second),), size = classifier_features.make_windows(example, max_seq_length, tokenizer)
        sizes.append(size)
        sequences.append({"input_ids": list(tokenizer.convert_tokens_to_ids(first + second)),
                          "input_mask": [1] * len(first + second),
                          "segment_ids": [0] * len(first) + [1] * len(second)})
    return sequences, max(sizes)


class _Converter:
    """Converts a `Question` to a pair: the serialized `tf.train.Example`, and the number of tokens of its
    longest sequence before truncation. Worker processes call this object."""

    def __init__(self, max_seq_length, num_choices, tokenizer):
        self._length, self._tokenizer = max_seq_length, tokenizer
        self._fields = feature_fields(max_seq_length, num_choices)

    def __call__(self, question):
        sequences, longest = make_sequences(question.sent1, question.sent2, question.endings, self._length,
                                            self._tokenizer)
        row = {"label_ids": question.label or 0}
        for name in SEQUENCES:
            row[name] = [value for sequence in sequences for value in
                         sequence[name] + [0] * (self._length - len(sequence[name]))]
        return example_encoding.encode_example(self._fields, row), longest


def write_features(file, max_seq_length, tokenizer, path, num_workers=1, cache=None):
    """Writes the features of a file to a TFRecord file. The TFRecord file appears only when it is complete.

    Args:
      file: a `QuestionFile`. If a question has no label, 0 is written as its label_ids.
      max_seq_length, tokenizer: see `make_sequences`.
      path: the TFRecord file.
      num_workers: number of processes; 0 for one process per core. The results do not depend on this number.
      cache: directory of a cache of features, see `features_cache`; None for no cache.

    Returns:
      list of int: for each question, the number of tokens of its longest sequence before truncation.
    """
    def convert(partial):
        lengths = []

        def records():
            convert_one = _Converter(max_seq_length, file.num_choices, tokenizer)
            converted = workers.ordered_map(convert_one, file.questions, num_workers)
            for record, length in files.with_progress(converted, len(file.questions), "Converting question"):
                lengths.append(length)
                yield record

        record_files.write_serialized(partial, records())
        return lengths

    return features_cache.write(path, cache, [max_seq_length, file.num_choices, tokenizer], file.questions,
                                convert)


def describe_lengths(lengths, max_seq_length):
    """Returns a log message that says how many questions were truncated.

    Args:
      lengths: the result of `write_features`; not empty.
      max_seq_length: see `make_sequences`.
    """
    text = text_lengths.describe(lengths, "question", max_seq_length)
    if text_lengths.count_longer(lengths, max_seq_length):
        text += (" They were truncated, so endings may have lost their last words. To keep all words, raise "
                 "--max_seq_length.")
    return text
