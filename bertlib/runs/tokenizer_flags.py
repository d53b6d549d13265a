"""Loads the tokenizer of a run, computes fingerprints of vocabularies, and checks that the pre-training and
the fine-tuning use the same vocabulary.

The fingerprint of the vocabulary is stored in each run.json. A run is refused if its vocabulary differs from
the stored vocabulary: other entries, or another order. `pretraining_records` compares the vocabulary with the
manifest of the records.
"""

import io
import os

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import entries, tokenizer_files
from bertlib.runs.input_paths import require_file
from bertlib.system import fingerprints
from bertlib.system.files import read_json_object
import tokenization

_FLAGS = ("vocab_file", "spm_model_file")


def hash_vocabulary(path, flag="vocab_file", markers=()):
    """Returns the fingerprint of the tokens of a vocabulary.

    Args:
      path: the vocabulary's file.
      flag: name of its flag, "vocab_file" or "spm_model_file".
      markers: list of str, the value of --marker_tokens.

    Raises:
      ValueError: the file is not a SentencePiece model, or a vocab.txt is not UTF-8.
    """
    if flag == "spm_model_file":
        return fingerprints.hash_tokens(tokenization.SentencePieceTokenizer(path).vocab)
    try:
        content = tokenizer_files.vocabulary_content(path, markers)
        return fingerprints.hash_tokens(tokenization.load_vocab(io.BytesIO(content)))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a vocabulary, because it is not UTF-8: {error}. Restore the "
                         "file.") from None


def markers(settings):
    """Returns --marker_tokens as a list of str; [] without this flag, or if the command does not have it."""
    value = settings.get("marker_tokens")
    return value.split(",") if value else []


# --- The vocabulary of the starting weights --------------------------------------------------------------


def check_against_start(settings, path, flag):
    """Checks that a vocabulary is the vocabulary of the training that wrote --init_checkpoint. Does nothing
    if no record describes this training, or if the run uses a checkpoint in --output_dir instead.

    Args:
      settings: a `Settings`.
      path: the vocabulary's file.
      flag: name of its flag, "vocab_file" or "spm_model_file".

    Raises:
      ValueError: the two vocabularies differ in their entries, or in the order of the entries.
    """
    training = None if settings.output_directory.latest_checkpoint else settings.earlier_training
    recorded = training.record["vocabulary"] if training and training.record else None
    # The training may have had the same --marker_tokens, or this run adds them to its vocabulary.
    accepted = [hash_vocabulary(path, flag, added) for added in ((), markers(settings))]
    if recorded not in (None, *accepted):
        raise ValueError(
            f"--{flag}={path} differs from the vocabulary of --init_checkpoint={settings.init_checkpoint}: "
            f"other entries, or another order. {training.record_path} records the vocabulary of the "
            "checkpoint. With the other vocabulary, tokens would get the vectors of other tokens. Pass the "
            f"vocabulary in {training.path}.")


# --- The tokenizer of a command -------------------------------------------------------------------------


def tokenizer_directories(settings, path):
    """Returns the directories that contain the files of a run's tokenizer. These are the directory of the
    vocabulary and the directory of --init_checkpoint.

    Args:
      settings: a `Settings`.
      path: the vocabulary's file.
    """
    start = settings.get("init_checkpoint")
    return [os.path.dirname(path), *([checkpoint_formats.directory_of_checkpoint(start)] if start else [])]


def check_vocabulary(settings, config):
    """Checks the vocabulary that the flags name, for a command that reads no text, and adds rows for its
    markers to a configuration. Does nothing if the flags name no vocabulary.

    Args:
      settings: a `Settings`.
      config: the `BertConfig`, see `grow_vocab_size`.

    Raises:
      ValueError, FileNotFoundError: the vocabulary is missing, does not fit the configuration, or is not the
        vocabulary of --init_checkpoint.
    """
    flag = given_flag(settings)
    if flag:
        path = require_file(settings, flag)
        if flag == "vocab_file":
            grow_vocab_size(config, tokenizer_files.load_vocabulary(path, markers(settings),
                                                                     config.vocab_size))
        else:
            tokenization.SentencePieceTokenizer(path, vocab_size=config.vocab_size)
        check_against_start(settings, path, flag)


def grow_vocab_size(config, vocab):
    """Raises the `vocab_size` of a `BertConfig` to the number of entries of a vocabulary, which is larger if
    markers were appended. `vocab` is {token: id}."""
    config.vocab_size = max(config.vocab_size, max(vocab.values()) + 1)


def given_flag(settings, flags=_FLAGS):
    """Returns the name of the flag that names the vocabulary; None if no flag does.

    Raises:
      ValueError: two flags name a vocabulary, or a SentencePiece model would need markers.
    """
    given = [name for name in flags if getattr(settings, name) is not None]
    if len(given) > 1:
        raise ValueError("--vocab_file and --spm_model_file exclude each other: pass only the flag for the "
                         "vocabulary of the model.")
    if given == ["spm_model_file"] and markers(settings):
        raise ValueError(f"--marker_tokens={settings.marker_tokens} needs --vocab_file: the pieces of a "
                         "SentencePiece model cannot be changed. Train the SentencePiece model with "
                         f"--user_defined_symbols={settings.marker_tokens} (in lower case for an uncased "
                         "model), and leave --marker_tokens out.")
    return given[0] if given else None


def load_tokenizer(settings, vocab_size=None, flags=_FLAGS):
    """Returns the tokenizer that --do_lower_case and --vocab_file (or --spm_model_file) describe. First
    checks that these flags fit the configuration and the checkpoint.

    Args:
      settings: a `Settings`.
      vocab_size: see `tokenizer_files.load_vocabulary`.
      flags: names of the flags that may name the vocabulary.

    Returns:
      a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.

    Raises:
      ValueError, FileNotFoundError: the vocabulary is missing or does not fit, or flags contradict the files
        of the model.
    """
    flag = given_flag(settings, flags)
    if flag is None:
        raise ValueError("--vocab_file or --spm_model_file is required.")
    path = require_file(settings, flag)
    pieces = flag == "spm_model_file"
    init_checkpoint = settings.get("init_checkpoint")
    if init_checkpoint:
        check_against_start(settings, path, flag)
    tokenizer_settings = tokenizer_files.read(tokenizer_directories(settings, path))
    lower, source = tokenizer_settings.options.get("do_lower_case", (None, None))
    resolve_flag(settings, "do_lower_case", lower, source)
    if init_checkpoint:
        tokenization.validate_case_matches_checkpoint(settings.do_lower_case, init_checkpoint)
    if not pieces:
        _check_supported(settings, tokenizer_settings)
    tokenizer = tokenizer_files.create_tokenizer(
        tokenizer_settings, path, pieces, settings.do_lower_case,
        settings.get("protect_special_tokens"), vocab_size, markers(settings))
    if not (pieces or source) and settings.do_lower_case and not settings.is_given("do_lower_case"):
        _check_reachable(path, tokenizer)
    return tokenizer


def resolve_flag(settings, name, value, source):
    """If a flag was not given, sets it to the value in a file of the model or of the records.

    Args:
      settings: a `Settings`.
      name: the flag.
      value: the value in the file; None if the file has no such value.
      source: name of the file, for messages.

    Raises:
      ValueError: the flag was given, and its value differs from `value`.
    """
    now = getattr(settings, name)
    if value is None or value == now:
        return
    if settings.is_given(name):
        now, value = map(entries.flag_text, (now, value))
        raise ValueError(f"--{name}={now}, but {source} says {name}={value}. Pass --{name}={value}, or leave "
                         "the flag out.")
    settings.set_default(name, value, f"the value in {source}")


def _check_supported(settings, tokenizer_settings):
    """Raises a ValueError if the files of a tokenizer contain settings that this project does not implement.
    With such settings, the tokens of this project would differ from the tokens of the original tokenizer."""
    problems = list(dict.fromkeys(tokenizer_settings.problems))
    config = settings.get("bert_config_file")
    wrong_class = config and tokenizer_files.find_class_problem(
        read_json_object(config).get("tokenizer_class"), general=True)
    if wrong_class:
        problems.append(f"{config} says {wrong_class}")
    if problems:
        raise ValueError("This project cannot produce the tokens of the model's tokenizer:\n"
                         + "\n".join(f"  {problem}" for problem in problems) + "\nUse another model. If a "
                         "value in one of these files is wrong, correct it.")


# Some words of a vocabulary cannot occur in lower-cased texts, for example the word "Paris". If the share of
# these words is above this value, the vocabulary is refused.
_MAX_UNREACHABLE = 0.1


def _check_reachable(path, tokenizer):
    """Checks that the default, --do_lower_case=true, suits a vocabulary: most words of the vocabulary must be
    able to occur in lower-cased texts.

    Args:
      path: the vocabulary's file.
      tokenizer: its `tokenization.FullTokenizer`.

    Raises:
      ValueError: the share of the words that cannot occur in lower-cased texts is larger than
        `_MAX_UNREACHABLE`.
    """
    normalize = tokenizer.basic_tokenizer.normalize
    words = [token for token in tokenizer.vocab if not (token.startswith("[") and token.endswith("]"))]
    lost = [token for token in words if normalize(token) != token]
    if len(lost) <= _MAX_UNREACHABLE * len(words):
        return
    raise ValueError(f"--do_lower_case was not given and is true by default, but {len(lost)} of the "
                     f"{len(words)} words in {path}, such as {', '.join(lost[:3])}, never occur in "
                     "lower-cased text without accents. For a cased model, pass --do_lower_case=false. For a "
                     'lower-cased model with accents, write {"strip_accents": false} into '
                     f"{tokenizer_files.TOKENIZER_CONFIG} in the directory of the vocabulary. If lower case "
                     "is right for this model, pass --do_lower_case=true.")
