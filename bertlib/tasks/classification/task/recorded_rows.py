"""Reads the rows again from which a text model was trained; see `bertlib.runs.recorded_data`."""

import os

from bertlib.output_directory import output_files
from bertlib.tasks.classification import row_examples
from bertlib.tasks.classification.task import dev_rows


def read_texts(model, path_of):
    """Returns the texts of the training data; see `targets.Target.read_texts`."""
    path = path_of("train_file", "data_dir")
    return _texts(model.processor.get_train_examples(path) if model.processor
                  else _read_rows(model, path).rows)


def read_dev_set(model, path_of):
    """Returns the development set; see `targets.Target.read_dev_set`."""
    if model.processor:
        examples = model.processor.get_dev_examples(path_of("data_dir"))
    elif model.setting("dev_fraction") and model.record.get("dev_rows"):
        split, _ = dev_rows.split_by_dev_rows(
            _read_rows(model, path_of("train_file")), os.path.join(model.path, output_files.DEV_ROWS),
            model.record["dev_rows"])
        examples = split.dev.rows
    else:
        examples = _read_rows(model, path_of("dev_file")).rows
    return [(tuple(_texts([example])), example.label) for example in examples]


def _read_rows(model, path):
    """Returns the `row_examples.Split` of a file with the user's own data."""
    if model.task != row_examples.TASK:
        raise ValueError(f"the data files of the task {model.task} have an unknown format.")
    return row_examples.create_reader(model.kind, model.setting, lambda flag: model.has_named_columns).read(
        path, known=model.labels)


def _texts(examples):
    """Yields the texts of examples. Attributes that are None are left out.

    Args:
      examples: iterable of objects with the attributes text_a and text_b.
    """
    for example in examples:
        for name in ("text_a", "text_b"):
            if getattr(example, name):
                yield getattr(example, name)
