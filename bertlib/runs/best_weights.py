"""Keeps the best weights of a training in the directory best/ (--keep_best), and finds them for later
commands.

best/ is itself an output directory: it contains the weights, the files that describe the model, and run.json.
The file best.json names the step, the metric and its value.

If the process is killed at any moment, best/ contains either the earlier best weights or the new best
weights: best.json is replaced atomically, after the weights are written and before earlier weights are
removed.

A killed training continues from its newest checkpoint. It then needs the weights that were the best ones at
the step of this checkpoint, although better weights may have been found later. So these weights are also kept
in best/ until the training ends. Their value is in the table of the evaluations.
"""

import os
import re
from typing import NamedTuple

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.graph import lazy_tensorflow as tf
from bertlib.runs import file_names
from bertlib.runs.record_comparison import CHANGES_SCORES
from bertlib.system import files

DIRECTORY, FILE = "best", "best.json"
# Values of --weights: the best weights that a training has kept, or the weights of its newest checkpoint.
BEST, LAST = "best", "last"
# The form of best.json. Step and value are null as long as there are no best weights.
_FORM = {"metric": str, "first_step": int, "step": (int, None), "value": (int, float, None)}
# A lower value of a metric is better if its name ends in one of these words. For all other metrics, a higher
# value is better.
_LOWER_IS_BETTER = ("loss", "perplexity", "mae", "mse", "rmse", "error", "cost", "brier", "ece")
# Beginnings of the names of metrics that end with a label.
_OF_LABELS = ("eval_f1_", "eval_precision_", "eval_recall_", "eval_auc_", "eval_support_")


def is_lower_better(metric):
    """Returns whether a lower value of a metric is better, according to the last word of its name. The last
    word of a metric of one label, such as eval_f1_LABEL, is the label, and a higher value is better."""
    return not metric.startswith(_OF_LABELS) and metric.rpartition("_")[2] in _LOWER_IS_BETTER


def choose_best(metric, values):
    """Returns the best (step, value) of a list; None if the list is empty. Among equal values, the value of
    the earliest step is the best. The list must not contain values that are NaN or infinite."""
    sign = -1 if is_lower_better(metric) else 1
    return max(values, key=lambda item: (sign * item[1], -item[0]), default=None)


def _first_comparable_step(record):
    """Returns the first step whose evaluation used the same development set, and the same settings of the
    answers, as the current evaluations. Values of earlier steps cannot be compared with new values.

    Args:
      record: dict, the content of run.json; None if there is no record.
    """
    return max((change["step"] + 1 for change in (record or {}).get("changes", ())
                if CHANGES_SCORES.intersection(change.get("changed") or ())
                and type(change.get("step")) is int), default=0)


# --- Reading ---------------------------------------------------------------------------------------------


def read(directory):
    """Returns the description of the best weights of a training.

    Args:
      directory: the output directory of the training.

    Returns:
      dict, the content of best.json, and "checkpoint", the path of the weights. "training" is the start time
      of the training, as in run.json. The best evaluation was chosen among the evaluations of step
      "first_step" and of later steps. The result is None if best/ contains no weights.

    Raises:
      ValueError, OSError: best/ is damaged.
    """
    path = os.path.join(directory, DIRECTORY)
    content = _read_description(path)
    if content is None or content["step"] is None:
        return None
    return {**content, "checkpoint": os.path.join(path, f"model.ckpt-{content['step']}")}


def _read_description(path):
    """Returns the content of best.json in a directory as a dict; None if the file is missing.

    Raises:
      ValueError: the file is damaged.
    """
    name = os.path.join(path, FILE)
    if not files.exists(name):
        return None
    content = files.read_json_object(name)
    if not files.has_form(content, _FORM):
        raise ValueError(f"{name} is damaged. Restore the file, or move {path} to another place.")
    return content


# --- Writing ---------------------------------------------------------------------------------------------


class _Best(NamedTuple):
    """The best evaluation of a training. Step and value are None if best/ has no weights.

    Attributes:
      step, value: int and float, the step and the metric of the evaluation.
      prefix: the checkpoint whose weights must be copied into best/; None if best/ contains the weights.
    """

    step: int | None
    value: float | None
    prefix: str | None = None


class BestWeights:
    """Writes the directory best/ of a training. Only one process at a time may write best/.

    `values` are always a list of (step, value of the metric), the evaluations in the table.

    Attributes:
      first_step: int. The best evaluation is chosen among the evaluations of this step and of later steps.
    """

    def __init__(self, training, metric):
        """Creates the object; writes nothing.

        Args:
          training: the `OutputDirectory` of the training.
          metric: name of the metric by which the best weights are chosen.

        Raises:
          ValueError: best/ belongs to another training, or is damaged.
        """
        self._output_dir, self._metric, self._record = training.path, metric, training.record
        self._path = training.join(DIRECTORY)
        self._content = self._read_own(training.latest_checkpoint)
        self._first_comparable = _first_comparable_step(self._record)
        is_same = self._content is not None and self._content["metric"] == metric
        self.first_step = max(self._content["first_step"] if is_same else 0, self._first_comparable)

    def _read_own(self, checkpoint):
        """Returns the content of best.json; None if there is no best/. `checkpoint` is the newest checkpoint
        of the training, or None."""
        # A training that was killed before it wrote the first best.json leaves best.json.partial. A directory
        # that contains nothing else counts as missing.
        if not files.is_directory(self._path) or not set(tf.gfile.ListDirectory(self._path)) - {
                f"{FILE}.partial"}:
            return None
        content = _read_description(self._path)
        has_started = checkpoint and self._record is not None
        if content is None or not has_started or content.get("training") != self._record["started"]:
            raise ValueError(f"--keep_best: {self._path} was not written by this training. Move {self._path} "
                             "to another place, or use another --output_dir.")
        return content

    def choose(self, values):
        """Returns the best (step, value) that counts; None if there is none. At step 0, the head is not
        trained, so the value does not count."""
        return self._choose_from(self.first_step, values)

    def _choose_from(self, first_step, values):
        return choose_best(self._metric, [item for item in values if item[0] >= max(1, first_step)])

    def plan(self, values, newest_step):
        """Decides which weights are the best ones when a training starts or continues. Writes nothing. If the
        best weights are lost, the following evaluations are not compared with the earlier ones.

        Args:
          values: the evaluations up to the newest checkpoint.
          newest_step: step of the newest checkpoint; None for a new training.

        Returns:
          (the step for the attribute `first_step`, a `_Best`). The second is None if there is no best
          evaluation yet.

        Raises:
          ValueError: best/ contains weights of a different evaluation than the best one in the table, whose
            weights are no longer kept; or the table has no best evaluation.
        """
        best = self.choose(values)
        if best and checkpoint_files.exists(self._weights(best[0])):
            return self.first_step, _Best(*best)
        if best and checkpoint_files.exists(self._checkpoint(best[0])):
            return self.first_step, _Best(*best, self._checkpoint(best[0]))
        content = self._content or {}
        kept_step, metric = content.get("step"), content.get("metric")
        # Weights of later steps are not needed: the training repeats these steps. The weights of the newest
        # checkpoint are not needed, either: if the training was killed before it added their evaluation to
        # the table, it evaluates this checkpoint again.
        if kept_step is not None and (best or self.first_step <= kept_step < newest_step):
            raise ValueError(f"--keep_best={self._metric}: {self._path} contains the weights of step "
                             f"{kept_step}, the best weights by {metric}, but not the best weights up to "
                             f"step {newest_step} by the {self._metric} in the table of the evaluations. "
                             f"Restore learning_curve.tsv, pass --keep_best={metric}, or move {self._path} "
                             "to another place. The training then chooses the best weights among the "
                             f"evaluations of step {newest_step} and of later steps.")
        if best is None:
            return self.first_step, None
        best = self._choose_from(newest_step, values)
        return newest_step, best and _Best(*best, self._checkpoint(newest_step))

    def _checkpoint(self, step):
        """Returns the prefix of the checkpoint that the training saved at a step."""
        return os.path.join(self._output_dir, f"model.ckpt-{step}")

    def restore(self, values, newest_step):
        """Restores best/. After the call, it contains the weights of the best evaluation up to the newest
        checkpoint. As long as no evaluation counts, it keeps the best weights of the earlier evaluations.
        For the arguments, see `plan`."""
        first_step, best = self.plan(values, newest_step)
        if first_step != self.first_step:
            logging.warning("--keep_best=%s: the weights of the best evaluation, at step %d, are no longer "
                            "kept. The best weights are chosen among the evaluations of step %d and of later "
                            "steps.", self._metric, self.choose(values)[0], newest_step)
            self.first_step = first_step
        if best is None:
            if any(step < self._first_comparable for step, _ in values):
                logging.warning("--keep_best=%s: the evaluations up to step %d are not compared with later "
                                "evaluations, because the development set or a setting of the answers has "
                                "changed. %s is unchanged until the next evaluation.", self._metric,
                                self._first_comparable - 1, self._path)
            if self._content is None:
                return
            best = _Best(*(self._best_kept(values) or (None, None)))
        self._switch(best, ())

    def replace(self, step, value, checkpoint, values, newest_step):
        """Makes the weights of a checkpoint the best ones. If the training is killed, it continues from its
        newest checkpoint. So the weights that were the best ones at this checkpoint are kept, too.

        Args:
          step: step of the weights.
          value: float, the metric.
          checkpoint: prefix of the checkpoint. Its optimizer state is not copied.
          values: all evaluations.
          newest_step: step of the newest checkpoint of the training.
        """
        earlier = self._best_kept([item for item in values if item[0] <= newest_step and item[0] != step])
        self._switch(_Best(step, value, checkpoint), earlier[:1] if earlier else ())

    def finish(self):
        """Removes the earlier best weights, which are needed only if the training is killed. Call this method
        at the end of the training. Returns the step of the best weights; None if there are none."""
        if self._content is None:
            return None
        self._remove_weights([self._content["step"]])
        return self._content["step"]

    def _best_kept(self, values):
        """Returns the best (step, value) whose weights are in best/; None if there is none."""
        evaluations = [item for item in values if checkpoint_files.exists(self._weights(item[0]))]
        return self.choose(evaluations) or choose_best(self._metric, evaluations)

    def _weights(self, step):
        return os.path.join(self._path, f"model.ckpt-{step}")

    def _switch(self, best, kept_steps):
        """Makes the weights of a step the best ones. After the call, best/ contains only these weights and
        those of the steps in `kept_steps`.

        Args:
          best: a `_Best`.
          kept_steps: iterable of int.
        """
        step = best.step
        if self._content is None:
            files.make_directories(self._path)
            self._write_content(None, None)  # from now on, best/ belongs to this training
        self._write_model_files()
        if best.prefix is not None:
            checkpoint = checkpoint_formats.open_checkpoint(best.prefix)
            checkpoint_formats.write_tensorflow(
                self._weights(step), checkpoint,
                [*checkpoint_formats.weight_names(checkpoint), "global_step"])
        self._write_content(step, best.value)
        state_file = os.path.join(self._path, "checkpoint")
        if step is not None:
            name = os.path.basename(self._weights(step))
            files.write_text(state_file,
                             f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
        elif files.exists(state_file):
            files.remove(state_file)
        self._remove_weights([step, *kept_steps])

    def _write_content(self, step, value):
        """Writes best.json."""
        better = "lower" if is_lower_better(self._metric) else "higher"
        self._content = {"metric": self._metric, "step": step, "value": value, "better": better,
                         "first_step": self.first_step, "training": self._record and self._record["started"]}
        files.write_json(os.path.join(self._path, FILE), self._content)

    def _write_model_files(self):
        """Copies the files that describe the model and the training into best/."""
        for name in (*file_names.MODEL_FILES, *file_names.FILES_OF_SOME_FLAGS):
            source = os.path.join(self._output_dir, name)
            if files.exists(source):
                files.write_bytes(os.path.join(self._path, name), files.read_bytes(source))
        if self._record is not None:
            # Later commands use these two entries to warn of an unfinished training. In best/, the entries
            # are null, so that the commands give no such warning for the best weights.
            files.write_json(os.path.join(self._path, file_names.RECORD),
                             {**self._record, "planned_steps": None, "finished_step": None})

    def _remove_weights(self, kept_steps):
        """Removes the weights of all steps that are not in `kept_steps`. Also removes incomplete files, which
        an earlier process left when it was killed.

        The index files are removed first. If this process is killed before it has removed the other files,
        these files are never used, because they have no index file."""
        names = [name for name in tf.gfile.ListDirectory(self._path)
                 if (match := re.fullmatch(r"model\.ckpt-(\d+)\..*?(\.tempstate\d+)?", name))
                 and (match[2] or int(match[1]) not in kept_steps)]
        for name in sorted(names, key=lambda name: not name.endswith(".index")):
            files.remove(os.path.join(self._path, name))
