"""Finds the null threshold of SQuAD 2.0 that an earlier evaluation stored in an output directory."""

import os

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.runs import best_weights, targets
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import files

EVALUATION = "eval_results.json"


def find_evaluation(directory):
    """Returns the `OutputDirectory` with the results of the last evaluation of a model; None if there are no
    results.

    An evaluation of the best weights writes its results into the output directory that contains best/. So
    if best/ contains no results, the results in that output directory are returned.

    Args:
      directory: the directory of the model's weights: an output directory, its folder best/, or an export.
    """
    found = [OutputDirectory(directory)]
    parent, name = os.path.split(directory.rstrip("/"))
    outer = OutputDirectory(parent or os.curdir)
    if name == best_weights.DIRECTORY and outer.best:
        found.append(outer)
    return next((opened for opened in found if files.exists(opened.join(EVALUATION))), None)


def read(checkpoint, directory=None):
    """Returns the null threshold that the last evaluation of a model used. Logs a warning if this evaluation
    used the weights of another step.

    Args:
      checkpoint: prefix of the model's weights.
      directory: see `find_evaluation`; None for the directory of the weights.

    Returns:
      (threshold, path): the threshold, and the file that contains it. Both are None if no evaluation has
      stored a threshold.

    Raises:
      ValueError: the threshold in the file is not a number.
    """
    opened = find_evaluation(directory or checkpoint_formats.directory_of_checkpoint(checkpoint))
    results = opened.read_results() if opened else {}
    threshold = results.get("null_score_diff_threshold")
    if threshold is None:
        return None, None
    path = opened.join(EVALUATION)
    entry, = targets.find_flag("null_score_diff_threshold")
    if not entry.accepts(threshold):
        raise ValueError(f"{path}: null_score_diff_threshold is {threshold!r:.60}, but must be "
                         f"{entry.words}. Run the evaluation again, or remove the file.")
    step = checkpoint_files.step_in_name(checkpoint)
    if step is not None and results.get("global_step", step) != step:
        logging.warning("%s contains the null threshold of an evaluation after step %s, but the weights of "
                        "the model are those of step %d. To get the threshold of these weights, evaluate "
                        "them.", path, results["global_step"], step)
    return threshold, path
