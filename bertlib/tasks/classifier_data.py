"""Sentence and sentence-pair classification: examples, task processors, features.

A *processor* turns the TSV files of one task into `InputExample`s. A processor of this module is a
declaration (which files, which columns, which labels); one mechanism in `DataProcessor` reads them
all, and every complaint it has names the file and the line. `convert_single_example` turns an
example into the model's integers, `file_based_convert_examples_to_features` stores those.
"""

import contextlib
import csv
import difflib
import io
import os
from typing import ClassVar, NamedTuple

from absl import logging

from bertlib.runtime import example_encoding, files, record_files, workers
import tokenization

_LOGGED_EXAMPLES = 2


class InputExample:
    """One text, or pair of texts, to classify.

    Args:
      guid: str, names the example in logs and errors.
      text_a: str, untokenized.
      text_b: str or None; None or "" makes a single-text example.
      label: str or None, one of the task's labels; None where there is nothing to learn from.
    """

    def __init__(self, guid, text_a, text_b=None, label=None):
        self.guid = guid
        self.text_a = text_a
        self.text_b = text_b
        self.label = label


class PaddingInputExample:
    """Fills the last batch where batches must all have one size, as on TPU.

    A class of its own, because a padding example that forgets what it is would be counted in the
    metrics: its features say `is_real_example=False`.
    """


class InputFeatures:
    """What the model is fed for one example.

    Args:
      input_ids: max_seq_length ints, the WordPiece ids, then zeros.
      input_mask: max_seq_length ints, 1 for a token and 0 for padding.
      segment_ids: max_seq_length ints, 1 for the second text and 0 elsewhere.
      label_id: int, place of the label in the task's label list.
      is_real_example: bool, False for padding examples.
    """

    def __init__(self, input_ids, input_mask, segment_ids, label_id, is_real_example=True):
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.segment_ids = segment_ids
        self.label_id = label_id
        self.is_real_example = is_real_example


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


def convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer):
    """Turns one example into the integers the model is fed.

    One text becomes `[CLS] a [SEP]`, a pair `[CLS] a [SEP] b [SEP]` with segment 1 from the first
    token of b; texts are cut to fit, the rest is zeros.

    Args:
      ex_index: int, place of the example; the first few are logged.
      example: `InputExample` or `PaddingInputExample`.
      label_list: list of str; the label's place in it is its id.
      max_seq_length: int, length of the result in tokens.
      tokenizer: has `tokenize(text)` and `convert_tokens_to_ids(tokens)`.

    Returns:
      `InputFeatures`.

    Raises:
      ValueError: the label is not in `label_list`, or the special tokens alone do not fit.
    """
    if isinstance(example, PaddingInputExample):
        zeros = [0] * max_seq_length
        return InputFeatures(zeros, list(zeros), list(zeros), label_id=0, is_real_example=False)
    first, second, label_id = _tokens(example, label_list, max_seq_length, tokenizer)
    tokens = first + second
    input_ids = list(tokenizer.convert_tokens_to_ids(tokens))
    padding = [0] * (max_seq_length - len(input_ids))
    features = InputFeatures(
        input_ids=input_ids + padding,
        input_mask=[1] * len(input_ids) + padding,
        segment_ids=[0] * len(first) + [1] * len(second) + padding,
        label_id=label_id)
    if ex_index < _LOGGED_EXAMPLES:
        logging.info("Example %s, label %s (id %d): %s", example.guid, example.label, features.label_id,
                     " ".join(tokenization.printable_text(token) for token in tokens))
    return features


def _tokens(example, label_list, max_seq_length, tokenizer):
    """Returns the tokens of segment 0, those of segment 1, cut to fit, and the label's id."""
    label_ids = {label: i for i, label in enumerate(label_list)}
    if example.label not in label_ids:
        raise ValueError(f"example {example.guid}: label {example.label!r} is not one of "
                         f"{', '.join(map(str, label_ids))}")
    tokens_a = list(tokenizer.tokenize(example.text_a))
    tokens_b = list(tokenizer.tokenize(example.text_b)) if example.text_b else []
    special = 3 if tokens_b else 2
    if max_seq_length < special:
        raise ValueError(f"example {example.guid}: max_seq_length {max_seq_length} is too short: "
                         f"[CLS] and [SEP] alone take {special} places")
    _truncate_seq_pair(tokens_a, tokens_b, max_seq_length - special)
    second = [*tokens_b, "[SEP]"] if tokens_b else []
    return ["[CLS]", *tokens_a, "[SEP]"], second, label_ids[example.label]


def _truncate_seq_pair(tokens_a, tokens_b, max_length):
    """Shortens two token lists in place until together they have at most `max_length` tokens.

    Tokens go one at a time from the end of whichever list is longer, of `tokens_b` at a tie, which
    leaves a question whole beside the passage it is asked about.
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop()


def _with_progress(converted, examples):
    return files.with_progress(converted, len(examples), "Converting example")


def convert_examples_to_features(examples, label_list, max_seq_length, tokenizer):
    """Returns the `InputFeatures` of each example; arguments as for `convert_single_example`."""
    converted = (convert_single_example(i, example, label_list, max_seq_length, tokenizer)
                 for i, example in enumerate(examples))
    return list(_with_progress(converted, examples))


# Of the fields below those [F], the mask first.
SEQUENCES = ("input_mask", "input_ids", "segment_ids")


def feature_fields(seq_length):
    """Returns the fields of a stored example, for `record_files` to write and `input_pipeline` to read.

    Args:
      seq_length: int, tokens per example.
    """
    return [
        example_encoding.Field("input_ids", "int64", (seq_length,), example_encoding.ANY_ID),
        example_encoding.Field("input_mask", "int64", (seq_length,), (0, 1)),
        example_encoding.Field("segment_ids", "int64", (seq_length,), example_encoding.ANY_ID),
        example_encoding.Field("label_ids", "int64", (), example_encoding.ANY_ID),
        example_encoding.Field("is_real_example", "int64", (), (0, 1)),
    ]


class _Converter:
    """`convert_single_example` of (index, example), for worker processes."""

    def __init__(self, *arguments):
        self._arguments = arguments

    def __call__(self, item):
        return convert_single_example(*item, *self._arguments)


def serialize(examples, label_list, max_seq_length, tokenizer, num_workers=1):
    """Yields the features of each example as a serialized `tf.train.Example`, in order.

    Args:
      examples, label_list, max_seq_length, tokenizer: as for `convert_single_example`. With a
        tokenizer that is not of `tokenization.TOKENIZERS` all is done in this process.
      num_workers: number of processes, 0 for one a core; the results are the same ones.

    Raises:
      ChildProcessError, and what `convert_single_example` raises.
    """
    convert = _Converter(label_list, max_seq_length, tokenizer)
    fields, items = feature_fields(max_seq_length), list(enumerate(examples))
    for item in items[:_LOGGED_EXAMPLES]:  # what a worker logs is not seen
        yield _serialized(fields, convert(item))
    processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
    with contextlib.closing(workers.ordered_map(convert, items[_LOGGED_EXAMPLES:], processes)) as converted:
        for features in converted:
            yield _serialized(fields, features)


def _serialized(fields, features):
    return record_files.encode(fields, {
        "input_ids": features.input_ids,
        "input_mask": features.input_mask,
        "segment_ids": features.segment_ids,
        "label_ids": features.label_id,
        "is_real_example": int(features.is_real_example),
    })


def file_based_convert_examples_to_features(examples, label_list, max_seq_length, tokenizer,
                                            output_file, num_workers=1):
    """Writes the features of each example to a TFRecord file of `tf.train.Example`s.

    The file has the fields of `feature_fields(max_seq_length)`, all int64; it appears only when
    complete. The other arguments and errors are those of `serialize`.

    Args:
      output_file: path of the file to write.
    """
    with contextlib.closing(serialize(examples, label_list, max_seq_length, tokenizer,
                                      num_workers)) as records:
        record_files.write_serialized(output_file, _with_progress(records, examples))
