"""The content of run.json: what a run records about itself, and what replicas must have in common.

docs/reference/output.md describes the fields.
"""

import datetime
import importlib.util
import json
import os
import sys
from typing import NamedTuple

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, hugging_face_cache
from bertlib.graph import lazy_tensorflow as tf
from bertlib.runs import entries, environment, record_format
from bertlib.system import files, fingerprints, replica_group

# Messages show at most this number of characters of a value.
_SHORT = 60
# If a training reads more files than this number, run.json contains no fingerprints of single files. It
# still contains the fingerprint of all training data together.
_MOST_FILES = 100


# --- Fingerprints ----------------------------------------------------------------------------------------


def hash_checkpoint(path):
    """Returns the fingerprint of a checkpoint; None if the checkpoint does not exist or cannot be read."""
    try:
        checkpoint = checkpoint_formats.open_checkpoint(path)
        if checkpoint.format == "hugging_face":
            is_file = checkpoint.path.endswith(".safetensors")
            paths = ([checkpoint.path] if is_file
                     else checkpoint_files.list_by_ending(checkpoint.path, ".safetensors"))
        else:
            # Only the index file is hashed. It contains the checksum of each tensor, so it changes if a
            # weight changes.
            paths = [checkpoint.path + ".index"]
        return fingerprints.hash_files(paths)["fingerprint"]
    except (OSError, ValueError, tf.errors.OpError):
        return None


def hash_inputs(inputs):
    """Returns {absolute path: entry of `fingerprints.hash_files`} for the data files that a command reads.
    The dict is empty if the command reads more than `_MOST_FILES` files. For `inputs`, see `Description`.
    """
    paths = sorted({files.absolute(path) for paths in inputs.values() for path in paths
                    if files.exists(path) and not files.is_directory(path) and not files.is_special(path)})
    if len(paths) > _MOST_FILES:
        return {}
    return {path: {name: value for name, value in fingerprints.hash_files([path]).items() if name != "files"}
            for path in paths}


# --- The content of the record ---------------------------------------------------------------------------


class Description(NamedTuple):
    """The parts of a record that depend on the task.

    Attributes:
      command: file name of the command, such as "run_squad.py".
      task: name of the task. A run with a different task cannot continue the training.
      task_type: name of the target, see `bertlib.tasks.target`.
      labels: list of str, in the order of the model's outputs; None if the model has no labels.
      config: the `modeling.BertConfig`, or the `hub_encoder.EncoderModule`. Its `to_dict` is recorded.
      tokenizer: the tokenizer; None if the run reads no text.
      vocabulary: the fingerprint of the vocabulary if the run reads no text.
      inputs: the data files that a training reads, {name of a flag: list of paths}.
      train_data: see `data_splits.data_fields`; None if the run does not train.
      dev_data: see `data_splits.data_fields`; None if the run evaluates nothing.
      dev_rows: see `dev_split.DevRows`.
      task_module: see `task_module.load`.
      trim_padding: whether batches of the training are trimmed.
      settings: {name: value} of further settings. They replace the values of the flags of the same name.
      more_files: {name: content in bytes} of further files that the training writes, in addition to the
        result of `model_files.model_file_contents`.
    """

    command: str
    task: str
    task_type: str
    config: object
    trim_padding: bool
    labels: list | None = None
    tokenizer: object = None
    vocabulary: str | None = None
    inputs: dict = {}
    train_data: dict | None = None
    dev_data: dict | None = None
    dev_rows: dict | None = None
    task_module: dict | None = None
    settings: dict = {}
    more_files: dict = {}


def create_record(settings, description):
    """Returns the record of a run as a dict that can be written as JSON.

    Args:
      settings: a `Settings`.
      description: the `Description` of the run.
    """
    tokenizer, init_checkpoint = description.tokenizer, settings.init_checkpoint
    vocabulary = fingerprints.hash_tokens(tokenizer.vocab) if tokenizer else description.vocabulary
    shaping = settings.entries(entries.INPUT, entries.TASK, entries.WEIGHTS)
    recorded = {entry.name: getattr(settings, entry.name) for entry in settings.entries()
                if entry.is_recorded
                or (entry in shaping and entry.name not in record_format.AT_TOP and not entry.is_path)}
    if "num_replicas" in recorded:
        group = replica_group.current()
        # The total number of replicas is recorded instead of the value of --num_replicas, because the flag
        # may be 0, or may count only the replicas of one machine.
        recorded["num_replicas"] = group.count if group else 1
    record = {
        "format": record_format.RECORD_FORMAT,
        "started": datetime.datetime.now().astimezone().isoformat(" ", "seconds"),
        "from_step": 0,
        "command": description.command,
        "task": description.task,
        "task_type": description.task_type,
        "labels": description.labels,
        "vocabulary": vocabulary,
        "train_data": description.train_data,
        "dev_data": description.dev_data,
        "dev_rows": description.dev_rows,
        "task_module": description.task_module,
        "do_lower_case": settings.do_lower_case if vocabulary else None,
        "bert_config": description.config.to_dict(),
        "init_checkpoint": init_checkpoint and {
            "path": _absolute(init_checkpoint), "fingerprint": hash_checkpoint(init_checkpoint),
            **hugging_face_cache.describe_snapshot(init_checkpoint)},
        "settings": {**recorded, "trim_padding": description.trim_padding, **description.settings},
        "files": {entry.name: _absolute(getattr(settings, entry.name)) for entry in shaping
                  if entry.is_path and entry.name != "init_checkpoint"},
        "versions": environment.versions(),
        "flags": {entry.name: getattr(settings, entry.name) for entry in settings.entries()
                  if settings.is_given(entry.name)},
        "arguments": sys.argv[1:],
        "working_directory": os.getcwd(),
        "inputs": hash_inputs(description.inputs),
        "code": _hash_code(getattr(sys.modules["__main__"], "__file__", None)),
        "environment": environment.describe(),
        "model_files": {},
        "changes": [],
    }
    return json.loads(files.json_text(record))


def check_replicas_agree(group, settings, data):
    """Checks that all replicas have the same flags, versions, code and data.

    Args:
      group: the `replica_group.Group`.
      settings: a `Settings`.
      data: {name: description or fingerprint of the replica's data}. All values can be written as JSON.

    Raises:
      ValueError: replicas differ. The message names the differences.
    """
    def short(value):
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({fingerprints.hash_texts([text])[:8]})"

    flags = {f"--{entry.name}": getattr(settings, entry.name) for entry in settings.entries()
             if entry.category != entries.MACHINE and not entry.is_path}
    fingerprints.check_same_code(group)
    values = {**flags, **data, **environment.versions(), "the code": _hash_code()}
    group.check_equal({name: short(value) for name, value in values.items()},
                      "Start all replicas with the same flags, data and code.")


def _hash_code(script=None):
    """Returns the fingerprint of the package `bertlib`, of the modules `modeling`, `optimization` and
    `tokenization`, and of a script.

    Args:
      script: path of the script; None to leave it out. Replicas compare their scripts separately, with
        `fingerprints.check_same_code`.
    """
    paths = [importlib.util.find_spec(module).origin
             for module in ("modeling", "optimization", "tokenization")]
    # A console script of pip is left out. It only calls the command.
    paths += [script] if script and script.endswith(".py") and files.exists(script) else []
    return fingerprints.hash_texts([fingerprints.hash_package(), *map(files.read_bytes, paths)])


def _absolute(path):
    """Returns the absolute path of an existing local file, so that a command in another working directory
    finds the file. Returns other paths unchanged."""
    return files.absolute(path) if path and files.exists(path) else path
