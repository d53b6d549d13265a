"""Finds the processor of a run and resolves the flags that depend on it. Reads and checks the examples.

A processor reads the examples of a known task (--task_name), of a task module (--task_module), or of the
user's own data (--train_file and other files, see `own_data`).
"""

import contextlib
import copy
import os

from absl import logging

from bertlib.runs import file_names, recorded_flags, registry
from bertlib.runs.input_paths import require_data_dir, sample_path
from bertlib.runs.settings import PHASES
from bertlib.system import files
from bertlib.tasks import data_splits
from bertlib.tasks.classification import classifier_data, task_module
from bertlib.tasks.classification.classifier_data import DataProcessor
from bertlib.tasks.classification.classifier_features import check_examples
from bertlib.tasks.task import Task

# The types of tasks.
TASK_TYPES = ("classification", "regression", "multilabel")
# The flags for labels and answers of the user's own data, which can be combined with --task_module.
_ANSWER_FLAGS = ("threshold", "label_separator")
# The flags for the user's own data.
_OWN_FLAGS = (*data_splits.FILES, "text_column", "label_column", "label_file", "label_map", "task_type",
              *_ANSWER_FLAGS, "header", "delimiter", "encoding", "skip_bad_lines", "dev_fraction")


# --- The processor ---------------------------------------------------------------------------------------


def resolve_task_module(settings):
    """Checks --task_module against the other flags. If no flag names a task or data, calls
    `task_module.use_copy`.

    Args:
      settings: a `Settings`.

    Raises:
      ValueError: flags exclude each other; or see `task_module.use_copy`.
    """
    others = [*filter(settings.is_given, ["task_name"]),
              *(name for name in _given_own_flags(settings) if name not in _ANSWER_FLAGS)]
    if settings.task_module:
        task_module.refuse_flags(settings, others)
    elif not others:
        task_module.use_copy(settings, has_task=False)


def uses_own_data(settings):
    """Returns whether the command line contains flags for the user's own data.

    Raises:
      ValueError: the command line contains flags for the user's own data and also --task_name.
    """
    given = _given_own_flags(settings)
    if given and settings.task_name:
        raise ValueError(f"--{given[0]} is for your own data, but --task_name={settings.task_name} is a "
                         "known task with fixed files. Leave one of these two flags out.")
    return bool(given)


def _given_own_flags(settings):
    return [name for name in _OWN_FLAGS if settings.is_given(name)]


def resolve_module(settings, suffix):
    """Loads the processor of --task_module, and sets flags that were not given; see `resolve_known_task`.

    Returns:
      (processor, `task_module.Module`).
    """
    processor_class, module = task_module.load(settings)
    if issubclass(processor_class, Task):
        raise ValueError(f"--task_module={settings.task_module} contains a task. Pass it to "
                         "run_classifier.py.")
    processor = processor_class()
    processor.name = processor.name or os.path.splitext(module.name)[0]
    resolve_directory(settings, settings.task_module, suffix)
    turn_on_phases(settings, [split for split in data_splits.PHASE_OF_SPLIT if _provides(processor, split)])
    settings.choose_phases()
    settings.task_name, settings.task_type = classifier_data.TASK_MODULE, processor.task_type
    recorded_flags.inherit(settings, *TASK_TYPES, without=("task_name", "task_type"))
    if settings.data_dir is not None:
        require_data_dir(settings.data_dir)
    refuse_other_file(settings, "task_module", lambda record: (
        module.fingerprint == (record["task_module"] or {}).get("fingerprint")))
    _check_processor(processor)
    return processor, module


def _provides(processor, split):
    """Returns whether a class has the method that returns the examples of a set, or declares its file."""
    return split in processor.files or classifier_data.overrides(processor, DataProcessor,
                                                                 f"get_{split}_examples")


def resolve_known_task(settings, suffix):
    """Returns the processor of --task_name.

    Sets the flags that were not given: --do_train, --do_eval and --do_predict; --output_dir; the flags whose
    values are in the record of the training; and --data_dir, whose default is the directory of this project's
    sample of the task.

    Args:
      settings: a `Settings`.
      suffix: suffix of the default --output_dir.

    Raises:
      ValueError, OSError: a flag is invalid, or has no default for this task.
    """
    settings.choose_phases()
    if settings.output_dir is None and settings.task_name:
        settings.set_default("output_dir", os.path.join("output", settings.task_name.lower() + suffix))
    recorded_flags.inherit(settings, *TASK_TYPES)
    is_known = (settings.task_name or "").lower() in classifier_data.PROCESSORS
    if not (is_known or settings.is_given("task_name")):
        raise ValueError(_explain_missing_name(settings))
    try:
        processor = classifier_data.get_processor(settings.task_name)
    except ValueError as error:
        raise ValueError(f"--task_name: {error}") from error
    if isinstance(processor, classifier_data.XnliProcessor):
        processor.language = settings.xnli_language
    if settings.data_dir is None:
        sample = sample_path(settings.task_name.upper())
        if not os.path.isdir(sample):
            raise ValueError("--data_dir is required: this project contains a sample of MRPC, but not of "
                             f"{settings.task_name}.")
        recorded_flags.refuse_sample(settings, sample, "--data_dir")
        settings.set_default("data_dir", sample,
                             "a small sample made for this repository, not the real corpus")
    require_data_dir(settings.data_dir)
    return processor


def _explain_missing_name(settings):
    """Returns an error message for a run without --task_name that does not evaluate a known task."""
    if settings.task_name == classifier_data.OWN_DATA:
        record = settings.evaluated_training.record
        path = record["files"].get("train_file")
        again = f"--train_file={path}, with its development rows, or with " if record["dev_rows"] else ""
        return (f"The model in --output_dir={settings.output_dir} was trained on your own data. "
                f"Name a file with {again}--dev_file or --test_file.")
    if settings.task_name == classifier_data.TASK_MODULE:
        return ("The model was trained with a --task_module. Pass this module: the training stored a copy in "
                f"{settings.evaluated_training.path}/{file_names.TASK_MODULE}. "
                "The module is executed, so read it first if you do not trust its origin.")
    if settings.task_name:
        return (f"--output_dir={settings.output_dir}: the model was trained on the task "
                f"{settings.task_name!r:.80}, which is not a known task. If the training had a "
                "--task_module, pass the same --task_module.")
    why, record = "", settings.output_directory.record
    if settings.do_train and record and record["task"].lower() in classifier_data.PROCESSORS:
        return (f"--output_dir={settings.output_dir} contains a training of {record['task']}. To continue "
                f"it, pass --task_name={record['task']} and the other flags of the training.")
    if not settings.do_train and settings.output_dir is not None:
        content = f"a training by {record['command']}" if record else (
            f"no training of a classifier with a {file_names.RECORD}")
        why = f", because --output_dir={settings.output_dir} contains {content}"
    return (f"--task_name is required{why}; known tasks: {', '.join(sorted(classifier_data.PROCESSORS))}. Or "
            "name your own data with --train_file, or pass the Python file of your own task as "
            "--task_module.")


def resolve_directory(settings, path, suffix):
    """Sets --output_dir if it was not given.

    Args:
      settings: a `Settings`.
      path: the file of the user after which the default --output_dir is named.
      suffix: suffix of the default --output_dir.
    """
    if settings.output_dir is None:
        name = os.path.basename(path)
        name = name[:-len(".gz")] if name.lower().endswith(".gz") else name
        settings.set_default("output_dir", files.path_beside(
            os.path.join("output", os.path.splitext(name)[0]), suffix))


def turn_on_phases(settings, splits):
    """Turns on the phases of splits, which have examples. Has no effect if a phase was given."""
    if not any(map(settings.is_given, PHASES)):
        for split in splits:
            settings.set_default(data_splits.PHASE_OF_SPLIT[split], True)


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
    if settings.is_given("output_dir") or not settings.do_train:
        return
    record, path = settings.output_directory.trained_record, getattr(settings, flag)
    trained = record and record.get("files", {}).get(flag)
    if trained and trained != os.path.abspath(path) and not is_same(record):
        raise ValueError(f"--{flag}={path}: the default output directory, {settings.output_dir}, already "
                         f"contains a training on a different file, {trained}. Name another directory with "
                         f"--output_dir. To continue that training with {path}, pass "
                         f"--output_dir={settings.output_dir}.")


def _check_processor(processor):
    """Checks what the processor of a task module declares, and sets its default metrics.

    Raises:
      ValueError: the type of the task or a metric is unknown; or the processor returns no label, returns a
        label twice, or returns a label that cannot be written into files.
    """
    name = type(processor).__name__
    if processor.task_type not in TASK_TYPES:
        raise ValueError(f"{name}.task_type is {processor.task_type!r}. It must be one of "
                         f"{', '.join(TASK_TYPES)}.")
    target = registry.find_target(processor.task_type)
    if processor.metrics == DataProcessor.metrics and target.name != DataProcessor.task_type:
        processor.metrics = tuple(target.metric_names)[:2]
    unknown = [metric for metric in processor.metrics if metric not in target.metric_names]
    if unknown:
        raise ValueError(f"{name}.metrics contains {', '.join(unknown)}, but the task type "
                         f"{target.name} has only these metrics: "
                         f"{', '.join(target.metric_names)}. Declare only metrics from this list.")
    if target.is_score:
        return
    labels = ()
    with contextlib.suppress(NotImplementedError):
        labels = processor.get_labels() or ()
    names = {label for label in labels if isinstance(label, str) and label.strip() and label.isprintable()}
    if isinstance(labels, str) or not names or len(names) < len(labels):
        raise ValueError(f"{name}.get_labels() returns {labels!r:.200}. It must return a list that contains "
                         "each label of the task exactly once. A label is a text without control characters.")


# --- The examples -----------------------------------------------------------------------------------------


def read_examples(settings, processor, target):
    """Reads the examples that the phases of the run need.

    Args:
      settings: a `Settings`.
      processor: the processor of the task.
      target: the target of the task's model.

    Returns:
      (examples, whether the test set has labels). The examples are {name of a set: list of `InputExample`}.
      The sets are "train", "dev", "test" and additional sets such as "dev_mismatched". An example of a test
      set without labels has the default label of the target.
    """
    examples, labels = {}, None
    for split in data_splits.needed(settings):
        examples.update(_examples_of_sets(settings, processor, split))
    if settings.do_predict:
        labels = processor.get_test_labels(settings.data_dir)
        if labels is not None and len(labels) != len(examples["test"]):
            raise ValueError(f"{type(processor).__name__}.get_test_labels returns {len(labels)} labels, but "
                             f"get_test_examples returns {len(examples['test'])} examples. It must return a "
                             "label for each example, or None.")
    for name, rows in examples.items():
        if name.startswith("test"):
            known = labels if name == "test" and labels is not None else [target.default_label] * len(rows)
            examples[name] = list(map(_with_label, rows, known))
    return examples, labels is not None


def draw_examples(settings, examples, target):
    """Checks the examples of a run, and returns those that --max_train_examples and --max_eval_examples draw.

    Args:
      settings: a `Settings`.
      examples: {name of a set: list of `InputExample`}, see `read_examples`. The result has the same form.
      target: the target of the task's model.
    """
    drawn = {}
    for name, rows in examples.items():
        check_examples(rows, target)
        drawn[name] = data_splits.draw_examples(settings, name, rows, data_splits.row_digest)
    if settings.do_train and settings.max_train_examples and (
            len({str(example.label) for example in drawn["train"]}) < 2):
        raise ValueError(f"--max_train_examples={settings.max_train_examples}: all drawn examples have the "
                         "same label, so there is nothing to learn. Pass a larger number.")
    return drawn


def _with_label(example, label):
    """Returns a copy of an example with another label. The example itself is not changed, because a user's
    processor may return the same object in several sets."""
    copied = copy.copy(example)
    copied.label = label
    return copied


def _examples_of_sets(settings, processor, split):
    """Returns the examples of a split, such as "dev", and of its additional sets, such as "dev_mismatched".

    Returns:
      {name of the set: list of `InputExample`}.
    """
    try:
        examples = {split: list(getattr(processor, f"get_{split}_examples")(settings.data_dir))}
    except NotImplementedError:
        raise ValueError(f"{processor.name or settings.task_name} has no {split} examples. "
                         "If the task is for prediction only, pass --do_predict=true as the only phase, and "
                         "name a trained model with --init_checkpoint or --output_dir.") from None
    if not examples[split]:
        raise ValueError(f"{type(processor).__name__}.get_{split}_examples returns no examples.")
    for name in () if split == "train" else processor.further_sets:
        further = processor.get_further_examples(settings.data_dir, f"{split}_{name}")
        if further is None:
            logging.info("No %s examples in %s: the set is skipped.", name, settings.data_dir)
        else:
            examples[f"{split}_{name}"] = further
    return examples
