"""Contains the code that run_classifier.py and run_classifier_with_tfhub.py share."""

import os
import re

from absl import logging

from bertlib.output_directory import output_files
from bertlib.output_directory.directory import OutputDirectory
from bertlib.runs import example_limits, run_record
from bertlib.runs.settings import require_data_dir, sample_path
from bertlib.system import files
from bertlib.tasks import targets
from bertlib.tasks.classification import dev_split
from bertlib.tasks.classification.classifier_data import (
    PROCESSORS,
    DataProcessor,
    XnliProcessor,
    copy_example,
    get_processor,
)
from bertlib.tasks.classification.task import custom_task, task_module
from bertlib.tasks.classification.text_targets import create_target

# --- Before the run --------------------------------------------------------------------------------------


def create_processor(settings, suffix=""):
    """Returns the processor for --task_name, for --task_module or for the user's own data.

    Also sets the flags that were not given: --do_train, --do_eval and --do_predict; --output_dir; the flags
    whose values are in the record of the training; and --data_dir, whose default is the directory of this
    project's sample of the task.

    Args:
      settings: a `Settings`.
      suffix: see `custom_task.create_processor`.

    Raises:
      ValueError, OSError: a flag is invalid, or has no default for this task.
    """
    if task_module.is_given(settings):
        processor = task_module.create_processor(settings, suffix)
        _check_metrics(processor.task)
        return processor
    if custom_task.is_given(settings):
        return custom_task.create_processor(settings, suffix)
    settings.choose_phases()
    if settings.output_dir is None and settings.task_name:
        settings.set_default("output_dir", os.path.join("output", settings.task_name.lower() + suffix))
    run_record.inherit_settings(settings, *custom_task.TASK_TYPES)
    if settings.task_name == custom_task.TASK:
        raise ValueError(f"The model in --output_dir={settings.output_dir} was trained on your own data. "
                         "Name a file with --dev_file or --test_file.")
    if settings.task_name == task_module.TASK:
        raise ValueError("The model was trained with a --task_module. Pass this module: the training stored "
                         f"a copy in {settings.trained.path}/{output_files.TASK_MODULE}. "
                         "The module is executed, so read it first if you do not trust its origin.")
    if not settings.task_name:
        _refuse_missing_training(settings)
        raise ValueError(f"--task_name is required; known tasks: {', '.join(sorted(PROCESSORS))}. Or name "
                         "your own data with --train_file, or pass the Python file of your own task as "
                         "--task_module.")
    try:
        processor = get_processor(settings.task_name)
    except ValueError as error:
        raise ValueError(f"--task_name: {error}") from error
    _check_metrics(processor)
    if isinstance(processor, XnliProcessor):
        processor.language = settings.xnli_language
    elif settings.is_given("xnli_language"):
        raise ValueError(f"--xnli_language={settings.xnli_language}: this flag is only for the task "
                         f"XNLI, and not for {settings.task_name}. Leave the flag out.")
    if settings.data_dir is None:
        sample = sample_path(settings.task_name.upper())
        if not os.path.isdir(sample):
            raise ValueError("--data_dir is required: this project contains a sample of MRPC, but not of "
                             f"{settings.task_name}.")
        run_record.refuse_sample(settings, sample, "--data_dir")
        settings.set_default("data_dir", sample,
                             "a small sample made for this repository, not the real corpus")
    require_data_dir(settings.data_dir)
    return processor


def _refuse_missing_training(settings):
    """Raises an error if a run without training cannot read its task from --output_dir, because the directory
    contains no training of a classifier. This function is called only if no flag names the task."""
    directory = settings.output_dir
    if settings.do_train or directory is None:
        return
    if not files.is_directory(directory):
        raise NotADirectoryError(f"--output_dir={directory}: there is no such directory. Pass the output "
                                 "directory of a training, or train first with --do_train=true.")
    if not settings.directory.newest:
        raise ValueError(f"--output_dir={directory} contains no training, because it contains no checkpoint. "
                         "Pass the output directory of a training, or train first with --do_train=true.")
    record = settings.directory.record
    if record is None:
        raise ValueError(f"--output_dir={directory} contains checkpoints, but no {output_files.RECORD} that "
                         "names the task of their training. Pass the task as --task_name, or name your own "
                         "data with --dev_file or --test_file.")
    if record["task_type"] not in custom_task.TASK_TYPES:
        raise ValueError(f"--output_dir={directory} contains a training by {record['command']}, and no "
                         "training of a classifier. Evaluate the model with that command, or pass another "
                         "--output_dir.")


def _check_metrics(processor):
    """Raises a ValueError if a processor declares a metric that the head of its task does not compute."""
    declared = task_declaration(processor)
    known = targets.find(declared.task_type).metric_names
    unknown = [name for name in declared.metrics if name not in known]
    if unknown:
        raise ValueError(f"{type(processor).__name__}.metrics contains {', '.join(unknown)}, but the "
                         f"task type {declared.task_type} has only these metrics: {', '.join(known)}. "
                         "Declare only metrics from this list.")


def read_examples(settings, processor):
    """Reads the examples that the phases of the run need.

    Args:
      settings: a `Settings`.
      processor: the processor of the task.

    Returns:
      (examples, whether the test set has labels). The examples are {name of a set: list of `InputExample`}.
      The sets are "train", "dev", "test" and additional sets such as "dev_mismatched".
    """
    examples, test_has_labels = {}, False
    if settings.do_train:
        examples["train"] = _examples(settings, processor, "train")
    if settings.do_eval:
        examples.update(_examples_of_sets(settings, processor, "dev"))
    examples = {name: example_limits.draw_examples(settings, name, rows, dev_split.row_digest)
                for name, rows in examples.items()}
    if settings.do_predict:
        examples.update(_examples_of_sets(settings, processor, "test"))
        labels = processor.get_test_labels(settings.data_dir)
        test_has_labels = labels is not None
        if test_has_labels:
            examples["test"] = [copy_example(task_declaration(processor), example, label)
                                for example, label in zip(examples["test"], labels, strict=True)]
    return examples, test_has_labels


def _examples(settings, processor, split):
    """Returns the examples of "train", "dev" or "test"."""
    try:
        return getattr(processor, f"get_{split}_examples")(settings.data_dir)
    except NotImplementedError:
        raise ValueError(f"{settings.task_name} has no {split} examples. If the task is for "
                         "prediction only, pass --do_predict=true as the only phase, and name a trained "
                         "model with --init_checkpoint or --output_dir.") from None


def _examples_of_sets(settings, processor, split):
    """Returns the examples of a split, such as "dev", and of its additional sets, such as "dev_mismatched".

    Returns:
      {name of the set: list of `InputExample`}.
    """
    examples = {split: _examples(settings, processor, split)}
    for name in task_declaration(processor).further_sets:
        further = processor.get_further_examples(settings.data_dir, f"{split}_{name}")
        if further is None:
            logging.info("No %s examples in %s: the set is skipped.", name, settings.data_dir)
        else:
            examples[f"{split}_{name}"] = further
    return examples


def task_declaration(processor):
    """Returns the object that declares the properties of a task, such as its type. For a processor that is
    derived from `DataProcessor`, this is the processor itself. For any other processor, it is an object with
    the defaults."""
    return processor if isinstance(processor, DataProcessor) else DataProcessor()


def get_labels(processor):
    """Returns the labels of a processor's task; None if the task is a regression.

    Raises:
      ValueError: the processor returns no label, or returns a label twice.
    """
    if targets.find(task_declaration(processor).task_type).is_score:
        return None
    labels = list(processor.get_labels() or ())
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{type(processor).__name__}.get_labels() returns {labels}. It must return each "
                         "label of the task exactly once.")
    return labels


def get_target(processor):
    """Returns the target of the task's model, see `text_targets`.

    Raises:
      ValueError: see `get_labels`.
    """
    return getattr(processor, "target", None) or create_target(get_labels(processor))


def task_suffix(settings):
    """Returns the suffix of the names of result files, before the extension.

    If --results_dir contains the training of a different task, the suffix is the name of this run's task,
    such as "_ax". So the run does not overwrite the result files of that training. In all other cases, the
    suffix is empty.
    """
    record = None if settings.do_train else OutputDirectory(settings.results_dir).record
    task = settings.task_name.lower()
    if record is None or record["task"] == task:
        return ""
    return "_" + re.sub(r"\W+", "_", task)
