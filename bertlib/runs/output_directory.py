"""Opens an output directory. `OutputDirectory` answers the questions about the training in a directory: which
checkpoint is the newest, which weights are the best, and what does run.json say?"""

import functools
import os

from absl import logging
import numpy as np

from bertlib.checkpoints import checkpoint_formats, metrics_history
from bertlib.runs import best_weights, file_names, record_format
from bertlib.system import files

# The file with the results of an evaluation of the development set.
EVALUATION = "eval_results.json"
# The end of a sentence about a directory.
LOST_CHECKPOINTS = (" contains the record of a training, but its checkpoints were removed. (sweep.py keeps "
                    "only those of its best run, unless it has --keep_checkpoints=all.)")


class OutputDirectory:
    """The files of an output directory, as they were when they were first asked for. In other modules, the
    name of such an object is `training`, and `directory` is the name of a path.

    Each attribute is read once. Another process may write into the directory at the same time, so a run that
    asks twice gets the same answer. To read the files again, open the directory again.

    Attributes:
      path: str, the directory; None if a command has no output directory. Then there are no files.
    """

    def __init__(self, path):
        self.path = path

    def join(self, name):
        """Returns the path of a file in the directory."""
        return os.path.join(self.path, name)

    @functools.cached_property
    def latest_checkpoint(self):
        """Prefix of the newest checkpoint; None if there is no checkpoint."""
        return checkpoint_formats.latest_checkpoint(self.path) if self.path else None

    @functools.cached_property
    def step(self):
        """int, the step of the newest checkpoint; None if there is no checkpoint."""
        return checkpoint_formats.read_global_step(self.latest_checkpoint) if self.latest_checkpoint else None

    @functools.cached_property
    def record(self):
        """dict, the content of run.json; None if there is no run.json. A ValueError is raised if the file is
        damaged, or if its labels differ from `labels` or have another order."""
        if not (self.path and files.exists(self.record_path)):
            return None
        record = record_format.read_record(self.path)
        if record["labels"] and self.labels and record["labels"] != self.labels:
            raise ValueError(f"{self.join(file_names.LABELS)} and {self.record_path} differ in the labels "
                             "or in their order, so answers would get the names of wrong labels. Restore the "
                             "file that was changed.")
        return record

    @property
    def trained_record(self):
        """The record of the training whose checkpoints the directory contains; None without a checkpoint."""
        return self.record if self.latest_checkpoint else None

    @property
    def record_path(self):
        """Path of run.json."""
        return self.join(file_names.RECORD)

    @functools.cached_property
    def best(self):
        """The description of the best weights, see `best_weights.read`; None if the training keeps none.

        The value is also None if best/ was written by a different training than the one in run.json, or if
        the weights were chosen by another metric.
        """
        metric = self.record["settings"].get("keep_best") if self.record else None
        best = best_weights.read(self.path) if metric else None
        if best is None or best["metric"] != metric or best.get("training") != self.record.get("started"):
            return None
        return best

    def refuse_lost_checkpoints(self, name):
        """Raises a ValueError if the directory contains a training, but no checkpoint. The message calls the
        directory `name`."""
        if self.record and not self.latest_checkpoint:
            raise ValueError(f"{name}{LOST_CHECKPOINTS} Pass another directory, or train again.")

    @functools.cached_property
    def labels(self):
        """list of str, the labels in labels.txt; None if there is no such file. A ValueError is raised if the
        file is empty, or contains a label twice."""
        path = self.path and self.join(file_names.LABELS)
        if not path or not files.exists(path):
            return None
        labels = files.read_bytes(path).decode("utf-8").split("\n")[:-1]
        if not labels or len(set(labels)) < len(labels):
            raise ValueError(f"{path} is empty or contains a label twice. Restore the file.")
        return labels

    @property
    def history(self):
        """The `metrics_history.MetricsHistory` of the training."""
        return metrics_history.MetricsHistory(self.path)

    def read_results(self, name="eval_results"):
        """Returns the results of an evaluation in NAME.json, {metric: value}; None if there are none."""
        path = self.join(f"{name}.json")
        return files.read_json_object(path) if files.exists(path) else None

    def write_results(self, name, metrics, combined):
        """Writes the results of an evaluation. The metrics are sorted by name.

        Args:
          name: name of the two files.
          metrics: {name of a metric: number or array}. NAME.txt has a line "name = value" for each number.
          combined: {name: number, array, or dict of numbers} for NAME.json. NaN and infinite numbers become
            null.

        Returns:
          str, the lines of NAME.txt, indented.
        """
        lines = [f"{metric} = {value}" for metric, value in sorted(metrics.items()) if not np.ndim(value)]
        files.write_text(self.join(f"{name}.txt"), "".join(line + "\n" for line in lines))
        text = files.json_text(dict(sorted(combined.items())), indent=2, ensure_ascii=False)
        files.write_text(self.join(f"{name}.json"), text + "\n")
        return "\n".join(f"  {line}" for line in lines)

    def directory_of_weights(self, weights):
        """Returns the `OutputDirectory` of the weights that a command without training uses.

        It is best/ if `weights` is "best" and the training kept its best weights. In this case, the choice is
        logged. In all other cases, it is this directory.

        Args:
          weights: value of --weights, "best" or "last".

        Raises:
          ValueError: `weights` has another value, or a file is damaged.
        """
        if weights not in (best_weights.BEST, best_weights.LAST):
            raise ValueError(f"weights={weights!r} is unknown. Pass {best_weights.BEST!r} or "
                             f"{best_weights.LAST!r}.")
        if weights == best_weights.LAST or self.best is None:
            return self
        logging.info("Weights: %s, the best weights of the training (%s = %s at step %d). Pass --weights=%s "
                     "to use the last weights.", self.best["checkpoint"], self.best["metric"],
                     self.best["value"], self.best["step"], best_weights.LAST)
        return OutputDirectory(self.join(best_weights.DIRECTORY))

    def write_record(self, record):
        """Writes run.json. If the process is killed, either the old file or the complete new file exists."""
        files.write_json(self.record_path, record)
        self.record = record


def find_training(path):
    """Returns the `OutputDirectory` of the training that saved a checkpoint; None if no training saved it.

    Args:
      path: value of --init_checkpoint; None or "" without this flag.
    """
    try:
        checkpoint = checkpoint_formats.open_checkpoint(path) if path else None
    except (OSError, ValueError):
        checkpoint = None  # other checks report the unreadable checkpoint
    if not checkpoint or not is_training_checkpoint(checkpoint):
        return None
    return OutputDirectory(checkpoint_formats.directory_of_checkpoint(path))


def is_training_checkpoint(checkpoint):
    """Returns whether a training saved a `checkpoint_formats.Checkpoint`. If so, the run.json in the same
    directory describes this checkpoint."""
    # The directory may also contain a published or converted checkpoint, which run.json does not describe.
    return checkpoint.format == "tensorflow" and os.path.basename(checkpoint.path) != "bert_model.ckpt"


def find_evaluation(directory):
    """Returns the `OutputDirectory` with the results of the last evaluation of a model; None if there are no
    results.

    An evaluation of the best weights writes its results into the output directory that contains best/. So
    if best/ contains no results, the results in that output directory are returned.

    Args:
      directory: the directory of the model's weights: an output directory, its folder best/, or an export.
    """
    candidates = [OutputDirectory(directory)]
    parent, name = os.path.split(directory.rstrip("/"))
    outer = OutputDirectory(parent or os.curdir)
    if name == best_weights.DIRECTORY and outer.best:
        candidates.append(outer)
    return next((candidate for candidate in candidates if files.exists(candidate.join(EVALUATION))), None)
