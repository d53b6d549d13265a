"""Makes the rows of the tables of a classification, and describes its examples and predictions in the log."""

from absl import logging

from bertlib.data.prediction_rows import PredictedRow, shortest
import tokenization

# The log shows `_SHOWN` sample predictions, and at most `_SHOWN_CHARACTERS` characters of the texts of each
# sample.
_SHOWN, _SHOWN_CHARACTERS = 3, 100


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
