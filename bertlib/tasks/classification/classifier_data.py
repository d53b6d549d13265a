"""Contains processors. A *processor* reads the files of a classification or regression task, such as one of
GLUE, and returns `InputExample`s. The processors of this module only declare their files, columns, labels and
metrics. Their base class `DataProcessor` reads the files; its errors name the file and the line. The public
names of `classifier_features`, which converts examples into features, can also be imported from this module.

A user's own classification is a subclass of `DataProcessor` in a file of the user; see
docs/howto/own_task.md. To add a task to this project, write a subclass in this module, and add it to
`PROCESSORS`; see docs/howto/glue.md#a-new-glue-task.
"""

import difflib
import math
import os
from typing import NamedTuple

from absl import logging

from bertlib.data import row_fields, tables
from bertlib.data.tables import RowError
from bertlib.runs import registry
from bertlib.system import files
from bertlib.tasks.classification.classifier_features import (  # noqa: F401  public names of this module
    InputExample,
    InputFeatures,
    PaddingInputExample,
    SourceRow,
    _truncate_seq_pair,
    convert_examples_to_features,
    convert_single_example,
    feature_fields,
    file_based_convert_examples_to_features,
)


class Layout(NamedTuple):
    """The columns of a TSV file.

    A column is described by its name in the header row (str) or by its number (int). Numbers begin at 0, and
    -1 is the last column. None means that the file does not have the column.

    Attributes:
      text_a, text_b: columns of the first and the second text.
      label: column of the label.
      guid: column of the example's identifier. If it is None, an example is identified by its row's index.
      language: column of the language.
      header: whether the first row contains the names of the columns.
      label_header: name of the label column in the header row. Used only if columns are described by numbers.
        If a test file has a different name in this column of its header row, it counts as a file without
        labels.
      text_headers: names of the text columns in the header row of the published files. Used only if columns
        are described by numbers. `predict.py` reads the texts from columns with these names.
      skips_short_rows: True to skip rows with too few columns; False if such a row is an error.
      scores: (lowest score, highest score) of a regression.
    """

    text_a: int | str
    text_b: int | str | None = None
    label: int | str | None = None
    guid: int | str | None = None
    language: int | str | None = None
    header: bool = True
    label_header: str | None = None
    text_headers: tuple = ()
    skips_short_rows: bool = False
    scores: tuple = (-math.inf, math.inf)

    def numbered(self, header, is_test):
        """Returns this layout, with the number of each column instead of its name.

        Args:
          header: list of str, the first row of the file.
          is_test: whether the file is a test file, which may lack the labels.
        """
        numbers = {}
        for field in ("text_a", "text_b", "label", "guid", "language"):
            name = getattr(self, field)
            if not isinstance(name, str):
                continue
            if name not in header and not (is_test and field == "label"):
                advice = ("A declared file must be a TSV file, not JSON Lines" if "".join(header)[:1] == "{"
                          else "Rename the columns in the header row as in the published files of the task")
                raise RowError(
                    1, f"the header row has no column {name!r}, only {', '.join(header)}. {advice}")
            numbers[field] = header.index(name) if name in header else None
        return self._replace(**numbers, skips_short_rows=self.skips_short_rows and not is_test)

    def width(self, first_row):
        """Returns the smallest number of columns that a usable row may have."""
        columns = (self.text_a, self.text_b, self.label, self.guid, self.language)
        used = [column for column in columns if column is not None]
        # If the layout uses -1 (the last column), a row must be as long as the first row. The last column of
        # a shorter row would be a different column than the last column of the first row.
        return max(max(used) + 1, len(first_row) if min(used) < 0 else 0)

    @property
    def texts(self):
        """A list of the one or two columns that contain the texts of an example."""
        return [column for column in (self.text_a, self.text_b) if column is not None]

    @property
    def names(self):
        """A list of the names of the text columns in the files of the task; None if the files have no
        header."""
        return list(self.text_headers) or (self.texts if isinstance(self.text_a, str) else None)

    def rows(self, lines, language=None):
        """Yields (index, row) for each row with data. If the layout has a language column, yields only the
        rows whose language is `language`.

        The header row is not yielded, but it is counted: it has the index 0, and the first row with data has
        the index 1.

        Raises:
          RowError: a row has too few columns. If `skips_short_rows` is true, such a row is left out instead.
        """
        width = self.width(lines[0])
        for i, row in enumerate(lines):
            if self.header and i == 0:
                continue
            if len(row) < width:
                if self.skips_short_rows:
                    continue
                raise RowError(i + 1, f"the row has {len(row)} tab-separated columns, but at least {width} "
                               "are needed; complete the row or remove it")
            if self.language is None or row[self.language] == language:
                yield i, row

    def label_of(self, i, row, labels, aliases):
        """Returns the label of a row.

        Args:
          i: int, the index of the row in the file, for error messages.
          row: list of str.
          labels: list of the valid labels; None for a regression, whose labels are floats.
          aliases: {label in the file: label of the task}.
        """
        if labels is None:
            return self._score_of(i, row)
        label = aliases.get(row[self.label], row[self.label])
        if label in labels:
            return label
        if label == "-":
            advice = ("\"-\" means that the annotators did not agree on a label; remove all rows with this "
                      "label")
        else:
            advice = "correct the row or remove it"
            if i == 0:
                advice += " (this file is read as a file without a header row)"
        raise RowError(i + 1, f"the label {label!r} is not one of {', '.join(labels)}: {advice}")

    def _score_of(self, i, row):
        score = tables.parse_number(row[self.label].strip())
        low, high = self.scores
        if score is None or not low <= score <= high:
            needed = "a finite number" if score is None else f"between {low:g} and {high:g}"
            raise RowError(i + 1, f"the score {row[self.label]!r} is not {needed}: correct the row or remove "
                           "it")
        return score


class DataProcessor:
    """Base class of all processors. A processor reads the examples of one classification or regression task.

    A subclass either overrides the `get_` methods, or declares these class attributes:

      files: {name of a set: file name}. The sets are "train", "dev", "test" and further sets. A file name may
        contain attributes of the processor, for example {processor.language}. If a set has a tuple of file
        names, the first existing file is read. Other keys name further files that `load_rows` reads, such
        as "train_labels". run.json lists all declared files of a training.
      labels: tuple of str, the labels. A regression does not declare labels.
      layout: the `Layout` of the files.
      further_layouts: tuple of additional `Layout`s, if not all files of the task have the columns of
        `layout`. For example, the training file of XNLI has other columns than its test file. The method
        `layout_of` chooses the layout of a file.
      label_aliases: {label in a file: label of the task}, for files in which a label has another name than in
        the task. For example, XNLI's training files have "contradictory" for the label "contradiction".

    Subclasses may also use the names `_read_tsv` and `_create_examples` of google-research/bert.

    Attributes:
      name: str, the official name of the task, such as "SST-2", or None.
      task_type: "classification", "regression" or "multilabel". In a regression, labels are floats, and
        `get_labels` returns None. In a multi-label task, the label of an example is a tuple of labels.
      metrics: tuple of str, the names of the official metrics, such as "accuracy". The file
        `eval_results.txt` lists them with the prefix "eval_".
      further_sets: tuple of str, names of additional development and test sets. The name "mismatched" means
        the two sets "dev_mismatched" and "test_mismatched".
      submission: {name of a file in a GLUE submission: (set, number of examples in this set)}. The file
        contains the predictions for the set.
      language: str, the language of the examples that are read; None if the task has only one language.
    """

    name = None
    task_type = "classification"
    metrics = ("accuracy",)
    further_sets = ()
    submission = {}
    files = {}
    labels = None
    layout = None
    further_layouts = ()
    label_aliases = {}
    language = None

    def get_train_examples(self, data_dir):
        """Returns the list of `InputExample`s to train on.

        Raises:
          FileNotFoundError, ValueError: the file is missing or has an error; the message names the file and
            the line.
          NotImplementedError: the task has no such file.
        """
        return self.load_examples(data_dir, "train")

    def get_dev_examples(self, data_dir):
        """Returns the list of `InputExample`s to evaluate on. Raises: see `get_train_examples`."""
        return self.load_examples(data_dir, "dev")

    def get_test_examples(self, data_dir):
        """Returns the list of `InputExample`s to predict. For the errors, see `get_train_examples`.

        The label of these examples is a placeholder: the first label of the task, or 0.0 in a regression. If
        the file has labels, `get_test_labels` returns them.
        """
        return self.load_examples(data_dir, "test")

    def get_test_labels(self, data_dir):
        """Returns the list of the labels of the test examples, in the order of the examples; None if the file
        has no labels.

        Raises:
          FileNotFoundError, ValueError: see `get_train_examples`.
        """
        if overrides(self, DataProcessor, "get_test_examples", "create_examples", "_create_examples"):
            # Here, the subclass overrides one of the methods that make the test examples. The examples of the
            # subclass may differ from the rows of the file. So the labels in the file may not belong to these
            # examples, and are not used.
            return None
        path, lines = self.load_rows(data_dir, "test")
        with tables.name_file_in_errors(path):
            layout = self.layout_of("test", lines).numbered(lines[0], is_test=True)
        if layout.label is None:
            return None
        if layout.label_header and lines[0][layout.label:][:1] != [layout.label_header]:
            return None
        labels = self.get_labels()
        with tables.name_file_in_errors(path):
            return [layout.label_of(i, row, labels, self.label_aliases)
                    for i, row in layout.rows(lines, self.language)]

    def get_further_examples(self, data_dir, split):
        """Returns the `InputExample`s of an additional development or test set, as a list. Returns None if
        the file of the set does not exist.

        Args:
          data_dir: the data directory.
          split: str, such as "dev_mismatched"; see `further_sets`.

        Raises:
          see `get_train_examples`.
        """
        if split not in self.files or not self._path_of(data_dir, split):
            return None
        return self.load_examples(data_dir, split)

    def file_names(self):
        """Returns the declared files: {key of `files`: list of file names}. If a list has several names, the
        first file in the list that exists in the data directory is read."""
        lists = {split: [names] if isinstance(names, str) else names for split, names in self.files.items()}
        return {split: [name.format(processor=self) for name in names] for split, names in lists.items()}

    def _path_of(self, data_dir, split):
        """Returns the path of the first existing file among the files that `file_names` declares for a key;
        None if none of them exists."""
        paths = [os.path.join(data_dir, name) for name in self.file_names()[split]]
        return next(filter(files.exists, paths), None)

    def get_labels(self):
        """Returns the list of labels (str), or None for a regression. The id of a label is its index in this
        list."""
        if registry.find_target(self.task_type).is_score:
            return None
        if self.labels is None:
            raise NotImplementedError(f"{type(self).__name__} declares no labels")
        return list(self.labels)

    @classmethod
    def read_tsv(cls, input_file, quotechar=None):
        """Reads a UTF-8 file of tab-separated values. The file may be on any file system that TensorFlow
        knows.

        Args:
          input_file: path; a byte-order mark at the start of the file is ignored.
          quotechar: character that encloses fields; None if quotes are ordinary characters. If quotechar is
            None, row i is always line i + 1 of the file.

        Returns:
          list of rows, each a list of str. An empty line is an empty row.

        Raises:
          FileNotFoundError, ValueError: the file is missing, is not UTF-8, or cannot be split into fields.
        """
        rows = []
        with tables.open_table(input_file) as stream:
            for _, row in tables.split_rows(tables.read_lines(stream), "\t", quotechar):
                if isinstance(row, RowError):
                    raise row
                rows.append(row)
        return rows

    @classmethod
    def _read_tsv(cls, input_file, quotechar=None):
        """Calls `read_tsv`. In google-research/bert, that method has the name `_read_tsv`."""
        return cls.read_tsv(input_file, quotechar)

    @property
    def score_range(self):
        """A pair: the lowest and the highest score of a regression. The pair is (-inf, inf) if no range is
        declared."""
        return self.layout.scores if self.layout else Layout._field_defaults["scores"]

    @property
    def num_texts(self):
        """The number of texts in an example, 1 or 2; None if the task declares no layout."""
        return self.layout and len(self.layout.texts)

    def names_of_texts(self):
        """Returns the names of the text columns, as a list with one list of str for each layout of the task.
        Layouts without names are left out."""
        return [layout.names for layout in (self.layout, *self.further_layouts) if layout and layout.names]

    def layout_of(self, set_type, lines):
        """Returns the `Layout` of a file. A subclass overrides this method if its files have several layouts.

        Args:
          set_type: "train", "dev", "test" or a further set.
          lines: list of at least one row, the rows of the file.
        """
        return self.layout

    def load_rows(self, data_dir, split):
        """Reads a declared file. A subclass overrides this method to change the rows of its files, or to join
        the rows of several files. The examples and the labels of the test set are made from the result.

        Args:
          data_dir: the data directory.
          split: a key of `files`: the name of a set or of a further file.

        Returns:
          (path for error messages, list of rows). A row is a list of str. The list has at least one row.

        Raises:
          see `get_train_examples`.
        """
        if split not in self.files:
            raise NotImplementedError(f"{type(self).__name__} declares no {split} file")
        names = self.file_names()
        path = self._path_of(data_dir, split) or os.path.join(data_dir, names[split][0])
        try:
            lines = self._read_tsv(path)
        except FileNotFoundError as error:
            looks_for = sorted({name for names in names.values() for name in names})
            raise FileNotFoundError(f"{error}. {type(self).__name__} needs these files in the data directory "
                                    f"{data_dir}: {', '.join(looks_for)}") from None
        if not lines:
            raise ValueError(f"{path}: the file is empty; it should contain the {split} examples")
        return path, lines

    def load_examples(self, data_dir, split, set_type=None):
        """Reads the examples of a set from the file that the class declares. Returns a list with at least one
        example. The guids of the examples begin with `set_type`, or with `split` if `set_type` is None."""
        path, lines = self.load_rows(data_dir, split)
        with tables.name_file_in_errors(path):
            examples = self._create_examples(lines, set_type or split)
        if examples:
            if len(examples) < len(lines) - 1 and self.layout and self.layout.skips_short_rows:
                logging.info("%s: %d of %d rows have too few columns. They are left out, as in the published "
                             "code.", path, len(lines) - 1 - len(examples), len(lines) - 1)
            return examples
        which = f" in language {self.language!r}" if self.language else ""
        raise ValueError(f"{path}: the {len(lines)} lines contain no example{which}. Check whether this is "
                         "the right file")

    def _create_examples(self, lines, set_type):
        """Calls `create_examples`. In google-research/bert, that method has the name `_create_examples`.
        Subclasses may override either of the two methods."""
        return self.create_examples(lines, set_type)

    def create_examples(self, lines, set_type):
        """Makes an `InputExample` from each row with data; see `Layout.rows`. Returns the list of examples.

        Args:
          lines: list of all rows of the file, including the header row.
          set_type: "train", "dev", "test" or a further set. Labels of a test set are ignored.
        """
        if not lines:
            return []
        is_test = set_type in ("test", *(f"test_{name}" for name in self.further_sets))
        layout = self.layout_of(set_type, lines).numbered(lines[0], is_test)
        if is_test:
            layout = layout._replace(label=None)
        labels = self.get_labels()
        examples, fields_of = [], row_fields.field_reader(lines[0] if layout.header else None)
        for i, row in layout.rows(lines, self.language):
            label = 0.0 if labels is None else labels[0]
            if layout.label is not None:
                label = layout.label_of(i, row, labels, self.label_aliases)
            examples.append(InputExample(
                guid=f"{set_type}-{i if layout.guid is None else row[layout.guid]}",
                text_a=row[layout.text_a],
                text_b=None if layout.text_b is None else row[layout.text_b],
                label=label))
            if set_type != "train":
                examples[-1].source = SourceRow(i + 1, fields_of(row))
        return examples


def overrides(processor, base, *methods):
    """Returns whether the class of a processor overrides one of the methods of a base class."""
    return any(getattr(type(processor), method) is not getattr(base, method) for method in methods)


class XnliProcessor(DataProcessor):
    """XNLI in one language. A model is trained on a translation of MultiNLI, and evaluated on XNLI."""

    LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
    name = "XNLI"
    files = {"train": "multinli/multinli.train.{processor.language}.tsv",
             "dev": "xnli.dev.tsv", "test": "xnli.test.tsv"}
    labels = ("contradiction", "entailment", "neutral")
    label_aliases = {"contradictory": "contradiction"}
    layout = Layout(language=0, label=1, text_a=6, text_b=7, text_headers=("sentence1", "sentence2"))
    _TRANSLATED = Layout(text_a=0, text_b=1, label=2, text_headers=("premise", "hypo"))
    further_layouts = (_TRANSLATED,)

    def __init__(self):
        self.language = "zh"

    def layout_of(self, set_type, lines):
        return self._TRANSLATED if set_type == "train" else self.layout


# --- The GLUE benchmark (https://gluebenchmark.com), as it is distributed --------------------------------


class _GlueProcessor(DataProcessor):
    """Base class of the tasks with GLUE's usual file names. The labels of most of these tasks are 0 and 1."""

    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
    labels = ("0", "1")


class MnliProcessor(DataProcessor):
    """MultiNLI. A model is trained on the training set, and evaluated on the matched and on the mismatched
    genres."""

    name = "MNLI"
    further_sets = ("mismatched",)
    submission = {"MNLI-m.tsv": ("test", 9796), "MNLI-mm.tsv": ("test_mismatched", 9847)}
    files = {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv",
             "dev_mismatched": "dev_mismatched.tsv", "test_mismatched": "test_mismatched.tsv"}
    labels = ("contradiction", "entailment", "neutral")
    layout = Layout(guid=0, text_a=8, text_b=9, label=-1, label_header="gold_label",
                    text_headers=("sentence1", "sentence2"))

    def get_dev_examples(self, data_dir):
        """Returns the list of `InputExample`s to evaluate on. The guid of an example is "dev_matched-",
        followed by the first column of its row."""
        return self.load_examples(data_dir, "dev", "dev_matched")

    def get_further_examples(self, data_dir, split):
        """See `DataProcessor`. Returns None if a subclass overrides a method that makes the examples or the
        labels. In this case, the examples of the mismatched genres may not fit the examples and labels of the
        subclass."""
        if overrides(self, MnliProcessor, "get_dev_examples", "create_examples", "_create_examples",
                     "get_labels"):
            return None
        return super().get_further_examples(data_dir, split)


class AxProcessor(DataProcessor):
    """The diagnostic set of GLUE. It has no training file, so it is predicted by a model that was trained on
    MNLI."""

    name = "AX"
    submission = {"AX.tsv": ("test", 1104)}
    files = {"test": ("diagnostic.tsv", "AX.tsv")}
    labels = MnliProcessor.labels
    layout = Layout(text_a="sentence1", text_b="sentence2")


class MrpcProcessor(_GlueProcessor):
    """The Microsoft paraphrase corpus."""

    name = "MRPC"
    metrics = ("f1", "accuracy")
    submission = {"MRPC.tsv": ("test", 1725)}
    layout = Layout(label=0, text_a=3, text_b=4, label_header="Quality",
                    text_headers=("#1 String", "#2 String"))


class ColaProcessor(_GlueProcessor):
    """The corpus of linguistic acceptability: single sentences.

    The test file has one of two layouts. If the first row has four columns, the layout is that of the
    training file, which has labels and no header row. If the first row has fewer columns, the layout is that
    of GLUE's test file: a header row, and then rows with a number and a sentence.
    """

    name = "CoLA"
    metrics = ("matthews",)
    submission = {"CoLA.tsv": ("test", 1063)}
    layout = Layout(label=1, text_a=3, header=False)
    _UNLABELLED = Layout(text_a=1, text_headers=("sentence",))
    further_layouts = (_UNLABELLED,)

    def layout_of(self, set_type, lines):
        if set_type == "test" and len(lines[0]) < self.layout.width(lines[0]):
            return self._UNLABELLED
        return self.layout


class Sst2Processor(_GlueProcessor):
    """The Stanford sentiment treebank: single sentences. The label 1 means a positive sentence."""

    name = "SST-2"
    submission = {"SST-2.tsv": ("test", 1821)}
    layout = Layout(text_a="sentence", label="label")


class StsbProcessor(_GlueProcessor):
    """The semantic textual similarity benchmark: the similarity of two sentences, from 0 to 5."""

    name = "STS-B"
    task_type = "regression"
    labels = None
    metrics = ("pearson", "spearman")
    submission = {"STS-B.tsv": ("test", 1379)}
    layout = Layout(text_a="sentence1", text_b="sentence2", label="score", scores=(0.0, 5.0))


class QqpProcessor(_GlueProcessor):
    """Quora question pairs. Some rows of the training file are incomplete. These rows are skipped."""

    name = "QQP"
    metrics = ("f1", "accuracy")
    submission = {"QQP.tsv": ("test", 390965)}
    layout = Layout(text_a="question1", text_b="question2", label="is_duplicate", skips_short_rows=True)


class QnliProcessor(_GlueProcessor):
    """Questions of SQuAD, each with a sentence. The label says whether the sentence contains the answer."""

    name = "QNLI"
    submission = {"QNLI.tsv": ("test", 5463)}
    labels = ("entailment", "not_entailment")
    layout = Layout(text_a="question", text_b="sentence", label="label")


class RteProcessor(_GlueProcessor):
    """Recognizing textual entailment. The label says whether the first sentence implies the second
    sentence."""

    name = "RTE"
    submission = {"RTE.tsv": ("test", 3000)}
    labels = ("entailment", "not_entailment")
    layout = Layout(text_a="sentence1", text_b="sentence2", label="label")


class WnliProcessor(_GlueProcessor):
    """Winograd schemas. An example has a sentence with a pronoun, and a sentence in which a noun replaces the
    pronoun. The label says whether the first sentence implies the second sentence."""

    name = "WNLI"
    submission = {"WNLI.tsv": ("test", 146)}
    layout = Layout(text_a="sentence1", text_b="sentence2", label="label")


# The names in run.json of the tasks of the user's own data and of a --task_module.
OWN_DATA, TASK_MODULE = "own data", "task module"
# The tasks of --task_name, in lower case. To add a task, see docs/howto/glue.md#a-new-glue-task.
PROCESSORS = {
    "ax": AxProcessor,
    "cola": ColaProcessor,
    "mnli": MnliProcessor,
    "mrpc": MrpcProcessor,
    "qnli": QnliProcessor,
    "qqp": QqpProcessor,
    "rte": RteProcessor,
    "sst-2": Sst2Processor,
    "sts-b": StsbProcessor,
    "wnli": WnliProcessor,
    "xnli": XnliProcessor,
}


def get_processor(task_name):
    """Returns a new processor for a task.

    Args:
      task_name: str, a key of `PROCESSORS`, in any letter case.

    Raises:
      ValueError: there is no such task. The message lists all tasks.
    """
    name = task_name.lower()
    if name in PROCESSORS:
        return PROCESSORS[name]()
    close = difflib.get_close_matches(name, PROCESSORS, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    known = ", ".join(sorted(PROCESSORS))
    raise ValueError(f"unknown task {task_name!r}; the tasks are {known}.{hint}")
