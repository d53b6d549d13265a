"""Contains the code that run_classifier.py and run_classifier_with_tfhub.py share."""

import functools
import itertools
import os
import re

from absl import logging
import numpy as np

from bertlib.estimator import estimator_spec
from bertlib.output_directory import output_files
from bertlib.output_directory.directory import OutputDirectory
from bertlib.reports import classification_report, prediction_files
from bertlib.runs import (
    checks,
    estimator_setup,
    example_limits,
    head_labels,
    learning_curve,
    results,
    run_record,
)
from bertlib.runs.classification import classification_splits, custom_task, task_module
from bertlib.runs.settings import require_data_dir, sample_path
from bertlib.system import files
from bertlib.tasks.classification import classification_head as classifier_task
from bertlib.tasks.classification import (
    classification_metrics,
    dev_split,
    glue_submission_files,
    multilabel_head,
    regression_head,
    targets,
)
from bertlib.tasks.classification.classifier_data import (
    PROCESSORS,
    DataProcessor,
    XnliProcessor,
    copy_example,
    feature_fields,
    get_processor,
)

# Names of the result files in --results_dir. The braces are replaced by a suffix. For an additional set, the
# suffix is the name of the set, as in eval_results_mismatched.txt. If --results_dir contains a training on a
# different task, the suffix is the name of the run's task, as in test_results_ax.tsv. Otherwise, the suffix
# is empty.
_RESULTS_OF = {"dev": ("eval_results{}.txt", "eval_results{}.json", "eval_predictions{}.csv",
                       "eval_predictions{}.jsonl", "eval_report{}.html"),
               "test": ("test_results{}.tsv", "test_predictions{}.tsv", "test_eval_results{}.txt",
                        "test_eval_results{}.json", "test_predictions{}.csv", "test_predictions{}.jsonl")}
_RESULT_FILES = ("eval{}.tf_record", "predict{}.tf_record", *_RESULTS_OF["dev"], *_RESULTS_OF["test"])
_MAX_LISTED = 10  # number of labels that a message lists
# For each type of a task: the metrics that the head of the task computes, and the name of each metric in the
# log.
_METRIC_NAMES = {"classification": {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"},
                 "regression": {"pearson": "Pearson", "spearman": "Spearman"},
                 "multilabel": {"f1_micro": "micro F1", "f1_macro": "macro F1"}}

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
    checks.refuse_tpus(settings)
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
    declared = _task_declaration(processor)
    known = _METRIC_NAMES[declared.task_type]
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
            examples["test"] = [copy_example(_task_declaration(processor), example, label)
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
    for name in _task_declaration(processor).further_sets:
        further = processor.get_further_examples(settings.data_dir, f"{split}_{name}")
        if further is None:
            logging.info("No %s examples in %s: the set is skipped.", name, settings.data_dir)
        else:
            examples[f"{split}_{name}"] = further
    return examples


def _task_declaration(processor):
    """Returns the object that declares the properties of a task, such as its type. For a processor that is
    derived from `DataProcessor`, this is the processor itself. For any other processor, it is an object with
    the defaults."""
    return processor if isinstance(processor, DataProcessor) else DataProcessor()


def get_labels(processor):
    """Returns the labels of a processor's task; None if the task is a regression.

    Raises:
      ValueError: the processor returns no label, or returns a label twice.
    """
    if _task_declaration(processor).task_type == "regression":
        return None
    labels = list(processor.get_labels() or ())
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{type(processor).__name__}.get_labels() returns {labels}. It must return each "
                         "label of the task exactly once.")
    return labels


def get_target(processor):
    """Returns the target of the task's model, see `targets`.

    Raises:
      ValueError: see `get_labels`.
    """
    return getattr(processor, "target", None) or targets.create_target(get_labels(processor))


def starting_checkpoint(settings, target):
    """Returns the checkpoint from which the weights start; see `head_labels.starting_checkpoint`."""
    return head_labels.starting_checkpoint(
        settings, head_labels.Head(target.task_type, target.labels, target.size))


def create_head(target):
    """Returns the head for a target; see `targets` and `head`."""
    if target.task_type == "regression":
        return regression_head.Regressor()
    if target.task_type == "multilabel":
        return multilabel_head.MultilabelClassifier(target.size)
    return classifier_task.Classifier(target.size)


def feature_fields_for(target):
    """Returns the function `feature_fields` for a target. The returned function needs only one argument, the
    sequence length."""
    return functools.partial(feature_fields, target=target)


def train_steps(settings, examples):
    """Returns the number of training steps.

    Args:
      settings: a `Settings`.
      examples: `Splits.training`.

    Raises:
      ValueError: the run trains, but the number of steps is 0.
    """
    noun = "training window" if settings.doc_stride else "training example"
    return estimator_setup.count_steps(settings, len(examples), noun)


def refuse_overwriting(settings, processor, others=None):
    """Raises a ValueError if a command would overwrite an input file; see `checks.refuse_overwriting`.

    Args:
      settings: a `Settings`.
      processor: the processor of the task.
      others: {flag: paths that the command reads in addition to the data}, or None.
    """
    # A user's script can import this command and define its own processor. If this processor is not derived
    # from `DataProcessor`, it declares no files.
    declared = _task_declaration(processor)
    names = [name for names in declared.file_names().values() for name in names]
    of_task = task_suffix(settings)
    suffixes = [of_task, *(f"{of_task}_{name}" for name in declared.further_sets)]
    written = [name.format(suffix) for name in _RESULT_FILES for suffix in suffixes]
    if settings.skip_bad_lines:
        written.append(output_files.SKIPPED_LINES)
    if settings.data_dir is None:
        read = custom_task.list_files(settings)
    else:
        read = {"data_dir": [os.path.join(settings.data_dir, name) for name in names]}
    checks.refuse_overwriting(
        settings, {**(others or {}), **read},
        checks.list_overwritten_files(settings, [*written, *declared.submission], ["train.tf_record"]))


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


# --- The run ---------------------------------------------------------------------------------------------


def run(settings, model, processor, splits, target, tokenizer, command, config):
    """Runs the phases that the flags name: training, evaluation, prediction. At the end, logs a few
    predictions and the official metrics.

    Args:
      settings: a `Settings`, checked.
      model: an `estimator_setup.TrainableModel`.
      processor: the processor of the task.
      splits: the `classification_splits.Splits` of the examples.
      target: see `get_target`.
      tokenizer: tokenizer of the model.
      command, config: see `run_record.describe`.
    """
    num_train_steps = train_steps(settings, splits.training)
    # The threshold is recorded, because later predictions use it.
    threshold = {"threshold": target.threshold} if target.task_type == "multilabel" else {}
    dev_rows, module = getattr(processor, "dev_rows", None), getattr(processor, "module", None)
    record = run_record.RunRecord(
        settings, num_train_steps,
        {**({output_files.DEV_ROWS: dev_rows.content.encode()} if dev_rows else {}),
         **({output_files.TASK_MODULE: module.content} if module else {})},
        command=command, config=config, dev_rows=dev_rows and dev_rows.recorded,
        task_module=module and module.describe(splits.examples), task=settings.task_name.lower(),
        task_type=target.task_type, labels=target.labels, tokenizer=tokenizer,
        train_data=run_record.describe_examples(splits.examples["train"]) if settings.do_train else None,
        dev_data=run_record.describe_examples(splits.examples["dev"]) if settings.do_eval else None,
        trim_padding=estimator_setup.trim_padding(settings, model.trim_padding_by_default), **threshold)
    estimator, step = estimator_setup.create_estimator(settings, model, num_train_steps)
    phases = _Phases(settings, _task_declaration(processor), splits, target, estimator, step)
    with estimator_setup.locked_directories(settings, record):
        if hasattr(processor, "skipped"):
            results.write_skipped_lines(settings, processor.skipped)
        if settings.do_train:
            phases.train(num_train_steps)
        checkpoint = estimator_setup.evaluated_weights(settings)
        phases.evaluate(checkpoint)
        phases.predict(checkpoint)
        phases.log_results()
    if module:
        processor.raise_failure()


class _Phases:
    """Runs the phases of a run: training, evaluation, prediction. Evaluation and prediction do nothing if the
    examples for them were not read."""

    def __init__(self, settings, task, splits, target, estimator, step):
        """Creates the phases.

        Args:
          settings, splits, target: see `run`.
          task: the declaration of the task, see `_task_declaration`.
          estimator, step: see `estimator_setup.create_estimator`.
        """
        self._settings, self._task, self._splits, self._target = settings, task, splits, target
        self._estimator, self._step = estimator, step
        self._official = []  # one text for each split: the name of the split and its official metrics
        self._predicted = {}  # {split: the head's predictions for the examples of the split}
        # With the cache, the features of a split are written only once.
        self._input_fn = functools.cache(self._write_features)
        self._of_task = task_suffix(settings)
        if self._of_task:
            logging.info("The names of result files end in %s, because %s contains the training and the "
                         "results of another task.", self._of_task, settings.results_dir)

    def train(self, num_train_steps):
        """Trains. Evaluates during the training if flags request it."""
        settings, splits, curve = self._settings, self._splits, None
        if learning_curve.is_requested(settings):
            input_fn = self._input_fn("dev", "eval")
            curve = learning_curve.create_learning_curve(
                settings, lambda checkpoint: self._compute_metrics("dev", input_fn, None, checkpoint),
                f"Development set of {self._task.name or settings.task_name}", self._shown_metrics())
        estimator_setup.log_training(settings, len(splits.training),
                                     "window" if settings.doc_stride else "example", num_train_steps)
        self._estimator.train(self._input_fn("train", "train", is_training=True), max_steps=num_train_steps,
                              curve=curve)

    def evaluate(self, checkpoint):
        """Evaluates the development sets with the weights of a checkpoint, and writes their metrics."""
        for split, suffix in self._sets("dev"):
            logging.info("Evaluating on %d examples.", len(self._splits.examples[split]))
            metrics = self._compute_metrics(split, self._input_fn(split, f"eval{suffix}"),
                                            suffix[1:] or None, checkpoint)
            with self._replace_together("dev", split):
                metrics = self._write_metrics(split, f"eval_results{suffix}", metrics)
                self._write_table(split, f"eval_predictions{suffix}")
                self._write_report(split, f"eval_report{suffix}.html", metrics)
        self._remove_missing_sets("dev")

    def predict(self, checkpoint):
        """Writes the predictions for the test sets, with the weights of a checkpoint. If the test set has
        labels, also writes its metrics."""
        for split, suffix in self._sets("test"):
            logging.info("Predicting %d examples.", len(self._splits.examples[split]))
            input_fn = self._input_fn(split, f"predict{suffix}")
            if self._splits.has_labels(split):
                metrics = self._compute_metrics(
                    split, _in_batches_of(self._settings.predict_batch_size, input_fn),
                    f"test{self._of_task}", checkpoint)
            else:
                metrics = None
                self._predicted[split] = self._splits.in_order(
                    split, self._estimator.predict(input_fn, checkpoint_path=checkpoint))
            numbers = [prediction[self._target.output] for prediction in self._predicted[split]]
            answers = [self._target.predicted_label(row) for row in numbers]
            with self._replace_together("test", split):
                if metrics:
                    self._write_metrics(split, f"test_eval_results{self._of_task}", metrics)
                self._write_predictions(numbers, answers, suffix)
                glue_submission_files.write_predictions(self._settings.results_dir, self._task, split,
                                                        answers)
                self._write_table(split, f"test_predictions{suffix}")
        self._remove_missing_sets("test")

    def _replace_together(self, part, split):
        """Returns a context manager in whose block the results of a set are written; see
        `results.replace_together`.

        Args:
          part: "dev" or "test".
          split: the set, such as "dev" or "dev_mismatched".
        """
        suffix = self._of_task + split.removeprefix(part)
        names = [name.format(suffix) for name in _RESULTS_OF[part]]
        if part == "test":
            names += [file for file, (its_split, _) in self._task.submission.items() if its_split == split]
        return results.replace_together(self._settings, names)

    def _remove_missing_sets(self, part):
        """Removes the results of further sets that an earlier run evaluated, and that this run does not
        have."""
        for split in (f"{part}_{name}" for name in self._task.further_sets):
            if part in self._splits.examples and split not in self._splits.examples:
                with self._replace_together(part, split):
                    pass

    def log_results(self):
        """Logs a few predictions for the first split, and the official metrics of all splits."""
        for split, rows in list(self._predicted.items())[:1]:
            classification_splits.log_sample_predictions(
                split, self._splits.examples[split], rows, self._target, self._splits.has_labels(split))
        if self._official:
            logging.info("%s %s", self._task.name or self._settings.task_name, "; ".join(self._official))

    def _write_features(self, split, name, is_training=False):
        """Writes the split's features; returns the input_fn that reads them."""
        settings = self._settings
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{name}.tf_record")
        self._splits.write(split, path)
        return classifier_task.file_based_input_fn_builder(
            path, settings.max_seq_length, target=self._target,
            **estimator_setup.input_options(settings, self._step, is_training))

    def _compute_metrics(self, split, input_fn, name, checkpoint):
        """Predicts the examples of a split, and stores the predictions in `_predicted`. Returns the metrics
        of the predictions.

        Args:
          split: name of the split.
          input_fn: the input of the split.
          name: argument `name` of `Estimator.evaluate`, or None.
          checkpoint: prefix of the weights.
        """
        def of_batches(batches):
            rows = itertools.chain.from_iterable(map(estimator_spec.split_batch, batches))
            predictions = self._predicted[split] = self._splits.in_order(split, rows)
            metrics = self._target.metrics(*self._splits.arrays(split, predictions))
            if self._settings.doc_stride:
                metrics["loss"] = metrics["eval_loss"]  # of texts and not of windows
            if isinstance(self._task, task_module.ModuleProcessor):
                metrics.update(self._task.own_metrics(self._splits.examples[split], predictions,
                                                      [*metrics, "loss", "global_step"]))
            return metrics

        return self._estimator.evaluate(input_fn, checkpoint_path=checkpoint, name=name, metrics=of_batches)

    def _metric_names(self):
        """Returns {metric: its name in the log}. With two classes, F1 is the F1 of the second class. Its
        name contains the label of this class, unless this label is "1". With more than two classes, F1 is the
        mean of the F1 of all classes."""
        names, macro = _METRIC_NAMES[self._task.task_type], f"macro F1 of {self._target.size} labels"
        if self._target.task_type != "classification":
            return {**names, "f1_macro": macro} if "f1_macro" in names else names
        if self._target.size > 2:
            return {**names, "f1": macro}
        second = self._target.labels[1]
        return names if second == "1" else {**names, "f1": f"F1 of {second}"}

    def _write_metrics(self, split, name, metrics):
        """Writes the metrics of a split into NAME.txt and NAME.json, and stores the official metrics, which
        are logged at the end of the run. NAME.json also contains metrics of each label. Warns if all
        predictions are the same.

        Returns:
          the metrics in NAME.json.
        """
        names = self._metric_names()
        official = ", ".join(f"{names[name]} {metrics[f'eval_{name}']:.3f}" for name in self._task.metrics)
        self._official.append(f"{split.replace('_', ' ')}: {official}")
        file_name = f"{name}.txt"
        results.write_results(self._settings.results_dir, file_name, metrics)
        results.record_evaluation(self._settings, split, metrics)
        labels, outputs, _ = self._splits.arrays(split, self._predicted[split])
        more = self._target.details(labels, outputs)
        missing = [label for label, scores in more.get("labels", {}).items() if not scores["support"]]
        if missing and any("macro F1" in text for text in names.values()):
            logging.info("%s: the macro F1 is the mean over all %d labels. %d of them have no example here, "
                         "so their F1 is 0: %s.", file_name, self._target.size, len(missing),
                         ", ".join(missing[:_MAX_LISTED]))
        # A metric of a --task_module may have the name of one of the further metrics. It has priority.
        combined = {**metrics, **more, **metrics}
        results.write_json(self._settings.results_dir, f"{name}.json", combined)
        warning = self._constant_warning(split, metrics)
        if warning:
            logging.warning("%s: %s", file_name, warning)
        return combined

    def _constant_warning(self, split, metrics):
        """Returns a warning (str) if the predictions for all examples of a split are the same, otherwise
        None."""
        if self._target.task_type == "classification":
            return classification_metrics.single_class_warning(metrics["eval_confusion_matrix"],
                                                               self._target.labels)
        pairs = [(row.label, row.prediction) for row in self._predicted_rows(split) if row.label is not None]
        warn = {"regression": classification_metrics.constant_scores_warning,
                "multilabel": classification_metrics.single_set_warning}[self._target.task_type]
        return warn(*zip(*pairs)) if pairs else None

    def _predicted_rows(self, split):
        """Returns the `PredictedRows` of a split that was predicted."""
        return self._splits.predicted_rows(split, self._predicted[split],
                                           self._task.source_rows(self._splits.examples[split]))

    def _write_table(self, split, name):
        """Writes the table of the examples and their predictions."""
        settings = self._settings
        path = os.path.join(settings.results_dir, f"{name}.{settings.predictions_format}")
        prediction_files.write_predictions(path, self._predicted_rows(split), settings.predictions_format,
                                           settings.csv_safe, getattr(self._target, "separator", ","))
        logging.info("Table of the texts and their predictions: %s.", path)

    def _write_report(self, split, file_name, metrics):
        """Writes the report of an evaluation; see `results.write_report`."""
        def write(path, facts):
            classification_report.write_report(
                path, facts, self._predicted_rows(split), self._target.labels, self._target.task_type,
                getattr(self._target, "threshold", None))

        results.write_report(self._settings, file_name, write, self._task.name or self._settings.task_name,
                             metrics, self._data_file(split), self._shown_metrics())

    def _data_file(self, split):
        """Returns the path of the file with the examples of a development set; None if it is unknown."""
        settings = self._settings
        if settings.data_dir is None:
            return settings.dev_file or settings.train_file
        names = self._task.file_names().get(split, ())
        return next(filter(files.exists, (os.path.join(settings.data_dir, name) for name in names)), None)

    def _shown_metrics(self):
        """Returns {metric: its name in the picture of the learning curve}."""
        names = self._metric_names()
        return {f"eval_{name}": names[name] for name in self._task.metrics}

    def _write_predictions(self, numbers, answers, suffix):
        """Writes test_results.tsv and test_predictions.tsv, with one line for each example.

        Args:
          numbers: list of arrays, one for each example. The array contains the probabilities of the classes;
            in a regression, it contains the score.
          answers: list of str or float, the answer for each example; see `predicted_label` in `targets`.
          suffix: suffix of the files' names, such as "_mismatched", or "".
        """
        numbers_path, answers_path = (os.path.join(self._settings.results_dir, f"{name}{suffix}.tsv")
                                      for name in ("test_results", "test_predictions"))
        rows = ["\t".join(map(str, np.atleast_1d(row))) + "\n" for row in numbers]
        files.write_text(numbers_path, "".join(rows))
        lines = [f"{index}\t{answer}\n" for index, answer in enumerate(answers)]
        files.write_text(answers_path, "index\tprediction\n" + "".join(lines))
        if self._target.labels is None:
            logging.info("Predictions: scores in %s and %s.", numbers_path, answers_path)
        else:
            logging.info("Predictions: probabilities in %s, labels in %s.", numbers_path, answers_path)

    def _sets(self, split):
        """Lists all development sets (`split` is "dev") or all test sets (`split` is "test"). Each element of
        the list is (name of the set, suffix for the names of its result files)."""
        return [(name, self._of_task + name.removeprefix(split)) for name in self._splits.examples
                if name.startswith(split)]


def _in_batches_of(size, input_fn):
    """Returns an input_fn with batches of `size` examples. The batch size that the Estimator passes is
    ignored."""
    return lambda params: input_fn({**params, "batch_size": size})
