"""Writes run.json, the record of the training in an output directory, and compares later runs with the
record.

A run that continues a training must have the same task, labels, vocabulary and model as the training.
Otherwise, this module refuses the run. Settings and training data may differ, and the record lists these
differences. docs/reference/output.md describes run.json.
"""

import datetime
import importlib.util
import json
import os
import sys
from typing import NamedTuple

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats, hugging_face_cache
from bertlib.graph import lazy_tensorflow as tf
from bertlib.runs import (
    curve_table,
    entries,
    environment,
    file_names,
    model_files,
    record_comparison,
    record_format,
)
from bertlib.system import files, fingerprints, replica_group

# Messages show at most this number of characters of a value.
_SHORT = 60
# Names of flags that are recorded if batches are trimmed. These flags set the number of micro-batches, and
# with trimming the dropout masks depend on this number. See `_count_micro_batches`.
_SPLITTING = {"gradient_accumulation_steps", "tokens_per_micro_batch", "num_replicas"}
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
      train_data: see `split_data.describe`; None if the run does not train.
      dev_data: see `split_data.describe`; None if the run evaluates nothing.
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
    splitting = _SPLITTING if description.trim_padding else ()
    shaping = settings.entries(entries.INPUT, entries.TASK, entries.WEIGHTS)
    recorded = {entry.name: getattr(settings, entry.name) for entry in settings.entries()
                if entry.is_recorded or entry.name in splitting
                or entry in shaping and entry.name not in record_format.AT_TOP and not entry.is_path}
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
             if entry.affects != entries.MACHINE and not entry.is_path}
    fingerprints.check_replicas_agree(group)
    values = {**flags, **data, **environment.versions(), "the code": _hash_code()}
    group.check_equal({name: short(value) for name, value in values.items()},
                      "Start all replicas with the same flags, data and code.")


def _hash_code(script=None):
    """Returns the fingerprint of the package `bertlib`, of the modules `modeling`, `optimization` and
    `tokenization`, and of a script.

    Args:
      script: path of the script; None to leave it out. Replicas compare their scripts separately, with
        `fingerprints.check_replicas_agree`.
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


# --- Checking and writing --------------------------------------------------------------------------------


class _Comparison(NamedTuple):
    """What a run changes in its output directory, according to the comparison with an earlier training.

    Attributes:
      opened: the `OutputDirectory` with whose record the run was compared.
      decision: the `record_comparison.Decision`.
      changed: names of the model's files to write.
      stale: names of the model's files to remove.
      model_files: {name: fingerprint} of the model's files afterwards.
    """

    opened: object
    decision: record_comparison.Decision
    changed: list
    stale: list
    model_files: dict


class RunRecord:
    """The record of a run. The constructor compares the run with the files in the output directory. The
    method `write` writes the record, and must be called after all other checks."""

    def __init__(self, settings, num_train_steps, last_step, description):
        """Compares the run with the record and the model's files in --output_dir, and logs the differences.

        Args:
          settings: a `Settings`.
          num_train_steps: number of steps of the learning rate's schedule.
          last_step: the step at which the training ends, unless early stopping ends it before.
          description: the `Description` of the run.

        Raises:
          ValueError: the run cannot continue the training in the directory.
        """
        self._settings, self._output_dir, self._do_train = settings, settings.output_dir, settings.do_train
        self._last_step = last_step
        if self._do_train and settings.early_stopping_evals is not None:
            stopped = curve_table.find_early_stop(settings)
            self._last_step = last_step if stopped is None else stopped
        self._now = {**create_record(settings, description), "planned_steps": num_train_steps,
                     "finished_step": None}
        self._contents = {} if not self._do_train else {**model_files.model_file_contents(
            settings, description.config, description.labels), **description.more_files}
        self._written = None  # the content of run.json, after `write`
        self._comparison = self._compare(settings.evaluated_training or settings.output_directory)

    @property
    def data(self):
        """Returns {name: value}, a description of the data, the model and the task. All replicas must have
        the same description. All values can be written as JSON."""
        data = {name: self._now[name] for name in ("command", "task", "labels", "vocabulary", "train_data",
                                                   "bert_config")}
        return {**data, **{name: self._now[name] and self._now[name]["fingerprint"]
                           for name in ("init_checkpoint", "task_module")}}

    def _compare(self, opened):
        """Compares the run first with the record of the weights, and then with the model's files in the
        output directory. Logs the differences.

        Args:
          opened: the `OutputDirectory` of the weights.

        Returns:
          a `_Comparison`.
        """
        stored = opened.record or {}
        decision = record_comparison.compare(opened.record, self._now, opened.step, self._last_step,
                                             self._do_train)
        if opened.newest:
            self._check_and_log(decision, opened)
        recorded, changed, stale = stored.get("model_files", {}), [], []
        if decision.has_steps_left or decision.record and not stored:
            changed, stale = model_files.list_changed_files(self._output_dir, self._contents, recorded)
        elif stored:  # a user may have removed some of the files
            changed = [name for name in self._contents
                       if not files.exists(os.path.join(self._output_dir, name))]
        kept = {name: value for name, value in recorded.items() if name not in stale}
        written = model_files.hash_contents({name: self._contents[name] for name in changed})
        return _Comparison(opened, decision, changed, stale, {**kept, **written})

    def _check_and_log(self, decision, opened):
        """Raises a ValueError if the run cannot continue the training; otherwise logs what has changed.

        Args:
          decision: a `record_comparison.Decision`.
          opened: the `OutputDirectory` of the weights.
        """
        if not opened.record:
            continues = (f" It continues this training from step {opened.step}. To train no step, pass "
                         f"--max_steps={opened.step}." if decision.has_steps_left else
                         " No step is left to train. The run writes the files that later commands need."
                         if decision.record else "")
            (logging.warning if decision.has_steps_left else logging.info)(
                "%s has no %s, so this run cannot be compared with the training of the checkpoints in this "
                "directory.%s", opened.path, file_names.RECORD, continues)
            return
        shown, stored, step = record_comparison.format_differences, opened.record, opened.step
        name = f"{stored['command']} on {stored['task']}, started {stored['started']}"
        # Other checks compare a head or a vocabulary with --init_checkpoint.
        if decision.refused and opened.path == self._output_dir:
            raise ValueError(
                f"--output_dir={self._output_dir} contains a training that this run cannot continue. "
                f"According to {file_names.RECORD} there ({name}), these values differ: "
                f"{shown(decision.refused)}. Use another --output_dir, or remove the checkpoints in "
                "this directory.")
        if self._do_train and not decision.has_steps_left:
            logging.info("%s was trained to step %d by %s.", self._output_dir, step, name)
        if decision.evaluations:
            effect = ("Later commands use the last weights"
                      if decision.record["settings"]["keep_best"] is None else
                      "The best weights are chosen again among the earlier evaluations")
            logging.warning("%s: no steps are left to train. %s, because these settings have changed: %s.",
                            self._output_dir, effect, shown(decision.evaluations))
        if decision.dev_data:
            is_same_path = record_comparison.dev_paths(stored) == record_comparison.dev_paths(self._now)
            (logging.warning if is_same_path else logging.info)(
                "The development data differ from those of the training in %s: %s. So the metrics of this "
                "evaluation cannot be compared with those of the training.", opened.path,
                " -> ".join(decision.dev_data))
        if not decision.changed:
            return
        if decision.has_steps_left:
            effect = (f"The training continues from step {step} with changed settings. To train from the "
                      "start, pass another --output_dir")
        elif self._do_train:
            effect = ("No steps are left to train, so the results are those of the earlier training. For a "
                      "training with the new values, pass another --output_dir")
        else:
            effect = "The weights were trained with other settings"
        logging.warning("%s contains the training of %s. %s. Trained value -> value of this run: %s.",
                        opened.path, name, effect, shown(decision.changed))

    def write(self):
        """Writes the model's files, and the record if it is new or changed. If the training starts from step
        0, also removes the learning curve of an earlier training. If the run does not train, writes only
        evaluated_model.json, into a --results_dir without run.json. The caller must hold the locks of the
        directories.

        Raises:
          ValueError: since this object was created, another run wrote to the directory, and this run cannot
            continue the training of that run.
        """
        results = self._settings.results_directory
        if not self._do_train:
            if not files.exists(results.record_path):
                files.write_json(results.join(file_names.EVALUATED), {
                    "output_dir": self._output_dir, **{name: self._now[name] for name in (
                        "command", "task", "task_type", "labels", "settings", "files")}})
            return
        self._settings.reopen()
        opened, seen = self._settings.output_directory, self._comparison.opened
        if (opened.newest, opened.record) != (seen.newest, seen.record):
            self._comparison = self._compare(opened)
        found = self._comparison
        for name in found.changed:
            files.write_bytes(opened.join(name), self._contents[name])
        for name in found.stale if opened.newest else [*found.stale, *curve_table.FILES]:
            if files.exists(opened.join(name)):
                files.remove(opened.join(name))
        record = found.decision.record or opened.record
        if record is None:
            return
        if found.decision.has_steps_left:
            dev_data = self._now["dev_data"]
            if dev_data is None and opened.newest and opened.record:
                # A session without evaluations does not change which development set the last evaluations
                # used.
                dev_data = opened.record["dev_data"]
            named = {name: path for name, path in self._now["files"].items() if path}
            record = {**record, "planned_steps": self._now["planned_steps"], "finished_step": None,
                      "dev_data": dev_data,
                      "files": {**record["files"], **named}}  # later evaluations read these files
        self._written = {**record, "model_files": found.model_files}
        if self._written != opened.record:
            opened.write_record(self._written)

    def mark_finished(self):
        """Records in run.json that the training has ended, at the step of the newest checkpoint. Call this
        method only if the training was neither killed nor terminated. Does nothing if this process did not
        call `write`."""
        opened = self._settings.output_directory
        step = opened.step or 0
        if self._written and self._written["finished_step"] != step:
            opened.write_record({**self._written, "finished_step": step})
