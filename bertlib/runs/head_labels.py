"""The head that a checkpoint comes with, and the one of the task: of the same kind and with the same labels,
or it is not used."""

import os
from typing import NamedTuple

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import output_files
from bertlib.runs import model_config, run_record
from bertlib.system import files

_CONFIG = {"hugging_face": "config.json", "tensorflow": "bert_config.json"}
# Kinds of heads, in words.
KINDS = {"classification": "a classifier", "regression": "a regression",
         "multilabel": "a classifier of several labels at once", "tagging": "a tagger",
         "questions": "question answering", "pre-training": "pre-training"}
# Their variables: four kinds have the same names.
_LINEAR, CRF = ("output_weights", "output_bias"), "crf/transitions"
_VARIABLES = {"questions": ("cls/squad/output_weights", "cls/squad/output_bias"),
              "pre-training": ("cls/predictions/output_bias", "cls/seq_relationship/output_weights")}
# What Hugging Face's configurations call them.
PROBLEM_TYPES = {"regression": "regression", "multilabel": "multi_label_classification",
                 "classification": "single_label_classification"}


class Head(NamedTuple):
    """A head: its kind, one of `KINDS` or None if that is not known; its `labels`, list of str, or None; the
    number of its `outputs`, or None; whether it has a CRF; and `source`, the file that says so."""

    kind: str | None
    labels: list | None = None
    outputs: int | None = None
    crf: bool = False
    source: str | None = None


# --- The head of a checkpoint ----------------------------------------------------------------------------


def label_names(config, path):
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


def kind_from_config(config):
    """Returns the kind of a head that a configuration, a dict, says; None if it says none."""
    architectures = config.get("architectures")
    if isinstance(architectures, list) and "BertForTokenClassification" in architectures:
        return "tagging"
    return next((kind for kind, name in PROBLEM_TYPES.items() if name == config.get("problem_type")), None)


def read_head(found, wanted=None):
    """Returns the `Head` of an opened checkpoint, or None if it has none. Of several it is one of the kind
    `wanted`.

    What the tensors do not tell is in run.json and labels.txt beside a training's checkpoint, and in the
    configuration beside another one.

    Raises:
      ValueError: a file beside it is damaged.
    """
    others = [kind for kind, names in _VARIABLES.items() if set(names) & set(found.shapes)]
    if _LINEAR[0] not in found.shapes or wanted in others:
        return Head(wanted if wanted in others else others[0]) if others else None
    directory, shape = checkpoint_formats.directory_of_checkpoint(found.path), found.shapes[_LINEAR[0]]
    bare = Head(None, None, shape[0] if shape else None, CRF in found.shapes)
    record = None if found.kind == "hugging_face" else output_files.read_record(directory)
    if run_record.is_training_checkpoint(found):
        labels = record["labels"] if record else output_files.read_labels(directory)
        source = output_files.RECORD if record else output_files.LABELS
        kind = output_files.head_kind(record) if record else None
    else:
        source = _CONFIG[found.kind]
        path = os.path.join(directory, source)
        config = files.read_json_object(path) if files.exists(path) else {}
        labels, kind = label_names(config, path), kind_from_config(config)
        if labels is None and found.kind == "tensorflow" and not record:
            labels, source = output_files.read_labels(directory), output_files.LABELS
    if labels is not None and len(labels) != bare.outputs:
        labels = None  # of another head
    return bare._replace(kind="tagging" if bare.crf else kind, labels=labels,
                         source=os.path.join(directory, source))


def has_trained_names(head):
    """Whether a `Head`'s labels are named by what a training wrote, rather than in the configuration."""
    return os.path.basename(head.source) in (output_files.RECORD, output_files.LABELS)


def labels_of_weights(settings):
    """Returns the labels of the head whose weights a run without training uses (list of str), or None if they
    are not known."""
    newest = checkpoint_formats.latest_checkpoint(settings.output_dir)
    if newest or not settings.init_checkpoint:
        return output_files.read_labels(settings.output_dir)
    head = read_head(model_config.open_starting_weights(settings))
    return head and head.labels


# --- Where a head starts ---------------------------------------------------------------------------------


def starting_checkpoint(settings, wanted):
    """Returns where the weights of a task start: --init_checkpoint, with its head in the order of the task's
    labels. A head of another kind, or with other labels, is left out in a training, and starts anew; that of
    a published model, of pre-training, without a training too.

    Args:
      settings: a `Settings`.
      wanted: the task's `Head`.

    Returns:
      the path, or a `checkpoint_formats.Checkpoint`; None without --init_checkpoint.

    Raises:
      ValueError: without a training the head is another one.
    """
    path = settings.init_checkpoint
    if not path or checkpoint_formats.latest_checkpoint(settings.output_dir):  # from there weights come then
        return path
    found = model_config.open_starting_weights(settings)
    head = read_head(found, wanted.kind)
    if head is None:
        return path
    different, mended = _describe_difference(settings, head, wanted)
    if not different:
        return _reorder_head(path, found, head, wanted)
    usual = head.kind == "pre-training"
    if not (settings.do_train or usual):  # what a published model makes of a task untrained, it may be asked
        raise ValueError(f"{different}. {mended}")
    (logging.info if usual else logging.warning)(
        "%s: the %s at random, the encoder from there.", different[0].upper() + different[1:],
        "classifier starts" if wanted.kind == "classification" else "head starts")
    return checkpoint_formats.drop_tensors(found, [*_LINEAR, CRF])


def _describe_difference(settings, head, wanted):
    """Returns (what makes a head another one than the task's, what to do without a training); two empty texts
    if nothing does."""
    path = settings.init_checkpoint
    ours = wanted.kind in _VARIABLES
    if head.kind != wanted.kind and (head.kind is not None or ours):
        of = KINDS.get(head.kind, "another task")
        said = f" ({head.source})" if head.source else ""
        return (f"the head in --init_checkpoint={path} is of {of}{said}, the task needs that of "
                f"{KINDS[wanted.kind]}", "Train first, with --do_train=true, or take another checkpoint.")
    if ours:
        return "", ""
    if head.labels and wanted.labels and not _permutation(head, wanted):
        return (f"the {_describe_head(wanted)} in --init_checkpoint={path} has the labels "
                f"{', '.join(head.labels)} ({head.source}), the task has {', '.join(wanted.labels)}",
                "Train first, with --do_train=true; or if they mean the same, give them there the task's "
                "names, each at its own place.")
    if head.outputs not in (None, wanted.outputs):
        return (f"the {_describe_head(wanted)} in --init_checkpoint={path} was trained with another number "
                f"of labels, {head.outputs}, the task has {wanted.outputs}",
                "Train first, with --do_train=true, or take another checkpoint.")
    if head.crf != wanted.crf and not settings.do_train:
        return (f"the tagger in --init_checkpoint={path} was trained {'with' if head.crf else 'without'} a "
                "CRF", f"Pass --crf={str(head.crf).lower()}.")
    return "", ""


def _describe_head(wanted):
    return "tagger" if wanted.kind == "tagging" else "classifier"


def _permutation(head, wanted):
    """Returns where the task's labels stand among the head's, in any letter case; None if they are others."""
    theirs, ours = ([label.casefold() for label in labels] for labels in (head.labels, wanted.labels))
    if sorted(theirs) != sorted(ours) or len(set(ours)) < len(ours):
        theirs, ours = head.labels, wanted.labels
    return [theirs.index(label) for label in ours] if sorted(theirs) == sorted(ours) else None


def _reorder_head(path, found, head, wanted):
    """The checkpoint with its head in the order of the task's labels."""
    if not wanted.labels:
        return path
    if head.crf != wanted.crf:
        logging.info("The tagger in %s was trained %s a CRF: %s.", path, "with" if head.crf else "without",
                     "its scores of tags are taken, and no transitions" if head.crf
                     else "transitions start at zero")
    if not head.labels:
        logging.info("The labels of the %s in %s have no names: taken for the task's, in its order %s.",
                     _describe_head(wanted), path, ", ".join(wanted.labels))
        return path
    order = _permutation(head, wanted)
    if order == sorted(order):
        return path
    logging.info("The %s in %s has the labels in the order %s: taken in the task's, %s.",
                 _describe_head(wanted), path,
                 ", ".join(head.labels), ", ".join(wanted.labels))
    return checkpoint_formats.reorder_tensors(found, {**dict.fromkeys(_LINEAR, [order]), CRF: [order, order]})
