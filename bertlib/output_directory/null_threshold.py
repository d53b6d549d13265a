"""Finds the null threshold of SQuAD 2.0 that an earlier evaluation stored in an output directory."""

import os

from bertlib.output_directory import best_weights, record_fields
from bertlib.system import files

EVALUATION = "eval_results.json"


def find_evaluation(directory):
    """Returns the path of the results of the last evaluation of a model; None if there are no results.

    An evaluation of the best weights writes its results into the output directory that contains best/. So
    if best/ has no results of its own, the results in that output directory are returned.

    Args:
      directory: the directory of the model's weights: an output directory, its folder best/, or an export.
    """
    directories = [directory, best_weights.training_directory(directory)]
    paths = [os.path.join(path, EVALUATION) for path in directories if path is not None]
    return next(filter(files.exists, paths), None)


def read(directory):
    """Returns the null threshold that the last evaluation of a model used.

    Args:
      directory: see `find_evaluation`.

    Returns:
      (threshold, path): the threshold, and the file that contains it. Both are None if no evaluation has
      stored a threshold.

    Raises:
      ValueError: the threshold in the file is not a number.
    """
    path = find_evaluation(directory)
    threshold = files.read_json_object(path).get("null_score_diff_threshold") if path else None
    if threshold is None:
        return None, None
    rule = record_fields.SETTINGS["null_score_diff_threshold"]
    if not rule.holds(threshold):
        raise ValueError(f"{path}: null_score_diff_threshold is {threshold!r:.60}, but must be "
                         f"{rule.words}. Run the evaluation again, or remove the file.")
    return threshold, path
