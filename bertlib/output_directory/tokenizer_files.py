"""What the files of a Hugging Face model say about its tokenizer: what ours has to do, and what it cannot.

In a directory tokenizer_config.json goes before tokenizer.json, and special_tokens_map.json before neither:
it says nothing else.
"""

import os
from typing import NamedTuple

from bertlib.system import files
import tokenization

CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP = "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json"
_ADDED_TOKENS = "added_tokens.json"
NAMES = (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP, _ADDED_TOKENS)
# Classes whose tokens are those of BERT's, each with "Fast" after it or not.
_WORDPIECE_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer")
# Classes that do what tokenizer.json says.
_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Their name of a special token, and the one that the scripts put around and in place of text.
_SPECIAL_NAMES = {f"{token[1:-1].lower()}_token": token for token in tokenization.SPECIAL_TOKENS}
# Options of `tokenization.FullTokenizer`, and the parts of tokenizer.json that say the same.
_OPTIONS = {"do_lower_case": ("normalizer", "lowercase"), "strip_accents": ("normalizer", "strip_accents"),
            "tokenize_chinese_chars": ("normalizer", "handle_chinese_chars"),
            "max_input_chars_per_word": ("model", "max_input_chars_per_word")}


class TokenizerSettings(NamedTuple):
    """What files say.

    options: {name: (value, the file that says so)} of arguments of `tokenization.FullTokenizer`. added:
    [(token, file)], what is to be kept whole in a text besides the special tokens. problems: sentences on
    what no tokenizer here does.
    """

    options: dict
    added: list
    problems: list


def read(directories):
    """Reads the tokenizer's files in some directories; returns what they `TokenizerSettings` together.

    Raises:
      ValueError: one is not JSON, or two of different directories contradict each other.
    """
    said = TokenizerSettings({}, [], [])
    for directory in dict.fromkeys(directory.rstrip("/") or directory for directory in directories):
        here = _read(directory)
        for name, (value, path) in here.options.items():
            before, first = said.options.setdefault(name, (value, path))
            if before != value:
                raise ValueError(f"{first} says {name}={_text(before)}, and {path} {name}={_text(value)}. "
                                 "Take the vocabulary and the checkpoint of one and the same model.")
        said.added.extend(here.added)
        said.problems.extend(here.problems)
    return said


def merge_settings(directory):
    """Returns what a tokenizer_config.json alone has to say for all of a directory's files, a dict."""
    config, tokenizer, special_tokens = map(_reader(directory), (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP))
    found = {name: tokenizer.get(part, {}).get(key) for name, (part, key) in _OPTIONS.items()
             if isinstance(tokenizer.get(part), dict) and key in tokenizer[part]}
    found.update((name, special_tokens[name]) for name in _SPECIAL_NAMES if name in special_tokens)
    added = added_tokens(_read(directory))
    return {**found, **config, **({"additional_special_tokens": added} if added else {})}


def added_tokens(said):
    """Returns the tokens that files keep whole besides the special ones, each once."""
    return [token for token in dict.fromkeys(token for token, _ in said.added)
            if token not in tokenization.SPECIAL_TOKENS]


def _reader(directory):
    """Returns a function of a file's name that gives its JSON object, empty without the file."""
    def read_file(name):
        path = os.path.join(directory, name)
        return files.read_json_object(path) if files.exists(path) and not files.is_directory(path) else {}
    return read_file


def _read(directory):
    config, tokenizer, special_tokens, added = map(_reader(directory), (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP,
                                                                        _ADDED_TOKENS))
    places = {name: os.path.join(directory, name) for name in (CONFIG, TOKENIZER, SPECIAL_TOKENS_MAP)}
    said = TokenizerSettings({}, [], [])
    for name, (part, key) in _OPTIONS.items():
        if name in config:
            said.options[name] = config[name], places[CONFIG]
        elif isinstance(tokenizer.get(part), dict) and key in tokenizer[part]:
            said.options[name] = tokenizer[part][key], places[TOKENIZER]
    for name, (value, path) in list(said.options.items()):
        wanted = _describe_option(name, value)
        if wanted:
            said.problems.append(f"{path} says {name}={_text(value)}; it should be {wanted}.")
            del said.options[name]
    said.problems.extend(f"{places[CONFIG]} says {problem}"
                         for problem in _problems_of_config(config, tokenizer))
    said.problems.extend(f"{places[TOKENIZER]} says {problem}"
                         for problem in _problems_of_tokenizer(tokenizer))
    for name, found in ((SPECIAL_TOKENS_MAP, special_tokens), (CONFIG, config)):
        said.problems.extend(f"{places[name]} says {problem}" for problem in _find_renamed_tokens(found))
    for name, found in ((TOKENIZER, tokenizer.get("added_tokens")), (_ADDED_TOKENS, list(added)),
                        (CONFIG, config.get("added_tokens_decoder")),
                        (CONFIG, config.get("additional_special_tokens")),
                        (CONFIG, config.get("never_split")),
                        (SPECIAL_TOKENS_MAP, special_tokens.get("additional_special_tokens"))):
        said.added.extend((token, os.path.join(directory, name)) for token in _contents(found))
    return said


def _describe_option(name, value):
    """What an option should be, in words, if it is not."""
    if name == "max_input_chars_per_word":
        return None if type(value) is int and value > 0 else "a positive integer"
    if name == "strip_accents":
        return None if value is None or isinstance(value, bool) else "true, false or null"
    return None if isinstance(value, bool) else "true or false"


def find_class_problem(name, general=False):
    """What is wrong with a tokenizer_class, in words, or None.

    Args:
      name: the class; None if none is said.
      general: whether a tokenizer.json says what a class that takes all from there does.
    """
    plain = name.removesuffix("Fast") if isinstance(name, str) else name
    if name is None or plain in _WORDPIECE_CLASSES or general and name in _GENERAL_CLASSES:
        return None
    return (f"tokenizer_class={_text(name)}, which is not supported; "
            f"supported are {', '.join(_WORDPIECE_CLASSES)}.")


def _problems_of_config(config, tokenizer):
    wrong_class = find_class_problem(config.get("tokenizer_class"), bool(tokenizer))
    if wrong_class:
        yield wrong_class
    if config.get("do_basic_tokenize", True) is not True:
        yield (f"do_basic_tokenize={_text(config['do_basic_tokenize'])}, which is not supported: text is "
               "split at punctuation marks.")


def _problems_of_tokenizer(tokenizer):
    """What of a tokenizer.json no tokenizer here does."""
    supported = (("normalizer", "type", "BertNormalizer"), ("normalizer", "clean_text", True),
                 ("pre_tokenizer", "type", "BertPreTokenizer"), ("model", "type", "WordPiece"),
                 ("model", "continuing_subword_prefix", tokenization.CONTINUATION),
                 ("model", "unk_token", "[UNK]"))
    for part, key, only in supported:
        if part not in tokenizer:
            continue
        found = tokenizer[part]
        value = found.get(key, only) if isinstance(found, dict) else found
        if value != only:
            yield f"{part}: {key}={_text(value)}, which is not supported, only {_text(only)}."


def _find_renamed_tokens(found):
    """Special tokens that have other names than the scripts give them."""
    for name, ours in _SPECIAL_NAMES.items():
        theirs = next(iter(_contents([found[name]])), None) if found.get(name) is not None else ours
        if theirs != ours:
            yield f"{name}={_text(theirs)}; here it is {_text(ours)}, and nothing else is supported."


def _contents(tokens):
    """Yields the texts of tokens, of which each may be an object with "content" or a text; a dict has them as
    values."""
    for token in tokens.values() if isinstance(tokens, dict) else tokens if isinstance(tokens, list) else ():
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            yield content


def _text(value):
    return {True: "true", False: "false", None: "null"}.get(value, value) if isinstance(
        value, bool | None) else repr(value)
