"""Positions of tokens in the text: `FullTokenizer.spans`, and the answers of SQuAD that depend on it."""

import itertools
import json
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
from texts import texts

from bertlib.tasks.squad import span_selection, squad_data
import tokenization

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Each of these texts begins and ends with a character that becomes a token. The last one is not in the
# vocabulary.
VISIBLE = ["a", "B", "é", "e\u0301", "o\u0308\u0301", "İ", "ı", "ﬁ", "ß", "Σ", "1", ",", "(", "-", "京",
           "都", "\U0002f801", "が", "か\u3099", "葛\U000e0100", "한", "국", "\u1112\u1161\u11ab", "ก",
           "ที่", "हि", "न्\u200dद", "ع", "عَ", "😀", "🏳\ufe0f", "👩\u200d🚀", "\ud800", "歳"]
# These texts have no token. The second line contains white space, and the others invisible characters.
BETWEEN = ["", "", "",
           " ", "  ", "\n", "\xa0", "\u3000", "\u2009", "\u2028", "\u202f",
           "\u200b", "\u200c", "\u200e", "\u202b", "\u2060", "\ufeff", "\xad", "\ufffd", "\x00", "\x0b",
           " \u200b"]


def vocabulary(*words):
    """Returns a vocabulary with all characters of the words, in all forms that a tokenizer makes of them."""
    chars = {char for word in words for form in (word, unicodedata.normalize("NFD", word.lower()))
             for char in form}
    tokens = [*SPECIAL, *sorted(chars), *("##" + char for char in sorted(chars))]
    return {token: index for index, token in enumerate(tokens)}


def characters(tokens):
    """Joins tokens. The lower case of a sigma depends on the letters around it, so both forms are equal."""
    joined = "".join(token.removeprefix("##") if len(token) > 2 else token for token in tokens)
    return joined.replace("ς", "σ")


def is_removed(char):
    return char.isspace() or char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


# --- The tokenizer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lower", [True, False])
def test_a_part_of_the_text_gives_its_tokens_again(lower):
    vocab = vocabulary("ς", *VISIBLE, *map(chr, range(33, 127)))
    for word in ("the", "##ff", "un", "##able", "日", "##本", "ος", "\u1161\u11ab", "##\u1161\u11ab\u1100"):
        vocab.setdefault(word, len(vocab))

    @given(texts | st.lists(st.sampled_from(VISIBLE + BETWEEN), max_size=30).map("".join),
           st.booleans())
    def check(text, protects):
        tokenizer = tokenization.FullTokenizer(vocab, lower, ["[MASK]"] if protects else [])
        tokens, spans = tokenizer.tokenize(text), tokenizer.spans(text)
        assert len(tokens) == len(spans)
        # Tokens with a common character, such as the pieces of a Hangul syllable, form a group.
        groups, place = [], 0
        for token, (start, end) in zip(tokens, spans):
            if start < place:
                groups[-1][0].append(token)
                groups[-1][2] = end
            else:
                groups.append([[token], start, end])
                assert tokenizer.tokenize(text[place:start]) == []  # no token is between two groups
            assert start < end
            place = end
        assert tokenizer.tokenize(text[place:]) == []
        for group, start, end in groups:
            part = text[start:end]
            assert not is_removed(part[0]) and not is_removed(part[-1])
            if group in (["[UNK]"], ["[MASK]"]):
                assert tokenizer.tokenize(part) == group
            else:
                assert characters(group) == characters(tokenizer.basic_tokenizer.tokenize(part))

    check()


class Digits(tokenization.FullTokenizer):
    """A subclass whose tokens have another length than the text."""

    def tokenize(self, text):
        return super().tokenize(text.replace("2000", "20"))


class Uncased(tokenization.BasicTokenizer):
    def normalize(self, word):
        return super().normalize(word.replace("ß", "ss"))


def test_replaced_steps_have_no_places():
    vocab = vocabulary("abcß012")
    assert tokenization.FullTokenizer(vocab).spans("ab") == [(0, 1), (1, 2)]
    assert Digits(vocab).spans("ab") is None
    for name, value in [("tokenize", list), ("basic_tokenizer", Uncased())]:
        tokenizer = tokenization.FullTokenizer(vocab)
        setattr(tokenizer, name, value)
        assert tokenizer.spans("ab") is None
    tokenizer = tokenization.FullTokenizer(vocab)
    tokenizer.basic_tokenizer.tokenize = lambda text: ["a"]
    assert tokenizer.spans("ab") is None


# --- Answers ---------------------------------------------------------------------------------------------


def write_question(path, context, answer, start):
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [
        {"id": "q", "question": "a", "answers": [{"text": answer, "answer_start": start}]}]}]}]}))
    return str(path)


def learn_and_answer(path, tokenizer, max_seq_length=64, doc_stride=16):
    """Returns (tokens, answer): the tokens that are learned as the answer of a file's only question, and the
    `Answer` of a model that predicts exactly these tokens."""
    examples = squad_data.read_squad_examples(path, True)
    features = list(squad_data.generate_features(examples, tokenizer, max_seq_length, doc_stride, 4, True,
                                                 report=False))
    results, learned = [], None
    for feature in features:
        first, last = feature.start_position, feature.end_position
        learned = feature.tokens[first:last + 1] if first else learned
        logits = [np.where(np.arange(max_seq_length) == place, 9.0 if first else -9.0, -20.0)
                  for place in (first, last)]
        results.append(span_selection.RawResult(feature.unique_id, *logits))
    prediction, = span_selection.select_answers(examples, features, results,
                                               span_selection.Search(2, max_seq_length, True))
    return learned, prediction.answer


@pytest.mark.parametrize("lower", [True, False])
def test_an_answer_is_learned_and_found_at_its_place(lower, tmp_path):
    tokenizer = tokenization.FullTokenizer(vocabulary("ς", *VISIBLE[:-1]), lower)

    @given(st.lists(st.tuples(st.sampled_from(BETWEEN), st.sampled_from(VISIBLE)), min_size=1, max_size=40),
           st.sampled_from(BETWEEN), st.integers(0, 39), st.integers(1, 4))
    def check(pieces, end_of_context, first, size):
        first %= len(pieces)
        pieces = [*itertools.chain.from_iterable(pieces), end_of_context]
        start = len("".join(pieces[:2 * first + 1]))
        answer = "".join(pieces[2 * first + 1:min(2 * (first + size), len(pieces) - 1)])
        context = "".join(pieces)
        assert context[start:start + len(answer)] == answer
        path = write_question(tmp_path / "file", context, answer, start)
        learned, found = learn_and_answer(path, tokenizer)
        words = characters(tokenizer.basic_tokenizer.tokenize(answer))
        assert characters(learned) == words.replace("歳", "[UNK]")
        assert (found.start, found.end) == (start, start + len(answer))
        assert found.text == re.sub("[ \t\r\n\u202f]+", " ", answer)

    check()


def test_a_subclass_that_overrides_tokenize_keeps_the_published_alignment(tmp_path):
    tokenizer = Digits(vocabulary("2000-cats"))
    context = "b 2000-\xadcats"
    learned, found = learn_and_answer(write_question(tmp_path / "f", context, "cats", 8), tokenizer)
    # The soft hyphen has no token, so the answer is the whole word.
    assert (characters(learned), found.text, found.start) == ("cats", context[2:], 2)
    context = "ca1901/1999/1901"
    path = write_question(tmp_path / "f", context, "1901", context.rindex("1901"))
    learned, found = learn_and_answer(path, Digits(vocabulary(context)))
    assert (characters(learned), found.start) == ("1901", 2)
