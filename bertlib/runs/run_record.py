"""Compares a run with the earlier training in its output directory, and writes run.json, the record of the
training.

A run that continues a training must have the same task, labels, vocabulary and model as the training.
Otherwise, this module refuses the run. Settings and training data may differ, and the record lists these
differences. docs/reference/output.md describes run.json.
"""

import os
from typing import NamedTuple

from absl import logging

from bertlib.runs import file_names, learning_curve, model_files, record_comparison, record_content
from bertlib.system import files


class _Comparison(NamedTuple):
    """What a run changes in its output directory, according to the comparison with an earlier training.

    Attributes:
      training: the `OutputDirectory` with whose record the run was compared.
      decision: the `record_comparison.Decision`.
      to_write: names of the model's files to write.
      to_remove: names of the model's files to remove.
      model_files: {name: fingerprint} of the model's files afterwards.
    """

    training: object
    decision: record_comparison.Decision
    to_write: list
    to_remove: list
    model_files: dict


class RunRecord:
    """The record of a run. Call `check_continuation` before the run writes a file, and `write` after all
    checks."""

    def __init__(self, settings, num_train_steps, last_step, description):
        """Creates the record of a run. Writes no file.

        Args:
          settings: a `Settings`.
          num_train_steps: number of steps of the learning rate's schedule.
          last_step: the step at which the training ends, unless early stopping ends it before.
          description: the `record_content.Description` of the run.
        """
        self._settings, self._output_dir, self._do_train = settings, settings.output_dir, settings.do_train
        self._last_step = last_step
        if self._do_train and settings.early_stopping_evals is not None:
            stopped = learning_curve.find_early_stop(settings)
            self._last_step = last_step if stopped is None else stopped
        self._now = {**record_content.create_record(settings, description),
                     "planned_steps": num_train_steps, "finished_step": None}
        self._contents = {} if not self._do_train else {**model_files.model_file_contents(
            settings, description.config, description.labels), **description.more_files}
        self._comparison = None  # the result of `check_continuation`
        self._written = None  # the content of run.json, after `write`

    @property
    def data(self):
        """Returns {name: value}, a description of the data, the model and the task. All replicas must have
        the same description. All values can be written as JSON."""
        data = {name: self._now[name] for name in ("command", "task", "labels", "vocabulary", "train_data",
                                                   "bert_config")}
        return {**data, **{name: self._now[name] and self._now[name]["fingerprint"]
                           for name in ("init_checkpoint", "task_module")}}

    def check_continuation(self):
        """Compares the run with the record of the weights that it uses, and with the model's files in
        --output_dir. Logs the differences.

        Raises:
          ValueError: the run cannot continue the training in the directory.
        """
        training = self._settings.evaluated_training or self._settings.output_directory
        self._comparison = self._compared_with(training)

    def _compared_with(self, training):
        """Returns the `_Comparison` with the `OutputDirectory` of the weights; see `check_continuation`."""
        stored = training.record or {}
        decision = record_comparison.compare(training.record, self._now, training.step, self._last_step,
                                             self._do_train)
        if training.latest_checkpoint and training.record:
            self._refuse_other_training(decision, training)
            self._log_changes(decision, training)
        elif training.latest_checkpoint:
            _log_missing_record(decision, training)
        recorded, to_write, to_remove = stored.get("model_files", {}), [], []
        gets_first_record = decision.record and not stored
        if decision.has_steps_left or gets_first_record:
            to_write, to_remove = model_files.list_changed_files(self._output_dir, self._contents, recorded)
        elif stored:  # a user may have removed some of the files
            to_write = [name for name in self._contents
                        if not files.exists(os.path.join(self._output_dir, name))]
        kept = {name: value for name, value in recorded.items() if name not in to_remove}
        written = model_files.hash_contents({name: self._contents[name] for name in to_write})
        return _Comparison(training, decision, to_write, to_remove, {**kept, **written})

    def _refuse_other_training(self, decision, training):
        """Raises a ValueError if --output_dir contains a training that the run cannot continue. Exception: if
        the weights are in another directory, the head and the vocabulary were compared already.

        Args:
          decision: a `record_comparison.Decision`.
          training: the `OutputDirectory` of the weights, with a record.
        """
        if decision.refused and training.path == self._output_dir:
            raise ValueError(
                f"--output_dir={self._output_dir} contains a training that this run cannot continue. "
                f"According to {file_names.RECORD} there ({_name_training(training.record)}), these values "
                f"differ: {record_comparison.format_differences(decision.refused)}. Use another "
                "--output_dir, or remove the checkpoints in this directory.")

    def _log_changes(self, decision, training):
        """Logs what has changed since the training. See `_refuse_other_training` for the arguments."""
        stored, step, name = training.record, training.step, _name_training(training.record)
        if self._do_train and not decision.has_steps_left:
            logging.info("%s was trained to step %d by %s.", self._output_dir, step, name)
        if decision.evaluations:
            effect = ("Later commands use the last weights"
                      if decision.record["settings"]["keep_best"] is None else
                      "The best weights are chosen again among the earlier evaluations")
            logging.warning("%s: no steps are left to train. %s, because these settings have changed: %s.",
                            self._output_dir, effect,
                            record_comparison.format_differences(decision.evaluations))
        if decision.dev_data:
            is_same_path = record_comparison.dev_paths(stored) == record_comparison.dev_paths(self._now)
            (logging.warning if is_same_path else logging.info)(
                "The development data differ from those of the training in %s: %s. So the metrics of this "
                "evaluation cannot be compared with those of the training.", training.path,
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
                        training.path, name, effect, record_comparison.format_differences(decision.changed))

    def write(self):
        """Writes the model's files, and the record if it is new or changed. If the training starts from step
        0, also removes the learning curve of an earlier training. If the run does not train, writes only
        evaluated_model.json, into a --results_dir without run.json. The caller must hold the locks of the
        directories.

        Raises:
          ValueError: since `check_continuation`, another run wrote to the directory, and this run cannot
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
        training, seen = self._settings.output_directory, self._comparison.training
        if (training.latest_checkpoint, training.record) != (seen.latest_checkpoint, seen.record):
            self._comparison = self._compared_with(training)
        comparison = self._comparison
        for name in comparison.to_write:
            files.write_bytes(training.join(name), self._contents[name])
        curve_files = () if training.latest_checkpoint else learning_curve.FILES
        for name in (*comparison.to_remove, *curve_files):
            if files.exists(training.join(name)):
                files.remove(training.join(name))
        record = comparison.decision.record or training.record
        if record is None:
            return
        if comparison.decision.has_steps_left:
            dev_data = self._now["dev_data"]
            if dev_data is None and training.latest_checkpoint and training.record:
                # A session without evaluations does not change which development set the last evaluations
                # used.
                dev_data = training.record["dev_data"]
            named = {name: path for name, path in self._now["files"].items() if path}
            record = {**record, "planned_steps": self._now["planned_steps"], "finished_step": None,
                      "dev_data": dev_data,
                      "files": {**record["files"], **named}}  # later evaluations read these files
        self._written = {**record, "model_files": comparison.model_files}
        if self._written != training.record:
            training.write_record(self._written)

    def warn_of_old_weights(self):
        """Logs a warning at the end of a run that could train no step with its changed settings or data."""
        decision = self._comparison.decision
        if self._do_train and decision.changed and not decision.has_steps_left:
            logging.warning("Nothing was trained. All results are those of the earlier training, without the "
                            "new values of %s. To train with them, pass another --output_dir.",
                            ", ".join(decision.changed))

    def mark_finished(self):
        """Records in run.json that the training has ended, at the step of the newest checkpoint. Call this
        method only if the training was neither killed nor terminated. Does nothing if this process did not
        call `write`."""
        training = self._settings.output_directory
        step = training.step or 0
        if self._written and self._written["finished_step"] != step:
            training.write_record({**self._written, "finished_step": step})


def _name_training(record):
    """Returns the name of a recorded training for messages."""
    return f"{record['command']} on {record['task']}, started {record['started']}"


def _log_missing_record(decision, training):
    """Logs that a directory with checkpoints has no record, and what the run does with these checkpoints. See
    `RunRecord._refuse_other_training` for the arguments."""
    if decision.has_steps_left:
        log, effect = logging.warning, (
            f" It continues this training from step {training.step}. To train no step, pass "
            f"--max_steps={training.step}.")
    elif decision.record:
        log, effect = logging.info, (
            " No step is left to train. The run writes the files that later commands need.")
    else:
        log, effect = logging.info, ""
    log("%s has no %s, so this run cannot be compared with the training of the checkpoints in this "
        "directory.%s", training.path, file_names.RECORD, effect)
