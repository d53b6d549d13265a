"""Compares the answers of two models to the same inputs."""

from typing import NamedTuple

import numpy as np

# In an answer, the value of one of these keys is the prediction; see `Predictor`.
_PREDICTIONS = ("label", "labels", "tags", "answer")


class Differences(NamedTuple):
    """The differences between the answers of two models.

    Attributes:
      inputs: number of inputs.
      predictions: number of predictions: one for each input, or one for each word. 0 if the answers
        contain only numbers.
      mismatches: number of predictions that differ.
      largest, mean: largest and mean absolute difference of the scores in the answers, such as
        probabilities. The scores of entities are compared only if both answers have the same number of
        entities.
      right: pair of ints, how many labels of each model are correct. None if the correct labels are
        unknown.
    """

    inputs: int
    predictions: int
    mismatches: int
    largest: float
    mean: float
    right: tuple | None = None

    def __str__(self):
        scores = f"scores differ by {self.largest:.2g} at most and by {self.mean:.2g} on average"
        if not self.predictions:
            return f"{self.inputs} inputs: {scores}"
        text = (f"{self.inputs} inputs: {self.mismatches} of {self.predictions} predictions differ "
                f"({self.mismatches / self.predictions:.2%}); {scores}")
        if self.right is None:
            return text
        first, second = (count / self.inputs for count in self.right)
        return f"{text}; accuracy {second:.3f} instead of {first:.3f}"


def compare(first_answers, second_answers, labels=None):
    """Returns the `Differences` between two lists of answers; see `Predictor`.

    Args:
      first_answers, second_answers: the answers of the two models to the same inputs. The second answers may
        lack some keys.
      labels: list of the correct label of each input; None if they are unknown.
    """
    num_predictions, mismatches, distances = 0, 0, [np.zeros(0)]
    for ours, theirs in zip(first_answers, second_answers):
        for name in _PREDICTIONS:
            if name in ours:
                pairs = zip(ours[name], theirs[name]) if name == "tags" else [(ours[name], theirs[name])]
                equal = [one == two for one, two in pairs]
                num_predictions, mismatches = num_predictions + len(equal), mismatches + equal.count(False)
        numbers = _numbers(ours), _numbers(theirs)
        if len(numbers[0]) == len(numbers[1]):
            distances.append(np.abs(np.subtract(*numbers)))
    distances = np.concatenate(distances)
    largest, mean = (float(distances.max()), float(distances.mean())) if distances.size else (0.0, 0.0)
    right = None if labels is None else tuple(
        sum(answer["label"] == label for answer, label in zip(answers, labels))
        for answers in (first_answers, second_answers))
    return Differences(len(first_answers), num_predictions, mismatches, largest, mean, right)


def _numbers(answer):
    """Returns the numbers in an answer, such as its probabilities, as a list."""
    if "vector" in answer:
        return answer["vector"]
    if "entities" in answer:
        return [entity["score"] for entity in answer["entities"]]
    values = answer.get("probabilities") or {name: answer[name] for name in ("score", "probability")
                                             if name in answer}
    return list(values.values())
