"""Describes the source of a classification's examples: a known task, a task module, or the user's own data.

`classification_run.resolve_source` returns a `Source`. The own data are read by `custom_task`.
"""

from collections.abc import Sequence
import os
from typing import NamedTuple

from bertlib.system import files
from bertlib.tasks import split_data
from bertlib.tasks.classification import text_targets

OWN_DATA = "own data"  # name of the task in run.json
# The types of tasks.
TASK_TYPES = ("classification", "regression", "multilabel")
# The flags for the user's own data.
_FLAGS = (*split_data.FILES, "text_column", "label_column", "label_file", "label_map", "task_type",
          "label_separator", "threshold", "header", "delimiter", "encoding", "skip_bad_lines", "dev_fraction")


class Source(NamedTuple):
    """The source of a run's examples.

    Attributes:
      processor: the processor of the task.
      target: the target of the task's model, see `text_targets`.
      recorded: the fields of a `run_record.Description` that describe the source, as {name: value}.
      files: {name: content in bytes} of files that a training writes to its output directory.
      skipped: list of `faults.Fault`, the lines that --skip_bad_lines left out.
      dialects: {split: `tables.Dialect` for its table of predictions}. Other splits have the default.
    """

    processor: object
    target: object
    recorded: dict = {}
    files: dict = {}
    skipped: Sequence = ()
    dialects: dict = {}


def is_given(settings):
    """Returns whether the command line contains flags for the user's own data.

    Raises:
      ValueError: the command line contains flags for the user's own data and also --task_name.
    """
    names = given_flags(settings)
    if names and settings.task_name:
        raise ValueError(f"--{names[0]} is for your own data, but --task_name={settings.task_name} is a "
                         "known task with fixed files. Leave one of these two flags out.")
    return bool(names)


def given_flags(settings):
    """Returns the names of the flags on the command line that belong to the user's own data."""
    return [name for name in _FLAGS if settings.is_given(name)]


def default_directory(path, suffix):
    """Returns the default --output_dir of a run, which is named after a file of the user."""
    name = os.path.basename(path)
    name = name[:-len(".gz")] if name.lower().endswith(".gz") else name
    return files.path_beside(os.path.join("output", os.path.splitext(name)[0]), suffix)


def choose_phases(settings, has_examples):
    """If no phase was given, turns on each phase that has examples.

    Args:
      settings: a `Settings`.
      has_examples: function that takes "train", "dev" or "test".
    """
    if not any(map(settings.is_given, split_data.PHASES.values())):
        for split, phase in split_data.PHASES.items():
            if has_examples(split):
                settings.set_default(phase, True)
    settings.choose_phases()


def create_target(settings, target_class, labels):
    """Returns the target of a run, see `text_targets`.

    Args:
      settings: a `Settings`. A multi-label target contains the values of --threshold and --label_separator.
      target_class: class of the target.
      labels: list of str; None for a regression.

    Raises:
      ValueError: a flag is not for this type of task, or a label contains the separator of labels.
    """
    if not target_class.is_multilabel:
        for name in filter(settings.is_given, ("threshold", "label_separator")):
            raise ValueError(f"--{name} is for --task_type=multilabel, but this run has "
                             f"--task_type={target_class.name}. Leave --{name} out.")
        return text_targets.create_target(labels)
    for label in labels:
        if settings.label_separator in label:
            raise ValueError(f"the label {label!r:.80} contains {settings.label_separator!r}, which "
                             "separates labels. Pass another --label_separator.")
    return target_class(labels, settings.threshold, settings.label_separator)


def refuse_other_file(settings, flag, is_same):
    """Checks that the default --output_dir contains no training on a different file. The default directory
    is named after a file, so two files of the same name have the same default directory.

    Args:
      settings: a `Settings`.
      flag: name of the flag with the file.
      is_same: function that takes the record of the training. It returns whether the content was the same.

    Raises:
      ValueError: the default --output_dir contains a training on a different file.
    """
    record, path = settings.output_directory.trained_record, getattr(settings, flag)
    trained = settings.do_train and record and record.get("files", {}).get(flag)
    if trained and trained != os.path.abspath(path) and not is_same(record):
        raise ValueError(f"--{flag}={path}: the default output directory, {settings.output_dir}, already "
                         f"contains a training on a different file, {trained}. Name another directory with "
                         f"--output_dir. To continue that training with {path}, pass "
                         f"--output_dir={settings.output_dir}.")
