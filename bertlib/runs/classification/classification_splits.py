"""The splits of a classification's data as what the model is fed: features, windows of long texts, and what
is to be said of them in the log."""

import collections

from absl import logging
import numpy as np

from bertlib.data import input_pipeline
from bertlib.runs.classification import class_weights
from bertlib.tasks import head, window_pooling
from bertlib.tasks.classification import classifier_features
import tokenization

# Above this share of texts that are cut, what helps is said.
_ADVICE_FRACTION = 0.1
_SHOWN, _SHOWN_CHARACTERS = 3, 100


class Splits:
    """Training, development and test examples.

    Attributes:
      examples: see `classification_run.read_examples`.
      training: a sequence whose `len()` is the number of training examples or, with --doc_stride, of windows.
    """

    def __init__(self, settings, examples, target, tokenizer, test_has_labels):
        """Makes the windows of the training examples, if there are any, for their number says how long the
        training is; all other features are made when they are written.

        Args:
          settings: a `Settings`.
          examples, test_has_labels: see `classification_run.read_examples`.
          target: see `classification_run.get_target`.
          tokenizer: that of the model.

        Raises:
          ValueError: flags contradict the labels, or an example cannot be used.
        """
        class_weights.parse_weights(settings, target)
        self.examples = examples
        self._settings, self._target, self._test_has_labels = settings, target, test_has_labels
        self._records = {split: classifier_features.FeatureRecords(
            found, target, settings.max_seq_length, tokenizer, settings.num_workers, settings.doc_stride,
            self.has_labels(split)) for split, found in examples.items()}
        self.training = examples.get("train", ())
        if settings.doc_stride and self.training:
            self.training = range(self._records["train"].cache())

    def has_labels(self, split):
        """Whether the examples of a split have labels of their own, and not stand-ins."""
        return not split.startswith("test") or split == "test" and self._test_has_labels

    def head_for_training(self, task_head):
        """Returns the head with the weights of classes and the smoothing that flags ask for."""
        if self._target.task_type != "classification":
            return task_head
        counts, train = collections.Counter(), self.examples.get("train", ())
        windows = train and self._records["train"].windows or [1] * len(train)
        for example, number in zip(train, windows):
            counts[example.label] += number
        return class_weights.weighted_head(self._settings, self._target, task_head, counts)

    def write(self, split, path):
        """Writes the features of a split to a TFRecord file; logs how many texts were too long."""
        records = self._records[split]
        records.write(path)
        logging.info("%s", describe_lengths(split.replace("_", " "), records.lengths,
                                            self._settings.max_seq_length, sum(records.windows),
                                            self._settings.doc_stride))

    def in_order(self, split, rows):
        """Returns the prediction of each example of a split, a dict, from what was predicted of its features.
        """
        rows = list(input_pipeline.restore_file_order(rows))
        return window_pooling.pooled(rows,
                                     self._records[split].windows) if self._settings.doc_stride else rows

    def metrics(self, split, task_head, results, predictions):
        """Returns the results of an evaluation with all metrics computed from the predictions, the numbers
        that a file of predictions has. Losses stay as they were computed from the logits, except of windows.
        """
        found = head.evaluate_metrics(task_head.compute_metrics(predictions, self._records[split].label_ids))
        if self._settings.doc_stride:
            return {**results, **found, "loss": found["eval_loss"]}
        return {**results, **found, "eval_loss": results["eval_loss"]}


def describe_lengths(split, lengths, max_seq_length, num_windows, doc_stride):
    """Returns how many examples of a split were too long, and the length of the longest, in words.

    Args:
      split: its name.
      lengths: the tokens of each example, [CLS] and [SEP] included.
      max_seq_length, doc_stride: the flags.
      num_windows: of all examples together.
    """
    cut, longest = sum(length > max_seq_length for length in lengths), max(lengths, default=0)
    text = (f"Lengths of {split}: {cut} of {len(lengths)} examples ({cut / max(1, len(lengths)):.1%}) are "
            f"longer than --max_seq_length={max_seq_length}; the longest has {longest} tokens.")
    if doc_stride:
        return f"{text} Windows, by --doc_stride={doc_stride}: {num_windows}."
    if not cut:
        return text
    text += " They were cut."
    if cut > _ADVICE_FRACTION * len(lengths):
        text += (" With a larger --max_seq_length, or in windows by --doc_stride, more of them is looked at: "
                 f"--doc_stride={max(1, max_seq_length // 2)}, say.")
    return text


# --- Examples of predictions -----------------------------------------------------------------------------


def log_sample_predictions(split, examples, predictions, target, has_labels):
    """Logs a few examples with what was predicted, one of them right and one wrong if there are such.

    Args:
      split: the split's name.
      examples: list of `InputExample`.
      predictions: list of dicts, one for each example.
      target: see `classification_run.get_target`.
      has_labels: whether the examples have labels.
    """
    best = [target.predicted_label(row[target.output]) for row in predictions]
    labels = [target.predicted_label(np.array(target.encode_label(example.label)))
              if target.task_type == "multilabel"
              else example.label for example in examples]
    for index in choose_samples([has_labels and label == answer for label, answer in zip(labels, best)]):
        said = _prediction(best[index], predictions[index][target.output], target)
        if has_labels and target.task_type == "regression":
            said += f" (label {labels[index]:g})"
        elif has_labels:
            is_right = best[index] == labels[index]
            said += " (right)" if is_right else f" (wrong: label {labels[index] or 'none'})"
        logging.info("Example of %s: %s -> %s", split.replace("_", " "), _text_of(examples[index]), said)


def choose_samples(right):
    """Returns up to three indices, in order: the first that is right, the first that is not, and the first
    others. `right` is a list of bool."""
    firsts = [right.index(value) for value in (True, False) if value in right]
    others = [index for index in range(min(len(right), _SHOWN)) if index not in firsts]
    return sorted([*firsts, *others][:_SHOWN])


def _text_of(example):
    texts = [" ".join(tokenization.convert_to_unicode(text).split())
             for text in (example.text_a, example.text_b) if text]
    room = _SHOWN_CHARACTERS // max(1, len(texts))
    return " / ".join(f'"{text if len(text) <= room else text[:room - 1].rstrip() + "…"}"' for text in texts)


def _prediction(answer, numbers, target):
    """An answer and how likely it is, in words; of several labels each, and of none the likeliest one."""
    if target.task_type == "regression":
        return f"score {answer:.3f}"
    likely = [number for number in numbers if target.task_type == "multilabel" and number >= target.threshold]
    return (f"{answer or 'none'}, probability "
            f"{', '.join(f'{number:.3f}' for number in likely or [max(numbers)])}")
