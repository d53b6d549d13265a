"""Examples of classification and regression as the model's integers.

`convert_single_example` turns an example into features; `file_based_convert_examples_to_features` stores
those of many.
"""

import contextlib

from absl import logging

from bertlib.data import example_encoding, record_files
from bertlib.system import files, workers
from bertlib.tasks.classification import targets
import tokenization

_LOGGED_EXAMPLES = 2


class InputExample:
    """One text, or pair of texts, to classify.

    Args:
      guid: str, names the example in logs and errors.
      text_a: str, untokenized.
      text_b: str or None; None or "" makes a single-text example.
      label: str or None, one of the task's labels; None where there is nothing to learn from. In a regression
        a float; where an example has several labels, a tuple of them.
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
      label_id: int, place of the label in the task's label list; in a regression the label, a float; of
        several labels 0 or 1 for each of the list.
      is_real_example: bool, False for padding examples.
      num_tokens: int, the tokens that there would be if nothing were cut; None if that is not known.
    """

    def __init__(self, input_ids, input_mask, segment_ids, label_id, is_real_example=True, num_tokens=None):
        self.input_ids = input_ids
        self.input_mask = input_mask
        self.segment_ids = segment_ids
        self.label_id = label_id
        self.is_real_example = is_real_example
        self.num_tokens = num_tokens


def convert_single_example(ex_index, example, label_list, max_seq_length, tokenizer):
    """Turns one example into the integers the model is fed.

    One text becomes `[CLS] a [SEP]`, a pair `[CLS] a [SEP] b [SEP]` with segment 1 from the first
    token of b; texts are cut to fit, the rest is zeros.

    Args:
      ex_index: int, place of the example; the first few are logged.
      example: `InputExample` or `PaddingInputExample`.
      label_list: list of str; the label's place in it is its id. None for a regression, whose labels are
        numbers. Or a target, see `targets`.
      max_seq_length: int, length of the result in tokens.
      tokenizer: has `tokenize(text)` and `convert_tokens_to_ids(tokens)`.

    Returns:
      `InputFeatures`.

    Raises:
      ValueError: the label is not in `label_list`, or no number, or the special tokens alone do not fit.
    """
    return _Converter(label_list, max_seq_length, tokenizer)((ex_index, example))[0]


class _Converter:
    """Turns (index, example) into a list of `InputFeatures`, the example's windows; for worker processes.
    Arguments are those of `FeatureRecords`."""

    def __init__(self, label_list, max_seq_length, tokenizer, doc_stride=0, has_labels=True):
        self._target = targets.create_target(label_list)
        self._length, self._tokenizer = max_seq_length, tokenizer
        self._stride, self._has_labels = doc_stride, has_labels

    def __call__(self, item):
        ex_index, example = item
        if isinstance(example, PaddingInputExample):
            zeros = [0] * self._length
            return [InputFeatures(zeros, list(zeros), list(zeros), self._target.padding_label,
                                  is_real_example=False)]
        try:
            label_id = self._target.encode_label(example.label)
        except ValueError as error:
            raise ValueError(f"example {example.guid}: {error}") from None
        texts, num_tokens = make_windows(example, self._length, self._tokenizer, self._stride)
        if ex_index < _LOGGED_EXAMPLES:
            windows = f", the first of {len(texts)} windows" if len(texts) > 1 else ""
            logging.info("Example %s%s%s: %s", example.guid, self._label_in_words(example.label, label_id),
                         windows,
                         " ".join(tokenization.printable_text(token) for part in texts[0] for token in part))
        return [self._features(first, second, label_id, num_tokens) for first, second in texts]

    def _label_in_words(self, label, label_id):
        if not self._has_labels:
            return ""
        if self._target.task_type == "multilabel":
            label = ", ".join(label) or "none"
        return f", label {label}" + ("" if self._target.labels is None else f" (id {label_id})")

    def _features(self, first, second, label_id, num_tokens):
        """The `InputFeatures` of the tokens of segment 0 and those of segment 1."""
        input_ids = list(self._tokenizer.convert_tokens_to_ids(first + second))
        padding = [0] * (self._length - len(input_ids))
        return InputFeatures(
            input_ids=input_ids + padding,
            input_mask=[1] * len(input_ids) + padding,
            segment_ids=[0] * len(first) + [1] * len(second) + padding,
            label_id=label_id, num_tokens=num_tokens)


def make_windows(example, max_seq_length, tokenizer, doc_stride=0):
    """Returns the windows of an `InputExample`, a list of (tokens of segment 0, those of segment 1); and how
    many tokens there would be if nothing were cut. Arguments are those of `FeatureRecords`."""
    tokens_a = list(tokenizer.tokenize(example.text_a))
    tokens_b = list(tokenizer.tokenize(example.text_b)) if example.text_b else []
    special = 3 if tokens_b else 2
    if max_seq_length < special:
        raise ValueError(f"example {example.guid}: max_seq_length {max_seq_length} is too short: "
                         f"[CLS] and [SEP] alone take {special} places")
    num_tokens = len(tokens_a) + len(tokens_b) + special
    windows = cut_into_windows(tokens_a, tokens_b, max_seq_length - special, doc_stride)
    return [(["[CLS]", *a, "[SEP]"], [*b, "[SEP]"] if b else []) for a, b in windows], num_tokens


def cut_into_windows(tokens_a, tokens_b, room, doc_stride):
    """Cuts a text, or a pair of texts, into what the model sees at a time.

    Of a pair the longer text, of two equals the second, is cut into windows; the other one stands beside each
    of them, as far as `_truncate_seq_pair` leaves it. So the first window is what that function leaves of
    both.

    Args:
      tokens_a, tokens_b: lists of tokens; the second one is empty if there is one text.
      room: int, tokens at a time.
      doc_stride: int, tokens between the starts of two windows, of which more than a window has count as
        many; 0 for the first window alone.

    Returns:
      list of (tokens of the first text, tokens of the second).
    """
    a, b = list(tokens_a), list(tokens_b)
    _truncate_seq_pair(a, b, room)
    longer, size = (tokens_a, len(a)) if len(tokens_a) > len(tokens_b) else (tokens_b, len(b))
    if not doc_stride or not size:
        return [(a, b)]
    stride = min(doc_stride, size)
    windows = [longer[start:start + size] for start in range(0, len(longer) - size + stride, stride)]
    return [(window, b) if longer is tokens_a else (a, window) for window in windows]


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
    target = targets.create_target(label_list)
    converted = (convert_single_example(i, example, target, max_seq_length, tokenizer)
                 for i, example in enumerate(examples))
    return list(_with_progress(converted, examples))


# Of the fields below those [F], the mask first.
SEQUENCES = ("input_mask", "input_ids", "segment_ids")


def feature_fields(seq_length, target=None):
    """Returns the fields of a stored example, for `record_files` to write and `input_pipeline` to read.

    Args:
      seq_length: int, tokens per example.
      target: see `targets`; None for labels of which each example has one.
    """
    return [
        example_encoding.Field("input_ids", "int64", (seq_length,), example_encoding.ANY_ID),
        example_encoding.Field("input_mask", "int64", (seq_length,), (0, 1)),
        example_encoding.Field("segment_ids", "int64", (seq_length,), example_encoding.ANY_ID),
        (target or targets.SingleLabel).field,
        example_encoding.Field("is_real_example", "int64", (), (0, 1)),
    ]


class FeatureRecords:
    """The examples of a set as serialized `tf.train.Example`s: an iterable, made as it is iterated over.

    Attributes, complete when the iteration is, with an item for each example:
      windows: the number of its records; 1 without `doc_stride`.
      lengths: the tokens that it would have if nothing were cut; None for padding.
      label_ids: as in `InputFeatures`.
    """

    def __init__(self, examples, label_list, max_seq_length, tokenizer, num_workers=1, doc_stride=0,
                 has_labels=True):
        """Converts nothing yet.

        Args:
          examples, label_list, max_seq_length, tokenizer: as for `convert_single_example`. With a
            tokenizer that is not of `tokenization.TOKENIZERS` all is done in this process.
          num_workers: number of processes, 0 for one a core; the results are the same ones.
          doc_stride: see `cut_into_windows`.
          has_labels: whether the examples' labels are theirs, to be logged, and not stand-ins.
        """
        self._examples = examples
        self._fields = feature_fields(max_seq_length, targets.create_target(label_list))
        self._convert = _Converter(label_list, max_seq_length, tokenizer, doc_stride, has_labels)
        self._processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
        self._kept = None
        self.windows, self.lengths, self.label_ids = [], [], []

    def __iter__(self):
        """Yields the records in order.

        Raises:
          ChildProcessError, and what `convert_single_example` raises.
        """
        with contextlib.closing(self._converted()) as converted:
            for windows in _with_progress(converted, self._examples):
                self.windows.append(len(windows))
                self.lengths.append(windows[0].num_tokens)
                self.label_ids.append(windows[0].label_id)
                for features in windows:
                    yield _serialized(self._fields, features)

    def _converted(self):
        items = list(enumerate(self._examples))
        yield from map(self._convert, items[:_LOGGED_EXAMPLES])  # what a worker logs is not seen
        with contextlib.closing(workers.ordered_map(self._convert, items[_LOGGED_EXAMPLES:],
                                                    self._processes)) as converted:
            yield from converted

    def cache(self):
        """Makes the records now, to be written later; returns their number."""
        self._kept = list(self)
        return len(self._kept)

    def write(self, path):
        """Writes the records to a TFRecord file, which appears only when complete."""
        if self._kept is not None:
            record_files.write_serialized(path, self._kept)
            self._kept = []
            return
        with contextlib.closing(iter(self)) as records:
            record_files.write_serialized(path, records)


def _serialized(fields, features):
    return record_files.encode_example(fields, {
        "input_ids": features.input_ids,
        "input_mask": features.input_mask,
        "segment_ids": features.segment_ids,
        "label_ids": features.label_id,
        "is_real_example": int(features.is_real_example),
    })


def file_based_convert_examples_to_features(examples, label_list, max_seq_length, tokenizer,
                                            output_file, num_workers=1):
    """Writes the features of each example to a TFRecord file of `tf.train.Example`s.

    The file has the fields of `feature_fields`, all int64, but the labels of a regression,
    which are float32; it appears only when complete. The other arguments and errors: `FeatureRecords`.

    Args:
      output_file: path of the file to write.
    """
    FeatureRecords(examples, label_list, max_seq_length, tokenizer, num_workers).write(output_file)
