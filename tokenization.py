"""Converts text to WordPiece tokens, tokens to ids, and ids to tokens.

    text --BasicTokenizer--> words --WordpieceTokenizer--> pieces --vocabulary--> ids

    tokenizer = FullTokenizer("vocab.txt", do_lower_case=True)
    tokens = tokenizer.tokenize("unaffable!")        # ["una", "##ffa", "##ble", "!"]
    ids = tokenizer.convert_tokens_to_ids(tokens)    # [14477, 20961, 3468, 999]

WordPiece as BERT uses it: Wu et al. 2016, https://arxiv.org/abs/1609.08144, section 4.1.

`SentencePieceTokenizer` makes the same conversions with a SentencePiece model (Kudo and Richardson 2018,
https://arxiv.org/abs/1808.06226), which needs no rules for words:

    tokenizer = SentencePieceTokenizer("spiece.model", do_lower_case=True)
    tokens = tokenizer.tokenize("Unaffable!")        # ["▁una", "ff", "able", "!"]
"""

import collections.abc
import copy
import functools
import itertools
import os
import re
import unicodedata

from bertlib.system import files

# Every vocabulary must contain these special tokens, because no example can be built without them.
REQUIRED_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SPECIAL_TOKENS = (*REQUIRED_TOKENS, "[MASK]")
# In some models, vocab_size is larger than the number of entries in the vocabulary: for faster kernels,
# vocab_size was rounded up to a multiple of one of these numbers.
_PADDING_STEPS = (8, 16, 32, 64, 128)

# CONTINUATION is the prefix of a WordPiece that continues a word. WORD_START is the prefix of a SentencePiece
# that begins a word.
CONTINUATION = "##"
WORD_START = "▁"

# Maps a special token to its possible names in SentencePiece models. The most usual name comes first. If the
# name of [UNK] is not found, the model's unk_id is used.
_SPECIAL_PIECES = {
    "[PAD]": ("[PAD]", "<pad>"),
    "[UNK]": ("[UNK]",),
    "[CLS]": ("[CLS]", "<cls>", "<s>"),
    "[SEP]": ("[SEP]", "<sep>", "</s>"),
    "[MASK]": ("[MASK]", "<mask>"),
}

# These expressions match the directory names of released checkpoints. Some models were trained on lower-cased
# text, and the others on cased text.
_LOWER_CASED_MODELS = re.compile(
    r"(wwm_)?uncased_L-\d+_H-\d+_A-\d+"
    r"|multilingual_L-12_H-768_A-12"
    r"|chinese_L-12_H-768_A-12"
)
_CASED_MODELS = re.compile(
    r"cased_L-12_H-768_A-12"
    r"|(wwm_)?cased_L-24_H-1024_A-16"
    r"|multi_cased_L-12_H-768_A-12"
)

# Each pair contains the first and the last code point of a block of Chinese characters. Japanese kana and
# Korean Hangul are not included, because words in these scripts have several characters.
CHINESE_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# Caches the results of functions that take one character. A corpus contains only a few thousand different
# characters, so almost every call finds its result in the cache.
_remember = functools.lru_cache(maxsize=1 << 16)

_DIGIT_AND_COMMA = re.compile(r"\d,$")
_CHINESE = "".join(f"{chr(first)}-{chr(last)}" for first, last in CHINESE_BLOCKS)
# Characters of scripts without spaces between words: Chinese, Thai, Lao, Tibetan, Burmese, Khmer and kana.
_SPACELESS = re.compile(
    f"[{_CHINESE}\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff]"
)
# These code points are not characters, but they may occur in Python strings.
_SURROGATES = re.compile("[\ud800-\udfff]")
# Matches text between characters that are white space for all tokenizers and all SentencePiece models. Other
# white space may be inside of the text.
_BETWEEN_SPACES = re.compile("[^ \t\n\r]+")
_CHINESE_CHARACTER = re.compile(f"[{_CHINESE}]")
_CHINESE_OR_OTHERS = re.compile(rf"[{_CHINESE}]|[^ \t\n\r{_CHINESE}]+")
# A cache contains at most `_REMEMBERED_CHUNKS` chunks, of at most `_LONGEST_REMEMBERED` characters each.
_REMEMBERED_CHUNKS = 1 << 16
_LONGEST_REMEMBERED = 32
# If a limited tokenizer gets a longer text without white space, it divides the text at ASCII punctuation.
_LONGEST_WHOLE = 1000
_ASCII_SIGN_OR_OTHERS = re.compile(r"[!-/:-@\[-`{-~]|[^!-/:-@\[-`{-~]+")


def validate_case_matches_checkpoint(do_lower_case, init_checkpoint):
    """Raises an error if `do_lower_case` is wrong for a released checkpoint.

    The right value is derived from the directory name in `<model_name>/bert_model.ckpt`. Other paths and
    unknown directory names are accepted.

    Args:
      do_lower_case: whether the tokenizer converts text to lower case.
      init_checkpoint: path of the checkpoint to start from, or None.

    Raises:
      ValueError: the released model with this name needs the opposite value of `do_lower_case`.
    """
    if not init_checkpoint:
        return
    path = os.fsdecode(init_checkpoint)
    match = re.search(r"([A-Za-z0-9_-]+)/bert_model.ckpt", path)
    if match is None:
        return
    model_name = match.group(1)
    wrong_models = _CASED_MODELS if do_lower_case else _LOWER_CASED_MODELS
    if wrong_models.fullmatch(model_name):
        trained_on = "cased" if do_lower_case else "lower-cased"
        raise ValueError(
            f"--do_lower_case={bool(do_lower_case)} does not suit --init_checkpoint={path}: {model_name} was "
            f"trained on {trained_on} text. Pass --do_lower_case={not do_lower_case}, or start from another "
            "checkpoint."
        )


def convert_to_unicode(text):
    """Converts text to str.

    Args:
      text: str, or bytes in UTF-8. Bytes that are not valid UTF-8 are dropped.

    Returns:
      str.

    Raises:
      ValueError: the text is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", errors="ignore")
    raise ValueError(f"Text must be str or UTF-8 bytes, not {type(text).__name__}: {text!r}")


def printable_text(text):
    """Returns text as str, for `print` and log messages.

    Arguments and errors are those of `convert_to_unicode`.
    """
    return convert_to_unicode(text)


def load_vocab(vocab_file):
    """Reads a vocabulary with one token in each line. The first line has the id 0.

    The vocabulary is not checked; see `check_vocab`. White space around a token is removed. If a token occurs
    twice, it has the last id. A blank last line is no token.

    Args:
      vocab_file: a path, an open stream or a mapping. The path (str or os.PathLike) may be local or remote
        (`gs://...`). The stream may yield str or UTF-8 bytes. A mapping from token to id is copied.

    Returns:
      OrderedDict from token (str) to id (int), in the order of the file.

    Raises:
      FileNotFoundError: there is no such file.
      UnicodeDecodeError: the file is not UTF-8.
    """
    if isinstance(vocab_file, collections.abc.Mapping):
        return collections.OrderedDict(vocab_file)
    text = vocab_file.read() if hasattr(vocab_file, "read") else files.read_bytes(os.fsdecode(vocab_file))
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    lines = _split_lines(text)
    return collections.OrderedDict((line.strip(), index) for index, line in enumerate(lines))


def _split_lines(text):
    """Returns the lines of a text, without a blank last line."""
    # str.splitlines would also split at U+2028 and similar characters. Released vocabularies contain such
    # characters as tokens, and all ids after these tokens would be wrong.
    lines = text.removesuffix("\n").split("\n")
    # If the blank last line had an id, this id would be `vocab_size`, for which the model has no embedding.
    return lines[:-1] if _is_blank(lines[-1]) else lines


def check_vocab(vocab_file, vocab_size=None):
    """Checks a vocabulary file before it is used.

    A blank last line is accepted and not counted. Tokens that consist of Unicode white space are accepted,
    because the multilingual and Chinese vocabularies contain such tokens, although no text is tokenized into
    them.

    Args:
      vocab_file: path (str or os.PathLike), local or remote.
      vocab_size: `vocab_size` of the model's configuration. It must be the number of entries in the
        vocabulary; or, as in some models, this number rounded up to a multiple of 8, 16, 32, 64 or 128. None
        means that the number is not checked.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is empty, is not UTF-8, has a blank line or a duplicate token, lacks one of
        `REQUIRED_TOKENS`, or has a number of entries that does not fit `vocab_size`.
    """
    path = os.fsdecode(vocab_file)
    lines = read_lines(path)
    if not lines:
        raise ValueError(f"{path} is empty: pass the vocab.txt that came with the checkpoint.")
    first_seen = {}
    for number, line in enumerate(lines, start=1):
        if _is_blank(line):
            raise ValueError(
                f"{path}, line {number}: the line is blank. A blank line also gets an id, so all ids "
                "below this line may be wrong. If the line was added by mistake, remove it. Otherwise "
                "write a placeholder there, such as [unused-blank]."
            )
        token = line.strip()
        if token and first_seen.setdefault(token, number) != number:
            raise ValueError(
                f"{path}, lines {first_seen[token]} and {number}: both lines contain {token!r}. If the "
                "file was downloaded, download it again. If you made this vocabulary, rename the token "
                f"in line {first_seen[token]}, because line {number} is the one in use. Do not remove a "
                "line: all ids below it would change."
            )
    missing_tokens = [token for token in REQUIRED_TOKENS if token not in first_seen]
    if missing_tokens:
        raise ValueError(
            f"{path} ({len(lines)} lines) lacks special tokens that are required: "
            f"{', '.join(missing_tokens)}. Pass a BERT vocabulary, or rename unused entries to these tokens."
        )
    if vocab_size is not None:
        _check_size(path, len(lines), vocab_size)


def read_lines(vocab_file):
    """Returns the lines of a vocabulary file as a list of str, without a blank last line.

    Unlike `load_vocab`, this function keeps the white space of a line. So tokens that consist of Unicode
    white space stay different from each other.

    Args:
      vocab_file: path (str or os.PathLike), local or remote.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is not UTF-8.
    """
    path = os.fsdecode(vocab_file)
    try:
        content = files.read_bytes(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no vocabulary file at {path!r}: pass the path of the vocab.txt that came "
            "with the checkpoint."
        ) from None
    return _split_lines(files.decode_text(content, path))


def _is_blank(line):
    # Only ASCII white space is stripped, because a line with other white space is a token.
    return not line.strip(" \t\r")


def _load_model(path):
    # The import is inside the function, because a tokenizer for WordPiece does not need the package.
    import sentencepiece

    try:
        content = files.read_bytes(path)
        model = sentencepiece.SentencePieceProcessor(model_proto=content) if content else None
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no SentencePiece model at {path!r}: pass the path of the file, "
                                "such as spiece.model, that came with the checkpoint.") from None
    except RuntimeError:
        model = None
    if model is None:
        raise ValueError(f"{path} is not a SentencePiece model. Pass the model file that came with the "
                         "checkpoint, such as spiece.model. If the checkpoint came with a vocab.txt instead, "
                         "pass its path as --vocab_file.")
    return model


def _special_names(path, pieces, unk_id):
    """Returns a dict that maps each special piece of a SentencePiece model to BERT's name of the piece.

    Args:
      path: path of the model, for errors.
      pieces: list of all pieces.
      unk_id: id of the piece for unknown text.
    """
    piece_names = {name: next((piece for piece in spellings if piece in pieces), None)
                   for name, spellings in _SPECIAL_PIECES.items()}
    piece_names["[UNK]"] = piece_names["[UNK]"] or pieces[unk_id]
    missing_names = [f"{name} ({', '.join(_SPECIAL_PIECES[name])})" for name in REQUIRED_TOKENS
                     if piece_names[name] is None]
    if missing_names:
        raise ValueError(f"{path} has no pieces for these special tokens: {', '.join(missing_names)}. The "
                         "parentheses contain the accepted names of each piece. Train the SentencePiece "
                         "model with --pad_id=0 --unk_id=1 --bos_id=-1 --eos_id=-1 "
                         "--control_symbols=[CLS],[SEP],[MASK].")
    return {piece: name for name, piece in piece_names.items()}


def _check_size(path, entries, vocab_size, file="vocab.txt", unit="line"):
    if entries == vocab_size or vocab_size in (-(-entries // step) * step for step in _PADDING_STEPS):
        return
    message = f"{path} has {entries} entries, but the config's vocab_size is {vocab_size}: "
    if entries > vocab_size:
        message += f"from {unit} {vocab_size + 1} on, tokens have no embedding. "
    else:
        message += f"the embeddings after {unit} {entries} belong to no token. "
    raise ValueError(message + f"Pass a {file} and a bert_config.json that belong to the same checkpoint.")


def convert_by_vocab(vocab, items):
    """Looks up each item in a vocabulary.

    Args:
      vocab: dict from token to id, or from id to token.
      items: iterable of keys of the vocabulary.

    Returns:
      list of the values in the order of the items.

    Raises:
      KeyError: an item is not in the vocabulary.
    """
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        raise KeyError(
            f"{error.args[0]!r} is not in the vocabulary. Use only tokens and ids from the vocabulary "
            "file of this tokenizer."
        ) from None


def convert_tokens_to_ids(vocab, tokens):
    """Returns the ids (list of int) of tokens; see `convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab, ids):
    """Returns the tokens (list of str) of ids; see `convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text):
    """Splits text at white space. Returns a list of str.

    The characters that count as white space are those of `str.split`. `_is_whitespace` accepts fewer
    characters.
    """
    return text.split()


class _Tokenizer:
    """Base class of the tokenizers. A subclass sets the attributes `vocab` and `inv_vocab`.

    Attributes:
      protected: compiled regular expression that matches the tokens of `never_split`; None without such
        tokens.
    """

    protected = None
    _limit = None  # see `limited`

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if not name.startswith("_remembered")}

    def _protect(self, never_split):
        never_split = [never_split] if isinstance(never_split, str) else list(never_split)
        for token in never_split:
            if token.split() != [token] or token not in self.vocab:
                raise ValueError(
                    f"Special token {token!r} cannot be protected: it is not in the vocabulary. "
                    "Check the upper and lower case of its letters, or leave it out of never_split "
                    "(in a command: leave --protect_special_tokens out)."
                )
        if never_split:
            longest_first = sorted(never_split, key=len, reverse=True)
            self.protected = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def limited(self, limit):
        """Returns a tokenizer whose `tokenize` returns only the first `limit` tokens of a text. The rest of a
        long text is not tokenized."""
        tokenizer = copy.copy(self)
        tokenizer._limit = limit
        return tokenizer

    def _cached_tokens(self, text):
        chunks = self._chunks_of(convert_to_unicode(text))
        tokens = itertools.chain.from_iterable(map(self._remembered.__getitem__, chunks))
        return list(itertools.islice(tokens, self._limit))

    def _generate(self, text):
        """Yields the tokens of a text (str). The protected special tokens are kept whole."""
        for index, part in enumerate(self.protected.split(text) if self.protected else [text]):
            yield from [part] if index % 2 else self._split(part)

    def spans(self, text):
        """Returns the positions of the tokens of `tokenize(text)` in the text.

        The position of a token begins with the first character and ends with the last character from which
        the token was made. Accents that were stripped belong to the character before them. If one character
        became several tokens, all these tokens have the position of this character. A token without
        characters, such as "▁", has start = end.

        Args:
          text: str.

        Returns:
          list of (start, end), counted in characters. It is None if the positions are unknown, because
          `tokenize` or a part of the tokenizer was replaced.
        """
        if getattr(self.tokenize, "__func__", None) not in [kind.tokenize for kind in TOKENIZERS]:
            return None
        positions, start = [], 0
        for index, part in enumerate(self.protected.split(text) if self.protected else [text]):
            spans = [(0, len(part))] if index % 2 else self._spans(part)
            if spans is None:
                return None
            positions.extend((start + first, start + last) for first, last in spans)
            start += len(part)
        return positions

    def convert_tokens_to_ids(self, tokens):
        """Returns the ids (list of int) of tokens. Raises a KeyError for a token that is not in the
        vocabulary."""
        return convert_tokens_to_ids(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids):
        """Returns the tokens (list of str) of ids. Raises a KeyError for an id that is not in the
        vocabulary."""
        return convert_ids_to_tokens(self.inv_vocab, ids)


class FullTokenizer(_Tokenizer):
    """Converts text to WordPiece tokens, tokens to ids, and ids to tokens, with one vocabulary.

    Attributes:
      vocab: OrderedDict from token to id.
      inv_vocab: dict from id to token.
      basic_tokenizer: the `BasicTokenizer` that splits text into words.
      wordpiece_tokenizer: the `WordpieceTokenizer` that splits words into pieces.
    """

    _remembered_state = None

    def __init__(self, vocab_file, do_lower_case=True, never_split=(), strip_accents=None,
                 tokenize_chinese_chars=True, max_input_chars_per_word=200):
        """Reads the vocabulary.

        Args:
          vocab_file: path, stream or mapping, see `load_vocab`.
          do_lower_case: whether to convert text to lower case and to strip accents. The value must fit the
            checkpoint; see `validate_case_matches_checkpoint`.
          never_split: special tokens, such as "[MASK]", that are kept whole if they occur in a text, in
            exactly this spelling. The text before and after them is tokenized separately. If two of them
            begin at the same position, the longer one is used. By default, as published, no token is kept
            whole: "[MASK]" becomes "[", "mask", "]".
          strip_accents, tokenize_chinese_chars: see `BasicTokenizer`.
          max_input_chars_per_word: see `WordpieceTokenizer`.

        Raises:
          ValueError: a token of `never_split` is not in the vocabulary.
        """
        self.vocab = load_vocab(vocab_file)
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case, strip_accents, tokenize_chinese_chars)
        self.wordpiece_tokenizer = WordpieceTokenizer(
            vocab=self.vocab, max_input_chars_per_word=max_input_chars_per_word)
        self._protect(never_split)

    def tokenize(self, text):
        """Returns the WordPiece tokens (list of str) of text (str or UTF-8 bytes).

        The result is the same as the result of `tokenize_plainly`. This method is faster, because it caches
        the tokens of each chunk of text between white space, and most words occur many times in a corpus.
        If you replace a single method of `basic_tokenizer` or `wordpiece_tokenizer`, do it before the first
        text is tokenized, because the cache does not notice this change. You may replace the whole
        `basic_tokenizer` or `wordpiece_tokenizer` by an object of a different class at any time.
        """
        state = self._state()
        if state is None:
            return self.tokenize_plainly(text)
        if state != self._remembered_state:
            self._remembered, self._remembered_state = _Chunks(self), state
        return self._cached_tokens(text)

    def tokenize_plainly(self, text):
        """Returns the WordPiece tokens (list of str) of text (str or UTF-8 bytes), without the cache."""
        return list(itertools.islice(self._generate(convert_to_unicode(text)), self._limit))

    def _split(self, text):
        for part in self._parts(text):
            for word in self.basic_tokenizer.tokenize(part):
                yield from self.wordpiece_tokenizer.tokenize(word)

    def _parts(self, text):
        """Divides a text at ASCII punctuation, if a limit then saves the work for the rest of the text. The
        text stays whole if this could change the tokens: the lower case of a Greek sigma depends on the
        characters around it, and a replaced tokenizer may have other rules."""
        if not self._limit or len(text) <= _LONGEST_WHOLE or "Σ" in text or self._state() is None:
            return [text]
        return map(re.Match.group, _ASCII_SIGN_OR_OTHERS.finditer(text))

    def _spans(self, text):
        if self._state() is None:
            return None
        tokens = self.tokenize(text)
        lengths = [len(token.removeprefix(CONTINUATION)) for token in tokens]
        if self.wordpiece_tokenizer.unk_token in tokens:
            firsts = [index for index, token in enumerate(tokens) if not token.startswith(CONTINUATION)]
            for index, word in zip(firsts, self.basic_tokenizer.tokenize(text)):
                if tokens[index] == self.wordpiece_tokenizer.unk_token:
                    lengths[index] = len(word)
        spans = self.basic_tokenizer.character_spans(text)
        ends = list(itertools.accumulate(lengths, initial=0))
        if ends[-1] != len(spans):  # a method of one of the two tokenizers was replaced
            return None
        return [(spans[start][0], spans[end - 1][1]) for start, end in itertools.pairwise(ends)]

    def continues_word(self, token):
        """Returns whether a token continues the word of the token before it."""
        return token.startswith(CONTINUATION)

    def _chunks_of(self, text):
        """Divides a text into chunks that can be tokenized separately. This is possible because no tokenizer
        of this file looks across white space."""
        if text.isascii() and text.isprintable():  # the usual case, in which `split` is faster
            return text.split()
        # Normally, each Chinese character is a separate chunk. In two cases, the text is split only at white
        # space: `tokenize_chinese_chars` is false, or a special token contains a Chinese character.
        is_whole = (not self.basic_tokenizer.tokenize_chinese_chars
                    or self.protected is not None and _CHINESE_CHARACTER.search(self.protected.pattern))
        pattern = _BETWEEN_SPACES if is_whole else _CHINESE_OR_OTHERS
        # `finditer` saves the work beyond the limit, but takes longer for a whole text.
        return map(re.Match.group, pattern.finditer(text)) if self._limit else pattern.findall(text)

    def _state(self):
        """Returns a tuple of all settings on which the tokens depend. Returns None if `basic_tokenizer` or
        `wordpiece_tokenizer` was replaced by an object of another class."""
        basic, wordpiece = self.basic_tokenizer, self.wordpiece_tokenizer
        vocab = wordpiece.vocab
        if (type(basic) is not BasicTokenizer or type(wordpiece) is not WordpieceTokenizer
                or not isinstance(vocab, dict)):
            return None
        # The last two values of the tuple change if a token is added to the vocabulary or removed from it.
        return (basic, *vars(basic).values(), wordpiece, *vars(wordpiece).values(), len(vocab),
                next(reversed(vocab), None))


class SentencePieceTokenizer(_Tokenizer):
    """Converts text to the pieces of a SentencePiece model, pieces to ids, and ids to pieces, as in ALBERT.

    A piece at the start of a word begins with "▁". Special tokens have BERT's names, such as "[CLS]", even if
    the model has other names for them. Unknown text becomes "[UNK]". Each word (the text between white space)
    is tokenized separately.

    Attributes:
      vocab: OrderedDict from token to id.
      inv_vocab: dict from id to token.
    """

    def __init__(self, spm_model_file, do_lower_case=True, never_split=(), vocab_size=None):
        """Reads the model.

        Args:
          spm_model_file: path (str or os.PathLike), local or remote.
          do_lower_case: whether the text is converted to lower case, and accents are stripped (with NFKD),
            before the model is applied.
          never_split: see `FullTokenizer`.
          vocab_size: the expected number of pieces; see `check_vocab`.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: the file is not a SentencePiece model, or a token of `never_split` is not in the
            vocabulary. Or the model lacks a piece for one of `REQUIRED_TOKENS`, has pieces that are longer
            than a word, or has a number of pieces that does not fit `vocab_size`.
        """
        path = os.fsdecode(spm_model_file)
        self._lower = do_lower_case
        self._model = _load_model(path)
        pieces = [self._model.id_to_piece(i) for i in range(self._model.get_piece_size())]
        if vocab_size is not None:
            _check_size(path, len(pieces), vocab_size, "SentencePiece model", "piece")
        names = _special_names(path, pieces, self._model.unk_id())
        self.vocab = collections.OrderedDict((names.get(piece, piece), i) for i, piece in enumerate(pieces))
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        beyond_words = any(WORD_START in piece.lstrip(WORD_START) for piece in pieces)
        if beyond_words or not self._model.normalize("a").startswith(WORD_START):
            raise ValueError(
                f'{path}: a piece of this SentencePiece model extends over several words, or the model does '
                'not mark the start of a word with "▁". Train the model with --split_by_whitespace=true, '
                "--add_dummy_prefix=true and --treat_whitespace_as_suffix=false, the defaults of "
                "SentencePiece."
            )
        self._protect(never_split)
        self._remembered = _Chunks(self)

    def __setstate__(self, state):
        vars(self).update(state)
        self._remembered = _Chunks(self)

    def tokenize(self, text):
        """Returns the tokens (list of str) of text (str or UTF-8 bytes)."""
        return self._cached_tokens(text)

    def _spans(self, text):
        return [(word.start() + start, word.start() + end) for word in _BETWEEN_SPACES.finditer(text)
                for _, start, end in self._located(word.group())]

    def continues_word(self, token):
        """Returns whether a token continues the word of the token before it.

        Some writing systems, such as Chinese, have no spaces between words. There, each piece counts as a
        word.
        """
        return not (token.startswith(WORD_START) or token in _SPECIAL_PIECES and token != "[UNK]"
                    or _SPACELESS.match(token))

    def _chunks_of(self, text):
        return _BETWEEN_SPACES.findall(text)

    def _split(self, text):
        return [self.inv_vocab[index] for index, _, _ in self._located(text)]

    def _located(self, text):
        """Returns (id, start, end) of each piece of a text without white space."""
        text = _SURROGATES.sub("\ufffd", text)
        forms = [_without_accents(char) for char in text] if self._lower else text
        # Character i of the input of the SentencePiece model comes from position origins[i] of the text.
        origins = [index for index, form in enumerate(forms) for _ in form] + [len(text)]
        results = []
        for index, piece, start, end in self._encoded("".join(forms).lower() if self._lower else text):
            if start == end < len(origins) - 1 and piece != WORD_START:
                # One character became several pieces. Each of these pieces gets the range of the whole
                # character.
                end += 1
            # The range of a piece ends where the next character of the model's input begins. So combining
            # accents, which are not in the model's input, are in the same range as their letter.
            results.append((index, origins[start],
                            max(origins[end], origins[end - 1] + 1) if start < end else origins[start]))
        return results

    def _encoded(self, text):
        """Yields (id, piece, start, end) for each piece of a text. As in ALBERT, a comma after a digit is a
        separate piece."""
        mapping = self._model.encode_as_offset_mapping(text)
        for index, piece, (start, end) in zip(mapping["ids"], mapping["pieces"], mapping["offsets"]):
            if not _DIGIT_AND_COMMA.search(piece):
                yield index, piece, start, end
                continue
            for index, part, first, last in self._encoded(piece[:-1].removeprefix(WORD_START)):
                # The part before the comma was encoded as a separate text. SentencePiece puts a "▁" before
                # each text. If the original piece did not begin with "▁", this "▁" is removed again.
                if not piece.startswith(WORD_START):
                    part = part.removeprefix(WORD_START)
                    index = self._model.piece_to_id(part)
                if part:
                    yield index, part, start + first, min(start + last, end - 1)
            yield self._model.piece_to_id(","), ",", end - 1, end


@_remember
def _without_accents(char):
    """Returns the compatibility decomposition (NFKD) of a character, without combining characters."""
    return "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))


# Tokenizers of these classes can be sent to worker processes.
TOKENIZERS = FullTokenizer, SentencePieceTokenizer


class _Chunks(dict):
    """A cache of tokenized text: {chunk of text: list of its tokens}. If a chunk is not in the cache, it is
    tokenized at the look-up. The result for a long chunk is an iterator."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def __missing__(self, chunk):
        tokens = self._tokenizer._generate(chunk)
        if len(chunk) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED_CHUNKS:
                self.clear()
            tokens = self[chunk] = list(tokens)
        return tokens


class BasicTokenizer:
    """Splits text into words. Each punctuation mark and each Chinese character becomes a separate word."""

    # These defaults are for subclasses that set `do_lower_case` without calling the constructor.
    strip_accents = None
    tokenize_chinese_chars = True

    def __init__(self, do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True):
        """Creates a tokenizer.

        Args:
          do_lower_case: whether to convert text to lower case.
          strip_accents: whether to strip accents. None (as published) uses the value of `do_lower_case`.
          tokenize_chinese_chars: whether each Chinese character becomes a separate word (as published).
        """
        self.do_lower_case = do_lower_case
        self.strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars

    def tokenize(self, text):
        """Splits text into words.

        Args:
          text: str or UTF-8 bytes.

        Returns:
          list of str. No element is empty or contains white space.
        """
        text = self._clean_text(convert_to_unicode(text))
        # Chinese characters are split in all languages. The corpus of an English model also contains Chinese
        # characters, and a word of several Chinese characters would almost never be in the vocabulary of
        # this model.
        if self.tokenize_chinese_chars:
            text = self._tokenize_chinese_chars(text)
        words = []
        for word in whitespace_tokenize(text):
            words.extend(self._run_split_on_punc(self.normalize(word)))
        # In a subclass, an overriding method, such as `normalize`, may return white space or empty strings.
        # This call removes them.
        return whitespace_tokenize(" ".join(words))

    def character_spans(self, text):
        """Returns the position in the text (str) of each character of the words of `tokenize(text)`.

        One character of the text may become several: in NFD, a Hangul syllable becomes two or three. Then
        each of them has the position of the syllable. A position includes the stripped accents that follow
        the character.

        Returns:
          list of pairs (start, end).
        """
        # Cleaning and normalization replace each character separately, with one exception that changes no
        # length: the lower case of a Greek sigma depends on its place in the word.
        spans, last = [], None
        for index, char in enumerate(text):
            clean_char = self._clean_text(char)
            if clean_char.isspace():
                last = None
            elif normalized := self.normalize(clean_char):
                last = [index, index + 1]
                spans += [last] * len(normalized)
            elif clean_char and last:
                last[1] = index + 1
        return spans

    def normalize(self, word):
        """Returns the normalized form of a word (str).

        If `do_lower_case` is true, the word is converted to lower case. The accents are removed if
        `strip_accents` is true. They are also removed if `strip_accents` is None and `do_lower_case` is true.
        """
        if self.do_lower_case:
            word = word.lower()
        # Strip accents after lower-casing, because lower-casing can produce an accent ("İ" -> "i̇").
        strips = self.do_lower_case if self.strip_accents is None else self.strip_accents
        return self._run_strip_accents(word) if strips else word

    def _run_strip_accents(self, text):
        """Returns the text decomposed (NFD) and without non-spacing marks."""
        if text.isascii():
            return text
        decomposed = unicodedata.normalize("NFD", text)
        return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")

    def _run_split_on_punc(self, text):
        """Splits text at punctuation. Returns a list of str, in which each punctuation mark is a separate
        part."""
        if text.isalnum():
            return [text]
        parts, start = [], 0
        for index, char in enumerate(text):
            if _is_punctuation(char):
                parts += [text[start:index], char]
                start = index + 1
        return list(filter(None, [*parts, text[start:]]))

    def _tokenize_chinese_chars(self, text):
        """Returns the text with a space before and after each Chinese character."""
        return "".join(f" {c} " if self._is_chinese_char(ord(c)) else c for c in text)

    def _is_chinese_char(self, cp):
        """Returns whether a code point (int) is in one of Unicode's CJK ideograph blocks."""
        # The first comparison is fast, and false for most characters, because the lowest block begins at
        # 0x3400.
        return cp >= 0x3400 and any(first <= cp <= last for first, last in CHINESE_BLOCKS)

    def _clean_text(self, text):
        """Returns the text without control characters, and with each white space character replaced by a
        space."""
        if text.isprintable() and "\ufffd" not in text:
            return text
        # U+FFFD is left out, too. It stands for bytes that another program could not decode.
        return "".join(" " if _is_whitespace(char) else char for char in text
                       if char != "\ufffd" and not _is_control(char))


class WordpieceTokenizer:
    """Splits words into pieces of a vocabulary, from left to right. Each piece is the longest one that
    fits."""

    def __init__(self, vocab, unk_token="[UNK]", max_input_chars_per_word=200):
        """Creates a tokenizer.

        Args:
          vocab: container of pieces. Pieces that continue a word begin with "##".
          unk_token: the token for a word that cannot be split into pieces.
          max_input_chars_per_word: maximum number of characters in a word. A longer word becomes `unk_token`.
        """
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word

    def tokenize(self, text):
        """Splits words into pieces: "unaffable" into "una", "##ffa", "##ble".

        Args:
          text: words separated by white space, as str or UTF-8 bytes. Usually `BasicTokenizer` made them.

        Returns:
          list of str. Each element is a piece of the vocabulary, or `unk_token`.
        """
        pieces = []
        for word in whitespace_tokenize(convert_to_unicode(text)):
            pieces.extend(self._split_word(word))
        return pieces

    def _split_word(self, word):
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces = []
        rest, marker = word, ""
        while rest != marker:
            end = len(rest)
            while end > len(marker) and rest[:end] not in self.vocab:
                end -= 1
            if end == len(marker):
                # No piece fits here, so the whole word is unknown.
                return [self.unk_token]
            pieces.append(rest[:end])
            marker = CONTINUATION
            rest = marker + rest[end:]
        return pieces


@_remember
def _is_whitespace(char):
    """Returns whether a character is a space, a tab, a line end or another space separator (Zs)."""
    return char in (" ", "\t", "\n", "\r") or unicodedata.category(char) == "Zs"


@_remember
def _is_control(char):
    """Returns whether a character is a control (Cc) or format (Cf) character, but not white space."""
    # In Unicode, tabs and line ends are control characters. Here they are white space.
    return char not in ("\t", "\n", "\r") and unicodedata.category(char) in ("Cc", "Cf")


@_remember
def _is_punctuation(char):
    """Returns whether a character is punctuation (P*) or an ASCII symbol such as "$", "+" or "^"."""
    # In Unicode, these ASCII symbols are not punctuation. Here all of them split words, as punctuation does.
    is_ascii_sign = "!" <= char <= "~" and not char.isalnum()
    return is_ascii_sign or unicodedata.category(char).startswith("P")
