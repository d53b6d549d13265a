"""Makes the features and windows of the training, development and test examples of a classification. Also
logs messages about these examples.
"""

import collections

from absl import logging
import numpy as np

from bertlib.data import batches, text_lengths, unknown_tokens
from bertlib.reports.prediction_rows import PredictedRow, shortest
from bertlib.tasks import window_pooling
from bertlib.tasks.classification import classifier_features
from bertlib.tasks.classification.task import class_weights
import tokenization

# If the share of truncated texts is above this value, the log says how to use more of these texts.
_ADVICE_FRACTION = 0.1
# The log shows `_SHOWN` sample predictions, and at most `_SHOWN_CHARACTERS` characters of the texts of each
# sample.
_SHOWN, _SHOWN_CHARACTERS = 3, 100


class Splits:
    """Stores the training, development and test examples, and makes their features.

    Attributes:
      examples: see `classification_run.read_examples`.
      training: a sequence whose `len()` is the number of training examples. With --doc_stride, its `len()` is
        the number of their windows.
    """

    def __init__(self, settings, examples, target, tokenizer, test_has_labels):
        """Creates the splits. With --doc_stride, also makes the windows of the training examples, because the
        number of training steps depends on the number of windows. All other features are made later, by
        `write`.

        Args:
          settings: a `Settings`.
          examples, test_has_labels: see `classification_run.read_examples`.
          target: see `text_targets`.
          tokenizer: tokenizer of the model.

        Raises:
          ValueError: flags contradict the labels, or an example cannot be used.
        """
        class_weights.parse_weights(settings, target)
        self.examples = examples
        self._settings, self._target, self._test_has_labels = settings, target, test_has_labels
        self._records = {split: classifier_features.FeatureRecords(
            rows, target, settings.max_seq_length, tokenizer, settings.num_workers, settings.doc_stride,
            self.has_labels(split)) for split, rows in examples.items()}
        self.training = examples.get("train", ())
        unknown_tokens.check(examples, lambda example: (
            getattr(example, "text_a", None), getattr(example, "text_b", None)), tokenizer)
        if settings.doc_stride and self.training:
            self.training = range(self._records["train"].cache())

    def has_labels(self, split):
        """Returns whether the labels of a split are real. In a test set without labels, each example has the
        default label."""
        return not split.startswith("test") or split == "test" and self._test_has_labels

    def head_for_training(self):
        """Returns the head for the training. For a classification, the loss of this head uses --class_weights
        and --label_smoothing."""
        if not self._target.takes_class_weights:
            return self._target.create_head()
        counts, train = collections.Counter(), self.examples.get("train", ())
        windows = train and self._records["train"].windows or [1] * len(train)
        for example, number in zip(train, windows):
            counts[example.label] += number
        return self._target.create_head(**class_weights.loss_options(self._settings, self._target, counts))

    def write(self, split, path):
        """Writes the features of a split to a TFRecord file, and logs the number of texts that were too
        long."""
        records = self._records[split]
        records.write(path, self._settings.features_cache)
        logging.info("%s", describe_lengths(split.replace("_", " "), records.lengths,
                                            self._settings.max_seq_length, sum(records.windows),
                                            self._settings.doc_stride))

    def in_order(self, split, rows):
        """Returns the predictions for the examples of a split as a list of dicts, in the order of the
        examples. With --doc_stride, the prediction for an example is the mean over the example's windows.

        Args:
          split: name of the split.
          rows: the Estimator's predictions, one for each example or window.
        """
        rows = list(batches.restore_file_order(rows))
        if not self._settings.doc_stride:
            return rows
        return window_pooling.pooled(rows, self._records[split].windows)

    def arrays(self, split, predictions):
        """Returns (labels, outputs, losses), arrays with a row for each example; see `text_targets`.

        Args:
          split: name of a split with labels.
          predictions: see `in_order`.
        """
        labels = np.array(self._records[split].label_ids)
        outputs = np.array([row[self._target.output] for row in predictions])
        # The predictions contain losses that were computed from the logits. These losses are exact. A loss
        # that is computed from a probability is not exact if the probability was rounded to 1. With windows,
        # the loss of a text is the loss of its mean prediction, not the mean of the losses.
        losses = (self._target.losses(labels, outputs) if self._settings.doc_stride
                  else np.array([row["loss"] for row in predictions]))
        return labels, outputs, losses

    def predicted_rows(self, split, predictions):
        """Returns the `PredictedRows` of a split. Call `write` for this split first.

        Args:
          split: name of the split.
          predictions: see `in_order`.
        """
        has_labels = self.has_labels(split)
        losses = self.arrays(split, predictions)[2] if has_labels else None
        return PredictedRows(self.examples[split], predictions, self._target, self._records[split].lengths,
                             losses, has_labels)


class PredictedRows:
    """Iterable of the `PredictedRow`s of a split. It can be iterated any number of times. Each row is made
    when it is needed, so that a large split needs little memory."""

    def __init__(self, examples, predictions, target, lengths, losses=None, has_labels=True):
        """Stores the data. The lists have one element for each example, in the same order.

        Args:
          examples: list of `InputExample`. If an example has no `SourceRow`, the fields of its row are guid,
            text_a and text_b, and the line of its row is None.
          predictions: list of {name: array}, the head's predictions. With windows, these are the predictions
            for whole texts, see `window_pooling`.
          target: see `text_targets`.
          lengths: list of int, numbers of tokens before truncation.
          losses: list of numbers, the losses; None if they are unknown.
          has_labels: whether the labels of the examples are real and not placeholders.
        """
        self._examples, self._predictions = examples, predictions
        self._target, self._lengths, self._has_labels = target, lengths, has_labels
        self._losses = [None] * len(examples) if losses is None else losses

    def __len__(self):
        return len(self._examples)

    def __iter__(self):
        columns = (self._examples, self._predictions, self._lengths, self._losses)
        for example, outputs, length, loss in zip(*columns, strict=True):
            texts = (example.text_a, example.text_b) if example.text_b else (example.text_a,)
            source = getattr(example, "source", None)  # a script may have its own class of examples
            if source is None:
                fields = {"guid": example.guid, "text_a": example.text_a, "text_b": example.text_b}
                source = None, {name: str(value) for name, value in fields.items() if value is not None}
            label = self._target.row_label(example.label) if self._has_labels else None
            prediction, probabilities = self._target.row_answer(outputs[self._target.output])
            yield PredictedRow(*source, texts, label, prediction, probabilities,
                               None if self._target.is_score or label is None else label == prediction,
                               None if loss is None else shortest(loss), length)


def describe_lengths(split, lengths, max_seq_length, num_windows, doc_stride):
    """Returns a log message about the lengths of the examples of a split: how many examples were too long,
    and how long the longest example was.

    Args:
      split: name of the split.
      lengths: number of tokens of each example, with [CLS] and [SEP].
      max_seq_length, doc_stride: the flags.
      num_windows: number of windows of all examples.
    """
    text = f"Lengths of {split}: {text_lengths.describe(lengths, 'example', max_seq_length)}"
    if doc_stride:
        return f"{text} With --doc_stride={doc_stride}, all examples together have {num_windows} windows."
    cut = text_lengths.count_longer(lengths, max_seq_length)
    if not cut:
        return text
    text += " These examples were truncated."
    if cut > _ADVICE_FRACTION * len(lengths):
        text += (" To use more of their text, raise --max_seq_length, or split them into windows, for "
                 f"example with --doc_stride={max(1, max_seq_length // 2)}.")
    return text


# --- Examples of predictions -----------------------------------------------------------------------------


def log_sample_predictions(split, examples, predictions, target, has_labels):
    """Logs a few examples with their predictions. If possible, one prediction is right and one prediction is
    wrong.

    Args:
      split: name of the split.
      examples: list of `InputExample`.
      predictions: list of dicts, one for each example.
      target: see `text_targets`.
      has_labels: whether the examples have labels.
    """
    answers = [target.row_answer(row[target.output])[0] for row in predictions]
    labels = [target.row_label(example.label) for example in examples]
    for index in choose_samples([has_labels and label == answer for label, answer in zip(labels, answers)]):
        text, label = target.describe(predictions[index][target.output]), labels[index]
        if has_labels:
            is_right = not target.is_score and label == answers[index]
            shown = ", ".join(label) or "none" if isinstance(label, tuple) else label
            text += " (right)" if is_right else f" (label {shown})"
        logging.info("Example of %s: %s -> %s", split.replace("_", " "), _text_of(examples[index]), text)


def choose_samples(right):
    """Returns the indices of up to three examples in ascending order. These are the first example with a
    right prediction, the first example with a wrong prediction, and the first of the remaining examples.

    Args:
      right: list of bool, one for each example: True if the prediction is right.
    """
    firsts = [right.index(value) for value in (True, False) if value in right]
    others = [index for index in range(min(len(right), _SHOWN)) if index not in firsts]
    return sorted([*firsts, *others][:_SHOWN])


def _text_of(example):
    texts = [" ".join(tokenization.convert_to_unicode(text).split())
             for text in (example.text_a, example.text_b) if text]
    room = _SHOWN_CHARACTERS // max(1, len(texts))
    return " / ".join(f'"{text if len(text) <= room else text[:room - 1].rstrip() + "…"}"' for text in texts)
