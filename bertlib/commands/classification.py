"""What the commands that classify have in common: their task and its examples, and the run itself."""

import os

from absl import logging
import numpy as np

from bertlib.commands import checks, results, run_record, training
from bertlib.runtime import files, input_pipeline
from bertlib.tasks import classifier as classifier_task
from bertlib.tasks.classifier_data import (
    PROCESSORS,
    DataProcessor,
    file_based_convert_examples_to_features,
    get_processor,
)

# What is written to results_dir.
_RESULT_FILES = ("eval.tf_record", "predict.tf_record", "eval_results.txt", "test_results.tsv",
                 "test_predictions.tsv", "test_eval_results.txt")

# --- Before the run --------------------------------------------------------------------------------------


def processor_of(settings):
    """Returns the processor of --task_name; fills in --data_dir, a sample, if it was not given.

    Raises:
      ValueError, NotADirectoryError: a flag has no default for this task, or cannot be right.
    """
    if not settings.task_name:
        raise ValueError(f"--task_name is required; known tasks: {', '.join(sorted(PROCESSORS))}.")
    processor = get_processor(settings.task_name)
    checks.refuse_tpus(settings)
    if settings.data_dir is None:
        sample = checks.sample(settings.task_name.upper())
        if not os.path.isdir(sample):
            raise ValueError("--data_dir is required: there is a sample of MRPC only, not of "
                             f"{settings.task_name}.")
        settings.take_default("data_dir", sample,
                              "a small sample made for this repository, not the real corpus")
    if not files.is_directory(settings.data_dir):
        raise NotADirectoryError(f"--data_dir={settings.data_dir}: there is no such directory.")
    return processor


def read_examples(settings, processor):
    """Reads what flags ask for: {"train", "dev", "test": list of `InputExample`}, whether test has labels."""
    examples, test_has_labels = {}, False
    if settings.do_train:
        examples["train"] = processor.get_train_examples(settings.data_dir)
        if train_steps(settings, examples["train"]) < 1:
            raise ValueError(f"{len(examples['train'])} training examples and "
                             f"--num_train_epochs={settings.num_train_epochs} make no batch of "
                             f"--train_batch_size={settings.train_batch_size}. Lower the batch size.")
    if settings.do_eval:
        examples["dev"] = processor.get_dev_examples(settings.data_dir)
    if settings.do_predict:
        examples["test"] = processor.get_test_examples(settings.data_dir)
        labels = processor.get_test_labels(settings.data_dir)
        test_has_labels = labels is not None
        for example, label in zip(examples["test"], labels or ()):
            example.label = label
    return examples, test_has_labels


def labels_of(processor):
    """Returns a processor's labels.

    Raises:
      ValueError: there is none, or one twice.
    """
    labels = list(processor.get_labels() or ())
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"{type(processor).__name__}.get_labels() gives {labels}: let it give each label of "
                         "the task once.")
    return labels


def train_steps(settings, examples):
    """The number of steps in which the flags' epochs are done."""
    return int(len(examples) / settings.train_batch_size * settings.num_train_epochs)


def refuse_overwriting(settings, processor, **read):
    """Raises a ValueError if a file that is read is one that is written; see `checks.refuse_overwriting`."""
    # A processor of a script that imports a command may declare no files.
    names = processor.file_names() if isinstance(processor, DataProcessor) else {}
    checks.refuse_overwriting(
        settings, {"data_dir": [os.path.join(settings.data_dir, name) for name in names.values()], **read},
        checks.overwritten_by(settings, _RESULT_FILES, ["train.tf_record"]))


# --- The run ---------------------------------------------------------------------------------------------


def run(settings, model, examples, test_has_labels, label_list, tokenizer, **description):
    """Trains, evaluates and predicts, as the flags ask.

    Args:
      settings: a `Settings`, checked.
      model: a `training.Model`.
      examples, test_has_labels: see `read_examples`.
      label_list: the task's labels.
      tokenizer: that of the model.
      description: the rest of `run_record.describe`'s arguments: command and config.
    """
    num_train_steps = train_steps(settings, examples.get("train", ()))
    record = run_record.RunRecord(
        settings, num_train_steps, task=settings.task_name.lower(), labels=label_list, tokenizer=tokenizer,
        train_data=run_record.of_examples(examples["train"]) if settings.do_train else None,
        trim_padding=training.trims_training(settings, model), **description)
    classifier, step = training.create_estimator(settings, model, settings.eval_batch_size,
                                                 settings.predict_batch_size, num_train_steps)

    def report(file_name, found):
        """Writes metrics; warns if all predictions are one class."""
        results.write_results(settings.results_dir, file_name, found)
        one_class = classifier_task.one_class(found["eval_confusion_matrix"], label_list)
        if one_class:
            logging.warning("%s: %s", file_name, one_class)

    def input_fn(part, name, is_training=False):
        """Writes the part's features; returns the input_fn that reads them."""
        path = os.path.join(settings.output_dir if is_training else settings.results_dir, f"{name}.tf_record")
        file_based_convert_examples_to_features(examples[part], label_list, settings.max_seq_length,
                                                tokenizer, path, settings.num_workers)
        return classifier_task.file_based_input_fn_builder(
            path, settings.max_seq_length, is_training, drop_remainder=is_training,
            trim=step.trim if is_training else settings.trim_padding is not False,
            unequal_micro_batches=is_training and step.unequal_micro_batches)

    with training.writing(settings, record):
        if settings.do_train:
            logging.info("Training on %d examples, %d steps of %d.", len(examples["train"]), num_train_steps,
                         settings.train_batch_size)
            classifier.train(input_fn("train", "train", is_training=True), max_steps=num_train_steps)
        if settings.do_eval:
            logging.info("Evaluating on %d examples.", len(examples["dev"]))
            report("eval_results.txt", classifier.evaluate(input_fn("dev", "eval")))
        if settings.do_predict:
            logging.info("Predicting %d examples.", len(examples["test"]))
            test_input_fn = input_fn("test", "predict")
            predictions = input_pipeline.in_order(classifier.predict(test_input_fn))
            write_predictions(settings, predictions, label_list)
            if test_has_labels:
                report("test_eval_results.txt", classifier.evaluate(test_input_fn, name="test"))


def write_predictions(settings, predictions, label_list):
    """Writes test_results.tsv, probabilities, and test_predictions.tsv, likeliest labels, by example."""
    rows = [prediction["probabilities"] for prediction in predictions]
    probabilities = os.path.join(settings.results_dir, "test_results.tsv")
    files.write_text(probabilities, "".join("\t".join(map(str, row)) + "\n" for row in rows))
    named = os.path.join(settings.results_dir, "test_predictions.tsv")
    lines = [f"{index}\t{label_list[np.argmax(row)]}\n" for index, row in enumerate(rows)]
    files.write_text(named, "index\tprediction\n" + "".join(lines))
    logging.info("Predictions: probabilities in %s, labels in %s.", probabilities, named)
