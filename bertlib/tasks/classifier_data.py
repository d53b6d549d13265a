"""Sentence and sentence-pair classification and regression: task processors.

A *processor* turns the TSV files of one task into `InputExample`s. A processor of this module is a
declaration (which files, which columns, which labels, which metrics); one mechanism in `DataProcessor` reads
them all, and every complaint it has names the file and the line. How examples become the model's integers is
in `classifier_features`, whose names are here too.
"""

import contextlib
import csv
import difflib
import io
import math
import os
from typing import ClassVar, NamedTuple

from absl import logging

from bertlib.runtime import files
from bertlib.tasks.classifier_features import (  # noqa: F401  public names of this module that live there
    SEQUENCES,
    InputExample,
    InputFeatures,
    PaddingInputExample,
    _truncate_seq_pair,
    convert_examples_to_features,
    convert_single_example,
    feature_fields,
    file_based_convert_examples_to_features,
    serialize,
)


class _RowError(ValueError):
    """Something wrong with one row, found where its line is known and its file is not."""

    def __init__(self, line, problem):
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


@contextlib.contextmanager
def _blaming(path):
    """Adds the file to row errors."""
    try:
        yield
    except _RowError as error:
        raise ValueError(f"{path}:{error.line}: {error.problem}") from None


class _Layout(NamedTuple):
    """Which column of a TSV file holds what, counted from 0; -1 is the last, None is absent.

    `guid` None numbers the examples by row. `header` says that the first row names the columns.
    `label_header` is the name over the labels; it is needed if a test file may come without them.
    """

    text_a: int
    text_b: int | None = None
    label: int | None = None
    guid: int | None = None
    language: int | None = None
    header: bool = True
    label_header: str | None = None

    def width(self, first_row):
        """Returns the fewest columns a usable row has."""
        columns = (self.text_a, self.text_b, self.label, self.guid, self.language)
        used = [column for column in columns if column is not None]
        # "The last column" of a cut-off row is some other column: only the header can tell.
        return max(max(used) + 1, len(first_row) if min(used) < 0 else 0)

    def rows(self, lines, language=None):
        """Yields (index, row) of each data row, index counting the header; checks the widths."""
        width = self.width(lines[0])
        for i, row in enumerate(lines):
            if self.header and i == 0:
                continue
            if len(row) < width:
                raise _RowError(i + 1, f"expected at least {width} tab-separated columns, found "
                                f"{len(row)}; complete the row or remove it")
            if self.language is None or row[self.language] == language:
                yield i, row

    def label_of(self, i, row, labels, aliases):
        """Returns the label in row `i`, checked against `labels`."""
        label = aliases.get(row[self.label], row[self.label])
        if label in labels:
            return label
        if label == "-":
            advice = ("\"-\" marks a pair its annotators did not agree on, so it is unlabelled; "
                      "remove such rows")
        else:
            advice = "correct the row or remove it"
            if i == 0:
                advice += " (this file is read as one without a header row)"
        raise _RowError(i + 1, f"label {label!r} is not one of {', '.join(labels)}: {advice}")


class DataProcessor:
    """Reads the examples of one classification task; base class of all processors.

    A subclass either overrides the `get_` methods, or declares `_FILES` (file names by "train",
    "dev" and "test", which may mention {processor}), `_LABELS` and `_LAYOUT`.
    """

    _FILES: ClassVar = {}
    _LABELS = None
    _LAYOUT = None
    _LABEL_ALIASES: ClassVar = {}
    language = None

    def get_train_examples(self, data_dir):
        """Returns the list of `InputExample`s to train on.

        Raises:
          FileNotFoundError, ValueError: the file is missing or cannot be used; says where and why.
          NotImplementedError: the task has no such file.
        """
        return self._load_examples(data_dir, "train")

    def get_dev_examples(self, data_dir):
        """Returns the list of `InputExample`s to evaluate on; errors as in training."""
        return self._load_examples(data_dir, "dev")

    def get_test_examples(self, data_dir):
        """Returns the list of `InputExample`s to predict; errors as in training.

        Every label is the task's first one, a stand-in: the real ones, where the file has them,
        are for `get_test_labels`.
        """
        return self._load_examples(data_dir, "test")

    def get_test_labels(self, data_dir):
        """Returns the labels of the test examples, in order, or None when the file has none.

        Raises:
          FileNotFoundError, ValueError: as for the examples.
        """
        cls = type(self)
        if (cls.get_test_examples is not DataProcessor.get_test_examples
                or cls._create_examples is not DataProcessor._create_examples):
            # A subclass with its own way to make test examples: these labels may not be theirs.
            return None
        path, lines = self._load_lines(data_dir, "test")
        layout = self._layout("test", lines)
        if layout.label is None:
            return None
        if layout.label_header and lines[0][layout.label:][:1] != [layout.label_header]:
            return None
        labels = self.get_labels()
        with _blaming(path):
            return [layout.label_of(i, row, labels, self._LABEL_ALIASES)
                    for i, row in layout.rows(lines, self.language)]

    def file_names(self):
        """Returns {"train", "dev" or "test": the file's name in the data directory} of what is declared."""
        return {name: self._FILES[name].format(processor=self) for name in self._FILES}

    def get_labels(self):
        """Returns the list of label strings; a label's id is its place in it."""
        if self._LABELS is None:
            raise NotImplementedError(f"{type(self).__name__} declares no labels")
        return list(self._LABELS)

    @classmethod
    def _read_tsv(cls, input_file, quotechar=None):
        """Reads a UTF-8 file of tab-separated values, on any file system TensorFlow knows.

        Args:
          input_file: path; a byte-order mark at its start is dropped.
          quotechar: character that encloses fields, or None to take quotes as they come. With
            None, row i is exactly line i + 1 of the file.

        Returns:
          List of rows, each a list of str; an empty line is an empty row.

        Raises:
          FileNotFoundError, ValueError: missing, not UTF-8, or not separable into fields.
        """
        try:
            data = files.read_bytes(input_file)
        except FileNotFoundError:
            raise FileNotFoundError(f"{input_file} does not exist") from None
        try:
            text = data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{input_file}:{line}: byte {data[error.start]:#04x} at offset "
                             f"{error.start} is not UTF-8; convert the file to UTF-8") from None
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise ValueError(f"{input_file}:{line}: there is a NUL character; if the file is UTF-16, "
                             "convert it to UTF-8, else remove the character")
        # Split at "\n" alone: sentences may contain what else Unicode calls a line break.
        quoting = csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL
        reader = csv.reader(io.StringIO(text, newline="\n"), delimiter="\t",
                            quotechar=quotechar, quoting=quoting)
        try:
            return list(reader)
        except csv.Error as error:
            if "field limit" in str(error):
                raise ValueError(f"{input_file}:{reader.line_num}: a field has more than "
                                 f"{csv.field_size_limit():,} characters; look for lost tabs and line ends, "
                                 "or shorten the text") from None
            raise ValueError(f"{input_file}:{reader.line_num}: cannot be split at tabs; look for a "
                             f"stray control character in the line ({error})") from None

    def _layout(self, set_type, lines):
        """Returns the columns of a file, given which it is and its rows (at least one)."""
        return self._LAYOUT

    def _load_lines(self, data_dir, split):
        """Returns the path of a declared file and its rows, at least one."""
        if split not in self._FILES:
            raise NotImplementedError(f"{type(self).__name__} declares no {split} file")
        names = self.file_names()
        path = os.path.join(data_dir, names[split])
        try:
            lines = self._read_tsv(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error}: {type(self).__name__} looks in the data directory {data_dir} for "
                f"{', '.join(sorted(set(names.values())))}") from None
        if not lines:
            raise ValueError(f"{path}: the file is empty; it should hold the {split} examples")
        return path, lines

    def _load_examples(self, data_dir, split, set_type=None):
        """Returns a declared file's examples, at least one. Guids begin with `set_type`, else the split."""
        path, lines = self._load_lines(data_dir, split)
        with _blaming(path):
            examples = self._create_examples(lines, set_type or split)
        if examples:
            return examples
        if len(lines) == 1:
            raise ValueError(f"{path}:1: there is a header row and nothing after it; "
                             f"the file should hold the {split} examples")
        which = f" in language {self.language!r}" if self.language else ""
        raise ValueError(f"{path}: no example{which} among {len(lines)} lines; "
                         "check that this is the file you meant")

    def _create_examples(self, lines, set_type):
        """Returns the examples in a file's rows, header included; in a test set unlabelled ones."""
        if not lines:
            return []
        layout = self._layout(set_type, lines)
        if set_type == "test":
            layout = layout._replace(label=None)
        labels = self.get_labels()
        examples = []
        for i, row in layout.rows(lines, self.language):
            label = labels[0]
            if layout.label is not None:
                label = layout.label_of(i, row, labels, self._LABEL_ALIASES)
            examples.append(InputExample(
                guid=f"{set_type}-{i if layout.guid is None else row[layout.guid]}",
                text_a=row[layout.text_a],
                text_b=None if layout.text_b is None else row[layout.text_b],
                label=label))
        return examples


class XnliProcessor(DataProcessor):
    """XNLI, one language at a time: trains on MultiNLI translated, evaluates on XNLI itself."""

    _FILES: ClassVar = {"train": "multinli/multinli.train.{processor.language}.tsv",
                        "dev": "xnli.dev.tsv", "test": "xnli.test.tsv"}
    _LABELS = ("contradiction", "entailment", "neutral")
    _LABEL_ALIASES: ClassVar = {"contradictory": "contradiction"}
    _LAYOUT = _Layout(language=0, label=1, text_a=6, text_b=7)
    _TRANSLATED = _Layout(text_a=0, text_b=1, label=2)

    def __init__(self):
        self.language = "zh"

    def _layout(self, set_type, lines):
        return self._TRANSLATED if set_type == "train" else self._LAYOUT


class MnliProcessor(DataProcessor):
    """MultiNLI in the form of the GLUE benchmark; evaluates on the matched genres."""

    _FILES: ClassVar = {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv"}
    _LABELS = ("contradiction", "entailment", "neutral")
    _LAYOUT = _Layout(guid=0, text_a=8, text_b=9, label=-1, label_header="gold_label")

    def get_dev_examples(self, data_dir):
        """Returns the list of `InputExample`s to evaluate on, guids "dev_matched-<first column>"."""
        return self._load_examples(data_dir, "dev", "dev_matched")


class MrpcProcessor(DataProcessor):
    """The Microsoft paraphrase corpus in the form of the GLUE benchmark."""

    _FILES: ClassVar = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    _LABELS = ("0", "1")
    _LAYOUT = _Layout(label=0, text_a=3, text_b=4, label_header="Quality")


class ColaProcessor(DataProcessor):
    """The corpus of linguistic acceptability in the form of the GLUE benchmark: single sentences.

    The test file is either GLUE's (a header, then number and sentence), or, when its first row has
    four columns, labelled and without a header like the other two.
    """

    _FILES: ClassVar = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    _LABELS = ("0", "1")
    _LAYOUT = _Layout(label=1, text_a=3, header=False)
    _UNLABELLED = _Layout(text_a=1)

    def _layout(self, set_type, lines):
        if set_type == "test" and len(lines[0]) < self._LAYOUT.width(lines[0]):
            return self._UNLABELLED
        return self._LAYOUT


PROCESSORS = {
    "cola": ColaProcessor,
    "mnli": MnliProcessor,
    "mrpc": MrpcProcessor,
    "xnli": XnliProcessor,
}


def get_processor(task_name):
    """Returns a new processor for a task.

    Args:
      task_name: str, a key of `PROCESSORS` in any case.

    Raises:
      ValueError: there is no such task; lists those there are.
    """
    name = task_name.lower()
    if name in PROCESSORS:
        return PROCESSORS[name]()
    close = difflib.get_close_matches(name, PROCESSORS, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    known = ", ".join(sorted(PROCESSORS))
    raise ValueError(f"unknown task {task_name!r}; the tasks are {known}.{hint}")
