"""Reads the training texts or the development set of a model again. The model's run.json names the files."""

import os

from bertlib.output_directory import output_files
from bertlib.rows import tables
from bertlib.runs.classification import dev_rows
from bertlib.system import files
from bertlib.tasks.classification import row_examples
from bertlib.tasks.squad import squad_data
from bertlib.tasks.tagging import tagged_json_lines

_DEV = "development set"


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
    path = _recorded_path(model, "training data", "train_file", "data_dir")
    if model.kind == "tagging":
        return (" ".join(sentence.words) for sentence in _read_tagged(model, path))
    if model.kind == "questions":
        return _texts(squad_data.read_squad_examples(path, is_training=False), "question_text", "context")
    if model.processor:
        return _texts(model.processor.get_train_examples(path))
    return _texts(_read_rows(model, path).rows)


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
    if model.kind == "tagging":
        sentences = _read_tagged(model, _recorded_path(model, _DEV, "dev_file"))
        return [((list(sentence.words),), sentence.tags) for sentence in sentences]
    if model.kind == "questions":
        path = _recorded_path(model, _DEV, "predict_file")
        examples = squad_data.read_squad_examples(path, is_training=False)
        return [((example.question_text, example.context), None) for example in examples]
    if model.processor:
        examples = model.processor.get_dev_examples(_recorded_path(model, _DEV, "data_dir"))
    elif model.setting("dev_fraction") and model.record.get("dev_rows"):
        split, _ = dev_rows.split_by_dev_rows(
            _read_rows(model, _recorded_path(model, _DEV, "train_file")),
            os.path.join(model.path, output_files.DEV_ROWS), model.record["dev_rows"])
        examples = split.dev.rows
    else:
        examples = _read_rows(model, _recorded_path(model, _DEV, "dev_file")).rows
    return [(tuple(_texts([example])), example.label) for example in examples]


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


def _read_tagged(model, path):
    """Returns the sentences of a file with tagged words."""
    return tagged_json_lines.read_tagged(path, model.setting("token_column"),
                                         model.setting("tag_column")).sentences


def _read_rows(model, path):
    """Returns the `row_examples.Split` of a file with the user's own data."""
    if model.task != row_examples.TASK:
        raise ValueError(f"the data files of the task {model.task} have an unknown format.")
    return row_examples.create_reader(model.kind, model.setting, lambda flag: model.has_named_columns).read(
        path, known=model.labels)


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
