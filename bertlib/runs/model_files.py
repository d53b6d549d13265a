"""Makes the contents of the files that describe a model, compares them with the files in a directory, and
writes them.

A training writes these files atomically before its first step (`run_record.RunRecord`). A file with one of
these names (`output_files.NAMES`) is replaced only if a training wrote it.
"""

import json
import os

from bertlib.checkpoints.bert_config import BertConfig
from bertlib.runs import tokenizer_files
from bertlib.runs.output_files import (
    CONFIG,
    LABELS,
    MORE_NAMES,
    NAMES,
    SENTENCE_PIECES,
    VOCABULARIES,
    VOCABULARY,
)
from bertlib.runs.vocabularies import markers, tokenizer_directories
from bertlib.system import files, fingerprints


def model_file_contents(settings, config, labels=None):
    """Returns {name: content in bytes} of the files that describe a model.

    Args:
      settings: a `Settings`. It contains no vocabulary if the command reads no text.
      config: a `modeling.BertConfig`, or the configuration of a hub module. The configuration of a hub module
        has a different class, and is not written.
      labels: list of str in the order of the model's outputs, or None.
    """
    contents = {}
    if isinstance(config, BertConfig):
        contents[CONFIG] = format_json(published_settings(config))
    for flag, name in VOCABULARIES.items():
        if flag in settings and getattr(settings, flag):
            contents[name] = tokenizer_files.vocabulary_content(getattr(settings, flag), markers(settings))
            contents[tokenizer_files.CONFIG] = format_json(tokenizer_content(settings, config, flag))
    if labels is not None and not any("\n" in label for label in labels):
        contents[LABELS] = format_labels(labels)
    return contents


def format_labels(labels):
    """Returns the content of labels.txt as bytes."""
    return "".join(f"{label}\n" for label in labels).encode()


def published_settings(config):
    """Returns a dict of the settings in a `modeling.BertConfig` that published configurations also have."""
    known = BertConfig(vocab_size=1).to_dict()
    return {name: value for name, value in config.to_dict().items() if name in known}


def tokenizer_content(settings, config, flag):
    """Returns a dict, the content of tokenizer_config.json for the tokenizer of a run."""
    tokenizer_settings = tokenizer_files.read(tokenizer_directories(settings, getattr(settings, flag)))
    options = {name: value for name, (value, _) in tokenizer_settings.options.items()}
    if settings.do_lower_case is not None:
        options["do_lower_case"] = settings.do_lower_case
    if flag == "spm_model_file":
        return options
    added = sorted({*tokenizer_files.added_tokens(tokenizer_settings), *markers(settings)})
    length = getattr(config, "max_position_embeddings", None)
    return {"tokenizer_class": "BertTokenizer", **options,
            **({"additional_special_tokens": added} if added else {}),
            **({"model_max_length": length} if length else {})}


def format_json(content):
    """Returns a JSON object as bytes, in the form in which it is written to a file."""
    return (files.json_text(content, indent=2, sort_keys=True) + "\n").encode()


def hash_contents(contents):
    """Returns the fingerprints of files as {name: fingerprint}, given {name: content in bytes}."""
    return {name: fingerprints.hash_bytes(content) for name, content in contents.items()}


def list_changed_files(directory, contents, recorded):
    """Compares the files in a directory with the files that a run would write.

    Args:
      directory: the output directory.
      contents: the run's files, see `model_file_contents`.
      recorded: {name: fingerprint} of the files that an earlier training wrote into the directory. Only files
        with these fingerprints are replaced.

    Returns:
      (names of the files to write, names of the files to remove).

    Raises:
      ValueError: the directory contains a file that no training wrote. The training would replace this file,
        or later commands would use it as the model's vocabulary.
    """
    existing = {name: files.read_bytes(os.path.join(directory, name)) for name in (*NAMES, *MORE_NAMES)
                if files.exists(os.path.join(directory, name))}
    replaceable = {name for name, value in hash_contents(existing).items() if recorded.get(name) == value}
    changed = [name for name, content in contents.items()
               if name not in existing or not _is_same_content(name, existing[name], content)]
    foreign = [name for name in changed if name in existing and name not in replaceable]
    if SENTENCE_PIECES in contents and VOCABULARY in set(existing) - replaceable:
        foreign.append(VOCABULARY)  # later commands would use this file instead of the SentencePiece model
    if foreign:
        names = " and ".join(foreign)
        raise ValueError(f"--output_dir={directory} contains {names}, which this training did not write. In "
                         "an output directory, files with these names belong to the trained model. Use "
                         f"another directory, or move {names} to another place.")
    return changed, sorted(replaceable - set(contents))


def _is_same_content(name, before, after):
    """Returns whether two contents of a file have the same meaning, like two JSON texts that differ only in
    white space."""
    if before == after or name in (VOCABULARY, SENTENCE_PIECES, LABELS, *MORE_NAMES):
        return before == after
    try:
        before, after = (json.loads(content.decode("utf-8-sig")) for content in (before, after))
    except (ValueError, RecursionError):
        return False
    if not isinstance(before, dict):
        return False
    if name == CONFIG:
        return published_settings(BertConfig.from_dict(before)) == after
    # The file is tokenizer_config.json. Keys that are only in the old content are ignored, because they have
    # no effect.
    return all(before.get(key) == value for key, value in after.items()
               if key not in ("tokenizer_class", "model_max_length"))


def write(directory, contents, names):
    """Writes files into a directory.

    Args:
      directory: the output directory.
      contents: {name: content in bytes}.
      names: names of the files to write.
    """
    for name in names:
        files.write_bytes(os.path.join(directory, name), contents[name])


def remove(directory, names):
    """Removes those of the files with these names that a directory contains."""
    for path in (os.path.join(directory, name) for name in names):
        if files.exists(path):
            files.remove(path)
