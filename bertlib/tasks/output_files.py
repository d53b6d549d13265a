"""What a training leaves in its output directory that says what the model there is: names and contents."""

import json
import os

from bertlib.runtime import files
from bertlib.tasks import tokenizer_files

CONFIG, VOCABULARY, SENTENCE_PIECES, LABELS = "bert_config.json", "vocab.txt", "spm.model", "labels.txt"
NAMES = (CONFIG, VOCABULARY, SENTENCE_PIECES, tokenizer_files.CONFIG, LABELS)
# The rows that a training of --dev_fraction is evaluated on.
DEV_ROWS = "dev_rows.txt"
RECORD = "run.json"
RECORD_FORMAT = 1
# What trained a head, by the command, where an older record does not say its kind.
_OF_COMMANDS = {"run_ner.py": "tagging", "run_squad.py": "questions", "run_pretraining.py": "pre-training"}


def labels_in(directory):
    """Returns the labels that a directory's labels.txt has (list of str), or None without that file.

    Raises:
      ValueError: there are none, or one twice.
    """
    path = os.path.join(directory, LABELS)
    if not files.exists(path):
        return None
    labels = files.read_bytes(path).decode("utf-8").split("\n")[:-1]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{path} should have a different label in each line. Restore it.")
    return labels


def read_record(directory):
    """Returns the record in an output directory, a dict; None if there is none.

    Raises:
      ValueError: the file is damaged, or of a later version.
    """
    path = os.path.join(directory, RECORD)
    if not files.exists(path):
        return None
    try:
        found = json.loads(files.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Restore it; or remove it, and what trained the "
                         "checkpoints beside it is no longer known.") from error
    needed = {"format", "task", "labels", "bert_config", "settings", "changes"}
    if not isinstance(found, dict) or needed - set(found) or found["format"] != RECORD_FORMAT:
        raise ValueError(f"{path} is no record of format {RECORD_FORMAT}, the one that this version reads. "
                         "Remove it, and what trained the checkpoints beside it is no longer known.")
    return found


def kind_of(record):
    """Returns the kind of head that a record is about: "classification", "regression", "multilabel",
    "tagging", "questions" or "pre-training"."""
    by_labels = "regression" if record["labels"] is None else "classification"
    return record.get("task_type") or _OF_COMMANDS.get(record.get("command"), by_labels)
