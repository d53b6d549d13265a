"""One vocabulary, from the records of a pre-training to what starts from its weights.

Its fingerprint is in the manifest of the records and in each run.json. A vocabulary with other entries, or
with the same in another order, is refused.
"""

import os

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import output_files
from bertlib.runs import run_record
from bertlib.system import files
from bertlib.tasks.pretraining import pretraining_stream
import tokenization

_FLAGS = ("vocab_file", "spm_model_file")


def fingerprint(path, flag):
    """Returns the fingerprint of the vocabulary that a flag names, see `output_files.of_vocabulary`."""
    return output_files.of_vocabulary(path, pieces=flag == "spm_model_file")


# --- Of weights that a run starts from -------------------------------------------------------------------


def _record_of_start(settings):
    """Returns (path of run.json, the record) of the training that --init_checkpoint comes from; two times
    None if there is none, or if its weights are not used."""
    start = settings.init_checkpoint if "init_checkpoint" in settings else None
    goes_on = "output_dir" in settings and settings.output_dir and checkpoint_formats.latest_checkpoint(
        settings.output_dir)
    if not start or goes_on or not run_record.is_of_training(start):
        return None, None
    directory = checkpoint_formats.directory_of(start)
    record = output_files.read_record(directory)
    return (os.path.join(directory, output_files.RECORD), record) if record else (None, None)


def check_start(settings, path, flag):
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


def of_start(settings):
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


def of_records(settings, paths):
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
    manifests = pretraining_stream.manifests_of(paths)
    _check_one(manifests)
    path, flag = next(((getattr(settings, flag), flag) for flag in _FLAGS if getattr(settings, flag)),
                      (None, None))
    if not manifests:
        return fingerprint(path, flag) if path else None
    where, manifest = manifests[0]
    made_with, said = manifest["settings"]["vocabulary"], manifest.get("vocabulary") or {}
    if path and _of_tokens(path, flag) != made_with:
        known = f", {said['path']}" if said else ""
        raise ValueError(
            f"--{flag}={path}: these are not the entries, in their order, of the vocabulary that the records "
            f"were made with{known}, says {where}. Pass that one, or make the records again with this one.")
    _take_case(settings, manifest, where)
    if path is None and said and files.exists(said["path"]) and _of_tokens(**said) == made_with:
        settings.take_default(said["flag"], said["path"], f"the records were made with it, says {where}")
        path, flag = said["path"], said["flag"]
    return fingerprint(path, flag) if path else said.get("fingerprint")


def _check_one(manifests):
    """Raises a ValueError if manifests, [(path, manifest)], are of more than one vocabulary."""
    for where, manifest in manifests[1:]:
        for name, words in (("vocabulary", "vocabularies"), ("do_lower_case", "letter cases")):
            if manifest["settings"].get(name) != manifests[0][1]["settings"].get(name):
                raise ValueError(f"{manifests[0][0]} and {where} say that their records were made with two "
                                 f"{words}. Train on records of one, or make the others again.")


def _take_case(settings, manifest, where):
    """Takes --do_lower_case from a manifest, or checks it against that."""
    lower = manifest["settings"].get("do_lower_case")
    if not isinstance(lower, bool) or lower == settings.do_lower_case:
        return
    if settings.given("do_lower_case"):
        raise ValueError(f"--do_lower_case={str(settings.do_lower_case).lower()}, but the records were made "
                         f"with do_lower_case={str(lower).lower()}, says {where}. Leave the flag out.")
    settings.take_default("do_lower_case", lower, f"as the records, says {where}")


def _of_tokens(path, flag, **_):
    """The fingerprint of a vocabulary as a manifest has it; None of a file that is none."""
    try:
        tokenizer = tokenization.SentencePieceTokenizer(path) if flag == "spm_model_file" else None
        return pretraining_stream.of_vocabulary(tokenizer.vocab if tokenizer else
                                                tokenization.load_vocab(path))
    except ValueError:
        return None


def for_manifest(path, flag):
    """Returns what the manifest of records says of their vocabulary, a dict."""
    return {"path": os.path.abspath(path) if not files.is_remote(path) else path, "flag": flag,
            "fingerprint": fingerprint(path, flag)}
