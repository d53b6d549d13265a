"""What the commands that classify have in common: their task and its examples, and the run itself."""

import functools
import os
import re

from absl import logging
import numpy as np

from bertlib.output_directory import output_files
from bertlib.runs import checks, estimator_setup, head_labels, learning_curve, results, run_record
from bertlib.runs.classification import classification_splits, custom_task
from bertlib.runs.settings import sample_path
from bertlib.system import files
from bertlib.tasks.classification import classification_head as classifier_task
from bertlib.tasks.classification import glue, multilabel_head, regression_head, targets
from bertlib.tasks.classification.classifier_data import (
    PROCESSORS,
    DataProcessor,
    XnliProcessor,
    feature_fields,
    get_processor,
)

# Result files in results_dir. The braces hold the name of a further set, as in eval_results_mismatched.txt,
# and that of another task than the directory's, as in test_results_ax.tsv.
_RESULT_FILES = ("eval{}.tf_record", "predict{}.tf_record", "eval_results{}.txt", "test_results{}.tsv",
                 "test_predictions{}.tsv", "test_eval_results{}.txt")
_IN_WORDS = {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews", "pearson": "Pearson",
             "spearman": "Spearman", "f1_micro": "micro F1", "f1_macro": "macro F1"}

# --- Before the run --------------------------------------------------------------------------------------


def create_processor(settings, suffix=""):
    """Returns the processor of --task_name, or of one's own data; fills in phases, --output_dir and what a
    training says of the task, and --data_dir, a sample, if no flag names any.

    Args:
      settings: a `Settings`.
      suffix: see `own_data.processor_of`.

    Raises:
      ValueError, OSError: a flag has no default for this task, or cannot be right.
    """
    if custom_task.is_given(settings):
        return custom_task.create_processor(settings, suffix)
    settings.choose_phases()
    if settings.output_dir is None and settings.task_name:
        settings.set_default("output_dir", os.path.join("output", settings.task_name.lower() + suffix))
    run_record.inherit_settings(settings, *custom_task.TASK_TYPES)
    if settings.task_name == custom_task.TASK:
        raise ValueError(f"--output_dir={settings.output_dir} was trained on your own data: name a file with "
                         "--dev_file or --test_file.")
    if not settings.task_name:
        raise ValueError(f"--task_name is required; known tasks: {', '.join(sorted(PROCESSORS))}. Or name "
                         "your own data with --train_file.")
    processor = get_processor(settings.task_name)
    if isinstance(processor, XnliProcessor):
        processor.language = settings.xnli_language
    elif settings.is_given("xnli_language"):
        raise ValueError(f"--xnli_language={settings.xnli_language}: only XNLI has languages, and not "
                         f"{settings.task_name}. Leave the flag out.")
    checks.refuse_tpus(settings)
    if settings.data_dir is None:
        sample = sample_path(settings.task_name.upper())
        if not os.path.isdir(sample):
            raise ValueError("--data_dir is required: there is a sample of MRPC only, not of "
                             f"{settings.task_name}.")
        settings.set_default("data_dir", sample,
                             "a small sample made for this repository, not the real corpus")
    if not files.is_directory(settings.data_dir):
        raise NotADirectoryError(f"--data_dir={settings.data_dir}: there is no such directory.")
    return processor


def read_examples(settings, processor):
    """Reads what flags ask for.

    Returns:
      ({"train", "dev", "test", and further sets such as "dev_mismatched": list of `InputExample`}, whether
      test has labels).
    """
    examples, test_has_labels = {}, False
    if settings.do_train:
        examples["train"] = _examples(settings, processor, "train")
    if settings.do_eval:
        examples.update(_examples_of_sets(settings, processor, "dev"))
    if settings.do_predict:
        examples.update(_examples_of_sets(settings, processor, "test"))
        labels = processor.get_test_labels(settings.data_dir)
        test_has_labels = labels is not None
        for example, label in zip(examples["test"], labels or ()):
            example.label = label
    return examples, test_has_labels


def _examples(settings, processor, split):
    """Returns the examples of "train", "dev" or "test"."""
    try:
        return getattr(processor, f"get_{split}_examples")(settings.data_dir)
    except NotImplementedError:
        raise ValueError(f"{settings.task_name} has no {split} examples. If it is there to be predicted "
                         f"only, "
                         "pass --do_predict=true alone, and a trained model as --init_checkpoint or in "
                         "--output_dir.") from None


def _examples_of_sets(settings, processor, split):
    """Returns {split, and its further sets that are there: list of `InputExample`}."""
    found = {split: _examples(settings, processor, split)}
    for name in _task_declaration(processor).further_sets:
        further = processor.get_further_examples(settings.data_dir, f"{split}_{name}")
        if further is None:
            logging.info("No %s examples in %s: none are looked at.", name, settings.data_dir)
        else:
            found[f"{split}_{name}"] = further
    return found


def _task_declaration(processor):
    """What a processor says of its task; of one that is no `DataProcessor`, what all tasks have in common."""
    return processor if isinstance(processor, DataProcessor) else DataProcessor()


def get_labels(processor):
    """Returns a processor's labels; None for a regression.

    Raises:
      ValueError: there is none, or one twice.
    """
    if _task_declaration(processor).task_type == "regression":
        return None
    labels = list(processor.get_labels() or ())
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{type(processor).__name__}.get_labels() gives {labels}: let it give each label of "
                         "the task once.")
    return labels


def get_target(processor):
    """Returns what a model of the task is to say of a text, see `targets`; errors as of `get_labels`."""
    return getattr(processor, "target", None) or targets.create_target(get_labels(processor))


def starting_checkpoint(settings, target):
    """Returns where the weights of a task with this target start; see `head_labels.starting_checkpoint`."""
    return head_labels.starting_checkpoint(
        settings, head_labels.Head(target.task_type, target.labels, target.size))


def create_head(target):
    """Returns the head of a task with this target; see `targets` and `head`."""
    if target.task_type == "regression":
        return regression_head.Regressor()
    if target.task_type == "multilabel":
        return multilabel_head.MultilabelClassifier(target.labels, target.threshold)
    return classifier_task.Classifier(target.size)


def feature_fields_for(target):
    """Returns the `feature_fields` of a task with this target: a function of the sequence length."""
    return functools.partial(feature_fields, target=target)


def train_steps(settings, examples):
    """The number of steps in which the flags' epochs of `Parts.training` are done.

    Raises:
      ValueError: there is none, and a training is asked for.
    """
    what = "windows of training examples" if settings.doc_stride else "training examples"
    return estimator_setup.count_steps(settings, len(examples), what)


def refuse_overwriting(settings, processor, **read):
    """Raises a ValueError if a file that is read is one that is written; see `checks.refuse_overwriting`."""
    # A processor of a script that imports a command may declare no files.
    declared = _task_declaration(processor)
    names = [name for names in declared.file_names().values() for name in names]
    of_task = task_suffix(settings)
    suffixes = [of_task, *(f"{of_task}_{name}" for name in declared.further_sets)]
    written = [name.format(suffix) for name in _RESULT_FILES for suffix in suffixes]
    if settings.data_dir is None:
        read.update(custom_task.list_files(settings))
    else:
        read["data_dir"] = [os.path.join(settings.data_dir, name) for name in names]
    checks.refuse_overwriting(
        settings, read,
        checks.list_overwritten_files(settings, [*written, *declared.submission], ["train.tf_record"]))


def task_suffix(settings):
    """Returns how the names of result files end, before the extension: with the task, as in "_ax", where
    results_dir holds the training of another task, whose result files must stay; else with nothing."""
    record = None if settings.do_train else output_files.read_record(settings.results_dir)
    task = settings.task_name.lower()
    if record is None or record["task"] == task:
        return ""
    return "_" + re.sub(r"\W+", "_", task)


# --- The run ---------------------------------------------------------------------------------------------


def run(settings, model, processor, splits, target, tokenizer, **description):
    """Trains, evaluates and predicts, as the flags ask. The log ends with examples of predictions and the
    official metrics.

    Args:
      settings: a `Settings`, checked.
      model: a `training_kernels.Model`.
      processor: the task's.
      splits: the `classification_parts.Parts` of the examples.
      target: see `get_target`.
      tokenizer: that of the model.
      description: the rest of `run_record.describe`'s arguments: command and config.
    """
    examples, num_train_steps = splits.examples, train_steps(settings, splits.training)
    if target.task_type == "multilabel":
        description["threshold"] = target.threshold  # which the model's later answers go by
    kept = getattr(processor, "dev_rows", None)
    record = run_record.RunRecord(
        settings, num_train_steps, {output_files.DEV_ROWS: kept.content.encode()} if kept else {},
        dev_rows=kept and kept.recorded, task=settings.task_name.lower(), task_type=target.task_type,
        labels=target.labels, tokenizer=tokenizer,
        train_data=run_record.describe_examples(examples["train"]) if settings.do_train else None,
        trim_padding=estimator_setup.trims_training(settings, model), **description)
    estimator, step = estimator_setup.create_estimator(settings, model, settings.eval_batch_size,
                                                       settings.predict_batch_size, num_train_steps)
    task, official, predicted = _task_declaration(processor), [], {}
    of_task = task_suffix(settings)
    if of_task:
        logging.info("The names of result files end in %s, because %s holds the training and the results of "
                     "another task.", of_task, settings.results_dir)

    @functools.cache  # a split that is evaluated several times is written once
    def input_fn(split, name, is_training=False):
        """Writes the split's features; returns the input_fn that reads them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{name}.tf_record")
        splits.write(split, path)
        return classifier_task.file_based_input_fn_builder(
            path, settings.max_seq_length, is_training, drop_remainder=is_training,
            trim=step.trim if is_training else estimator_setup.trims_evaluation(settings),
            unequal_micro_batches=is_training and step.unequal_micro_batches, target=target)

    def evaluate(split, evaluated_input_fn, name):
        """Predicts a split; returns the metrics of these predictions, which `predicted` keeps."""
        def of_examples(results, rows):
            predicted[split] = splits.in_order(split, rows)
            return splits.metrics(split, create_head(target), results, predicted[split])

        return estimator.evaluate(evaluated_input_fn, name=name, revise=of_examples)

    def report(split, file_name, found):
        """Writes the metrics of a split."""
        official.append(f"{split.replace('_', ' ')}: {_official(task, found)}")
        write_metrics(settings, file_name, found, target)

    with estimator_setup.locked_directories(settings, record):
        if settings.do_train:
            listeners = learning_curve.listeners(
                settings, lambda: input_fn("dev", "eval"), lambda dev: evaluate("dev", dev, None),
                f"Development set of {task.name or settings.task_name}",
                {f"eval_{name}": _IN_WORDS[name] for name in task.metrics})
            logging.info("Training on %d %s, %d steps of %d.", len(splits.training),
                         "windows" if settings.doc_stride else "examples", num_train_steps,
                         settings.train_batch_size)
            estimator.train(input_fn("train", "train", is_training=True), max_steps=num_train_steps,
                            saving_listeners=listeners)
        for split, suffix in _sets(examples, "dev", of_task):
            logging.info("Evaluating on %d examples.", len(examples[split]))
            found = evaluate(split, input_fn(split, f"eval{suffix}"), suffix[1:] or None)
            report(split, f"eval_results{suffix}.txt", found)
        for split, suffix in _sets(examples, "test", of_task):
            logging.info("Predicting %d examples.", len(examples[split]))
            test_input_fn = input_fn(split, f"predict{suffix}")
            if splits.has_labels(split):
                found = evaluate(split, _in_batches_of(settings.predict_batch_size, test_input_fn),
                                 f"test{of_task}")
                report(split, f"test_eval_results{of_task}.txt", found)
            else:
                predicted[split] = splits.in_order(split, estimator.predict(test_input_fn))
            write_predictions(settings, predicted[split], target, suffix)
            glue.write_predictions(settings.results_dir, task, split,
                                   predicted_labels(predicted[split], target))
        for split, rows in list(predicted.items())[:1]:
            classification_splits.log_sample_predictions(split, examples[split], rows, target,
                                                         splits.has_labels(split))
        if official:
            logging.info("%s %s", task.name or settings.task_name, "; ".join(official))


def _in_batches_of(size, input_fn):
    """Returns an input_fn whose batches have another size than the Estimator asks for."""
    return lambda params: input_fn({**params, "batch_size": size})


def _sets(examples, split, of_task):
    """Returns [(name of a set, suffix of its files)]: that of "dev" or "test" and its further ones. For
    `of_task` see `task_suffix`."""
    return [(name, of_task + name.removeprefix(split)) for name in examples if name.startswith(split)]


def _official(task, found):
    """Returns the official metrics of an evaluation, in words."""
    return ", ".join(f"{_IN_WORDS[name]} {found[f'eval_{name}']:.3f}" for name in task.metrics)


def write_metrics(settings, file_name, found, target):
    """Writes the metrics of an evaluation; warns if all predictions are one class."""
    results.write_results(settings.results_dir, file_name, found)
    one_class = target.task_type == "classification" and classifier_task.single_class_warning(
        found["eval_confusion_matrix"], target.labels)
    if one_class:
        logging.warning("%s: %s", file_name, one_class)


def predicted_labels(predictions, target):
    """Returns the likeliest label of each prediction, a str; of a regression the score, a float; where there
    may be several labels, those that are likely enough, in one str."""
    return [target.predicted_label(prediction[target.output]) for prediction in predictions]


def write_predictions(settings, predictions, target, suffix=""):
    """Writes test_results.tsv, probabilities, and test_predictions.tsv, likeliest labels, by example; of a
    regression scores into both. `suffix` is that of a further set's files."""
    rows = [np.atleast_1d(prediction[target.output]) for prediction in predictions]
    numbers = os.path.join(settings.results_dir, f"test_results{suffix}.tsv")
    files.write_text(numbers, "".join("\t".join(map(str, row)) + "\n" for row in rows))
    named = os.path.join(settings.results_dir, f"test_predictions{suffix}.tsv")
    lines = [f"{index}\t{best}\n" for index, best in enumerate(predicted_labels(predictions, target))]
    files.write_text(named, "index\tprediction\n" + "".join(lines))
    if target.labels is None:
        logging.info("Predictions: scores in %s and %s.", numbers, named)
    else:
        logging.info("Predictions: probabilities in %s, labels in %s.", numbers, named)
