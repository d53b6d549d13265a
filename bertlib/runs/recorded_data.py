"""Reads the development set of a model again. The model's run.json names the file."""

from bertlib.system import files


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
    if model.record.get("task_module"):
        raise ValueError("the data were read by a task module, which is not executed here.")

    def path_of(flag):
        path = model.record.get("files", {}).get(flag)
        if not path:
            raise ValueError(f"the run.json in {model.path} does not name the file of the development set.")
        if not files.exists(path):
            raise FileNotFoundError(f"{path} does not exist any more.")
        return path

    return model.target.read_dev_set(model, path_of)
