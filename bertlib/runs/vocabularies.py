"""One vocabulary, from the records of a pre-training to what starts from its weights.

Its fingerprint is in the manifest of the records and in each run.json. A vocabulary with other entries, or
with the same in another order, is refused.
"""

import os

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import model_files, output_files, tokenizer_files
from bertlib.runs import run_record
from bertlib.runs.settings import require_file
from bertlib.system import files
from bertlib.system.files import read_json_object
from bertlib.tasks.pretraining import pretraining_stream
import tokenization

_FLAGS = ("vocab_file", "spm_model_file")


def fingerprint(path, flag):
    """Returns the fingerprint of the vocabulary that a flag names, see `output_files.hash_vocabulary`."""
    return output_files.hash_vocabulary(path, pieces=flag == "spm_model_file")


# --- Of weights that a run starts from -------------------------------------------------------------------


def _record_of_start(settings):
    """Returns (path of run.json, the record) of the training that --init_checkpoint comes from; two times
    None if there is none, or if its weights are not used."""
    start = settings.init_checkpoint if "init_checkpoint" in settings else None
    goes_on = "output_dir" in settings and settings.output_dir and checkpoint_formats.latest_checkpoint(
        settings.output_dir)
    if not start or goes_on or not run_record.is_training_checkpoint(start):
        return None, None
    directory = checkpoint_formats.directory_of_checkpoint(start)
    record = output_files.read_record(directory)
    return (os.path.join(directory, output_files.RECORD), record) if record else (None, None)


def check_against_start(settings, path, flag):
    """Checks that a vocabulary is that of the training that --init_checkpoint comes from.

    Args:
      settings: a `Settings`.
      path: of the vocabulary.
      flag: the name of the flag that is about it.

    Raises:
      ValueError: it has other entries, or has them in another order.
    """
    record_path, record = _record_of_start(settings)
    if record is None or record.get("vocabulary") in (None, fingerprint(path, flag)):
        return
    theirs = _recorded_path(record)
    instead = f"Pass --{theirs[1]}={theirs[0]}" if theirs else "Pass the file that the training had"
    raise ValueError(
        f"--{flag}={path}: these are not the entries, in their order, of the vocabulary with which "
        f"--init_checkpoint={settings.init_checkpoint} was trained, says {record_path}. A token would get "
        f"the vector of another one. {instead}.")


def find_starting_vocabulary(settings):
    """Returns (path, flag) of the vocabulary that the training of --init_checkpoint names in its run.json, if
    it is still there and unchanged; else None."""
    _, record = _record_of_start(settings)
    return _recorded_path(record) if record else None


def _recorded_path(record):
    """(path, flag) of the vocabulary that a record names, if it is still the one that it was; else None."""
    for flag in _FLAGS:
        path = (record.get("files") or {}).get(flag)
        if path and files.exists(path) and not files.is_directory(path):
            try:
                if fingerprint(path, flag) == record.get("vocabulary"):
                    return path, flag
            except ValueError:
                pass  # not even text: something else has taken its place
    return None


# --- Of records that a pre-training reads ----------------------------------------------------------------


def resolve_from_records(settings, paths):
    """Takes the vocabulary of a pre-training from the manifest of its records, or checks it against that.

    Fills in --vocab_file or --spm_model_file, if the file that the manifest names is still the one that the
    records were made with, and --do_lower_case.

    Args:
      settings: a `Settings` of a pre-training.
      paths: list of files of records.

    Returns:
      the vocabulary's fingerprint, as run.json has it; None if it is not known.

    Raises:
      ValueError: the records were made with another vocabulary than the flags name, or with two.
    """
    manifests = pretraining_stream.read_manifests(paths)
    _check_one(manifests)
    path, flag = next(((getattr(settings, flag), flag) for flag in _FLAGS if getattr(settings, flag)),
                      (None, None))
    if not manifests:
        return fingerprint(path, flag) if path else None
    where, manifest = manifests[0]
    made_with, said = manifest["settings"]["vocabulary"], manifest.get("vocabulary") or {}
    if path and _hash_tokens(path, flag) != made_with:
        known = f", {said['path']}" if said else ""
        raise ValueError(
            f"--{flag}={path}: these are not the entries, in their order, of the vocabulary that the records "
            f"were made with{known}, says {where}. Pass that one, or make the records again with this one.")
    resolve_lower_case(settings, manifest["settings"].get("do_lower_case"), f"the records' manifest {where}")
    if path is None and said and files.exists(said["path"]) and _hash_tokens(**said) == made_with:
        settings.set_default(said["flag"], said["path"], f"the records were made with it, says {where}")
        path, flag = said["path"], said["flag"]
    return fingerprint(path, flag) if path else said.get("fingerprint")


def _check_one(manifests):
    """Raises a ValueError if manifests, [(path, manifest)], are of more than one vocabulary."""
    for where, manifest in manifests[1:]:
        for name, words in (("vocabulary", "vocabularies"), ("do_lower_case", "letter cases")):
            if manifest["settings"].get(name) != manifests[0][1]["settings"].get(name):
                raise ValueError(f"{manifests[0][0]} and {where} say that their records were made with two "
                                 f"{words}. Train on records of one, or make the others again.")


def _hash_tokens(path, flag, **_):
    """The fingerprint of a vocabulary as a manifest has it; None of a file that is none."""
    try:
        tokenizer = tokenization.SentencePieceTokenizer(path) if flag == "spm_model_file" else None
        return pretraining_stream.hash_vocabulary(tokenizer.vocab if tokenizer else
                                                  tokenization.load_vocab(path))
    except ValueError:
        return None


def manifest_entry(path, flag):
    """Returns what the manifest of records says of their vocabulary, a dict."""
    return {"path": os.path.abspath(path) if not files.is_remote(path) else path, "flag": flag,
            "fingerprint": fingerprint(path, flag)}


# --- The tokenizer of a command -------------------------------------------------------------------------


def check_vocabulary(settings, config):
    """Checks the vocabulary of a command that sees no text, if it was given one."""
    if settings.vocab_file and settings.spm_model_file:
        raise ValueError(_BOTH_VOCABULARIES)
    if settings.vocab_file:
        tokenization.check_vocab(require_file(settings, "vocab_file"), config.vocab_size)
    if settings.spm_model_file:
        tokenization.SentencePieceTokenizer(require_file(settings, "spm_model_file"),
                                            vocab_size=config.vocab_size)
    for flag in ("vocab_file", "spm_model_file"):
        if getattr(settings, flag):
            check_against_start(settings, getattr(settings, flag), flag)


_BOTH_VOCABULARIES = ("--vocab_file and --spm_model_file exclude each other: pass the one that came with the "
                      "model.")


def load_tokenizer(settings, config=None):
    """Checks --vocab_file or --spm_model_file, and --do_lower_case, against the configuration and the
    checkpoint.

    Args:
      config: the `BertConfig`; None leaves the size of the vocabulary open.

    Returns:
      a `tokenization.FullTokenizer` or `tokenization.SentencePieceTokenizer`.
    """
    names = [name for name in ("vocab_file", "spm_model_file") if getattr(settings, name) is not None]
    if len(names) != 1:
        raise ValueError(_BOTH_VOCABULARIES if names else "--vocab_file or --spm_model_file is required.")
    path = require_file(settings, names[0])
    vocab_size = None if config is None else config.vocab_size
    if names == ["vocab_file"]:
        tokenization.check_vocab(path, vocab_size)
    check_against_start(settings, path, names[0])
    init_checkpoint = settings.init_checkpoint if "init_checkpoint" in settings else None
    said = tokenizer_files.read(model_files.tokenizer_directories(settings, path))
    lower, source = said.options.pop("do_lower_case", (None, None))
    resolve_lower_case(settings, lower, source)
    tokenization.validate_case_matches_checkpoint(settings.do_lower_case, init_checkpoint)
    never_split = tokenization.SPECIAL_TOKENS if settings.protect_special_tokens else ()
    if names == ["spm_model_file"]:
        return tokenization.SentencePieceTokenizer(path, settings.do_lower_case, never_split, vocab_size)
    _check_supported(settings, said)
    options = {name: value for name, (value, _) in said.options.items()}
    tokenizer = tokenization.FullTokenizer(path, settings.do_lower_case,
                                           (*never_split, *_added_tokens(said, path)), **options)
    if settings.do_lower_case and source is None and not settings.is_given("do_lower_case"):
        _check_reachable(path, tokenizer)
    return tokenizer


def resolve_lower_case(settings, lower, source):
    """Takes --do_lower_case from a source that says it, or checks it against that.

    Args:
      settings: a `Settings`.
      lower: the value there; None if there is none.
      source: the file, or in words.

    Raises:
      ValueError: the flag was given, and is not that value.
    """
    if lower is None or lower == settings.do_lower_case:
        return
    if settings.is_given("do_lower_case"):
        value = str(lower).lower()
        raise ValueError(f"--do_lower_case={str(settings.do_lower_case).lower()}, but {source} says "
                         f"do_lower_case={value}. Pass --do_lower_case={value}, or leave the flag out.")
    settings.set_default("do_lower_case", lower, f"{source} says so")


def _check_supported(settings, said):
    """Checks that files of a tokenizer ask for nothing that would make other tokens than ours."""
    problems = list(dict.fromkeys(said.problems))
    config = settings.bert_config_file if "bert_config_file" in settings else None
    wrong_class = config and tokenizer_files.find_class_problem(
        read_json_object(config).get("tokenizer_class"), general=True)
    if wrong_class:
        problems.append(f"{config} says {wrong_class}")
    if problems:
        raise ValueError("The model's tokenizer makes other tokens than the one here:\n"
                         + "\n".join(f"  {problem}" for problem in problems) + "\nTake another model; or if "
                         "a file is wrong, correct it.")


def _added_tokens(said, path):
    """What files of a tokenizer keep whole in a text, besides the special tokens."""
    known = {*tokenization.SPECIAL_TOKENS, *tokenization.load_vocab(path)}
    for token, file in said.added:
        if token not in known:
            raise ValueError(f"{file} adds the token {token!r}, which {path} does not have: texts with it "
                             "would become other tokens. Add it to that file, in the line after its id, or "
                             "remove it here.")
    return tokenizer_files.added_tokens(said)


# The largest share of a vocabulary that may be unreachable for the case that is taken by default.
_MAX_UNREACHABLE = 0.1


def _check_reachable(path, tokenizer):
    """Checks that the lower case, which nobody asked for, suits the vocabulary: that texts can have most of
    its entries."""
    normalize = tokenizer.basic_tokenizer.normalize
    words = [token for token in tokenizer.vocab if not (token.startswith("[") and token.endswith("]"))]
    lost = [token for token in words if normalize(token) != token]
    if len(lost) <= _MAX_UNREACHABLE * len(words):
        return
    accents = sum(token == token.lower() for token in lost) > len(lost) / 2
    advice = ("they have accents, which go with the upper case. Pass --do_lower_case=false for a cased model;"
              ' for a lower-cased one that has accents write {"strip_accents": false} into '
              "tokenizer_config.json beside the vocabulary" if accents else
              "it is probably a cased model's. Pass --do_lower_case=false")
    raise ValueError(f"--do_lower_case was not given and is true, with which no text has {len(lost)} of the "
                     f"{len(words)} words in {path}, such as {', '.join(lost[:3])}: {advice}; or pass "
                     "--do_lower_case=true if it is right all the same.")
