"""Finds the null threshold of SQuAD 2.0 that an earlier evaluation stored in an output directory."""

from absl import logging

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.runs import output_directory, registry


def read(checkpoint, directory=None):
    """Returns the null threshold that the last evaluation of a model used. Logs a warning if this evaluation
    used the weights of another step.

    Args:
      checkpoint: prefix of the model's weights.
      directory: the directory with the weights; None for the directory of the weights.

    Returns:
      (threshold, path): the threshold, and the file that contains it. Both are None if no evaluation has
      stored a threshold.

    Raises:
      ValueError: the threshold in the file is not a number.
    """
    directory = directory or checkpoint_formats.directory_of_checkpoint(checkpoint)
    opened = output_directory.find_evaluation(directory)
    results = opened.read_results() if opened else {}
    threshold = results.get("null_score_diff_threshold")
    if threshold is None:
        return None, None
    path = opened.join(output_directory.EVALUATION)
    entry, = registry.find_flag("null_score_diff_threshold")
    if not entry.accepts(threshold):
        raise ValueError(f"{path}: null_score_diff_threshold is {threshold!r:.60}, but must be "
                         f"{entry.words}. Run the evaluation again, or remove the file.")
    step = checkpoint_files.step_in_name(checkpoint)
    if step is not None and results.get("global_step", step) != step:
        logging.warning("%s contains the null threshold of an evaluation after step %s, but the weights of "
                        "the model are those of step %d. To get the threshold of these weights, evaluate "
                        "them.", path, results["global_step"], step)
    return threshold, path
