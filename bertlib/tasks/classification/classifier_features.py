"""Converts examples of classification and regression into features, which are the integers that the model
reads.

`convert_single_example` converts one example. `file_based_convert_examples_to_features` converts many
examples and writes their features to a file.
"""

import contextlib
import dataclasses
from typing import NamedTuple

from absl import logging
import numpy as np

from bertlib.data import example_encoding, tfrecord_files
from bertlib.system import files, workers
from bertlib.tasks.classification import classification_target
from bertlib.tasks.classification.classification_target import feature_fields
from bertlib.tasks.text_windows import (
    _truncate_seq_pair,  # noqa: F401  a public name of this module
    make_windows,
    window_inputs,
)
import tokenization

# Number of examples that are written to the log: the first examples of a set.
_LOGGED_EXAMPLES = 2


class InputExample:
    """An example of a classification or regression task: a text or a pair of texts, and its label.

    Args:
      guid: str, the name of the example in logs and errors.
      text_a: str, the text or the first text of a pair, not tokenized.
      text_b: str or None, the second text of a pair; None or "" for a single text.
      label: one of the task's labels (str); in a regression, a float; in a multi-label task, a tuple of
        labels. None if the label is unknown.

    Attributes:
      source: the `SourceRow` of the example, for tables of predictions; None if it is unknown. It is not in
        `vars`, so it does not change the fingerprint of the example in run.json and in caches.
    """

    __slots__ = ("__dict__", "__weakref__", "source")

    def __init__(self, guid, text_a, text_b=None, label=None):
        self.source = None
        self.guid = guid
        self.text_a = text_a
        self.text_b = text_b
        self.label = label


class SourceRow(NamedTuple):
    """The row of a data file that became an example.

    Attributes:
      line: int, number of the line in which the row begins. The first line has the number 1.
      fields: {name of a column: text}, all columns of the row.
    """

    line: int
    fields: dict


class PaddingInputExample:
    """An example that fills up the last batch if all batches must have the same size, as on TPU.

    The features of such an example have `is_real_example=False`, so that metrics do not count it.
    """


@dataclasses.dataclass(eq=False)
class InputFeatures:
    """The features of one example. They are the input of the model.

    Args:
      input_ids: list of max_seq_length ints: the WordPiece ids, and zeros after them.
      input_mask: list of max_seq_length ints, 1 for a token and 0 for padding.
      segment_ids: list of max_seq_length ints, 1 for the second text and 0 elsewhere.
      label_id: in a classification, an int: the index of the label in the task's list of labels. In a
        regression, a float: the score. In a multi-label task, a list with 0 or 1 for each label of the task.
      is_real_example: bool, False for padding examples.
      num_tokens: int, the number of tokens before truncation, including special tokens; None if it is
        unknown.
    """

    input_ids: list
    input_mask: list
    segment_ids: list
    label_id: object
    is_real_example: bool = True
    num_tokens: int | None = None


def check_examples(examples, target):
    """Checks the texts and the labels of examples.

    Args:
      examples: list of `InputExample`, or of objects with the same attributes.
      target: see the module `classification_target`.

    Raises:
      ValueError: a text is not a text, or a label is not a label of the task.
    """
    for index, example in enumerate(examples):
        if isinstance(example, PaddingInputExample):
            continue
        if not (isinstance(getattr(example, "text_a", None), str | bytes)
                and isinstance(getattr(example, "text_b", None), str | bytes | None)):
            raise ValueError(f"example {getattr(example, 'guid', index)} must be an InputExample whose "
                             "text_a is a text, and whose text_b is a text or None.")
        try:
            target.encode_label(example.label)
        except ValueError as error:
            raise ValueError(f"example {example.guid}: {error}") from None


def convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer):
    """Converts one example into features.

    A single text becomes `[CLS] a [SEP]`. A pair becomes `[CLS] a [SEP] b [SEP]`. The tokens of b and the
    [SEP] after b have the segment id 1, and all other tokens have the segment id 0. Texts that are too long
    are truncated. If the texts are short, the features are padded with zeros.

    Args:
      ex_index: int, index of the example; the first few examples are logged.
      example: `InputExample` or `PaddingInputExample`.
      label_list: list of str. The id of a label is its index in this list. None for a regression, whose
        labels are numbers. `label_list` may also be a target, see the module `classification_target`.
      max_seq_length: int, number of tokens in the features, padding included.
      tokenizer: an object with `tokenize(text)` and `convert_tokens_to_ids(tokens)`.

    Returns:
      `InputFeatures`.

    Raises:
      ValueError: the label is not in `label_list`; or the label in a regression is not a number; or
        max_seq_length is too small for the special tokens.
    """
    return _Converter(classification_target.create_target(label_list), max_seq_length, tokenizer)(
        (ex_index, example))[0]


class _Converter:
    """Converts (index, example) into a list of `InputFeatures`, one for each window of the example.

    Worker processes call this object. The arguments of the constructor are those of `FeatureRecords`.
    """

    def __init__(self, target, max_seq_length, tokenizer, doc_stride=0, has_labels=True):
        self._target = target
        self._length, self._tokenizer = max_seq_length, tokenizer
        self._stride, self._has_labels = doc_stride, has_labels

    def __call__(self, item):
        ex_index, example = item
        if isinstance(example, PaddingInputExample):
            zeros = [0] * self._length
            return [InputFeatures(zeros, list(zeros), list(zeros),
                                  np.zeros(self._target.field.shape, int).tolist(), is_real_example=False)]
        try:
            label_id = self._target.encode_label(example.label)
            texts, num_tokens = make_windows(example.text_a, example.text_b, self._length, self._tokenizer,
                                             self._stride)
        except ValueError as error:
            raise ValueError(f"example {example.guid}: {error}") from None
        if ex_index < _LOGGED_EXAMPLES:
            windows = f", the first of {len(texts)} windows" if len(texts) > 1 else ""
            logging.info("Example %s%s%s: %s", example.guid, self._label_in_words(example.label, label_id),
                         windows,
                         " ".join(tokenization.printable_text(token) for part in texts[0] for token in part))
        return [InputFeatures(**window_inputs(first, second, self._tokenizer, self._length),
                              label_id=label_id, num_tokens=num_tokens) for first, second in texts]

    def _label_in_words(self, label, label_id):
        if not self._has_labels:
            return ""
        if self._target.is_multilabel:
            label = ", ".join(label) or "none"
        return f", label {label}" + ("" if self._target.labels is None else f" (id {label_id})")


def convert_examples_to_features(examples, label_list, max_seq_length, tokenizer):
    """Returns the list of the examples' `InputFeatures`; the arguments are those of
    `convert_single_example`."""
    target = classification_target.create_target(label_list)
    converted = (convert_single_example(i, example, target, max_seq_length, tokenizer)
                 for i, example in enumerate(examples))
    return list(files.with_progress(converted, len(examples), "Converting example"))


class FeatureRecords:
    """An iterable that converts a set of examples into records, which are serialized `tf.train.Example`s. The
    examples are converted during the iteration.

    Each attribute is a list with one element for each example. The lists are complete after the iteration.

    Attributes:
      windows: list of int, the number of records of each example; always 1 without `doc_stride`.
      lengths: list of the number of tokens (int) of each example before truncation; None for a padding
        example.
    """

    def __init__(self, examples, target, max_seq_length, tokenizer, num_workers=1, doc_stride=0,
                 has_labels=True):
        """Creates the iterable. The examples are converted later, during the iteration.

        Args:
          examples: list of `InputExample` and `PaddingInputExample`.
          target: see the module `classification_target`.
          max_seq_length, tokenizer: see `convert_single_example`. If the tokenizer's class is not in
            `tokenization.TOKENIZERS`, a single process is used.
          num_workers: number of processes; 0 for one process per core. The results do not depend on this
            number.
          doc_stride: see `text_windows.cut_into_windows`.
          has_labels: True if the labels of the examples are real and are to be logged; False if they are
            placeholders.
        """
        self._examples = examples
        self._fields = feature_fields(max_seq_length, target)
        self._inputs = [target, max_seq_length, tokenizer, doc_stride, has_labels]
        self._convert = _Converter(*self._inputs)
        self._is_portable = type(tokenizer) in tokenization.TOKENIZERS
        self._processes = num_workers if self._is_portable else 1
        self._kept = None
        self.windows, self.lengths = [], []

    def __iter__(self):
        """Yields the records in order.

        Raises:
          ChildProcessError: a worker process was killed.
          ValueError: see `convert_single_example`.
        """
        with contextlib.closing(self._converted()) as converted:
            for windows in files.with_progress(converted, len(self._examples), "Converting example"):
                self.windows.append(len(windows))
                self.lengths.append(windows[0].num_tokens)
                for features in windows:
                    yield _serialized(self._fields, features)

    def _converted(self):
        items = list(enumerate(self._examples))
        # The examples that are written to the log are converted in this process, because the log of a worker
        # is lost.
        yield from map(self._convert, items[:_LOGGED_EXAMPLES])
        with contextlib.closing(workers.ordered_map(self._convert, items[_LOGGED_EXAMPLES:],
                                                    self._processes)) as converted:
            yield from converted

    def cache(self):
        """Converts all examples now, and stores the records in memory until `write` is called. Returns the
        number of records."""
        self._kept = list(self)
        return len(self._kept)

    def write(self, path, cache=None):
        """Writes the records to a TFRecord file. The file appears only when it is complete.

        Args:
          path: path of the file.
          cache: directory of a cache of features, see `features_cache`; None for no cache. The cache is used
            only if the tokenizer's class is in `tokenization.TOKENIZERS`.
        """
        if not (cache and self._is_portable):
            self._write_all(path)
            return
        from bertlib.data import features_cache
        facts = features_cache.write(path, cache, self._inputs, self._examples, self._write_all)
        # If the file is from the cache, no example was converted in this process, and these lists are still
        # empty. So they are filled here.
        self.windows[:], self.lengths[:] = facts

    def _write_all(self, path):
        if self._kept is not None:
            tfrecord_files.write_serialized(path, self._kept)
            self._kept = []
        else:
            with contextlib.closing(iter(self)) as records:
                tfrecord_files.write_serialized(path, records)
        return self.windows, self.lengths


def _serialized(fields, features):
    return example_encoding.encode_example(fields, {
        **vars(features), "label_ids": features.label_id, "is_real_example": int(features.is_real_example)})


def file_based_convert_examples_to_features(examples, label_list, max_seq_length, tokenizer,
                                            output_file, num_workers=1):
    """Writes the features of each example to a TFRecord file of `tf.train.Example`s.

    The fields are those of `feature_fields`. The labels of a regression are float32, and all other values are
    int64. The file appears only when it is complete.

    Args:
      output_file: path of the file to write.
      examples: list of `InputExample`.
      label_list: list of str, or a target.
      max_seq_length: int, number of tokens in an example.
      tokenizer: an object with `tokenize(text)` and `convert_tokens_to_ids(tokens)`.
      num_workers: see `FeatureRecords`.

    Raises:
      see `FeatureRecords.__iter__`.
    """
    FeatureRecords(examples, classification_target.create_target(label_list), max_seq_length, tokenizer,
                   num_workers).write(output_file)
