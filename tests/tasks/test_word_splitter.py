"""Tests how texts are split into words, and how the rule is inferred from the training data."""

import re

from hypothesis import given
from hypothesis import strategies as some
import pytest

from bertlib.tasks.tagging import word_splitter


def split(text, *more):
    return [text[start:end] for start, end in word_splitter.split(text, *more)]


@pytest.mark.parametrize("text, words", [
    ("Ana's firm (in Tennessee) paid $3.5 million.",
     "Ana 's firm ( in Tennessee ) paid $ 3.5 million ."),
    ("He doesn't live in Tennessee. She can’t: it's the U.S.'s.",
     "He does n't live in Tennessee . She ca n’t : it 's the U.S. 's ."),
    ("“I pay 1,000 euros,” said Mr. O'Brien of AT&T Inc., in Washington D.C.",
     "“ I pay 1,000 euros , ” said Mr. O'Brien of AT&T Inc. , in Washington D.C."),
    ("Write to ana.b+c@example.org, or see https://example.org/a?b=1,2.",
     "Write to ana.b+c@example.org , or see https://example.org/a?b=1,2 ."),
    ("1. J. Smith (U.S.) won 6-4 in 1995/96; the 12-year-old lost...",
     "1. J. Smith ( U.S. ) won 6-4 in 1995/96 ; the 12-year-old lost ..."),
    ("The players' coach is in the team. 3.5% rose -- or +0.2?",
     "The players ' coach is in the team . 3.5 % rose -- or +0.2 ?"),
    ("*** a ||| b --- [c] ... d!!", "*** a ||| b --- [ c ] ... d ! !"),
    ("Women 's singles in C$ and US$5", "Women 's singles in C$ and US$ 5"),
    ("नमस्ते दुनिया। 東京、日本。", "नमस्ते दुनिया । 東京 、 日本 。"),
    ("an\xadna's \xad house\xad, Mr\u200b. X\ufeff", "an\xadna 's house , Mr\u200b. X"),
    ("#tag @user a\u00a0b\u3000c\n", "#tag @user a b c"), ("", ""), (" \t", "")])
def test_punctuation_marks_are_words(text, words):
    assert split(text) == words.split(" " if words else None)


@given(some.text(alphabet=some.sampled_from("aB1.,'’-\"()$/@: \n\u00a0é。")))
def test_each_character_is_in_one_word(text):
    spans = word_splitter.split(text)
    assert all(start < end for start, end in spans)
    assert all(first[1] <= second[0] for first, second in zip(spans, spans[1:]))
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    for start, end in word_splitter.split(text, word_splitter.SPACES):
        assert not set(text[start:end]) & set(" \t\r\n")


@given(some.text(alphabet=some.sampled_from("aB1.'-( \xad\u200b\u200d\u2060\ufeff\ufffd\x00")))
def test_removed_characters_divide_no_word_and_are_no_words(text):
    def clean(text):
        return re.sub("[\xad\u200b\u200d\u2060\ufeff\ufffd\x00]", "", text)

    words = split(text)
    assert [clean(word) for word in words] == split(clean(text))
    assert all(clean(word[0]) and clean(word[-1]) for word in words)


def test_the_training_data_decides():
    # One word in 12 has a punctuation mark.
    joined = re.split(" ", "Last week Mr. Ruiz met the U.S. team here and won 3-1.")
    apart = [*joined[:-1], "3-1", "."]
    assert word_splitter.choose_splitting([apart] * 9) == word_splitter.PUNCTUATION
    assert word_splitter.choose_splitting([joined] * 9) == word_splitter.SPACES
    assert split("the cat, a\u00a0dog.", word_splitter.SPACES) == ["the", "cat,", "a\u00a0dog."]
