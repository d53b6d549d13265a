"""Defines the fields of run.json. Reads the file and checks its values.

The rule for a setting is in the table of flags.
"""

import os

from bertlib.runs import entries, file_names, registry, tokenizer_flags
from bertlib.system import files, fingerprints
import tokenization

RECORD_FORMAT = 2
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
# {flag: key of the record that contains its value}. These flags are not recorded in "settings".
AT_TOP = {"task_name": "task", "task_type": "task_type", "do_lower_case": "do_lower_case"}
_NUM_REPLICAS = entries.Integer("num_replicas", 1, "", least=1)


def read_record(directory):
    """Reads run.json in an output directory, and checks its fields and settings against the rules in
    `FIELDS`. Returns its content as a dict.

    Raises:
      ValueError: the file is damaged, or was written by a later version.
    """
    path = os.path.join(directory, file_names.RECORD)
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
    return _from_format_1(directory, record) if record["format"] == 1 else record


def _from_format_1(directory, record):
    """Converts a record of format 1 into format 2.

    Format 1 had another fingerprint of the vocabulary. It is compared with the vocabulary in the directory,
    or with the file that the record names. If neither is the vocabulary of the training, the fingerprint
    stays, and differs from that of every vocabulary.
    """
    for flag, name in file_names.VOCABULARIES.items():
        for path in (os.path.join(directory, name), record["files"].get(flag)):
            if record["vocabulary"] and _hash_vocabulary_of_format_1(path, flag) == record["vocabulary"]:
                return {**record, "format": RECORD_FORMAT,
                        "vocabulary": tokenizer_flags.hash_vocabulary(path, flag)}
    return {**record, "format": RECORD_FORMAT}


def _hash_vocabulary_of_format_1(path, flag):
    """Returns the fingerprint of a vocabulary in records of format 1; None if the file is missing, or is no
    vocabulary."""
    if not path or not files.exists(path) or files.is_directory(path):
        return None
    try:
        return (fingerprints.hash_file(path) if flag == "spm_model_file"
                else fingerprints.hash_texts(tokenization.load_vocab(path)))
    except (ValueError, OSError):
        return None


def find_entries(name, target, command=None):
    """Returns the entries in the table of flags for a recorded setting, a list; see
    `registry.find_definitions`.

    Some settings are not flags: the command has found their values from the data, or has counted all
    replicas. `target` is a `bertlib.tasks.target.Target`.
    """
    more = [entry for entry in (_NUM_REPLICAS, *target.more_settings) if entry.name == name]
    return more or registry.find_definitions(name, command)


def find_problem(record):
    """Returns a clause that describes the first problem of a record; None if the record obeys all rules.

    Args:
      record: content of run.json, a dict.
    """
    wrong = next((name for name, form in FIELDS.items() if name in record and not files.has_form(
        record[name], form)), None)
    if wrong is None and record["task_type"] not in registry.TARGETS:
        wrong = "task_type"
    if wrong:
        return f"{wrong} is {shorten(record[wrong])}"
    target = registry.find_target(record["task_type"])
    for name, value in record["settings"].items():
        flags = find_entries(name, target, record.get("command"))
        if flags and not any(entry.accepts(value) for entry in flags):
            return _describe_problem(f"settings.{name}", value, flags[0].words)
    if (target.labels is not None) != bool(record["labels"]):
        words = "null" if target.labels is None else "a list of texts"
        return _describe_problem("labels", record["labels"], f"{words}, since the model is for {target.name}")
    return None


def _describe_problem(name, value, words):
    return f"{name} is {shorten(value)}, and has to be {words}"


def shorten(value):
    """Returns a value as text for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
