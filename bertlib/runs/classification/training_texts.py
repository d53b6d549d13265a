"""Reads the training texts of a model again, from the paths in the model's run.json."""

from bertlib.rows import tables
from bertlib.system import files
from bertlib.tasks.classification import row_examples
from bertlib.tasks.squad import squad_data
from bertlib.tasks.tagging import tagged_json_lines


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
    if model.record.get("task_module"):
        raise ValueError("a task module read the training data, and this command does not execute it.")
    recorded = model.record.get("files", {})
    path = recorded.get("train_file") or recorded.get("data_dir")
    if not path:
        raise ValueError(f"the run.json in {model.path} does not name the file of the training data.")
    if not files.exists(path):
        raise FileNotFoundError(f"{path} does not exist any more.")
    if model.kind == "tagging":
        return (" ".join(sentence.words) for sentence in tagged_json_lines.read_tagged(
            path, model.setting("token_column"), model.setting("tag_column")).sentences)
    if model.kind == "questions":
        return _texts(squad_data.read_squad_examples(path, is_training=False), "question_text", "context")
    if model.processor:
        return _texts(model.processor.get_train_examples(path))
    if model.task != row_examples.TASK:
        raise ValueError(f"the format of the data of {model.task} is not known.")
    return _texts(row_examples.create_reader(model.kind, model.setting).read(path).rows)


def _texts(examples, *names):
    """Yields the texts of examples. Attributes that are None are left out.

    Args:
      examples: iterable of objects with texts as attributes.
      *names: names of the attributes with texts; by default text_a and text_b.
    """
    for example in examples:
        for name in names or ("text_a", "text_b"):
            if getattr(example, name):
                yield getattr(example, name)
