"""The texts that a model was trained on, read again where run.json says that they lie."""

from bertlib.runs import own_data as own_data_flags
from bertlib.runtime import files
from bertlib.tasks import classifier_data, own_data, squad_data, tagging_data


def of_file(path):
    """Yields the lines of a UTF-8 file.

    Raises:
      ValueError: a line is not UTF-8.
    """
    with files.opened(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"{path}:{number}: the line is not UTF-8. Convert the file to "
                                 "UTF-8.") from None


def of(model):
    """Returns the texts of a model's training data, an iterable of str.

    Args:
      model: a `model_directory.ModelDirectory`.

    Raises:
      ValueError, OSError: they are not known, not there any more, or not what they were.
    """
    recorded = model.record.get("files", {})
    path = recorded.get("train_file") or recorded.get("data_dir")
    if not path:
        raise ValueError(f"{model.path} does not say where they lie.")
    if not files.exists(path):
        raise FileNotFoundError(f"{path} is not there any more.")
    if model.kind == "tagging":
        return (" ".join(sentence.words) for sentence in tagging_data.read_conll(
            path, model.setting("token_column"), model.setting("tag_column")).sentences)
    if model.kind == "questions":
        return _texts(squad_data.read_squad_examples(path, is_training=False), "question_text", "context")
    if model.task != own_data_flags.TASK:
        return _texts(classifier_data.get_processor(model.task).get_train_examples(path))
    columns = {name: value and own_data.columns_of(value) for name, value in (
        (name, model.setting(f"{name}_column")) for name in ("text", "label"))}
    reader = own_data.Reader(model.kind, **columns, header=own_data_flags.HEADER[model.setting("header")],
                             separator=model.setting("label_separator"))
    return _texts(reader.read(path).rows)


def _texts(examples, *names):
    """Yields the texts of examples, of which the second may be None."""
    for example in examples:
        for name in names or ("text_a", "text_b"):
            if getattr(example, name):
                yield getattr(example, name)
