"""Log lines about the lengths of texts."""

import pytest

from bertlib.tasks import text_windows


@pytest.mark.parametrize("lengths, said", [
    ([3, 5], "0 of 2 examples (0.0%) are longer than --max_seq_length=6; the longest has 5 tokens."),
    ([7] + [6] * 9, "1 of 10 examples (10.0%) are longer than --max_seq_length=6; the longest has 7 tokens. "
     "These examples were truncated. To use more of their text, raise --max_seq_length.")])
def test_lengths_in_words(lengths, said):
    assert text_windows.describe_lengths(lengths, "example", 6) == said
