"""tokenization.SentencePieceTokenizer and --spm_model_file, with models trained here on a few sentences."""

import io
import pickle

from helpers import settings_of
from hypothesis import given
from hypothesis import strategies as st
import pytest
import sentencepiece
from texts import CASES, texts

from bertlib.runs import tokenizer_flags
import tokenization

SENTENCES = [
    "Steve Smith's café (in Oslo), naïve since 1,999, sold 9,000 cups and 12, no, 13.",
    "The quick brown fox, 2010, 2011.",
    "Москва — столица России.", "القاهرة عاصمة مصر", "हिन्दी भाषा भारत की है।", "한국어 사람이 말한다",
    "東京は日本の首都です。人口は1400万人。", "北京是中国的首都。", "กรุงเทพเป็นเมืองหลวง", "…½ ﬁn"]


def train(**options):
    """Trains a model on SENTENCES with the special tokens of ALBERT, and returns its bytes.

    `options` override the options of the training.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3), model_writer=model, minloglevel=2, **{**dict(
            vocab_size=200, hard_vocab_limit=False, character_coverage=1.0, pad_id=0, unk_id=1, bos_id=-1,
            eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"]), **options})
    return model.getvalue()


@pytest.fixture(scope="module")
def spm_model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    path.write_bytes(train())
    return path


@pytest.fixture(scope="module")
def tokenizers(spm_model_file):
    """Two tokenizers: the first one keeps the case, and the second one lower-cases."""
    return [tokenization.SentencePieceTokenizer(spm_model_file, lower) for lower in (False, True)]


@pytest.fixture
def load(tmp_path):
    """A function that trains a model with some options, and loads its tokenizer."""
    def load(do_lower_case=False, expected_size=None, **options):
        (tmp_path / "spm.model").write_bytes(train(**options))
        return tokenization.SentencePieceTokenizer(tmp_path / "spm.model", do_lower_case,
                                                   vocab_size=expected_size)
    return load


# --- Tokens and ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options",
                         [{}, dict(model_type="bpe", hard_vocab_limit=True),
                          dict(byte_fallback=True, vocab_size=400)])
def test_word_by_word_gives_what_sentencepiece_makes_of_the_whole(load, options):
    tokenizer = load(**options)
    model = sentencepiece.SentencePieceProcessor(model_proto=train(**options))
    for text in [*(sentence.replace(",", "") for sentence in SENTENCES), "  a  b c  ",
                 "日 [CLS] d\u200be\u3000f", "<pad> a[MASK]b <unk><s> <0x41>", ""]:
        tokens = tokenizer.tokenize(text)
        assert tokenizer.tokenize(text.encode()) == tokens
        ids, expected = tokenizer.convert_tokens_to_ids(tokens), model.encode(text)
        assert tokenizer.convert_ids_to_tokens(ids) == tokens
        if not options.get("model_type"):  # unigrams: the tokens are the same, or equally likely
            ids, expected = (("".join(map(model.id_to_piece, found)),
                              pytest.approx(sum(map(model.get_score, found))))
                             for found in (ids, expected))
            assert (ids[0], ids[1].expected) == expected
        else:
            assert ids == expected


def test_case_and_accents(tokenizers, load):
    # "N" does not occur in SENTENCES.
    assert "".join(tokenizers[False].tokenize("café Naïve")) == "▁café▁[UNK]aïve"
    assert "".join(tokenizers[True].tokenize("CAFÉ cafe\u0301 Naïve")) == "▁cafe▁cafe▁naive"
    # NFKD is applied even if the model itself does not normalize.
    assert "".join(load(True, normalization_rule_name="identity").tokenize("ﬁN")) == "▁fin"


def test_a_comma_after_a_digit_is_a_token_of_its_own(load):
    # ALBERT tokenizes in this way, although the model has pieces such as "9,".
    tokenizer = load(model_type="bpe", hard_vocab_limit=True)
    assert any(piece.endswith(",") and piece[-2:-1].isdigit() for piece in tokenizer.vocab)
    for text in ("12, no", "1,999, sold", "9,", "x9,"):
        tokens = tokenizer.tokenize(text)
        assert "".join(tokens) == "▁" + text.replace(" ", "▁")
        assert not any(token[-1:] == "," and token[-2:-1].isdigit() for token in tokens)
        assert [text[start:end] for start, end in tokenizer.spans(text)] == [
            token.lstrip("▁") for token in tokens]


def test_special_tokens_can_be_protected(spm_model_file):
    tokenizer = tokenization.SentencePieceTokenizer(spm_model_file, True, ["[MASK]"])
    text = "fox[MASK]brown [MASK]."
    assert tokenizer.tokenize(text) == [*tokenizer.tokenize("fox"), "[MASK]", *tokenizer.tokenize("brown"),
                                        "[MASK]", *tokenizer.tokenize(".")]
    assert "".join(text[start:end] for start, end in tokenizer.spans(text)) == text.replace(" ", "")
    with pytest.raises(ValueError, match="'<mask>' cannot be protected"):
        tokenization.SentencePieceTokenizer(spm_model_file, True, ["<mask>"])


def test_which_tokens_continue_a_word(tokenizers):
    tokenizer = tokenizers[False]
    tokens = ["▁fox", "▁", "es", "'", "[UNK]", "د", "▁東", "京", "は", "เป", "한"]
    assert [tokenizer.continues_word(token) for token in tokens] == [
        False, False, True, True, True, True, False, False, False, False, True]
    assert not any(map(tokenizer.continues_word, ["[CLS]", "[SEP]", "[PAD]", "[MASK]"]))


# --- Places ----------------------------------------------------------------------------------------------


@given(text=texts | st.lists(st.sampled_from(SENTENCES + CASES), max_size=4).map("".join))
def test_spans_are_in_order_and_cover_the_text(tokenizers, text):
    for tokenizer in tokenizers:
        tokens, spans = tokenizer.tokenize(text), tokenizer.spans(text)
        assert len(tokens) == len(spans)
        edges = [(0, 0), *spans, (len(text), len(text))]
        for (start, end), (next_start, next_end) in zip(edges, edges[1:]):
            assert 0 <= start <= next_start <= next_end <= len(text) and end <= next_end
            # Only characters that the model does not see are between tokens: spaces, accents, control
            # characters.
            assert not any(char.isalnum() for char in text[end:next_start])
        assert all(start < end or token == "▁" for token, (start, end) in zip(tokens, spans))


# --- Models ----------------------------------------------------------------------------------------------


def test_special_tokens_have_berts_names(tokenizers, load):
    assert list(tokenizers[0].vocab)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert list(tokenizers[0].vocab.values()) == list(range(len(tokenizers[0].vocab)))
    found = load(control_symbols=[], bos_id=2, eos_id=3, unk_piece="⁇").vocab
    assert [found[name] for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")] == [0, 1, 2, 3]
    assert "[MASK]" not in found


def test_models_that_cannot_be_used_are_named(load, tmp_path):
    path = tmp_path / "spm.model"
    for options, complaint in (
            (dict(control_symbols=[]), r"has no pieces.*: \[CLS\] \(\[CLS\], <cls>, <s>\), \[SEP\]"),
            (dict(pad_id=-1, unk_id=0),
             r"has no pieces.*: \[PAD\] \(\[PAD\], <pad>\)\. The parentheses contain the accepted names of "
             r"each piece\. Train the SentencePiece model with --pad_id=0"),
            (dict(split_by_whitespace=False), "extends over several words.*--split_by_whitespace=true"),
            (dict(add_dummy_prefix=False), "--add_dummy_prefix=true"),
            (dict(treat_whitespace_as_suffix=True), "--treat_whitespace_as_suffix=false"),
            (dict(expected_size=3), "the config's vocab_size is 3: from piece 4 on, tokens have no "
             "embedding. Pass a Sent")):
        with pytest.raises(ValueError, match=complaint) as error:
            load(**options)
        assert str(path) in str(error.value)
    for content in (b"", b"[PAD]\n[UNK]\n", b"\0" * 9):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a SentencePiece model.*--vocab_file"):
            tokenization.SentencePieceTokenizer(path)
    with pytest.raises(FileNotFoundError, match="no SentencePiece model at .*none.model"):
        tokenization.SentencePieceTokenizer(tmp_path / "none.model")


# --- Features --------------------------------------------------------------------------------------------


def test_workers_get_a_copy_of_the_tokenizer(tokenizers):
    for tokenizer in tokenizers:
        assert type(tokenizer) in tokenization.TOKENIZERS
        copied = pickle.loads(pickle.dumps(tokenizer))
        assert copied.tokenize(SENTENCES[0]) == tokenizer.tokenize(SENTENCES[0])


@pytest.mark.parametrize("flags, complaint", [
    (dict(vocab_file="{words}", spm_model_file="{model}"), "--vocab_file and --spm_model_file exclude"),
    (dict(spm_model_file="none.model"), "--spm_model_file=none.model: there is no such file"),
    (dict(spm_model_file="{words}"), "vocab.txt is not a SentencePiece model")])
def test_bad_flags(flags, complaint, spm_model_file, tiny_model):
    given = {name: value.format(model=spm_model_file, words=tiny_model.vocab)
             for name, value in flags.items()}
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        tokenizer_flags.load_tokenizer(settings_of(**given))
