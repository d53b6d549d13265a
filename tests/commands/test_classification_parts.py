"""Log lines about lengths of texts and about examples of predictions."""

from absl import logging
import numpy as np
import pytest

from bertlib.runs.classification import classification_splits
from bertlib.tasks.classification import classifier_features, targets


@pytest.mark.parametrize("lengths, said", [
    ([3, 5], "0 of 2 examples (0.0%) are longer than --max_seq_length=6; the longest has 5 tokens."),
    ([7] + [6] * 9, "1 of 10 examples (10.0%) are longer than --max_seq_length=6; the longest has 7 tokens. "
     "These examples were truncated."),
    ([7] + [6] * 8, "1 of 9 examples (11.1%) are longer than --max_seq_length=6; the longest has 7 tokens. "
     "These examples were truncated. To use more of their text, raise --max_seq_length, or split them into "
     "windows, for example with --doc_stride=3.")])
def test_lengths_in_words(lengths, said):
    found = classification_splits.describe_lengths("dev", lengths, 6, len(lengths), 0)
    assert found == f"Lengths of dev: {said}"


@pytest.mark.parametrize("right, expected", [
    ([1, 1, 1, 1], [0, 1, 2]), ([1, 1, 1, 1, 0, 0], [0, 1, 4]), ([0, 0, 0, 1], [0, 1, 3]), ([1, 0], [0, 1]),
    ([0, 1, 1], [0, 1, 2]), ([], [])])
def test_one_is_right_and_one_wrong_if_there_are_such(right, expected):
    assert classification_splits.choose_samples([bool(value) for value in right]) == expected


def shown(monkeypatch, target, numbers, labels, has_labels=True, text="a\tb " + 60 * "long "):
    """Returns the lines that are logged for examples with these predictions."""
    lines = []
    monkeypatch.setattr(logging, "info", lambda text, *values: lines.append(text % values))
    examples = [classifier_features.InputExample("dev-0", text, "c", label) for label in labels]
    predictions = [{target.output: np.array(row, np.float32)} for row in numbers]
    classification_splits.log_sample_predictions("dev_mismatched", examples, predictions, target, has_labels)
    start = f'Example of dev mismatched: "a b {8 * "long "}long…" / "c" -> '
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def test_examples_of_each_kind_of_target(monkeypatch):
    one = targets.SingleLabel(["no", "yes"])
    assert shown(monkeypatch, one, [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [1, 0]],
                 ["no", "no", "yes", "yes"]) == [
        "no, probability 0.750 (right)", "no, probability 0.500 (right)",
        "no, probability 1.000 (wrong: label yes)"]
    assert shown(monkeypatch, one, [[0.75, 0.25]], ["no"], has_labels=False) == ["no, probability 0.750"]
    assert shown(monkeypatch, targets.Score(), [1.5, 2], [1.0, 2.5]) == [
        "score 1.500 (label 1)", "score 2.000 (label 2.5)"]
    several = targets.MultiLabel(["x", "y"])
    assert shown(monkeypatch, several, [[0.75, 0.5], [0.25, 0.375], [0.5, 0.25]],
                 [("y", "x"), ("y",), ("x",)]) == [
        "x,y, probability 0.750, 0.500 (right)", "none, probability 0.375 (wrong: label y)",
        "x, probability 0.500 (right)"]
