"""A warning if the vocabulary does not contain the words of the texts."""

import random

from helpers import write_lines
import pytest
import tiny

from bertlib.data import unknown_tokens
import tokenization


@pytest.fixture
def tokenizer(tmp_path):
    path = write_lines(tmp_path / "vocab.txt", tiny.VOCABULARY)
    return tokenization.FullTokenizer(str(path), do_lower_case=False)


def checked(caplog, splits, tokenizer):
    """Returns the warnings about the texts of some splits."""
    caplog.clear()
    caplog.set_level("WARNING", "absl")
    unknown_tokens.warn_if_many(splits, lambda example: example, tokenizer)
    return [record.getMessage() for record in caplog.records]


def test_one_warning_has_the_share_three_examples_and_the_reasons(tokenizer, caplog):
    chance = random.Random(0)
    known = [[tiny.sentence(chance), None] for _ in range(50)]
    assert checked(caplog, {"train": known, "dev": known[:3]}, tokenizer) == []
    foreign = {"train": [["这部电影很好看"], ["坏 电影 狗"]] * 5, "dev": [["好", "看"]]}
    message, = checked(caplog, foreign, tokenizer)
    assert message.startswith("train, dev: 100 % of the tokens are [UNK], for example in "
                              "'这部电影很好看', '坏', '电影'. (This share is from a sample of 12 texts.)")
    assert "another language" in message and "--do_lower_case=false" in message
    # Letter case: in English text, a twentieth of the words and more begin with a capital.
    title = [[text.capitalize()] for text, _ in known]
    assert len(checked(caplog, {"train": title}, tokenizer)) == 1
    assert checked(caplog, {"test": [["坏"]], "dev": []}, tokenizer) == []  # too few tokens to say anything
    assert checked(caplog, {"test": [["the cat 🙂"], ["a dog sees a cat"], ["the bird 🙂"]]}, tokenizer) == []


def test_a_sample_is_spread_over_the_examples_and_is_small(tokenizer, caplog):
    texts = [["cat dog"]] * 50_000
    texts[30_000:40_000] = [["猫"]] * 10_000
    counted = []
    tokenizer.tokenize, plain = lambda text: counted.append(len(text)) or plain(text), tokenizer.tokenize
    message, = checked(caplog, {"train": texts}, tokenizer)
    assert message.startswith("train: 11 % of the tokens") and len(counted) <= unknown_tokens.SAMPLE + 3
    checked(caplog, {"train": [["cat " * 10_000]]}, tokenizer)
    assert counted[-1] <= 500


@pytest.mark.parametrize(("words", "expected"), [
    (["[E1]"] * 3 + ["[/E1]"] * 4 + ["[whole]", "[MASK]"] + ["cat"] * 8,
     "[/E1] is split at the brackets in 4 of 17 texts"),
    (["[E1]"] * 2 + ["cat"] * 10, None),  # too few texts
    (["[sic]"] * 3 + ["cat"] * 58, None),  # a share below 5 %
    (["[1]"] * 9, None)])  # a reference
def test_words_in_brackets_that_are_probably_markers_are_named(words, expected, caplog):
    vocabulary = [*tiny.VOCABULARY, "[whole]", *(char for word in set(words) for char in word)]
    tokenizer = tokenization.FullTokenizer({token: index for index, token in enumerate(
        [*vocabulary, *(f"##{token}" for token in vocabulary)])}, do_lower_case=False,
        never_split=("[whole]", "[MASK]"))
    examples = [[f"the {word} sees the old cat today", None] for word in words]
    messages = checked(caplog, {"train": examples}, tokenizer)
    assert len(messages) == bool(expected)
    if expected:
        assert f"train: {expected}, first in 'the [/E1] sees the old cat today'. " in messages[0]
        assert "pass --marker_tokens='[whole],[/E1],[E1]'" in messages[0]
