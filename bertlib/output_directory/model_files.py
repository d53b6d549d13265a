"""The files with which an output directory explains itself: the model's configuration, its vocabulary, what
its tokenizer does besides, and the names of its labels. Of a training with --dev_fraction also dev_rows.txt.

A training writes them before its first step (`run_record.RunRecord`), each whole or not at all. What somebody
else put there under these names is never replaced.
"""

import hashlib
import json
import os

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import tokenizer_files
from bertlib.output_directory.output_files import CONFIG, DEV_ROWS, LABELS, NAMES, SENTENCE_PIECES, VOCABULARY
from bertlib.system import files
import modeling

# Flags whose file may be the one that would be written: its content is the same then.
FILE_FLAGS = ("bert_config_file", "vocab_file", "spm_model_file")


def model_file_contents(settings, config, labels=None):
    """Returns what explains a run, {name: content in bytes}.

    Args:
      settings: a `Settings`; of a command that sees no text it may lack a vocabulary.
      config: a `modeling.BertConfig`; anything else, as of a hub module, is left out.
      labels: list of str in the order of the model's outputs, or None.
    """
    found = {}
    if isinstance(config, modeling.BertConfig):
        found[CONFIG] = _json(_published_settings(config))
    for flag, name in (("vocab_file", VOCABULARY), ("spm_model_file", SENTENCE_PIECES)):
        if flag in settings and getattr(settings, flag):
            found[name] = files.read_bytes(getattr(settings, flag))
            found[tokenizer_files.CONFIG] = _json(_tokenizer(settings, config, flag))
    if labels is not None and not any("\n" in label for label in labels):
        found[LABELS] = format_labels(labels)
    return found


def format_labels(labels):
    """Returns the content of a labels.txt in bytes."""
    return "".join(f"{label}\n" for label in labels).encode()


def _published_settings(config):
    """The settings that a published configuration has, of a `modeling.BertConfig`: a dict."""
    known = modeling.BertConfig(vocab_size=1).to_dict()
    return {name: value for name, value in config.to_dict().items() if name in known}


def _tokenizer(settings, config, flag):
    """What a tokenizer_config.json says of a run's tokenizer, a dict."""
    said = tokenizer_files.read(tokenizer_directories(settings, getattr(settings, flag)))
    found = {name: value for name, (value, _) in said.options.items()}
    if settings.do_lower_case is not None:
        found["do_lower_case"] = settings.do_lower_case
    if flag == "spm_model_file":
        return found
    added = sorted(tokenizer_files.added_tokens(said))
    length = getattr(config, "max_position_embeddings", None)
    return {"tokenizer_class": "BertTokenizer", **found, **({"additional_special_tokens": added} if added
                                                            else {}),
            **({"model_max_length": length} if length else {})}


def tokenizer_directories(settings, path):
    """Returns the directories whose files say what a run's tokenizer does; `path` is its vocabulary."""
    start = settings.init_checkpoint if "init_checkpoint" in settings else None
    return [os.path.dirname(path), *([checkpoint_formats.directory_of_checkpoint(start)] if start else [])]


def _json(content):
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def hash_contents(wanted):
    """Returns {name: fingerprint} of {name: content}."""
    return {name: hashlib.blake2b(content, digest_size=16).hexdigest() for name, content in wanted.items()}


def list_changed_files(directory, wanted, ours):
    """Compares what a directory has with what it should have.

    Args:
      directory: the output directory.
      wanted: see `model_file_contents`.
      ours: {name: fingerprint} of what an earlier training there wrote; only this is replaced.

    Returns:
      (names of the files to write, names of those to remove).

    Raises:
      ValueError: somebody else's file would be replaced, or be taken for the model's.
    """
    there = {name: files.read_bytes(os.path.join(directory, name)) for name in (*NAMES, DEV_ROWS)
             if files.exists(os.path.join(directory, name))}
    of_ours = {name for name, value in hash_contents(there).items() if ours.get(name) == value}
    changed = [name for name, content in wanted.items()
               if name not in there or not _is_same_content(name, there[name], content)]
    theirs = [name for name in changed if name in there and name not in of_ours]
    if SENTENCE_PIECES in wanted and VOCABULARY in set(there) - of_ours:
        theirs.append(VOCABULARY)  # which would be read in its place
    if theirs:
        raise ValueError(f"--output_dir={directory} has {' and '.join(theirs)} of something else than this "
                         f"run, which would write its own there. Use another directory, or take "
                         "that away.")
    return changed, sorted(of_ours - set(wanted))


def list_missing_files(directory, wanted):
    """Returns the names of `model_file_contents` that a directory lacks."""
    return [name for name in wanted if not files.exists(os.path.join(directory, name))]


def _is_same_content(name, before, after):
    """Whether two contents of a file mean the same."""
    if before == after or name in (VOCABULARY, SENTENCE_PIECES, LABELS, DEV_ROWS):
        return before == after
    try:
        before, after = (json.loads(content.decode("utf-8-sig")) for content in (before, after))
    except (ValueError, RecursionError):
        return False
    if not isinstance(before, dict):
        return False
    if name == CONFIG:
        return _published_settings(modeling.BertConfig.from_dict(before)) == after
    # Of a tokenizer; other keys are of no effect.
    return all(before.get(key) == value for key, value in after.items()
               if key not in ("tokenizer_class", "model_max_length"))


def write(directory, wanted, names):
    """Writes the files of some names; see `model_file_contents`."""
    for name in names:
        files.write_bytes(os.path.join(directory, name), wanted[name])


def remove(directory, names):
    """Removes the files of some names."""
    for name in names:
        files.remove(os.path.join(directory, name))
