"""Compares the head in a checkpoint with the head of the task. The head in the checkpoint is used only if
both heads have the same target and the same labels."""

import os
from typing import NamedTuple

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import file_names, model_config, registry
from bertlib.runs.output_directory import OutputDirectory, is_training_checkpoint
from bertlib.system import files
from bertlib.tasks.target import Target

# Names of the variables of the linear layer that several targets share, and of a CRF.
_LINEAR, CRF = ("output_weights", "output_bias"), "crf/transitions"


class HeadDescription(NamedTuple):
    """The target and the labels of the head in a checkpoint.

    Attributes:
      target: the target, see `bertlib.tasks.target`, without labels; None if it is unknown.
      labels: list of str; None if the labels are unknown or the head has no labels.
      outputs: number of outputs; None if it is unknown.
      crf: whether the head has a CRF.
      source: path of the file that contains the target and the labels, or None.
    """

    target: Target | None
    labels: list | None = None
    outputs: int | None = None
    crf: bool = False
    source: str | None = None


# --- The head of a checkpoint ----------------------------------------------------------------------------


def label_names(config, path):
    """Returns a list of str, the names of a classifier's labels in the order of their ids; None if the
    configuration contains no names.

    LABEL_0, LABEL_1 and so on do not count as names: Hugging Face writes them if the user gave no names.

    Args:
      config: the configuration, a dict.
      path: the file of the configuration, for error messages.

    Raises:
      ValueError: "id2label" does not have one name for each id from 0 on.
    """
    id2label = config.get("id2label")
    if id2label is None:
        return None
    try:
        named = {int(index): str(name) for index, name in id2label.items()}
    except (AttributeError, ValueError):
        named = {}
    names = [named[index] for index in sorted(named)]
    if not names or sorted(named) != list(range(len(id2label))):
        raise ValueError(f"{path}: \"id2label\" must be an object with a name for each id from 0 on, such "
                         f"as {{\"0\": \"no\", \"1\": \"yes\"}}; it is {str(id2label):.80}.")
    return None if names == [f"LABEL_{index}" for index in range(len(names))] else names


def target_of_config(config):
    """Returns the target of the head according to a Hugging Face configuration (a dict); None if it is
    unknown."""
    architectures = config.get("architectures")
    linear = [target for target in registry.find_targets() if not target.variables]
    return next((target for target in linear if (
        target.problem_type == config.get("problem_type") if target.problem_type
        else isinstance(architectures, list) and target.architecture in architectures)), None)


def read_head(checkpoint, wanted_name=None):
    """Returns the `HeadDescription` in a checkpoint, or None if the checkpoint has no head.

    The tensors do not contain the labels, and do not always show the target. For the checkpoint of a
    training, labels and target are read from run.json and labels.txt in the same directory. For any other
    checkpoint, labels and target are read from the configuration of the checkpoint. If the configuration of a
    TensorFlow checkpoint has no labels and the directory has no run.json, the labels are read from
    labels.txt.

    Args:
      checkpoint: a `checkpoint_formats.Checkpoint`.
      wanted_name: name of the target whose head is described if the checkpoint has several heads.

    Raises:
      ValueError: run.json, labels.txt or the configuration is damaged.
    """
    targets = {target.name: target for target in registry.find_targets()
               if set(target.variables) & set(checkpoint.shapes)}
    if _LINEAR[0] not in checkpoint.shapes or wanted_name in targets:
        found = targets.get(wanted_name) or next(iter(targets.values()), None)
        return found and HeadDescription(found)
    target, labels, source = _read_linear(checkpoint)
    shape, crf = checkpoint.shapes[_LINEAR[0]], CRF in checkpoint.shapes
    outputs = shape[0] if shape else None
    if labels is not None and len(labels) != outputs:
        labels = None  # the number of labels is wrong, so the labels belong to a different head
    if crf:
        target = registry.find_target("tagging")  # no other head has a CRF
    return HeadDescription(target, labels, outputs, crf, source)


def _read_linear(checkpoint):
    """Reads the files that describe the linear layer in a checkpoint; see `read_head`. Returns (target,
    labels, path of the file). The target and the labels are None if they are unknown."""
    training = OutputDirectory(checkpoint_formats.directory_of_checkpoint(checkpoint.path))
    record = None if checkpoint.format == "hugging_face" else training.record
    if is_training_checkpoint(checkpoint):
        if record:
            target = registry.find_target(record["task_type"])
            return target, record["labels"], training.join(file_names.RECORD)
        return None, training.labels, training.join(file_names.LABELS)
    path = training.join(file_names.CONFIGS[checkpoint.format])
    config = files.read_json_object(path) if files.exists(path) else {}
    labels, target = label_names(config, path), target_of_config(config)
    if labels is None and checkpoint.format == "tensorflow" and not record:
        return target, training.labels, training.join(file_names.LABELS)
    return target, labels, path


def has_trained_names(head):
    """Returns whether the labels of a `HeadDescription` were read from a file that a training wrote, not from
    a configuration."""
    return os.path.basename(head.source) in (file_names.RECORD, file_names.LABELS)


def labels_of_weights(settings):
    """Returns a list of str, the labels of the head that a run without training uses; None if the labels are
    unknown."""
    if settings.output_directory.latest_checkpoint or not settings.init_checkpoint:
        return settings.output_directory.labels
    head = read_head(model_config.open_starting_weights(settings))
    return head and head.labels


# --- The weights from which a head starts ----------------------------------------------------------------


def match_head(settings, wanted):
    """Returns the checkpoint from which the weights of a task start.

    This is --init_checkpoint, with the outputs of its head in the order of the task's labels. If the
    target or the labels of the head in --init_checkpoint differ from the task, this head is not used: a
    training starts from a random head, and a run without training raises an error.

    Args:
      settings: a `Settings` with --init_checkpoint. The run must load no weights from --output_dir.
      wanted: the `target.Target` of the task, which knows its labels.

    Returns:
      a `checkpoint_formats.Checkpoint`.

    Raises:
      ValueError: the run does not train, and the head in the checkpoint is not the head of the task.
    """
    checkpoint = model_config.open_starting_weights(settings)
    head = read_head(checkpoint, wanted.name)
    if head is None:
        return checkpoint
    difference, advice = _describe_difference(settings, head, wanted)
    if not difference:
        return _reorder_head(checkpoint, head, wanted)
    if not settings.do_train:
        raise ValueError(f"{difference}. {advice}")
    is_pretrained = head.target and head.target.is_pretraining
    (logging.info if is_pretrained else logging.warning)(
        "%s. The head starts from random weights, and the encoder starts from this checkpoint.",
        difference[0].upper() + difference[1:])
    return checkpoint_formats.drop_tensors(checkpoint, [*_LINEAR, CRF])


def _describe_difference(settings, head, wanted):
    """Compares the head in --init_checkpoint with the head of the task.

    Returns:
      (the difference in words, advice for a run without training); two empty texts if there is no difference.
    """
    path = settings.init_checkpoint
    has_own_names = bool(wanted.variables)
    if head.target is None and has_own_names or head.target and head.target.name != wanted.name:
        title = head.target.title if head.target else "another task"
        source = f" ({head.source})" if head.source else ""
        return (f"the head in --init_checkpoint={path} is the head of {title}{source}, but the task needs "
                f"the head of {wanted.title}",
                "Train first, with --do_train=true, or use another checkpoint.")
    if has_own_names:
        return "", ""
    if head.labels and wanted.labels and not _permutation(head, wanted):
        return (f"the head in --init_checkpoint={path} has the labels "
                f"{', '.join(head.labels)} ({head.source}), but the task has the labels "
                f"{', '.join(wanted.labels)}",
                "Train first, with --do_train=true. If both lists mean the same labels, write the task's "
                f"names into {head.source}, in the order of the labels in this file.")
    if head.outputs not in (None, wanted.size):
        return (f"the head in --init_checkpoint={path} was trained with another number "
                f"of labels: it has {head.outputs} labels, but the task has {wanted.size}",
                "Train first, with --do_train=true, or use another checkpoint.")
    if head.crf != wanted.crf and not settings.do_train:
        return (f"the tagger in --init_checkpoint={path} was trained {'with' if head.crf else 'without'} a "
                "CRF", f"Pass --crf={str(head.crf).lower()}.")
    return "", ""


def _permutation(head, wanted):
    """Returns a list of int: for each label of the task, the index of this label in the labels of the head.
    Returns None if task and head have different labels. The letter case is ignored, unless two labels differ
    only in letter case."""
    old, new = ([label.casefold() for label in labels] for labels in (head.labels, wanted.labels))
    if sorted(old) != sorted(new) or len(set(new)) < len(new):
        old, new = head.labels, wanted.labels
    return [old.index(label) for label in new] if sorted(old) == sorted(new) else None


def _reorder_head(checkpoint, head, wanted):
    """Returns a checkpoint in which the outputs of the head are in the order of the task's labels.

    Args:
      checkpoint: a `checkpoint_formats.Checkpoint`.
      head: the `HeadDescription` in the checkpoint.
      wanted: the target of the task.
    """
    if not wanted.labels:
        return checkpoint
    if not head.labels:
        logging.info("The labels of the head in %s have no names. The outputs get the labels of the task, in "
                     "this order: %s.", checkpoint.path, ", ".join(wanted.labels))
        return checkpoint
    order = _permutation(head, wanted)
    if order == sorted(order):
        return checkpoint
    logging.info("The head in %s has the labels in the order %s. Its outputs are rearranged into the order "
                 "of the task: %s.", checkpoint.path, ", ".join(head.labels), ", ".join(wanted.labels))
    return checkpoint_formats.reorder_tensors(checkpoint,
                                              {**dict.fromkeys(_LINEAR, [order]), CRF: [order, order]})
