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
# {type of a task: {metric that its head computes: its name in the log}}.
_METRIC_NAMES = {"classification": {"accuracy": "accuracy", "f1": "F1", "matthews": "Matthews"},
                 "regression": {"pearson": "Pearson", "spearman": "Spearman"},
                 "multilabel": {"f1_micro": "micro F1", "f1_macro": "macro F1"}}

# --- Before the run --------------------------------------------------------------------------------------


def create_processor(settings, suffix=""):
    """Returns the processor of --task_name, or of one's own data; fills in phases, --output_dir and what a
    training says of the task, and --data_dir, a sample, if no flag names any.

    Args:
      settings: a `Settings`.
      suffix: see `custom_task.create_processor`.

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
    _check_metrics(processor)
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


def _check_metrics(processor):
    """Raises a ValueError if a processor declares a metric that the head of its task does not compute."""
    declared = _task_declaration(processor)
    known = _METRIC_NAMES[declared.task_type]
    unknown = [name for name in declared.metrics if name not in known]
    if unknown:
        raise ValueError(f"{type(processor).__name__}.metrics names {', '.join(unknown)}. The metrics of "
                         f"{declared.task_type} are {', '.join(known)}: declare some of these.")


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
    """The number of steps in which the flags' epochs of `Splits.training` are done.

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
      model: an `estimator_setup.TrainableModel`.
      processor: the task's.
      splits: the `classification_splits.Splits` of the examples.
      target: see `get_target`.
      tokenizer: that of the model.
      description: the rest of `run_record.describe`'s arguments: command and config.
    """
    num_train_steps = train_steps(settings, splits.training)
    if target.task_type == "multilabel":
        description["threshold"] = target.threshold  # which the model's later answers go by
    kept = getattr(processor, "dev_rows", None)
    record = run_record.RunRecord(
        settings, num_train_steps, {output_files.DEV_ROWS: kept.content.encode()} if kept else {},
        dev_rows=kept and kept.recorded, task=settings.task_name.lower(), task_type=target.task_type,
        labels=target.labels, tokenizer=tokenizer,
        train_data=run_record.describe_examples(splits.examples["train"]) if settings.do_train else None,
        trim_padding=estimator_setup.trims_training(settings, model), **description)
    estimator, step = estimator_setup.create_estimator(settings, model, num_train_steps,
                                                       settings.eval_batch_size, settings.predict_batch_size)
    phases = _Phases(settings, _task_declaration(processor), splits, target, estimator, step)
    with estimator_setup.locked_directories(settings, record):
        if settings.do_train:
            phases.train(num_train_steps)
        phases.evaluate()
        phases.predict()
        phases.log_results()


class _Phases:
    """The phases of a run: training, evaluation, prediction. Evaluation and prediction do nothing if their
    examples were not read."""

    def __init__(self, settings, task, splits, target, estimator, step):
        """Creates the phases; see `run`. `task` is the declaration of the processor's task."""
        self._settings, self._task, self._splits, self._target = settings, task, splits, target
        self._estimator, self._step = estimator, step
        self._official = []  # the official metrics of each split, in words
        self._predicted = {}  # {split: the head's predictions of its examples}
        self._input_fn = functools.cache(self._write_features)  # a split is written once, however often read
        self._of_task = task_suffix(settings)
        if self._of_task:
            logging.info("The names of result files end in %s, because %s holds the training and the results "
                         "of another task.", self._of_task, settings.results_dir)

    def train(self, num_train_steps):
        """Trains; evaluates the checkpoints if --eval_each_checkpoint asks for it."""
        settings, splits = self._settings, self._splits
        names = _METRIC_NAMES[self._task.task_type]
        listeners = learning_curve.create_listeners(
            settings, lambda: self._input_fn("dev", "eval"),
            lambda input_fn: self._compute_metrics("dev", input_fn, None),
            f"Development set of {self._task.name or settings.task_name}",
            {f"eval_{name}": names[name] for name in self._task.metrics})
        logging.info("Training on %d %s, %d steps of %d.", len(splits.training),
                     "windows" if settings.doc_stride else "examples", num_train_steps,
                     settings.train_batch_size)
        self._estimator.train(self._input_fn("train", "train", is_training=True), max_steps=num_train_steps,
                              saving_listeners=listeners)

    def evaluate(self):
        """Evaluates the development sets and writes their metrics."""
        for split, suffix in self._sets("dev"):
            logging.info("Evaluating on %d examples.", len(self._splits.examples[split]))
            found = self._compute_metrics(split, self._input_fn(split, f"eval{suffix}"), suffix[1:] or None)
            self._write_metrics(split, f"eval_results{suffix}.txt", found)

    def predict(self):
        """Writes the predictions of the test sets, and the metrics of those that have labels."""
        for split, suffix in self._sets("test"):
            logging.info("Predicting %d examples.", len(self._splits.examples[split]))
            input_fn = self._input_fn(split, f"predict{suffix}")
            if self._splits.has_labels(split):
                found = self._compute_metrics(
                    split, _in_batches_of(self._settings.predict_batch_size, input_fn),
                    f"test{self._of_task}")
                self._write_metrics(split, f"test_eval_results{self._of_task}.txt", found)
            else:
                self._predicted[split] = self._splits.in_order(split, self._estimator.predict(input_fn))
            numbers = [prediction[self._target.output] for prediction in self._predicted[split]]
            answers = [self._target.predicted_label(row) for row in numbers]
            self._write_predictions(numbers, answers, suffix)
            glue.write_predictions(self._settings.results_dir, self._task, split, answers)

    def log_results(self):
        """Logs examples of the predictions of the first split, and the official metrics of all splits."""
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

    def _compute_metrics(self, split, input_fn, name):
        """Predicts a split and keeps the predictions; returns their metrics."""
        def of_examples(results, rows):
            self._predicted[split] = self._splits.in_order(split, rows)
            return self._splits.metrics(split, create_head(self._target), results, self._predicted[split])

        return self._estimator.evaluate(input_fn, name=name, revise=of_examples)

    def _write_metrics(self, split, file_name, found):
        """Writes the metrics of a split, and keeps the official ones for the end of the log; warns if all
        predictions are one class."""
        names = _METRIC_NAMES[self._task.task_type]
        in_words = ", ".join(f"{names[name]} {found[f'eval_{name}']:.3f}" for name in self._task.metrics)
        self._official.append(f"{split.replace('_', ' ')}: {in_words}")
        results.write_results(self._settings.results_dir, file_name, found)
        one_class = self._target.task_type == "classification" and classifier_task.single_class_warning(
            found["eval_confusion_matrix"], self._target.labels)
        if one_class:
            logging.warning("%s: %s", file_name, one_class)

    def _write_predictions(self, numbers, answers, suffix):
        """Writes test_results.tsv and test_predictions.tsv, by example.

        Args:
          numbers: list of the probabilities of each example; of a regression, of its score.
          answers: list of the likeliest label of each example; of a regression, of its score; where there may
            be several labels, of those that are likely enough, in one str.
          suffix: that of the files of a further set, or "".
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
        """Returns [(name of a set, suffix of its files)]: that of "dev" or "test" and its further ones."""
        return [(name, self._of_task + name.removeprefix(split)) for name in self._splits.examples
                if name.startswith(split)]


def _in_batches_of(size, input_fn):
    """Returns an input_fn whose batches have another size than the Estimator asks for."""
    return lambda params: input_fn({**params, "batch_size": size})
