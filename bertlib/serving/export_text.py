"""Text in, label out: a SavedModel that tokenizes by itself, with ops of the package tensorflow-text.

It is a SavedModel of its own, since one op of a package that is not there keeps all signatures from being
loaded. The graph does the steps of `tokenization.FullTokenizer`. Lower case is Python's, in any locale. White
space, punctuation and accents are found by the tables of ICU and RE2, so that tokens differ at characters
that these know and Python's Unicode does not: `compare_tokens` counts such texts.
"""

import functools
import itertools
import sys
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.serving import answers, export_model
import tokenization

TASKS = ("classification", "multilabel", "regression", "tagging", "vectors")
PACKAGE = "tensorflow-text"

# In RE2's notation. Control and format characters, and what stands for undecodable bytes, but no white space;
# white space; punctuation, and all of ASCII's signs.
_CONTROL = r"[\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{7f}-\x{9f}\p{Cf}\x{fffd}]"
_SPACE = r"[\s\p{Z}]+"
_PUNCTUATION = r"([!-/:-@\[-`{-~]|\p{P})"
_CHINESE = "([" + "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}"
                          for first, last in tokenization.CHINESE_BLOCKS) + "])"
_MAX_BYTES = 4  # of a character in UTF-8
_COMPARED_AT_A_TIME = 1000


def import_tensorflow_text():
    """Returns the module tensorflow_text.

    Raises:
      ImportError: it is not installed, or is for another TensorFlow.
    """
    version = ".".join(tf.version.VERSION.split(".")[:2])
    to_do = (f"It has to be the one for this TensorFlow: `pip install {PACKAGE}=={version}.*`, or `pip "
             "install -r requirements-export.txt`.")
    try:
        # Imported here: nothing else needs it, and it takes a second.
        import tensorflow_text
    except ImportError as error:
        raise ImportError(f"An export of text needs the package {PACKAGE}, which cannot be imported "
                          f"({error}). {to_do}") from error
    except tf.errors.OpError as error:
        raise ImportError(f"The package {PACKAGE} cannot be loaded: {error.message}. {to_do}") from error
    return tensorflow_text


# --- Tokens ----------------------------------------------------------------------------------------------


class GraphTokenizer:
    """A `tokenization.FullTokenizer` as ops of the current graph. Special tokens in a text are not kept
    whole."""

    def __init__(self, tokenizer):
        """Makes the table of the vocabulary.

        Raises:
          ValueError: it is a SentencePiece model.
          ImportError: see `import_tensorflow_text`.
        """
        if not isinstance(tokenizer, tokenization.FullTokenizer):
            raise ValueError("An export of text is of models with a vocab.txt, and this one has a "
                             "SentencePiece model. Export it without --text.")
        self._text, self._basic = import_tensorflow_text(), tokenizer.basic_tokenizer
        wordpiece = tokenizer.wordpiece_tokenizer
        self._unknown, self._longest = wordpiece.unk_token, wordpiece.max_input_chars_per_word
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(list(tokenizer.vocab), list(tokenizer.vocab.values()),
                                                tf.string, tf.int64), tokenizer.vocab[self._unknown])
        self._wordpiece = self._text.WordpieceTokenizer(
            table, max_bytes_per_word=_MAX_BYTES * self._longest, unknown_token=self._unknown)

    def __call__(self, texts):
        """Returns the ids of texts, string [N]: ragged int32 [N, (tokens)]."""
        words = tf.strings.split(self._spaced(texts), result_type="RaggedTensor")
        too_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > self._longest
        known = tf.where_v2(too_long, self._unknown, words.flat_values)
        ids = self._wordpiece.tokenize(words.with_flat_values(known)).merge_dims(1, 2)
        return tf.cast(ids, tf.int32)

    def _spaced(self, texts):
        """Texts in the case and with the accents of the vocabulary, with spaces between the words."""
        replace, basic = tf.strings.regex_replace, self._basic
        texts = replace(replace(texts, _CONTROL, ""), _SPACE, " ")
        if basic.tokenize_chinese_chars:
            texts = replace(texts, _CHINESE, r" \1 ")
        if basic.do_lower_case:
            texts = _lower_case(texts)
        if basic.do_lower_case if basic.strip_accents is None else basic.strip_accents:
            texts = replace(self._text.normalize_utf8(texts, "NFD"), r"\p{Mn}", "")
        return replace(texts, _PUNCTUATION, r" \1 ")


_CAPITAL_I_WITH_DOT = "\u0130"  # the one character whose lower case is two characters


def _lower_case(texts):
    """Returns texts, string [N], in the lower case of `str.lower`.

    `tf.strings.lower` is not used: it follows the rules of the language in LC_ALL, LC_MESSAGES or LANG of the
    process that serves the model. With LC_ALL=tr_TR.UTF-8 the lower case of "I" would be a dotless "ı".
    """
    texts = tf.strings.regex_replace(texts, _final_sigma(), r"\1ς\2")
    texts = tf.strings.regex_replace(texts, _CAPITAL_I_WITH_DOT, _CAPITAL_I_WITH_DOT.lower())
    table = _lower_case_table()
    letters = tf.strings.unicode_decode(texts, "UTF-8")
    codes = letters.flat_values
    lower = tf.gather(tf.constant(table), tf.minimum(codes, len(table) - 1))
    return tf.strings.unicode_encode(letters.with_flat_values(tf.where_v2(codes < len(table), lower, codes)),
                                     "UTF-8")


def _characters():
    """Returns all characters that UTF-8 can hold: an iterator of str."""
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xd800 <= code <= 0xdfff)


@functools.cache
def _lower_case_table():
    """Returns the lower case of each code point up to the last upper-case one: int32 [number of code points].
    """
    lower = {ord(character): ord(character.lower()) for character in _characters()
             if character != character.lower() and character != _CAPITAL_I_WITH_DOT}
    table = np.arange(max(lower) + 1, dtype=np.int32)
    table[list(lower)] = list(lower.values())
    return table


@functools.cache
def _final_sigma():
    """Returns the regular expression, in RE2's notation, of a capital sigma whose lower case is "ς".

    That is a sigma at the end of a word: the nearest character before it that is no mark is a letter with
    case, and the nearest one after it is none. Marks are, for example, accents and apostrophes. "ΟΔΟΣ." ends
    with such a sigma, "ΣΟΦΙΑ" has none. Letters and marks are those of this Python's `str.lower`.
    """
    either = {character for character in _characters() if f"A{character}Σ".lower().endswith("ς")}
    letters = {character for character in either if f"{character}Σ".lower().endswith("ς")}
    letter, mark, other = _class(letters), _class(either - letters), _class(either, "^")
    return f"({letter}{mark}*)Σ({mark}*(?:{other}|$))"


def _class(characters, negation=""):
    """Returns a class of characters in RE2's notation."""
    codes = sorted(map(ord, characters))
    starts = [code for index, code in enumerate(codes) if not index or codes[index - 1] != code - 1]
    ends = [code for index, code in enumerate(codes) if code == codes[-1] or codes[index + 1] != code + 1]
    ranges = "".join(f"\\x{{{start:x}}}-\\x{{{end:x}}}" for start, end in zip(starts, ends))
    return f"[{negation}{ranges}]"


class Differences(NamedTuple):
    """Where the graph's tokens differ from the tokenizer's: the number of `texts` looked at, how many differ
    (`number`), and the first of these, a list of (text, the tokenizer's tokens, the graph's)."""

    texts: int
    number: int
    first: list


def compare_tokens(tokenizer, texts, most=3):
    """Compares the tokens of texts.

    Args:
      tokenizer: a `tokenization.FullTokenizer`.
      texts: iterable of str.
      most: how many differing texts are returned.

    Returns:
      `Differences`.
    """
    looked_at, number, first = 0, 0, []
    with tf.Graph().as_default(), tf.Session() as here:
        given = tf.placeholder(tf.string, [None])
        ids = GraphTokenizer(tokenizer)(given)
        here.run(tf.tables_initializer())
        for batch in _batches(texts):
            looked_at += len(batch)
            encoded = [text.encode("utf-8", "replace") for text in batch]
            for text, found in zip(batch, here.run(ids, {given: encoded}).to_list()):
                expected = tokenizer.tokenize(text)
                if found == list(tokenizer.convert_tokens_to_ids(expected)):
                    continue
                number += 1
                if len(first) < most:
                    first.append((text, expected, tokenizer.convert_ids_to_tokens(found)))
    return Differences(looked_at, number, first)


def _batches(items):
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, _COMPARED_AT_A_TIME)):
        yield batch


# --- Features --------------------------------------------------------------------------------------------


def _special_token(model, name, like):
    """A special token's id for each row of a ragged [N, …]: int32 [N, 1]."""
    return tf.fill([like.nrows(), 1], model.tokenizer.vocab[name])


def _lengths(ragged):
    return tf.cast(ragged.row_lengths(), tf.int32)


def _truncate(ragged, sizes):
    """The first ids of each row of a ragged [N, …], as many as `sizes`, int32 [N], says."""
    kept = tf.sequence_mask(tf.minimum(sizes, _lengths(ragged)))
    return tf.ragged.boolean_mask(ragged.to_tensor(), kept)


def _encoder_inputs(model, first, second=None):
    """What the encoder is fed of tokens, ragged int32 [N, …]: {name: int32 [N, longest]}. Of both together so
    much is left as fits, as `classifier_data._truncate_seq_pair` leaves it."""
    start, end = (_special_token(model, name, first) for name in ("[CLS]", "[SEP]"))
    if second is None:
        first = _truncate(first, tf.fill([first.nrows(out_type=tf.int32)], model.max_seq_length - 2))
        parts = [tf.concat([start, first, end], axis=1)]
    else:
        ones, others = _lengths(first), _lengths(second)
        is_pair = tf.cast(others > 0, tf.int32)
        room = model.max_seq_length - 2 - is_pair
        kept = tf.minimum(ones, tf.maximum(room - others, (room + 1) // 2))
        first, second = _truncate(first, kept), _truncate(second, room - kept)
        end_of_pair = _truncate(tf.RaggedTensor.from_tensor(end), is_pair)
        parts = [tf.concat([start, first, end], axis=1), tf.concat([second, end_of_pair], axis=1)]
    segments = tf.concat([part.with_flat_values(tf.fill(tf.shape(part.flat_values), index))
                          for index, part in enumerate(parts)], axis=1)
    ids = tf.concat(parts, axis=1)
    return {"input_ids": ids.to_tensor(), "segment_ids": segments.to_tensor(),
            "input_mask": tf.sequence_mask(_lengths(ids), dtype=tf.int32)}


# --- Signatures ------------------------------------------------------------------------------------------


def _text_signatures(model, task):
    """Signatures of one or two texts; an empty second one is none."""
    tokens = GraphTokenizer(model.tokenizer)
    two = {name: tf.placeholder(tf.string, [None], name) for name in ("text_a", "text_b")}
    one = {"text_a": tf.placeholder(tf.string, [None], "text_a")}
    pairs = _encoder_inputs(model, tokens(two["text_a"]), tokens(two["text_b"]))
    single = _encoder_inputs(model, tokens(one["text_a"]))

    def requests(names):
        return lambda number: [{name: [text] for name in names} for text in _warmup_texts(model, number)]

    return {export_model.DEFAULT_SIGNATURE: export_model.Signature(two,
                                                                   export_model.build_outputs(model, task,
                                                                                                   pairs),
                                                                   requests(two)),
            "text_a": export_model.Signature(one, export_model.build_outputs(model, task, single),
                                             requests(one))}


def _word_signatures(model, task):
    """Signatures of sentences whose words white space separates, and of lists of words."""
    tokens = GraphTokenizer(model.tokenizer)
    text = {"text": tf.placeholder(tf.string, [None], "text")}
    words = {"words": tf.placeholder(tf.string, [None, None], "words")}
    split = tf.strings.split(text["text"], result_type="RaggedTensor")
    given = tf.RaggedTensor.from_tensor(words["words"], padding="")
    return {export_model.DEFAULT_SIGNATURE: export_model.Signature(
                text, {"words": split.to_tensor(), **_tags(model, task, tokens, split)},
                lambda number: [{"text": [text]} for text in _warmup_texts(model, number)]),
            "words": export_model.Signature(
                words, _tags(model, task, tokens, given, tf.shape(words["words"])[1]),
                lambda number: [{"words": [text.split()]} for text in _warmup_texts(model, number)])}


def _tags(model, task, tokens, words, width=None):
    """The output of words, ragged string [B, (words)]: {"tags": string [B, W], "" where no word is, or one
    beyond what the model sees}."""
    room = model.max_seq_length - 2
    pieces = tokens(words.flat_values)
    nothing = tf.cast(tf.equal(pieces.row_lengths(), 0), tf.int32)
    unknown = _truncate(tf.RaggedTensor.from_tensor(_special_token(model, "[UNK]", pieces)), nothing)
    pieces = tf.concat([pieces, unknown], axis=1)[:, :room]
    by_sentence = words.with_flat_values(pieces)  # [B, (words), (pieces)]
    features = _encoder_inputs(model, by_sentence.merge_dims(1, 2))
    sizes = words.with_flat_values(_lengths(pieces)).to_tensor()  # [B, W]
    places = tf.cumsum(sizes, axis=1, exclusive=True) + 1
    is_seen = (sizes > 0) & (places + sizes <= room + 1)
    longest = tf.shape(features["input_ids"])[1]
    if export_model.extra_inputs(model, task):
        firsts = tf.one_hot(tf.where_v2(is_seen, places, -1), longest, dtype=tf.int32)
        features["word_mask"] = tf.reduce_sum(firsts, axis=1)
    tags = export_model.build_outputs(model, task, features)["tags"]
    found = tf.gather(tags, tf.where_v2(is_seen, places, 0), batch_dims=1)
    found = tf.where_v2(is_seen, found, "")
    if width is not None:
        found = tf.pad(found, [[0, 0], [0, width - tf.shape(found)[1]]], constant_values="")
    return {"tags": found}


def _warmup_texts(model, number):
    """Texts of growing length, up to about the longest."""
    return [" ".join(["a"] * max(1, model.max_seq_length * index // number - 3))
            for index in range(1, number + 1)]


def export(model, directory, task=None, warmup_requests=1):
    """Exports a model that is fed text; arguments, result and errors are those of `export_model.export`.

    Raises:
      ImportError: tensorflow-text is not installed.
    """
    task = answers.resolve_task(model, task)
    if task not in TASKS:
        raise ValueError(f"{model.path} holds a model of {task}, whose answers are not found in one graph: "
                         "predict.py gives them. An export without --text takes its ids.")
    import_tensorflow_text()
    build = _word_signatures if task == "tagging" else _text_signatures
    return export_model.write_version(model, task, directory, lambda: build(model, task), warmup_requests)
