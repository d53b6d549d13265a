"""The labels of a classifier that a checkpoint comes with, and those of the task: the same ones in the same
order, or its head is not used."""

import os

from absl import logging

from bertlib.runtime import checkpoints, files

_HEAD = ("output_weights", "output_bias")
_CONFIG = {"hugging_face": "config.json", "tensorflow": "bert_config.json"}


def names_in(config, path):
    """Returns the names of a classifier's labels by id (list of str), or None if the configuration has none.

    Hugging Face's own names of labels that nobody named, LABEL_0 and so on, are none.

    Args:
      config: the configuration, a dict.
      path: its file, for errors.

    Raises:
      ValueError: "id2label" is not made of the ids from 0 on, a name for each.
    """
    found = config.get("id2label")
    if found is None:
        return None
    named = {int(index): name for index, name in found.items() if str(index).isdecimal() and isinstance(
        name, str | int)} if isinstance(found, dict) else {}
    names = [str(named[index]) for index in sorted(named)]
    if not names or len(names) != len(found) or sorted(named) != list(range(len(names))):
        raise ValueError(f"{path}: \"id2label\" has to be an object with a name for each id from 0 on, such "
                         f"as {{\"0\": \"no\", \"1\": \"yes\"}}; it is {str(found):.80}.")
    return None if names == [f"LABEL_{index}" for index in range(len(names))] else names


def starting_checkpoint(settings, labels):
    """Returns where the weights of a classifier start: --init_checkpoint, with its head in the order of the
    task's labels.

    The head's labels are named in the configuration beside the checkpoint. If they are others than the
    task's, the head starts at random in a training.

    Args:
      settings: a `Settings`.
      labels: the task's labels, list of str.

    Returns:
      the path, or a `checkpoints.Checkpoint`; None without --init_checkpoint.

    Raises:
      ValueError: without a training the labels are others than the task's.
    """
    path, labels = settings.init_checkpoint, list(map(str, labels))
    if not path or checkpoints.latest_checkpoint(settings.output_dir):  # from there weights come then
        return path
    found = checkpoints.open_checkpoint(path)
    # Beside a checkpoint of a training there may be a configuration with another's labels.
    of_training = found.kind == "tensorflow" and os.path.basename(found.path) != "bert_model.ckpt"
    if _HEAD[0] not in found.shapes or of_training:
        return path
    beside = os.path.join(checkpoints.directory_of(path), _CONFIG[found.kind])
    names = names_in(files.json_object(beside), beside) if files.exists(beside) else None
    if names is None:
        logging.info("The labels of the classifier in %s have no names: taken for the task's, in its order "
                     "%s.",
                     path, ", ".join(labels))
        return path
    theirs, ours = [name.casefold() for name in names], [label.casefold() for label in labels]
    if sorted(theirs) == sorted(ours) and len(set(ours)) == len(ours):
        if theirs == ours:
            return path
        logging.info("The classifier in %s has the labels in the order %s: taken in the task's, %s.", path,
                     ", ".join(names), ", ".join(labels))
        return checkpoints.with_rows(found, dict.fromkeys(_HEAD, [theirs.index(label) for label in ours]))
    different = (f"the classifier in --init_checkpoint={path} has the labels {', '.join(names)} ({beside}), "
                 f"the task has {', '.join(labels)}")
    if not settings.do_train:
        raise ValueError(f"{different}. Train first, with --do_train=true; or if they mean the same, give "
                         "\"id2label\" there the task's names, each at its own id.")
    logging.warning("%s: the classifier starts at random, the encoder from there.",
                    different[0].upper() + different[1:])
    return checkpoints.without(found, _HEAD)
