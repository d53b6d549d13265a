"""Reads the settings of a tokenizer from the files of a Hugging Face model, and finds settings that this
project does not support.

If both tokenizer_config.json and tokenizer.json contain an option, the value in tokenizer_config.json is
used. The file special_tokens_map.json contains only special tokens and no options.
"""

import io
import json
import os
import re
from typing import NamedTuple

from bertlib.runs.entries import Rule, Switch, whole_number
from bertlib.system import files
import tokenization

TOKENIZER_CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
_ADDED_TOKENS = "added_tokens.json"
NAMES = (TOKENIZER_CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP, _ADDED_TOKENS)
# Names of tokenizer classes that make the same tokens as BERT's tokenizer. Each name may have the suffix
# "Fast".
_WORDPIECE_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
# Names of tokenizer classes whose behaviour is defined by tokenizer.json alone.
_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Maps Hugging Face's name of a special token to the token, for example "cls_token" to "[CLS]".
_SPECIAL_NAMES = {f"{token[1:-1].lower()}_token": token for token in tokenization.SPECIAL_TOKENS}
# {argument of `tokenization.FullTokenizer`: its name in tokenizer.json, see `_flatten`}.
_OPTIONS = {"do_lower_case": "normalizer.lowercase", "strip_accents": "normalizer.strip_accents",
            "tokenize_chinese_chars": "normalizer.handle_chinese_chars",
            "max_input_chars_per_word": "model.max_input_chars_per_word"}
# The rules of options whose value is not just true or false.
_RULES = {"max_input_chars_per_word": whole_number(1),
          "strip_accents": Rule(lambda value: isinstance(value, bool | None), "true, false or null")}
# {name of a file: {name of a setting: its only supported value}}.
_ONLY = {
    TOKENIZER_CONFIG: {"do_basic_tokenize": True, **_SPECIAL_NAMES}, SPECIAL_TOKENS_MAP: _SPECIAL_NAMES,
    TOKENIZER: {"normalizer.type": "BertNormalizer", "normalizer.clean_text": True,
                "pre_tokenizer.type": "BertPreTokenizer", "model.type": "WordPiece",
                "model.continuing_subword_prefix": tokenization.CONTINUATION, "model.unk_token": "[UNK]"}}
# Published vocabularies contain such entries, which occur in no text and have no trained vector.
_UNUSED = re.compile(r"\[unused\d+\]")


class TokenizerSettings(NamedTuple):
    """The settings of a tokenizer, as read from the files of a model.

    Attributes:
      options: {argument of `tokenization.FullTokenizer`: (value, path of the file with this value)}.
      added: list of (token, path of the file with this token). Like the special tokens, these tokens are not
        split.
      problems: list of sentences, one for each setting that this project does not support.
    """

    options: dict
    added: list
    problems: list


def create_tokenizer(settings, path, pieces, lower, is_protected, vocab_size, markers=()):
    """Returns a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.

    Args:
      settings: a `TokenizerSettings`.
      path: the vocabulary's file.
      pieces: whether the vocabulary is a SentencePiece model.
      lower: whether texts are lower-cased.
      is_protected: the value of --protect_special_tokens.
      vocab_size: see `load_vocabulary`.
      markers: list of str, the value of --marker_tokens. A SentencePiece model has no markers.

    Raises:
      ValueError: the vocabulary does not fit the model, or lacks a token that the files of the tokenizer add.
    """
    never_split = tokenization.SPECIAL_TOKENS if is_protected else ()
    if pieces:
        return tokenization.SentencePieceTokenizer(path, lower, never_split, vocab_size)
    vocab = load_vocabulary(path, markers, vocab_size)
    known = {*tokenization.SPECIAL_TOKENS, *vocab}
    for token, file in settings.added:
        if token not in known:
            raise ValueError(f"{file} adds the token {token!r}, but {path} does not contain this token, so "
                             "texts with this token would be tokenized differently. Add the token to "
                             f"{path} (in line N + 1 if its id is N), or remove it from {file}.")
    options = {name: value for name, (value, _) in settings.options.items() if name != "do_lower_case"}
    return tokenization.FullTokenizer(vocab, lower, (*never_split, *added_tokens(settings), *markers),
                                      **options)


def vocabulary_content(path, markers):
    """Returns the content of a vocab.txt with markers, as bytes.

    A marker that the vocabulary contains keeps its line. The other markers replace the entries "[unused0]",
    "[unused1]" and so on, in the order of the file, so that no other token gets a new id. If no such entry is
    left, markers are appended.

    Args:
      path: the vocabulary's file.
      markers: list of str, the value of --marker_tokens.
    """
    if not markers:
        return files.read_bytes(path)
    lines = tokenization.read_lines(path)
    tokens = [line.strip() for line in lines]
    new = [marker for marker in markers if marker not in tokens]
    free = [index for index, token in enumerate(tokens) if _UNUSED.fullmatch(token) and token not in markers]
    for index, marker in zip(free, new):
        lines[index] = marker
    return "".join(f"{line}\n" for line in lines + new[len(free):]).encode()


def load_vocabulary(path, markers, vocab_size=None):
    """Returns the vocabulary of `vocabulary_content` as an OrderedDict from token to id, after checking the
    file.

    A model that has already rows for appended markers is accepted, too.

    Args:
      path: the vocabulary's file.
      markers: list of str, the value of --marker_tokens.
      vocab_size: number of rows of the model's embeddings; None if the vocabulary may have any size.

    Raises:
      ValueError, FileNotFoundError: see `tokenization.check_vocab`.
    """
    tokenization.check_vocab(path)
    vocab = tokenization.load_vocab(io.BytesIO(vocabulary_content(path, markers)))
    if vocab_size != max(vocab.values()) + 1:
        tokenization.check_vocab(path, vocab_size)
    return vocab


def read(directories):
    """Returns the `TokenizerSettings` of the files in some directories.

    Args:
      directories: list of str, such as the directories of the vocabulary and of the checkpoint.

    Raises:
      ValueError: a file is not JSON, or files of two directories contradict each other.
    """
    settings = TokenizerSettings({}, [], [])
    for directory in dict.fromkeys(directory.rstrip("/") or directory for directory in directories):
        own = _read(directory)
        for name, (value, path) in own.options.items():
            before, first = settings.options.setdefault(name, (value, path))
            if before != value:
                raise ValueError(f"{first} says {name}={json.dumps(before)}, but {path} says "
                                 f"{name}={json.dumps(value)}. Use the vocabulary and the checkpoint of the "
                                 "same model.")
        settings.added.extend(own.added)
        settings.problems.extend(own.problems)
    return settings


def merge_settings(directory):
    """Returns the settings of all tokenizer files in a directory as a dict, in the form of a single
    tokenizer_config.json."""
    contents = _read_files(directory)
    tokenizer, special_tokens = contents[TOKENIZER], contents[SPECIAL_TOKENS_MAP]
    merged = {name: tokenizer[key] for name, key in _OPTIONS.items() if key in tokenizer}
    merged.update((name, special_tokens[name]) for name in _SPECIAL_NAMES if name in special_tokens)
    added = added_tokens(_read(directory))
    return {**merged, **contents[TOKENIZER_CONFIG], **({"additional_special_tokens": added} if added else {})}


def added_tokens(settings):
    """Returns the added tokens of a `TokenizerSettings` as a list of str. Duplicates and special tokens are
    left out."""
    return [token for token in dict.fromkeys(token for token, _ in settings.added)
            if token not in tokenization.SPECIAL_TOKENS]


def _read_files(directory):
    """Returns {name: content} of the files in `NAMES`; {} is the content of a missing file. The content of
    tokenizer.json is flat, see `_flatten`."""
    paths = {name: os.path.join(directory, name) for name in NAMES}
    contents = {name: files.read_json_object(path) if files.exists(path) and not files.is_directory(path)
                else {} for name, path in paths.items()}
    return {**contents, TOKENIZER: _flatten(contents[TOKENIZER])}


def _flatten(tokenizer):
    """Returns the content of tokenizer.json with the settings of its parts under names such as
    "normalizer.lowercase"."""
    flat = dict(tokenizer)
    for part in ("normalizer", "pre_tokenizer", "model"):
        if part in tokenizer:
            content = tokenizer[part]
            content = content if isinstance(content, dict) else {"type": content}
            flat.update((f"{part}.{key}", value) for key, value in content.items())
    return flat


def _read(directory):
    """Returns the `TokenizerSettings` of the files in one directory."""
    contents = _read_files(directory)
    config, tokenizer = contents[TOKENIZER_CONFIG], contents[TOKENIZER]
    special_tokens = contents[SPECIAL_TOKENS_MAP]
    settings = TokenizerSettings({}, [], [])

    def note_problem(name, text):
        settings.problems.append(f"{os.path.join(directory, name)} says {text}")

    for name, key in _OPTIONS.items():
        file, key = (TOKENIZER_CONFIG, name) if name in config else (TOKENIZER, key)
        if key in contents[file]:
            value = contents[file][key]
            rule = _RULES.get(name, Switch.rule)
            if rule.holds(value):
                settings.options[name] = value, os.path.join(directory, file)
            else:
                note_problem(file, f"{name}={json.dumps(value)}; it should be {rule.words}.")
    wrong_class = find_class_problem(config.get("tokenizer_class"), bool(tokenizer))
    if wrong_class:
        note_problem(TOKENIZER_CONFIG, wrong_class)
    for file, supported in _ONLY.items():
        for name, only in supported.items():
            value = contents[file].get(name, only)
            if name in _SPECIAL_NAMES:  # a token, or null
                value = next(_contents([value]), only if value is None else None)
            if value != only:
                note_problem(file, f"{name}={json.dumps(value)}, which is not supported; the only supported "
                             f"value is {json.dumps(only)}.")
    for name, tokens in ((TOKENIZER, tokenizer.get("added_tokens")),
                         (_ADDED_TOKENS, list(contents[_ADDED_TOKENS])),
                         (TOKENIZER_CONFIG, config.get("added_tokens_decoder")),
                         (TOKENIZER_CONFIG, config.get("additional_special_tokens")),
                         (TOKENIZER_CONFIG, config.get("never_split")),
                         (SPECIAL_TOKENS_MAP, special_tokens.get("additional_special_tokens"))):
        settings.added.extend((token, os.path.join(directory, name)) for token in _contents(tokens))
    return settings


def find_class_problem(name, general=False):
    """Returns the reason why a tokenizer_class is not supported, as a clause for messages; None for a
    supported class.

    Args:
      name: value of tokenizer_class, or None.
      general: whether the model has a tokenizer.json, which defines the behaviour of the classes in
        `_GENERAL_CLASSES`.
    """
    plain = name.removesuffix("Fast") if isinstance(name, str) else name
    if name is None or plain in _WORDPIECE_CLASSES or general and name in _GENERAL_CLASSES:
        return None
    return (f"tokenizer_class={json.dumps(name)}, which is not supported; "
            f"the supported classes are {', '.join(_WORDPIECE_CLASSES)}.")


def _contents(tokens):
    """Yields the texts of tokens.

    Args:
      tokens: list of tokens, or dict with tokens as values. A token is a str, or an object whose "content" is
        a str. Other values are skipped.
    """
    for token in tokens.values() if isinstance(tokens, dict) else tokens if isinstance(tokens, list) else ():
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            yield content
