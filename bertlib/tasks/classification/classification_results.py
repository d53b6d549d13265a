"""Computes and writes the results of run_classifier.py: predictions, metrics, tables and reports."""

import functools
import itertools
import os

from absl import logging
import numpy as np

from bertlib.data import batches, tables
from bertlib.data.prediction_rows import PredictedRow, shortest
from bertlib.reports import baselines, classification_report, report_sections
from bertlib.system import files
from bertlib.tasks import results, window_pooling
from bertlib.tasks.classification import (
    classification_run,
    classification_task,
    glue_submission_files,
)
import tokenization

_MAX_LISTED = 10  # number of labels that a message lists
# The log shows `_SHOWN` sample predictions, and at most `_SHOWN_CHARACTERS` characters of the texts of each
# sample.
_SHOWN, _SHOWN_CHARACTERS = 3, 100


class ClassificationResults(results.Results):
    """The results of a `classification_task.Classification`."""

    def __init__(self, task):
        super().__init__(task)
        self._official = []  # one text for each split: the name of the split and its official metrics

    @functools.cached_property
    def _bag_of_words(self):
        """The answers of the bag of words, see `baselines.bag_of_words`."""
        train = self.data.get("train")
        if train is None and self.settings.baseline == "true":
            train = classification_run.read_baseline_examples(self.settings, self.task.processor, self.target)
        return baselines.bag_of_words(
            self.settings, self.target, train,
            {split: self.data[split] for split in self.task.splits() if self.task.has_labels(split)})

    def assist_evaluation(self, split, inference):
        """Takes part in the evaluation of a split with labels; see `task.Task.assist`."""
        self._evaluate(split, inference, _read_all)

    def _evaluate(self, split, inference, metrics):
        """Returns the result of `Inference.evaluate` for a split with labels."""
        if classification_task.part_of(split) == "dev":
            return inference.evaluate(metrics=metrics, name=self.task.suffix(split)[1:] or None)
        return inference.evaluate(metrics=metrics, name=f"test{self.task.task_suffix}",
                                  batch_size=self.settings.predict_batch_size)

    def predict(self, split, inference):
        """Returns (list of the head's predictions for the examples of a split, metrics). The metrics are None
        if the split has no labels."""
        predictions = []

        def of_batches(parts):
            rows = itertools.chain.from_iterable(map(batches.split_batch, parts))
            predictions.extend(self._of_examples(split, batches.restore_file_order(rows)))
            metrics = self.target.metrics(*self._arrays(split, predictions))
            if self.settings.doc_stride:
                metrics["loss"] = metrics["eval_loss"]  # of texts and not of windows
            return {**metrics, **self._own_metrics(split, predictions, [*metrics, "loss", "global_step"])}

        if self.task.has_labels(split):
            metrics = self._evaluate(split, inference, of_batches)
            return predictions, metrics
        return self._of_examples(split, inference.rows()), None

    def _of_examples(self, split, rows):
        """Returns the predictions for the examples of a split as a list of dicts. With --doc_stride, the
        prediction for an example is the mean over the example's windows. `rows` are the predictions of the
        Estimator, in the order of the examples or windows."""
        rows = list(rows)
        if not self.settings.doc_stride:
            return rows
        return window_pooling.pooled(rows, self.task.features[split].windows)

    def _arrays(self, split, predictions):
        """Returns (labels, outputs, losses), arrays with a row for each example of a split with labels; see
        `text_targets`."""
        labels = np.array(self.task.features[split].label_ids)
        outputs = np.array([row[self.target.output] for row in predictions])
        # The predictions contain losses that were computed from the logits. These losses are exact. A loss
        # that is computed from a probability is not exact if the probability was rounded to 1. With windows,
        # the loss of a text is the loss of its mean prediction, not the mean of the losses.
        losses = (self.target.losses(labels, outputs) if self.settings.doc_stride
                  else np.array([row["loss"] for row in predictions]))
        return labels, outputs, losses

    def _own_metrics(self, split, predictions, known):
        """Returns the metrics of the processor's method `compute_metrics`, {name in eval_results.txt: value}.

        If the method raises an error, this error is logged and an empty dict is returned, so that the other
        results are still written. The attribute `failure` keeps it for the end of the run.

        Args:
          split, predictions: see `predict`.
          known: names of the metrics that the head computes.
        """
        if not hasattr(self.task.processor, "compute_metrics"):
            return {}
        try:
            found = self.task.processor.compute_metrics(
                [self.target.row_label(example.label) for example in self.data[split]],
                [self.target.row_answer(row[self.target.output])[0] for row in predictions])
            metrics = {f"eval_{name}": float(value) for name, value in found.items()}
            for name in metrics:
                if name in known or not name.isidentifier():
                    raise ValueError(f"compute_metrics returns the metric {name[5:]!r:.80}. The name must "
                                     "consist of letters, digits and underscores, and must differ from "
                                     f"{', '.join(sorted(known)).replace('eval_', '')}.")
        except Exception as error:  # noqa: BLE001
            logging.error("compute_metrics: %r", error)
            self.task.failure = self.task.failure or error
            return {}
        return metrics

    def write(self, split, inference):
        part, suffix = classification_task.part_of(split), self.task.suffix(split)
        logging.info({"dev": "Evaluating on %d examples.", "test": "Predicting %d examples."}[part],
                     len(self.data[split]))
        predictions, metrics = self.predict(split, inference)
        dialect = self.task.source.dialects.get(split, tables.PLAIN)
        rows = PredictedRows(
            self.data[split], predictions, self.target, self.task.features[split].lengths,
            self._arrays(split, predictions)[2] if metrics else None)
        if part == "dev":
            metrics = self._write_metrics(split, f"eval_results{suffix}", metrics, predictions, rows)
            self.task.write_table(f"eval_predictions{suffix}", rows, self.target.separator, dialect)
            results.write_report(self.task, f"eval_report{suffix}.html", self.task.name, metrics,
                                 self._data_file(split), classification_report.write_report, rows,
                                 self.target.labels, self.target.threshold)
        else:
            if metrics:
                name = f"test_eval_results{self.task.task_suffix}"
                self._write_metrics(split, name, metrics, predictions, rows)
            numbers = [prediction[self.target.output] for prediction in predictions]
            answers = [self.target.predicted_label(row) for row in numbers]
            self._write_predictions(numbers, answers, suffix)
            glue_submission_files.write_predictions(self.settings.results_dir, self.task.processor, split,
                                                    answers)
            self.task.write_table(f"test_predictions{suffix}", rows, self.target.separator, dialect)
        self._log_samples(split, predictions)

    def _log_samples(self, split, predictions):
        """Logs a few predictions for the first split, and after the last split the official metrics of all
        splits."""
        splits = self.task.splits()
        if split == splits[0]:
            log_sample_predictions(
                split, self.data[split], predictions, self.target, self.task.has_labels(split))
        if split == splits[-1] and self._official:
            logging.info("%s %s", self.task.name, "; ".join(self._official))

    def _write_metrics(self, split, name, metrics, predictions, rows):
        """Writes the metrics of a split into NAME.txt and NAME.json, and stores the official metrics, which
        are logged at the end of the run. NAME.json also contains metrics of each label. Warns if all
        predictions are the same.

        Returns:
          the metrics in NAME.json.
        """
        names = self.target.metric_names_of_labels()
        official = ", ".join(f"{names[metric]} {metrics[f'eval_{metric}']:.3f}"
                             for metric in self.task.processor.metrics)
        self._official.append(f"{split.replace('_', ' ')}: {official}")
        labels, outputs, _ = self._arrays(split, predictions)
        more, file_name = self.target.details(labels, outputs), f"{name}.txt"
        answers = {"bag_of_words": self._bag_of_words[split]} if self._bag_of_words else {}
        more |= baselines.compare(self.target, self.task.shown, labels, outputs, answers)
        # A metric of a --task_module may have the name of one of the further metrics. It has priority.
        combined = results.write_metrics(self.settings, split, name, metrics, more)
        if self.target.size <= _MAX_LISTED and "eval_confusion_matrix" in metrics:
            logging.info("Confusion matrix, for each label the numbers of predictions in the same order: %s",
                         dict(zip(self.target.labels, metrics["eval_confusion_matrix"].tolist())))
        for sentence in report_sections.compare(combined, self.task.shown):
            logging.info("%s: %s", split.replace("_", " "), sentence)
        missing = [label for label, scores in more.get("labels", {}).items() if not scores["support"]]
        if missing and any("macro F1" in text for text in names.values()):
            logging.info("%s: the macro F1 is the mean over all %d labels. %d of them have no example here, "
                         "so their F1 is 0: %s.", file_name, self.target.size, len(missing),
                         ", ".join(missing[:_MAX_LISTED]))
        warning = self.target.constant_warning([row.label for row in rows], [row.prediction for row in rows])
        if warning:
            logging.warning("%s: %s", file_name, warning)
        return combined

    def _data_file(self, split):
        """Returns the path of the file with the examples of a development set; None if it is unknown."""
        settings = self.settings
        if settings.data_dir is None:
            return settings.dev_file or settings.train_file
        names = self.task.processor.file_names().get(split, ())
        return next(filter(files.exists, (os.path.join(settings.data_dir, name) for name in names)), None)

    def _write_predictions(self, numbers, answers, suffix):
        """Writes test_results.tsv and test_predictions.tsv, with one line for each example.

        Args:
          numbers: list of arrays, one for each example. The array contains the probabilities of the classes;
            in a regression, it contains the score.
          answers: list of str or float, the answer for each example; see `predicted_label` in `text_targets`.
          suffix: suffix of the files' names, such as "_mismatched", or "".
        """
        numbers_path, answers_path = (os.path.join(self.settings.results_dir, f"{name}{suffix}.tsv")
                                      for name in ("test_results", "test_predictions"))
        rows = ["\t".join(map(str, np.atleast_1d(row))) + "\n" for row in numbers]
        files.write_text(numbers_path, "".join(rows))
        lines = [f"{index}\t{answer}\n" for index, answer in enumerate(answers)]
        files.write_text(answers_path, "index\tprediction\n" + "".join(lines))
        if self.target.labels is None:
            logging.info("Predictions: scores in %s and %s.", numbers_path, answers_path)
        else:
            logging.info("Predictions: probabilities in %s, labels in %s.", numbers_path, answers_path)


def _read_all(batches):
    """Reads all batches of an evaluation, and returns no metrics."""
    for _ in batches:
        pass
    return {}


# --- Rows and samples ------------------------------------------------------------------------------------


class PredictedRows:
    """Iterable of the `PredictedRow`s of a split. It can be iterated any number of times. Each row is made
    when it is needed, so that a large split needs little memory."""

    def __init__(self, examples, predictions, target, lengths, losses):
        """Stores the data. The lists have one element for each example, in the same order.

        Args:
          examples: list of `InputExample`. If an example has no `SourceRow`, the fields of its row are guid,
            text_a and text_b, and the line of its row is None.
          predictions: list of {name: array}, the head's predictions. With windows, these are the predictions
            for whole texts, see `window_pooling`.
          target: see `text_targets`.
          lengths: list of int, numbers of tokens before truncation.
          losses: list of numbers, the losses; None if the labels of the examples are placeholders.
        """
        self._examples, self._predictions = examples, predictions
        self._target, self._lengths = target, lengths
        self._losses = [None] * len(examples) if losses is None else losses

    def __len__(self):
        return len(self._examples)

    def __iter__(self):
        columns = (self._examples, self._predictions, self._lengths, self._losses)
        for example, outputs, length, loss in zip(*columns, strict=True):
            texts = (example.text_a, example.text_b) if example.text_b else (example.text_a,)
            source = getattr(example, "source", None)  # a script may have its own class of examples
            if source is None:
                fields = {"guid": example.guid, "text_a": example.text_a, "text_b": example.text_b}
                source = None, {name: str(value) for name, value in fields.items() if value is not None}
            label = None if loss is None else self._target.row_label(example.label)
            prediction, probabilities = self._target.row_answer(outputs[self._target.output])
            yield PredictedRow(*source, texts, label, prediction, probabilities,
                               None if self._target.is_score or label is None else label == prediction,
                               None if loss is None else shortest(loss), length)


def log_sample_predictions(split, examples, predictions, target, has_labels):
    """Logs a few examples with their predictions. If possible, one prediction is right and one prediction is
    wrong.

    Args:
      split: name of the split.
      examples: list of `InputExample`.
      predictions: list of dicts, one for each example.
      target: see `text_targets`.
      has_labels: whether the examples have labels.
    """
    answers = [target.row_answer(row[target.output])[0] for row in predictions]
    labels = [target.row_label(example.label) for example in examples]
    for index in choose_samples([has_labels and label == answer for label, answer in zip(labels, answers)]):
        text, label = target.describe(predictions[index][target.output]), labels[index]
        if has_labels:
            is_right = not target.is_score and label == answers[index]
            shown = ", ".join(label) or "none" if isinstance(label, tuple) else label
            text += " (right)" if is_right else f" (label {shown})"
        logging.info("Example of %s: %s -> %s", split.replace("_", " "), _text_of(examples[index]), text)


def choose_samples(right):
    """Returns the indices of up to three examples in ascending order. These are the first example with a
    right prediction, the first example with a wrong prediction, and the first of the remaining examples.

    Args:
      right: list of bool, one for each example: True if the prediction is right.
    """
    firsts = [right.index(value) for value in (True, False) if value in right]
    others = [index for index in range(min(len(right), _SHOWN)) if index not in firsts]
    return sorted([*firsts, *others][:_SHOWN])


def _text_of(example):
    texts = [" ".join(tokenization.convert_to_unicode(text).split())
             for text in (example.text_a, example.text_b) if text]
    room = _SHOWN_CHARACTERS // max(1, len(texts))
    return " / ".join(f'"{text if len(text) <= room else text[:room - 1].rstrip() + "…"}"' for text in texts)
