"""Exports a SavedModel with texts as inputs. The graph of this SavedModel tokenizes the texts, with ops of
the package tensorflow-text.

This SavedModel is separate from the SavedModel of `export_model`. The reason: if one signature of a
SavedModel has an op of tensorflow-text, a server without this package cannot load any signature of the
SavedModel, not even the signatures without this op.

The graph repeats the steps of `tokenization.FullTokenizer`. The graph lower-cases text in the same way as
Python, and independently of the locale. The graph finds white space, punctuation and accents with the Unicode
tables of the libraries ICU and RE2. These tables may contain newer characters than Python's Unicode tables.
For these characters, the tokens of the graph may differ from the tokens of `FullTokenizer`.
"""

import functools
import sys

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.tasks import answers, export_model
import tokenization

PACKAGE = "tensorflow-text"

# The following regular expressions are in RE2's notation.

# Control and format characters that are not white space, and the character that replaces undecodable bytes.
_CONTROL = r"[\x{0}-\x{8}\x{b}\x{c}\x{e}-\x{1f}\x{7f}-\x{9f}\p{Cf}\x{fffd}]"
_SPACE = r"[\s\p{Z}]+"
# Matches a punctuation mark. An ASCII character counts as a punctuation mark if it is not a letter, a digit,
# a space or a control character.
_PUNCTUATION = r"([!-/:-@\[-`{-~]|\p{P})"
_CHINESE = "([" + "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}"
                          for first, last in tokenization.CHINESE_BLOCKS) + "])"
_MAX_BYTES = 4  # largest number of bytes of a character in UTF-8
_BATCH_SIZE = 32


def import_tensorflow_text():
    """Returns the module tensorflow_text.

    Raises:
      ImportError: tensorflow-text is not installed, or was built for another version of TensorFlow.
    """
    version = ".".join(tf.version.VERSION.split(".")[:2])
    to_do = ("Install the version of the package for this TensorFlow with "
             f"`pip install {PACKAGE}=={version}.*` or `pip install -r requirements-export.txt`.")
    try:
        # The import is here and not at the top, because only this function needs the module, and because the
        # import takes a second.
        import tensorflow_text
    except (ImportError, tf.errors.OpError) as error:
        raise ImportError(f"An export of text needs the package {PACKAGE}, which cannot be imported "
                          f"({error}). {to_do}") from error
    return tensorflow_text


# --- Tokens ----------------------------------------------------------------------------------------------


class GraphTokenizer:
    """Tokenizes like a `tokenization.FullTokenizer`, but with ops in the current graph."""

    def __init__(self, tokenizer):
        """Builds the lookup table of the vocabulary.

        Args:
          tokenizer: a `tokenization.FullTokenizer`.

        Raises:
          ValueError: the tokenizer is a SentencePiece model.
          ImportError: see `import_tensorflow_text`.
        """
        if not isinstance(tokenizer, tokenization.FullTokenizer):
            raise ValueError("An export with --text needs a vocab.txt, but this model has a SentencePiece "
                             "vocabulary. Export the model without --text.")
        self._text, self._basic = import_tensorflow_text(), tokenizer.basic_tokenizer
        self._protected = tokenizer.protected
        wordpiece = tokenizer.wordpiece_tokenizer
        self._unknown_token, self._longest = wordpiece.unk_token, wordpiece.max_input_chars_per_word
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(list(tokenizer.vocab), list(tokenizer.vocab.values()),
                                                tf.string, tf.int64), tokenizer.vocab[self._unknown_token])
        self._wordpiece = self._text.WordpieceTokenizer(
            table, max_bytes_per_word=_MAX_BYTES * self._longest, unknown_token=self._unknown_token)

    def __call__(self, texts):
        """Returns the token ids of texts, ragged int32 [N, (tokens)]. `texts` is a string tensor [N]."""
        words = self._words(texts)
        too_long = tf.strings.length(words.flat_values, "UTF8_CHAR") > self._longest
        flat_words = tf.where_v2(too_long, self._unknown_token, words.flat_values)
        ids = self._wordpiece.tokenize(words.with_flat_values(flat_words)).merge_dims(1, 2)
        return tf.cast(ids, tf.int32)

    def _words(self, texts):
        """Returns the words of texts, ragged string [N, (words)]. A protected token is a word."""
        if not self._protected:
            return tf.strings.split(self._spaced(texts), result_type="RaggedTensor")
        pattern = self._protected.pattern
        parts = self._text.regex_split(texts, pattern, pattern)
        texts = parts.flat_values
        texts = tf.where_v2(tf.strings.regex_full_match(texts, pattern), texts, self._spaced(texts))
        return parts.with_flat_values(tf.strings.split(texts, result_type="RaggedTensor")).merge_dims(1, 2)

    def _spaced(self, texts):
        """Normalizes a string tensor [N] of texts. If the tokenizer lower-cases texts or removes accents, the
        function does the same. Separates words, punctuation and Chinese characters by spaces."""
        replace, basic = tf.strings.regex_replace, self._basic
        texts = replace(replace(texts, _CONTROL, ""), _SPACE, " ")
        if basic.tokenize_chinese_chars:
            texts = replace(texts, _CHINESE, r" \1 ")
        if basic.do_lower_case:
            texts = _lower_case(texts)
        if basic.do_lower_case if basic.strip_accents is None else basic.strip_accents:
            texts = replace(self._text.normalize_utf8(texts, "NFD"), r"\p{Mn}", "")
        return replace(texts, _PUNCTUATION, r" \1 ")


_CAPITAL_I_WITH_DOT = "\u0130"  # the only character whose lower case consists of two characters
_CASED_CODES = 0x20000  # all letters with an upper case have smaller code points


def _lower_case(texts):
    """Lower-cases a string tensor [N] of texts in the same way as `str.lower`.

    `tf.strings.lower` is not used, because its result depends on LC_ALL, LC_MESSAGES or LANG of the process
    that serves the model. For example, with LC_ALL=tr_TR.UTF-8, `tf.strings.lower` converts "I" to a dotless
    "ı".
    """
    texts = tf.strings.regex_replace(texts, _final_sigma(), r"\1ς\2")
    texts = tf.strings.regex_replace(texts, _CAPITAL_I_WITH_DOT, _CAPITAL_I_WITH_DOT.lower())
    letters = tf.strings.unicode_decode(texts, "UTF-8")
    codes, last = letters.flat_values, _CASED_CODES - 1
    lower = tf.gather(tf.constant(_lower_case_table()), tf.minimum(codes, last))
    return tf.strings.unicode_encode(letters.with_flat_values(tf.where_v2(codes > last, codes, lower)),
                                     "UTF-8")


@functools.cache
def _lower_case_table():
    """Returns an int32 array whose element k is the lower case of code point k."""
    return np.array([ord(lower) if len(lower := chr(code).lower()) == 1 else code
                     for code in range(_CASED_CODES)], np.int32)


@functools.cache
def _final_sigma():
    """Returns a regular expression, in RE2's notation, for a capital sigma whose lower case is "ς".

    A sigma becomes "ς" at the end of a word, as in "ΟΔΟΣ.", but not in "ΣΟΦΙΑ". There are two conditions. The
    nearest character before the sigma must be a letter that has an upper and a lower case. The nearest
    character after the sigma must not be such a letter. Marks, such as accents and apostrophes, are skipped.
    The Python version that exports the model defines which characters are letters and marks (`str.lower`).
    """
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xd800 <= code <= 0xdfff]
    either = [character for character in characters if f"A{character}Σ".lower().endswith("ς")]
    letters = {character for character in either if f"{character}Σ".lower().endswith("ς")}
    letter, mark, both = ("".join(f"\\x{{{ord(character):x}}}" for character in group) for group in (
        sorted(letters), [character for character in either if character not in letters], either))
    return f"([{letter}][{mark}]*)Σ([{mark}]*(?:[^{both}]|$))"


# --- Features --------------------------------------------------------------------------------------------


def _special_token(model, name, like):
    """Returns the id of a special token, repeated for each row: int32 [N, 1]. `like` is a ragged tensor with
    N rows."""
    return tf.fill([like.nrows(), 1], model.tokenizer.vocab[name])


def _lengths(ragged):
    return tf.cast(ragged.row_lengths(), tf.int32)


def _truncate(ragged, sizes):
    """Returns a ragged tensor [N, …] whose rows are truncated to `sizes`, int32 [N]."""
    places = tf.ragged.range(_lengths(ragged)).flat_values
    is_kept = places < tf.gather(sizes, ragged.value_rowids())
    return tf.ragged.boolean_mask(ragged, ragged.with_values(is_kept))


def _encoder_inputs(model, first, second=None):
    """Returns the inputs of the encoder for one or two texts.

    Texts that are too long are truncated in the same way as in `text_windows.cut_into_windows`: in a
    pair, tokens are removed from the longer text.

    Args:
      model: a `trained_model.TrainedModel`.
      first: ragged int32 [N, …], the token ids of the first texts.
      second: ragged int32 [N, …], the token ids of the second texts, or None. An empty row means that there
        is no second text.

    Returns:
      {name: int32 [N, longest]}. With N = 0, longest is 2, the number of special tokens.
    """
    start, end = (_special_token(model, name, first) for name in ("[CLS]", "[SEP]"))
    if second is None:
        first = _truncate(first, tf.fill([first.nrows(out_type=tf.int32)], model.max_seq_length - 2))
        parts = [tf.concat([start, first, end], axis=1)]
    else:
        first_lengths, second_lengths = _lengths(first), _lengths(second)
        is_pair = tf.cast(second_lengths > 0, tf.int32)
        room = model.max_seq_length - 2 - is_pair
        num_kept = tf.minimum(first_lengths, tf.maximum(room - second_lengths, (room + 1) // 2))
        first, second = _truncate(first, num_kept), _truncate(second, room - num_kept)
        end_of_pair = _truncate(tf.RaggedTensor.from_tensor(end), tf.minimum(_lengths(second), 1))
        parts = [tf.concat([start, first, end], axis=1), tf.concat([second, end_of_pair], axis=1)]
    segments = tf.concat([part.with_flat_values(tf.fill(tf.shape(part.flat_values), index))
                          for index, part in enumerate(parts)], axis=1)
    ids = tf.concat(parts, axis=1)
    longest = tf.maximum(tf.reduce_max(_lengths(ids)), 2)
    shape = tf.stack([-1, longest])
    return {"input_ids": ids.to_tensor(shape=shape), "segment_ids": segments.to_tensor(shape=shape),
            "input_mask": tf.sequence_mask(_lengths(ids), longest, tf.int32)}


# --- Signatures ------------------------------------------------------------------------------------------


def _text_signatures(task_answers, number):
    """Returns two signatures with `number` warm-up requests: one for pairs of texts, one for single texts. In
    the signature for pairs, an empty second text means that the input has only one text."""
    model = task_answers.model
    tokens = GraphTokenizer(model.tokenizer)
    two = {name: tf.placeholder(tf.string, [None], name) for name in ("text_a", "text_b")}
    one = {"text_a": tf.placeholder(tf.string, [None], "text_a")}
    pairs = _encoder_inputs(model, tokens(two["text_a"]), tokens(two["text_b"]))
    single = _encoder_inputs(model, tokens(one["text_a"]))
    return {
        export_model.DEFAULT_SIGNATURE: _signature(
            model, two, export_model.build_outputs(task_answers, pairs), number),
        "text_a": _signature(model, one, export_model.build_outputs(task_answers, single), number)}


def _word_signatures(task_answers, number):
    """Returns the two signatures of a tagger with `number` warm-up requests. The first signature takes texts,
    in which white space separates the words. The second signature takes lists of words."""
    model = task_answers.model
    if model.setting("word_splitting") == "punctuation":
        logging.info("The words of the training data are also split at punctuation marks, but the exported "
                     "model splits a text only at spaces. Put spaces around punctuation marks.")
    tokens = GraphTokenizer(model.tokenizer)
    text = {"text": tf.placeholder(tf.string, [None], "text")}
    words = {"words": tf.placeholder(tf.string, [None, None], "words")}
    text_words = tf.strings.split(text["text"], result_type="RaggedTensor")
    word_lists = tf.RaggedTensor.from_tensor(words["words"], padding="")
    return {
        export_model.DEFAULT_SIGNATURE: _signature(
            model, text, {"words": text_words.to_tensor(), **_tags(task_answers, tokens, text_words)},
            number),
        "words": _signature(
            model, words, _tags(task_answers, tokens, word_lists, tf.shape(words["words"])[1]), number,
            str.split)}


def _tags(task_answers, tokens, words, width=-1):
    """Returns {"tags": string [B, W]}, the tags of words. The tag is "" for padding, and for words beyond the
    model's `max_seq_length`.

    Args:
      task_answers: the `answers.Answers` of the model.
      tokens: a `GraphTokenizer`.
      words: ragged string [B, (words)].
      width: int32 tensor, the number W; -1 for the number of words of the longest row.
    """
    model = task_answers.model
    room = model.max_seq_length - 2
    pieces = tokens(words.flat_values)
    nothing = tf.cast(tf.equal(pieces.row_lengths(), 0), tf.int32)
    unknown_pieces = _truncate(tf.RaggedTensor.from_tensor(_special_token(model, "[UNK]", pieces)), nothing)
    pieces = tf.concat([pieces, unknown_pieces], axis=1)[:, :room]
    sizes = words.with_flat_values(_lengths(pieces)).to_tensor(shape=tf.stack([-1, width]))  # [B, W]
    places = tf.cumsum(sizes, axis=1, exclusive=True) + 1
    is_seen = (sizes > 0) & (places + sizes <= room + 1)
    # The words that are seen are the first words, so their pieces follow [CLS] without a gap.
    num_pieces = tf.reduce_sum(tf.where_v2(is_seen, sizes, 0), axis=1)
    by_sentence = words.with_flat_values(pieces)  # [B, (words), (pieces)]
    features = _encoder_inputs(model, _truncate(by_sentence.merge_dims(1, 2), num_pieces))
    if task_answers.exported_inputs():
        tag_places = tf.where_v2(is_seen, places, -1)[:, :room]
        if model.setting("label_all_pieces"):
            tag_places = tf.ragged.range(1, num_pieces + 1).to_tensor(default_value=-1)
        longest = tf.shape(features["input_ids"])[1]
        features["word_mask"] = tf.reduce_sum(tf.one_hot(tag_places, longest, dtype=tf.int32), axis=1)
    tags = export_model.build_outputs(task_answers, features)["tags"]
    word_tags = tf.gather(tags, tf.where_v2(is_seen, places, 0), batch_dims=1)
    return {"tags": tf.where_v2(is_seen, word_tags, "")}


def _signature(model, inputs, outputs, number, convert=str):
    """Returns a `export_model.Signature` with `number` warm-up requests. Their inputs are texts of growing
    length. The last text has about `max_seq_length` tokens. `convert` converts a text to an input."""
    sizes = [max(1, model.max_seq_length * index // number - 3) for index in range(1, number + 1)]
    return export_model.Signature(inputs, outputs, [
        {name: [convert(" ".join(["a"] * size))] for name in inputs} for size in sizes])


def export(model, directory, task=None, warmup_requests=1):
    """Exports a model as a SavedModel whose inputs are texts.

    Args:
      model, directory, task, warmup_requests: see `export_model.export`.

    Returns:
      the directory of the new version.

    Raises:
      ValueError, OSError: see `export_model.export`. A ValueError is also raised if this task cannot be
        exported with texts as inputs.
      ImportError: tensorflow-text is not installed.
    """
    task_answers = answers.create(model, task)
    if not task_answers.exports_texts:
        raise ValueError(f"{model.path} contains a model for {task_answers.task}. --text is not possible for "
                         "this task, because a single graph cannot compute the answers from the texts. Use "
                         "predict.py, or export the model without --text. The inputs of the exported model "
                         "are then token ids.")
    build = _word_signatures if task_answers.takes_words else _text_signatures
    return export_model.write_version(task_answers, directory, build, warmup_requests)


# --- Answers ---------------------------------------------------------------------------------------------


def answer(directory, inputs, task_answers):
    """Answers inputs with an exported model.

    Args:
      directory: the directory of an exported version.
      inputs: list of tuples of texts, the form that `Predictor.prepare` takes.
      task_answers: the `Answers` of the exported model.

    Returns:
      list of dicts, one for each input. They have those keys of the answers of `Predictor` that a SavedModel
      has: "label", "labels", "probabilities", "score", "tags" and "vector".
    """
    results = []
    # The session uses no GPU, because another process may use the GPU.
    with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        meta_graph = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], directory)
        signature = meta_graph.signature_def[export_model.DEFAULT_SIGNATURE]
        feeds = [signature.inputs[name].name for name in sorted(signature.inputs)]
        outputs = {name: output.name for name, output in signature.outputs.items()}
        for start in range(0, len(inputs), _BATCH_SIZE):
            # An empty second text means that the input has only one text.
            rows = [(*map(join_words, texts), "") for texts in inputs[start:start + _BATCH_SIZE]]
            arrays = session.run(outputs, {feed: [row[place].encode("utf-8", "replace") for row in rows]
                                           for place, feed in enumerate(feeds)})
            columns = {name: (np.char.decode(array.astype(bytes), "utf-8") if array.dtype == object else array
                              ).tolist() for name, array in arrays.items()}
            results += [_to_answer(dict(zip(columns, values)), task_answers)
                        for values in zip(*columns.values())]
    return results


def join_words(text):
    """Returns a text. For a tagger, `text` may be a list of words."""
    return " ".join(text) if isinstance(text, list) else text


def _to_answer(outputs, task_answers):
    """Returns the answer in a row of the outputs, {name: value}. `task_answers` is the `Answers` of the
    model."""
    result = {name: outputs[name] for name in ("score", "vector", "label") if name in outputs}
    if "tags" in outputs:
        result["tags"] = task_answers.complete_tags([tag or "O" for tag in outputs["tags"]])
    if "probabilities" in outputs:
        result["probabilities"] = dict(zip(outputs["labels"], outputs["probabilities"]))
    if "predicted" in outputs:
        result["labels"] = [label for label, is_predicted in zip(outputs["labels"], outputs["predicted"])
                            if is_predicted]
    return result
