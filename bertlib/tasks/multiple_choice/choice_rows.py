"""Makes the rows of tables and reports from questions with several endings."""

from bertlib.reports.prediction_rows import PredictedRow
from bertlib.rows import columns
from bertlib.tasks.multiple_choice import choice_data, choice_metrics


class ChoiceRows:
    """The `PredictedRow`s of a file. The object can be iterated any number of times. Each row is made when it
    is needed, so that a large file needs little memory.

    The labels, the predictions and the keys of the probabilities are names from `choice_data.label_names`.
    """

    def __init__(self, file, outputs, lengths):
        """Stores the data. `outputs` and `lengths` have one element for each question in `file`, in the order
        of the questions.

        Args:
          file: a `choice_data.QuestionFile`.
          outputs: list of {name: array}, the predictions of `choice_head.Choice`.
          lengths: list of int, see `choice_data.write_features`.
        """
        self._file, self._outputs, self._lengths = file, outputs, lengths

    def __len__(self):
        return len(self._outputs)

    def __iter__(self):
        names, read_fields = choice_data.label_names(self._file.num_choices), columns.FieldReader(
            self._file.names)
        for question, output, length in zip(self._file.questions, self._outputs, self._lengths, strict=True):
            # Uses the shortest decimal form of each float32, so that the table contains 0.1 and not
            # 0.10000000149.
            numbers = [float(str(value)) for value in choice_metrics.probabilities(output["scores"])]
            prediction = names[int(output["scores"].argmax())]
            label = None if question.label is None else names[question.label]
            yield PredictedRow(
                question.line, read_fields(question.values),
                (question.sent1, question.sent2, *question.endings), label, prediction,
                dict(zip(names, numbers)), None if label is None else label == prediction,
                None if label is None else float(str(output["loss"])), length)
