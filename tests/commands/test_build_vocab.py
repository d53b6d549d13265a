"""Tests of build_vocab.py."""

import collections
import gzip
import os

from bertlib.commands import build_vocab

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from texts import texts
import tiny

import tokenization

LINES = ["The cat's café, the CAT'S naïve cats; the Cathedral...", "北京是北京", "Москва — Москве",
         "한국어 한국", "unaffable able"]
SPECIAL = list(tokenization.SPECIAL_TOKENS)
repeatable = settings(max_examples=60)


def count_words(lines, lower=True):
    return build_vocab.count_words(lines, tokenization.BasicTokenizer(lower))


# --- Words -----------------------------------------------------------------------------------------------


@repeatable
@given(lines=st.lists(texts, max_size=4), lower=st.booleans())
def test_words_are_those_of_the_tokenizer(lines, lower):
    words = collections.Counter()
    for line in lines:
        words.update(word for word in tokenization.BasicTokenizer(lower).tokenize(line) if len(word) <= 200)
    assert count_words(lines, lower) == words


# --- Learning --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lower", [True, False])
def test_what_was_learned_is_found_again(lower):
    vocab = build_vocab.learn_vocab(count_words(LINES, lower), 1000, min_frequency=1)
    tokenizer = tokenization.FullTokenizer({token: index for index, token in enumerate(vocab)}, lower)
    assert vocab[:5] == SPECIAL and len(set(vocab)) == len(vocab)
    assert not [line for line in LINES if "[UNK]" in tokenizer.tokenize(line)]
    assert tokenizer.tokenize("CAFÉ café") == (["cafe", "cafe"] if lower
                                               else [*tokenizer.tokenize("CAFÉ"), "café"])


@pytest.mark.parametrize("min_frequency, pieces", [
    (2, ["cd", "ab", "##ab", "abab", "xy", "yx"]), (3, ["cd", "ab", "##ab", "abab"])])
def test_the_most_frequent_pair_is_merged_first(min_frequency, pieces):
    """Of equally frequent pairs, the pair whose parts are first in the vocabulary. Rare characters are left
    out."""
    words = {"yx": 2, "xy": 2, "cdc": 1, "abab": 3, "cd": 4, "aé": 1}
    assert build_vocab.learn_vocab(words, 100, min_frequency) == [
        *SPECIAL, *"abcdxy", "##a", "##b", "##c", "##d", "##x", "##y", *pieces]


def test_unused_entries_stand_where_the_published_ones_do():
    vocab = build_vocab.learn_vocab({"ab": 2}, 200, num_unused=99)
    assert (vocab[0], vocab[1], vocab[99]) == ("[PAD]", "[unused0]", "[unused98]")
    assert vocab[100:] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "ab"]


def test_a_size_without_room_for_the_characters():
    words = {"ab": 2, "ba": 2}
    assert build_vocab.learn_vocab(words, 9) == [*SPECIAL, "a", "b", "##a", "##b"]
    with pytest.raises(ValueError, match="--vocab_size=8 is too small: 5 special tokens and .* need 9 "
                       "entries. Pass"):
        build_vocab.learn_vocab(words, 8)
    with pytest.raises(ValueError, match="--min_frequency=5: each word of the text contains a character"):
        build_vocab.learn_vocab(words, 8, min_frequency=5)


# --- The script ------------------------------------------------------------------------------------------


@pytest.fixture
def build(scripts, tmp_path):
    """Runs the script on two text files, one of them compressed."""
    (tmp_path / "1.txt").write_text("\n".join(LINES * 50), encoding="utf-8")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress(" ".join(tiny.WORDS * 3).encode()))
    (tmp_path / "empty.txt").write_text("\n \n")

    def build(output_file, input_file="[12].*", vocab_size=150, **flags):
        environment = {"RAYON_NUM_THREADS": flags.pop("threads", "2")}
        return scripts.run("build_vocab.py", *tiny.flags(input_file=input_file, output_file=output_file,
                                                         vocab_size=vocab_size, **flags), cwd=tmp_path,
                           **environment)
    return build


def test_the_same_text_makes_the_same_file_that_serves(build, tmp_path):
    for threads in "14":
        done = build(f"new/{threads}.txt", threads=threads)
        done.assert_success()
        assert '150 entries to new/' in done.err and '"vocab_size": 150' in done.err
    one, four = (tmp_path / "new" / f"{threads}.txt" for threads in "14")
    assert one.read_bytes() == four.read_bytes()
    tokenization.check_vocab(one, 150)
    assert sorted(os.listdir(one.parent)) == ["1.txt", "4.txt"]


@pytest.mark.parametrize("flags, complaint", [
    (dict(output_file="1.txt"), "--output_file=1.txt already exists, and models may depend"),
    (dict(input_file="empty.txt"), "--input_file=empty.txt contains no text"),
])
def test_bad_input(build, tmp_path, flags, complaint):
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = build(**{"output_file": "vocab.txt", **flags})
    done.assert_refused(complaint)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_text_with_few_pieces_makes_a_smaller_vocabulary(build, tmp_path):
    done = build("vocab.txt", vocab_size=1 << 24)  # the largest size takes no memory beforehand
    entries = (tmp_path / "vocab.txt").read_text(encoding="utf-8").count("\n")
    assert f"Wrote {entries} entries to vocab.txt." in done.err
