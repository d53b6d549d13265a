"""Finds the source of a run's examples: a known task, the user's own data, or a task module. Reads the
examples."""

import contextlib
import copy
import os

from absl import logging

from bertlib.runs import file_names, recorded_flags, registry
from bertlib.runs.input_paths import require_data_dir, sample_path
from bertlib.tasks import split_data
from bertlib.tasks.classification import classifier_data, sources, task_module
from bertlib.tasks.classification.classifier_data import DataProcessor
from bertlib.tasks.classification.classifier_features import check_examples


def resolve_source(settings, suffix=""):
    """Returns the `sources.Source` for --task_name, for --task_module or for the user's own data.

    Also sets the flags that were not given: --do_train, --do_eval and --do_predict; --output_dir; the flags
    whose values are in the record of the training; and --data_dir, whose default is the directory of this
    project's sample of the task.

    Args:
      settings: a `Settings`.
      suffix: suffix of the default --output_dir.

    Raises:
      ValueError, OSError: a flag is invalid, or has no default for this task.
    """
    task_module.resolve_flag(settings)
    if settings.task_module:
        source = _load_module(settings, suffix)
    elif sources.is_given(settings):
        from bertlib.tasks.classification import custom_task
        source = custom_task.read(settings, suffix)
    else:
        processor = _known_task(settings, suffix)
        source = sources.Source(processor, _create_target(settings, processor))
    if settings.is_given("xnli_language") and not isinstance(source.processor, classifier_data.XnliProcessor):
        raise ValueError(f"--xnli_language={settings.xnli_language}: this flag is only for the task XNLI. "
                         "Leave the flag out.")
    return source


def _load_module(settings, suffix):
    """Returns the `sources.Source` for --task_module."""
    processor, content, recorded = task_module.load(settings)
    is_default = settings.output_dir is None
    if is_default:
        settings.set_default("output_dir", sources.default_directory(settings.task_module, suffix))
    settings.task_name, settings.task_type = task_module.TASK, processor.task_type
    sources.choose_phases(settings, lambda split: _provides(processor, split))
    recorded_flags.inherit(settings, *sources.TASK_TYPES, without=("task_name", "task_type"))
    if settings.data_dir is not None:
        require_data_dir(settings.data_dir)
    if is_default:
        sources.refuse_other_file(settings, "task_module", lambda record: (
            recorded["fingerprint"] == (record["task_module"] or {}).get("fingerprint")))
    return sources.Source(processor, _create_target(settings, processor), {"task_module": recorded},
                          {file_names.TASK_MODULE: content})


def _provides(processor, split):
    """Returns whether a class has the method that returns the examples of a set, or declares its file."""
    return split in processor.files or classifier_data.overrides(processor, DataProcessor,
                                                                 f"get_{split}_examples")


def _known_task(settings, suffix):
    """Returns the processor of --task_name. Sets flags that were not given; see `resolve_source`."""
    settings.choose_phases()
    if settings.output_dir is None and settings.task_name:
        settings.set_default("output_dir", os.path.join("output", settings.task_name.lower() + suffix))
    recorded_flags.inherit(settings, *sources.TASK_TYPES)
    if settings.task_name == sources.OWN_DATA:
        raise ValueError(f"The model in --output_dir={settings.output_dir} was trained on your own data. "
                         "Name a file with --dev_file or --test_file.")
    if settings.task_name == task_module.TASK:
        raise ValueError("The model was trained with a --task_module. Pass this module: the training stored "
                         f"a copy in {settings.trained.path}/{file_names.TASK_MODULE}. "
                         "The module is executed, so read it first if you do not trust its origin.")
    if not settings.task_name:
        why = ""
        if not settings.do_train and settings.output_dir is not None:
            record = settings.output_directory.record
            found = f"a training by {record['command']}" if record else (
                f"no training of a classifier with a {file_names.RECORD}")
            why = f", because --output_dir={settings.output_dir} contains {found}"
        known = ", ".join(sorted(classifier_data.PROCESSORS))
        raise ValueError(f"--task_name is required{why}; known tasks: {known}. Or name your own data with "
                         "--train_file, or pass the Python file of your own task as --task_module.")
    try:
        processor = classifier_data.get_processor(settings.task_name)
    except ValueError as error:
        if settings.is_given("task_name"):
            raise ValueError(f"--task_name: {error}") from error
        raise ValueError(f"--output_dir={settings.output_dir}: the model was trained on the task "
                         f"{settings.task_name!r:.80}, which is not a known task. If the training had a "
                         "--task_module, pass the same --task_module.") from error
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


def _create_target(settings, processor):
    """Returns the target of a task's model, after checking what the processor declares.

    Raises:
      ValueError: the type of the task or a metric is unknown; the processor returns no label, returns a label
        twice, or returns a label that cannot be written into files; or a flag is not for this type of task.
    """
    name = type(processor).__name__
    if processor.task_type not in sources.TASK_TYPES:
        raise ValueError(f"{name}.task_type is {processor.task_type!r}. It must be one of "
                         f"{', '.join(sources.TASK_TYPES)}.")
    target_class = registry.find_target(processor.task_type)
    if processor.metrics == DataProcessor.metrics and target_class.name != DataProcessor.task_type:
        processor.metrics = tuple(target_class.metric_names)[:2]
    unknown = [metric for metric in processor.metrics if metric not in target_class.metric_names]
    if unknown:
        raise ValueError(f"{name}.metrics contains {', '.join(unknown)}, but the task type "
                         f"{target_class.name} has only these metrics: "
                         f"{', '.join(target_class.metric_names)}. Declare only metrics from this list.")
    if target_class.is_score:
        return sources.create_target(settings, target_class, None)
    labels = ()
    with contextlib.suppress(NotImplementedError):
        labels = processor.get_labels() or ()
    names = [label for label in labels if isinstance(label, str) and label.strip() and label.isprintable()]
    if isinstance(labels, str) or not names or len(set(names)) < len(labels):
        raise ValueError(f"{name}.get_labels() returns {labels!r:.200}. It must return a list that contains "
                         "each label of the task exactly once. A label is a text without control characters.")
    return sources.create_target(settings, target_class, names)


def read_examples(settings, processor, target):
    """Reads and checks the examples that the phases of the run need.

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
    for split in split_data.needed(settings):
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
            rows = list(map(_with_label, rows, known))
        check_examples(rows, target)
        examples[name] = split_data.draw_examples(settings, name, rows, split_data.row_digest)
    if settings.do_train and settings.max_train_examples and (
            len({str(example.label) for example in examples["train"]}) < 2):
        raise ValueError(f"--max_train_examples={settings.max_train_examples}: all drawn examples have the "
                         "same label, so there is nothing to learn. Pass a larger number.")
    return examples, labels is not None


def read_baseline_examples(settings, processor, target):
    """Returns the training examples for the baseline of a run without training, as a list of `InputExample`.
    The list is empty if the run has no training data. For the arguments, see `read_examples`."""
    try:
        examples = processor.get_train_examples(settings.data_dir)
    except (NotImplementedError, OSError) as error:
        logging.info("Baseline: the training examples cannot be read: %s", error)
        return []
    check_examples(examples, target)
    return split_data.draw_examples(settings, "train", examples, split_data.row_digest)


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
