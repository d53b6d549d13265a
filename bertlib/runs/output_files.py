"""Defines the names of the files that describe the model in an output directory. Reads, checks, compares and
writes these files.

These files are the configuration, the vocabulary, the tokenizer settings and the labels. A training with
--dev_fraction also has the file dev_rows.txt. A training with --task_module also has the file task_module.py.
A training writes them atomically before its first step (`run_record.RunRecord`). A file with one of these
names is replaced only if a training wrote it.

In run.json, the rule for a setting is in the table of flags. The setting max_seq_length is also limited by
the model's configuration.
"""

import functools
import io
import json
import os

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.checkpoints.bert_config import BertConfig
from bertlib.runs import entries, targets, tokenizer_files
from bertlib.runs.entries import MAX_INT32, whole_number
from bertlib.system import files, fingerprints
import tokenization

CONFIG, VOCABULARY, SENTENCE_PIECES, LABELS = "bert_config.json", "vocab.txt", "spm.model", "labels.txt"
# {flag of a vocabulary: name of its file in the output directory}.
_VOCABULARIES = {"vocab_file": VOCABULARY, "spm_model_file": SENTENCE_PIECES}
NAMES = (CONFIG, VOCABULARY, SENTENCE_PIECES, tokenizer_files.CONFIG, LABELS)
# Name of the file that lists the development set of --dev_fraction.
DEV_ROWS = "dev_rows.txt"
# Name of the file in the output directory to which the file of --task_module is copied.
TASK_MODULE = "task_module.py"
# Name of the file with a table of the skipped lines (--skip_bad_lines=true).
SKIPPED_LINES = "skipped_lines.csv"
# Each of these flags may name a file that an earlier training wrote to --output_dir. The new training then
# writes the same content to this file again.
FILE_FLAGS = ("bert_config_file", "vocab_file", "spm_model_file", "task_module")
# Names of more files that a training writes, but only if certain flags are set. See `run_record.RunRecord`.
MORE_NAMES = (DEV_ROWS, TASK_MODULE)
RECORD = "run.json"
RECORD_FORMAT = 2
# Keys of a configuration. The values of these keys may differ between two runs, because they do not change
# the architecture.
TRAINING_CONFIG_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
# All keys of a published configuration, and "hub_module", which run_classifier_with_tfhub.py adds. Other
# keys, such as `_name_or_path` in a configuration of Hugging Face, do not change the outputs of the model, so
# their values are not compared.
CONFIG_KEYS = frozenset([*BertConfig(vocab_size=1).to_dict(), "hub_module"])
_RESTORE = "Restore the file, or remove it to continue without a record of the training of these checkpoints."
_SHOWN_CHARACTERS = 60
_TEXT, _COUNT = (str, None), (int, None)
# {field of the record: the form of its value, see `files.has_form`}. Only "sessions" may be missing.
FIELDS = {
    "command": str, "started": str, "from_step": int, "planned_steps": _COUNT, "finished_step": _COUNT,
    "task": str, "task_type": str, "labels": ([str], None), "vocabulary": _TEXT,
    "do_lower_case": (bool, None), "bert_config": dict,
    "init_checkpoint": ({"path": str, "fingerprint": _TEXT}, None),
    "train_data": ({"fingerprint": str}, None), "dev_data": ({"fingerprint": str}, None), "settings": dict,
    "dev_rows": ({"rows": int, "of": int, "fingerprint": str}, None),
    "task_module": ({"name": str, "fingerprint": str, "texts": _COUNT}, None), "files": {"*": _TEXT},
    "versions": {"*": str}, "model_files": {"*": str}, "flags": dict, "working_directory": str, "code": str,
    "arguments": ([str], None), "inputs": ({"*": {"bytes": int, "fingerprint": str}}, None),
    "environment": {"git": (dict, None), "variables": dict},
    "sessions": [{"step": int, "changed": dict}], "changes": [dict],
}
_NUM_REPLICAS = entries.Integer("num_replicas", 1, "", least=1)


def read_labels(directory):
    """Returns the labels in labels.txt of a directory as a list of str; None if the directory has no
    labels.txt.

    Raises:
      ValueError: the file is empty, or contains a label twice.
    """
    path = os.path.join(directory, LABELS)
    if not files.exists(path):
        return None
    labels = files.read_bytes(path).decode("utf-8").split("\n")[:-1]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{path} is empty or contains a label twice. Restore the file.")
    return labels


def read_record(directory):
    """Reads run.json in an output directory, and checks its fields and settings against the rules in
    `FIELDS`. Returns its content as a dict; None if there is no run.json.

    Raises:
      ValueError: the file is damaged, or was written by a later version, or its labels differ from
        labels.txt.
    """
    path = os.path.join(directory, RECORD)
    if not files.exists(path):
        return None
    try:
        record = files.read_json_object(path)
    except ValueError as error:
        raise ValueError(f"{error} {_RESTORE}") from error
    if record.get("format") not in (1, RECORD_FORMAT):
        raise ValueError(f"{path} is not a record of format 1 or {RECORD_FORMAT}, which this version reads. "
                         "Train again, or remove this file to continue without a record of the training of "
                         "these checkpoints.")
    missing = sorted(set(FIELDS) - set(record) - {"sessions"})
    problem = f"it lacks {', '.join(missing)}" if missing else find_problem(record)
    if problem:
        raise ValueError(f"{path} is damaged: {problem}. {_RESTORE}")
    _check_labels(directory, record)
    return _from_format_1(directory, record) if record["format"] == 1 else record


def _from_format_1(directory, record):
    """Converts a record of format 1 into format 2.

    Format 1 had another fingerprint of the vocabulary. It is compared with the vocabulary in the directory,
    or with the file that the record names. If neither is the vocabulary of the training, the fingerprint
    stays, and differs from that of every vocabulary.
    """
    for flag, name in _VOCABULARIES.items():
        for path in (os.path.join(directory, name), record["files"].get(flag)):
            if record["vocabulary"] and _hash_vocabulary_of_format_1(path, flag) == record["vocabulary"]:
                return {**record, "format": RECORD_FORMAT, "vocabulary": hash_vocabulary(path, flag)}
    return {**record, "format": RECORD_FORMAT}


def _hash_vocabulary_of_format_1(path, flag):
    """Returns the fingerprint of a vocabulary in records of format 1; None if the file is missing, or is no
    vocabulary."""
    if not path or not files.exists(path) or files.is_directory(path):
        return None
    try:
        return (fingerprints.hash_files([path])["fingerprint"] if flag == "spm_model_file"
                else fingerprints.hash_texts(tokenization.load_vocab(path)))
    except (ValueError, OSError):
        return None


def find_entries(name, target, command=None):
    """Returns the entries in the table of flags for a recorded setting, a list; see `targets.find_flag`.

    Some settings are not flags: the command has found their values from the data, or has counted all
    replicas. `target` is a class in `bertlib.runs.targets`.
    """
    more = [entry for entry in (_NUM_REPLICAS, *target.more_settings) if entry.name == name]
    return more or targets.find_flag(name, command)


def find_problem(record):
    """Returns a clause that describes the first problem of a record; None if the record obeys all rules.

    Args:
      record: content of run.json, a dict.
    """
    wrong = next((name for name, form in FIELDS.items() if name in record and not files.has_form(
        record[name], form)), None)
    if wrong is None and record["task_type"] not in targets.NAMES:
        wrong = "task_type"
    if wrong:
        return f"{wrong} is {shorten(record[wrong])}"
    settings, config = record["settings"], record["bert_config"]
    target = targets.find(record["task_type"])
    for name, value in settings.items():
        found = find_entries(name, target, record.get("command"))
        if found and not any(entry.accepts(value) for entry in found):
            return _describe_problem(f"settings.{name}", value, found[0].words)
    longest = config.get("max_position_embeddings", MAX_INT32)
    if not whole_number(1).holds(longest):
        return _describe_problem("bert_config.max_position_embeddings", longest, whole_number(1).words)
    if settings.get("max_seq_length", 0) > longest:
        return _describe_problem("settings.max_seq_length", settings["max_seq_length"],
                                 f"at most {longest}, the model's max_position_embeddings")
    if problem := target.find_problem(settings, longest):
        name, words = problem
        return _describe_problem(f"settings.{name}", settings.get(name), words)
    if target.has_labels != bool(record["labels"]):
        words = "a list of texts" if target.has_labels else "null"
        return _describe_problem("labels", record["labels"], f"{words}, since the model is for {target.name}")
    return None


def _describe_problem(name, value, words):
    return f"{name} is {shorten(value)}, and has to be {words}"


def shorten(value):
    """Returns a value as text for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def hash_vocabulary(path, flag="vocab_file", markers=()):
    """Returns the fingerprint of the tokens of a vocabulary.

    Args:
      path: the vocabulary's file.
      flag: name of its flag, "vocab_file" or "spm_model_file".
      markers: see `tokenizer_files.vocabulary_content`.

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


def check_vocabulary(directory, record, path=None):
    """Checks that a vocabulary is the vocabulary with which the model was trained.

    Args:
      directory: the output directory.
      record: see `read_record`.
      path: a vocab.txt; None for the vocabulary in the directory.

    Raises:
      ValueError: the entries of the vocabulary, or their order, differ from the vocabulary of the training.
    """
    pieces, flag = os.path.join(directory, SENTENCE_PIECES), "vocab_file"
    if path is None and files.exists(pieces):
        path, flag = pieces, "spm_model_file"
    path = path or os.path.join(directory, VOCABULARY)
    if files.exists(path) and record.get("vocabulary") not in (None, hash_vocabulary(path, flag)):
        raise ValueError(f"{path} differs from the vocabulary with which the model was trained: other "
                         f"entries, or another order. {os.path.join(directory, RECORD)} records the "
                         "vocabulary of the training. With the other vocabulary, tokens would get the "
                         "vectors of other tokens. Restore the file.")


def check_config(path, config, directory):
    """Checks that a configuration is the configuration with which the model was trained.

    Args:
      path: the configuration's file.
      config: the `modeling.BertConfig` in this file.
      directory: the `OutputDirectory` of the training. Without a record, nothing is checked.

    Raises:
      ValueError: a value that changes the model's outputs differs from the value in run.json.
    """
    trained, now = directory.record["bert_config"] if directory.record else {}, config.to_dict()
    for name in sorted(CONFIG_KEYS & {*trained} & {*now} - {*TRAINING_CONFIG_KEYS}):
        if trained[name] != now[name]:
            is_own = os.path.realpath(directory.path) == os.path.realpath(os.path.dirname(path))
            restore = f"Restore {path}." if is_own else "Pass the configuration of the training."
            raise ValueError(f"{path}: {name} is {json.dumps(now[name])}, but according to "
                             f"{directory.record_path} the model was trained with "
                             f"{json.dumps(trained[name])}. {restore}")


def _check_labels(directory, record):
    """Raises a ValueError if labels.txt and the record differ in their labels, or in the order of the
    labels."""
    labels = read_labels(directory)
    if labels is not None and record["labels"] is not None and labels != record["labels"]:
        raise ValueError(f"{os.path.join(directory, LABELS)} and {os.path.join(directory, RECORD)} differ in "
                         "the labels or in their order, so answers would get the names of wrong labels. "
                         "Restore the file that was changed.")


def check_trained(record, checkpoint):
    """Checks that the weights for an evaluation or a prediction have been trained. Warns once if the training
    of the weights is unfinished.

    A training is finished if it reached its last step. It is also finished if it ended earlier by itself, for
    example because of early stopping. A training that was killed or terminated is not finished.

    Args:
      record: see `read_record`.
      checkpoint: path of the training's weights.

    Raises:
      ValueError: the weights are from step 0, before any training.
    """
    weights = checkpoint_formats.open_checkpoint(checkpoint)
    if "global_step" not in weights.shapes:  # the step is unknown, so it cannot be checked
        return
    step, planned, finished = int(weights.read("global_step")), *map(
        record.get, ("planned_steps", "finished_step"))
    if step == 0:
        raise ValueError(f"{weights.path} is the checkpoint of step 0. Its head is random, because "
                         "no step was trained. Run the training command again, and let it train for some "
                         "steps.")
    if planned is not None and step < planned and (finished is None or step > finished):
        _warn_of_unfinished(weights.path, step, planned)


@functools.cache
def _warn_of_unfinished(path, step, planned):
    logging.warning("%s comes from an unfinished training: step %d of %d. If you run the training command "
                    "again, the training continues from this step.", path, step, planned)


# --- Writing ---------------------------------------------------------------------------------------------


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
    for flag, name in _VOCABULARIES.items():
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


def markers(settings):
    """Returns --marker_tokens as a list of str; [] without this flag, or if the command does not have it."""
    value = settings.marker_tokens if "marker_tokens" in settings else None
    return value.split(",") if value else []


def tokenizer_directories(settings, path):
    """Returns the directories that contain the files of a run's tokenizer. These are the directory of the
    vocabulary and the directory of --init_checkpoint.

    Args:
      settings: a `Settings`.
      path: the vocabulary's file.
    """
    start = settings.init_checkpoint if "init_checkpoint" in settings else None
    return [os.path.dirname(path), *([checkpoint_formats.directory_of_checkpoint(start)] if start else [])]


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
      contents: see `model_file_contents`.
      names: names of the files to write.
    """
    for name in names:
        files.write_bytes(os.path.join(directory, name), contents[name])


def remove(directory, names):
    """Removes those of the files with these names that a directory contains."""
    for path in (os.path.join(directory, name) for name in names):
        if files.exists(path):
            files.remove(path)
