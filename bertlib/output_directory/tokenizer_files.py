"""Reads the settings of a tokenizer from the files of a Hugging Face model, and finds settings that this
project does not support.

If both tokenizer_config.json and tokenizer.json contain an option, the value in tokenizer_config.json is
used. The file special_tokens_map.json contains only special tokens and no options.
"""

import os
from typing import NamedTuple

from bertlib.system import files
import tokenization

CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP = "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"
_ADDED_TOKENS = "added_tokens.json"
NAMES = (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP, _ADDED_TOKENS)
# Names of tokenizer classes that make the same tokens as BERT's tokenizer. Each name may have the suffix
# "Fast".
_WORDPIECE_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
# Names of tokenizer classes whose behaviour is defined by tokenizer.json alone.
_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Maps Hugging Face's name of a special token to the token, for example "cls_token" to "[CLS]".
_SPECIAL_NAMES = {f"{token[1:-1].lower()}_token": token for token in tokenization.SPECIAL_TOKENS}
# {argument of `tokenization.FullTokenizer`: (part, key)}. tokenizer.json stores the value of the
# argument in this part, under this key.
_OPTIONS = {"do_lower_case": ("normalizer", "lowercase"), "strip_accents": ("normalizer", "strip_accents"),
            "tokenize_chinese_chars": ("normalizer", "handle_chinese_chars"),
            "max_input_chars_per_word": ("model", "max_input_chars_per_word")}


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
                raise ValueError(f"{first} says {name}={_text(before)}, but {path} says "
                                 f"{name}={_text(value)}. Use the vocabulary and the checkpoint of the same "
                                 "model.")
        settings.added.extend(own.added)
        settings.problems.extend(own.problems)
    return settings


def merge_settings(directory):
    """Returns the settings of all tokenizer files in a directory as a dict, in the form of a single
    tokenizer_config.json."""
    config, tokenizer, special_tokens = map(_reader(directory), (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP))
    merged = {name: tokenizer.get(part, {}).get(key) for name, (part, key) in _OPTIONS.items()
              if isinstance(tokenizer.get(part), dict) and key in tokenizer[part]}
    merged.update((name, special_tokens[name]) for name in _SPECIAL_NAMES if name in special_tokens)
    added = added_tokens(_read(directory))
    return {**merged, **config, **({"additional_special_tokens": added} if added else {})}


def added_tokens(settings):
    """Returns the added tokens of a `TokenizerSettings` as a list of str. Duplicates and special tokens are
    left out."""
    return [token for token in dict.fromkeys(token for token, _ in settings.added)
            if token not in tokenization.SPECIAL_TOKENS]


def _reader(directory):
    """Returns a function that takes the name of a file in `directory` and returns the JSON object in this
    file. If the file does not exist, the function returns {}."""
    def read_file(name):
        path = os.path.join(directory, name)
        return files.read_json_object(path) if files.exists(path) and not files.is_directory(path) else {}
    return read_file


def _read(directory):
    """Returns the `TokenizerSettings` of the files in one directory."""
    config, tokenizer, special_tokens, added = map(
        _reader(directory), (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP, _ADDED_TOKENS))
    paths = {name: os.path.join(directory, name) for name in (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP)}
    settings = TokenizerSettings({}, [], [])
    for name, (part, key) in _OPTIONS.items():
        if name in config:
            settings.options[name] = config[name], paths[CONFIG]
        elif isinstance(tokenizer.get(part), dict) and key in tokenizer[part]:
            settings.options[name] = tokenizer[part][key], paths[TOKENIZER]
    for name, (value, path) in list(settings.options.items()):
        rule = _broken_rule(name, value)
        if rule:
            settings.problems.append(f"{path} says {name}={_text(value)}; it should be {rule}.")
            del settings.options[name]
    settings.problems.extend(f"{paths[CONFIG]} says {problem}"
                             for problem in _problems_of_config(config, tokenizer))
    settings.problems.extend(f"{paths[TOKENIZER]} says {problem}"
                             for problem in _problems_of_tokenizer(tokenizer))
    for name, content in ((SPECIAL_TOKENS_MAP, special_tokens), (CONFIG, config)):
        settings.problems.extend(f"{paths[name]} says {problem}" for problem in _find_renamed_tokens(content))
    for name, tokens in ((TOKENIZER, tokenizer.get("added_tokens")), (_ADDED_TOKENS, list(added)),
                         (CONFIG, config.get("added_tokens_decoder")),
                         (CONFIG, config.get("additional_special_tokens")),
                         (CONFIG, config.get("never_split")),
                         (SPECIAL_TOKENS_MAP, special_tokens.get("additional_special_tokens"))):
        settings.added.extend((token, os.path.join(directory, name)) for token in _contents(tokens))
    return settings


def _broken_rule(name, value):
    """Checks the value of the option `name`. Returns None if the value is valid. Otherwise, returns a text
    that describes the valid values, such as "true or false"."""
    if name == "max_input_chars_per_word":
        return None if type(value) is int and value > 0 else "a positive integer"
    if name == "strip_accents":
        return None if value is None or isinstance(value, bool) else "true, false or null"
    return None if isinstance(value, bool) else "true or false"


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
    return (f"tokenizer_class={_text(name)}, which is not supported; "
            f"the supported classes are {', '.join(_WORDPIECE_CLASSES)}.")


def _problems_of_config(config, tokenizer):
    wrong_class = find_class_problem(config.get("tokenizer_class"), bool(tokenizer))
    if wrong_class:
        yield wrong_class
    if config.get("do_basic_tokenize", True) is not True:
        yield (f"do_basic_tokenize={_text(config['do_basic_tokenize'])}, which is not supported: this "
               "project always splits text at punctuation marks.")


def _problems_of_tokenizer(tokenizer):
    """Yields a part of an error message for each setting in tokenizer.json that this project does not
    support."""
    supported = (("normalizer", "type", "BertNormalizer"), ("normalizer", "clean_text", True),
                 ("pre_tokenizer", "type", "BertPreTokenizer"), ("model", "type", "WordPiece"),
                 ("model", "continuing_subword_prefix", tokenization.CONTINUATION),
                 ("model", "unk_token", "[UNK]"))
    for part, key, only in supported:
        if part not in tokenizer:
            continue
        content = tokenizer[part]
        value = content.get(key, only) if isinstance(content, dict) else content
        if value != only:
            yield (f"{part}: {key}={_text(value)}, which is not supported; the only supported value is "
                   f"{_text(only)}.")


def _find_renamed_tokens(content):
    """Yields an error text for each special token whose definition in a JSON object differs from BERT's."""
    for name, supported in _SPECIAL_NAMES.items():
        token = next(iter(_contents([content[name]])), None) if content.get(name) is not None else supported
        if token != supported:
            yield (f"{name}={_text(token)}, which is not supported; the only supported value is "
                   f"{_text(supported)}.")


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


def _text(value):
    """Returns a value as text for messages. True, False and None are written as in JSON, and other values as
    `repr` writes them."""
    return {True: "true", False: "false", None: "null"}.get(value, value) if isinstance(
        value, bool | None) else repr(value)
