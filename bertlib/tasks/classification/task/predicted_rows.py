"""Makes the rows of tables and reports for a classification or a regression. Each row combines an example
with the model's prediction."""

from bertlib.reports.prediction_rows import PredictedRow, shortest


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
        self._losses = losses if has_labels else None

    def __len__(self):
        return len(self._examples)

    def __iter__(self):
        losses = [None] * len(self) if self._losses is None else self._losses
        columns = (self._examples, self._predictions, self._lengths, losses)
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
