"""Reads the training texts or the development set of a model again. The model's run.json names the files."""

import functools

from bertlib.rows import tables
from bertlib.system import files


def read_lines(path):
    """Yields the lines of a UTF-8 file.

    Raises:
      FileNotFoundError, ValueError: the file is missing, or a line is not UTF-8.
    """
    with tables.open_table(path) as stream:
        for number, line in tables.read_lines(stream):
            if isinstance(line, tables.BadRow):
                raise ValueError(f"{path}:{number}: {line.problem}")
            yield line.rstrip("\r\n")


def read_training_texts(model):
    """Returns an iterable of str, the texts of a model's training data.

    Args:
      model: a `model_directory.ModelDirectory`.

    Raises:
      ValueError, OSError: run.json names no training file, or this file is missing or damaged.
    """
    return model.target.read_texts(model, functools.partial(_recorded_path, model, "training data"))


def read_dev_set(model):
    """Returns the development set of a model's training: inputs of the model, and the correct answers.

    Args:
      model: a `model_directory.ModelDirectory`.

    Returns:
      list of pairs. The first element is a tuple of the texts of one input, in the form that
      `Predictor.prepare` takes. For a tagger, the text is a list of words. The second element is the correct
      answer: a label, a score, a tuple of labels, or the list of the tags. It is None for a question, and if
      the file has no labels.

    Raises:
      ValueError, OSError: run.json names no development set, or its file is missing or damaged.
    """
    return model.target.read_dev_set(model, functools.partial(_recorded_path, model, "development set"))


def _recorded_path(model, what, *names):
    """Returns the path of a data file that is recorded in a model's run.json.

    Args:
      model: a `model_directory.ModelDirectory`.
      what: name of the data in error messages.
      *names: names of flags. The path of the first flag that has a recorded path is returned.

    Raises:
      ValueError, FileNotFoundError: see `read_training_texts`.
    """
    if model.record.get("task_module"):
        raise ValueError("the data were read by a task module, which is not executed here.")
    path = next(filter(None, map(model.record.get("files", {}).get, names)), None)
    if not path:
        raise ValueError(f"the run.json in {model.path} does not name the file of the {what}.")
    if not files.exists(path):
        raise FileNotFoundError(f"{path} does not exist any more.")
    return path
