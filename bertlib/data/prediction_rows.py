"""Defines the rows of a table of predictions. Each row contains an example and the model's answer."""

from typing import Any, NamedTuple


class PredictedRow(NamedTuple):
    """An example with the model's answer. Tables and reports of all tasks consist of these rows.

    Attributes:
      line: int, the line in the input file where the example begins. The first line of the file has the
        number 1. None if the example comes from a program and not from a file.
      fields: {name of a column: text}, the columns of the input file, in the order of the file and with
        unchanged texts. For JSON Lines, values that are not texts are written as JSON, and null is None.
      texts: tuple of str, the texts that the model read.
      label: the correct answer, or None if it is unknown. It is a str for a class, and a float for a score.
        It is a tuple of str if an example can have several labels, and for a question, which can have several
        accepted answers.
      prediction: the model's answer: str, float or tuple of str.
      probabilities: {label: float}. For the answer to a question or the tag of a word, this is {"": float},
        the probability of the prediction. None if the prediction is a score.
      is_right: whether the prediction is the correct answer. None if the prediction is a score, or if the
        label is unknown.
      loss: float, the loss of the example, or None.
      length: int, number of tokens of the example before truncation, with [CLS] and [SEP]; None if unknown.
      details: {name of an additional column: text or number}, for example for the F1 of an answer.
    """

    line: int | None
    fields: dict[str, str]
    texts: tuple[str, ...]
    label: Any
    prediction: Any
    probabilities: dict[str, float] | None = None
    is_right: bool | None = None
    loss: float | None = None
    length: int | None = None
    details: dict[str, Any] = {}


def shortest(number):
    """Converts a NumPy number to a float that is printed with the same digits. So for the float32 number 0.1,
    the table contains 0.1 and not 0.10000000149011612."""
    return float(str(number))
