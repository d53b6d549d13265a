"""Log lines about lengths of texts and about examples of predictions."""

import pytest

from bertlib.tasks import text_windows
from bertlib.tasks.classification import classification_results


@pytest.mark.parametrize("lengths, said", [
    ([3, 5], "0 of 2 examples (0.0%) are longer than --max_seq_length=6; the longest has 5 tokens."),
    ([7] + [6] * 9, "1 of 10 examples (10.0%) are longer than --max_seq_length=6; the longest has 7 tokens. "
     "These examples were truncated. To use more of their text, raise --max_seq_length.")])
def test_lengths_in_words(lengths, said):
    assert text_windows.describe_lengths(lengths, "example", 6) == said


@pytest.mark.parametrize("right, expected", [
    ([1, 1, 1, 1], [0, 1, 2]), ([1, 1, 1, 1, 0, 0], [0, 1, 4]), ([0, 0, 0, 1], [0, 1, 3]), ([], [])])
def test_one_is_right_and_one_wrong_if_there_are_such(right, expected):
    assert classification_results.choose_samples([bool(value) for value in right]) == expected
