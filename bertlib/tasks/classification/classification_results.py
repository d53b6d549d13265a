"""Writes the results of run_classifier.py: predictions, metrics, tables and reports."""

import contextlib
import functools
import itertools
import os

from absl import logging
import numpy as np

from bertlib.data import tables
from bertlib.data.prediction_rows import PredictedRow, shortest
from bertlib.reports import baselines, classification_report, report_sections
from bertlib.system import files
from bertlib.tasks import data_splits, results
from bertlib.tasks.classification import (
    classification_metrics,
    glue_submission_files,
)
import tokenization

_MAX_LISTED = 10  # number of labels that a message lists
# The log shows `_SHOWN` sample predictions, and at most `_SHOWN_CHARACTERS` characters of the texts of each
# sample.
_SHOWN, _SHOWN_CHARACTERS = 3, 100


class ClassificationResults:
    """Writes the results of a `classification_task.Classification`."""

    def __init__(self, task):
        self.task, self.settings, self.data, self.target = task, task.settings, task.data, task.target
        self._official = []  # one text for each split: the name of the split and its official metrics

    @functools.cached_property
    def _bag_of_words(self):
        """The answers of the bag of words, see `baselines.bag_of_words`."""
        train = self.data.get("train")
        if train is None and self.settings.baseline == "true":
            train = self.task.read_baseline_examples()
        earlier = {}
        with contextlib.suppress(ValueError):  # a damaged file is replaced
            earlier = self.settings.results_directory.read_results() or {}
        return baselines.bag_of_words(
            self.settings, self.target, train,
            {split: self.data[split] for split in self.task.splits() if self.task.has_labels(split)},
            "bag_of_words" in (earlier.get("baselines") or ()))

    def write(self, split, predictions, metrics):
        """Writes the results of a split. For the arguments, see the result of `Classification.predict`."""
        suffix, own_data = self.task.suffix(split), self.task.own_data
        dialect = own_data.dialects[split] if own_data else tables.PLAIN
        rows = PredictedRows(
            self.data[split], predictions, self.target, self.task.features[split].lengths,
            self.task.arrays(split, predictions)[2] if metrics else None)
        if data_splits.base_split(split) == "dev":
            metrics = self._write_metrics(split, f"eval_results{suffix}", metrics, predictions, rows)
            self.task.write_table(f"eval_predictions{suffix}", rows, self.target.separator, dialect)
            results.write_report_or_warn(
                self.task, f"eval_report{suffix}.html", self.task.name, metrics, self._data_file(split),
                classification_report.write_report, rows, self.target.labels, self.target.threshold)
        else:
            if metrics:
                name = f"test_eval_results{self.task.task_suffix}"
                self._write_metrics(split, name, metrics, predictions, rows)
            numbers = [prediction[self.target.output] for prediction in predictions]
            answers = list(map(float, numbers)) if self.target.is_score else [
                self.target.separator.join(row.prediction) if self.target.is_multilabel else row.prediction
                for row in rows]
            self._write_predictions(numbers, answers, suffix)
            glue_submission_files.write_predictions(self.settings.results_dir, self.task.processor, split,
                                                    answers)
            self.task.write_table(f"test_predictions{suffix}", rows, self.target.separator, dialect)
        splits = self.task.splits()
        if split == splits[0]:
            _log_samples(split, rows)
        if split == splits[-1] and self._official:
            logging.info("%s %s", self.task.name, "; ".join(self._official))

    def _write_metrics(self, split, name, metrics, predictions, rows):
        """Writes the metrics of a split into NAME.txt and NAME.json, and stores the official metrics for the
        end of the log. NAME.json also contains metrics of each label. Warns if all predictions are the same.

        Returns:
          the metrics in NAME.json.
        """
        names = self.target.metric_names
        official = ", ".join(f"{names[metric]} {metrics[f'eval_{metric}']:.3f}"
                             for metric in self.task.processor.metrics)
        self._official.append(f"{split.replace('_', ' ')}: {official}")
        labels, outputs, _ = self.task.arrays(split, predictions)
        more, file_name = self.target.further_metrics(labels, outputs), f"{name}.txt"
        answers = {"bag_of_words": self._bag_of_words[split]} if self._bag_of_words else {}
        more |= baselines.baseline_metrics(self.target, self.task.metric_titles, labels, outputs, answers)
        # A metric of a --task_module may have the name of one of the further metrics. It has priority.
        combined = results.write_metrics(self.settings, split, name, metrics, more)
        for sentence in report_sections.compare_in_words(combined, self.task.metric_titles):
            logging.info("%s: %s", split.replace("_", " "), sentence)
        missing = [label for label, scores in more.get("labels", {}).items() if not scores["support"]]
        if missing and any("macro F1" in text for text in names.values()):
            logging.info("%s: the macro F1 is the mean over all %d labels. %d of them have no example here, "
                         "so their F1 is 0: %s.", file_name, self.target.size, len(missing),
                         ", ".join(missing[:_MAX_LISTED]))
        answers = list(zip(*((row.label, row.prediction) for row in rows)))
        warning = classification_metrics.constant_answer_warning(*answers) or (
            None if self.target.is_score else classification_metrics.never_predicted_warning(*answers))
        if warning:
            logging.warning("%s: %s", file_name, warning)
        return combined

    def _write_predictions(self, numbers, answers, suffix):
        """Writes test_results.tsv and test_predictions.tsv, with one line for each example.

        Args:
          numbers: list of arrays, one for each example. The array contains the probabilities of the classes;
            in a regression, it contains the score.
          answers: list of str or float, the answer for each example.
          suffix: suffix of the files' names, such as "_mismatched", or "".
        """
        numbers_path, answers_path = (os.path.join(self.settings.results_dir, f"{name}{suffix}.tsv")
                                      for name in ("test_results", "test_predictions"))
        rows = ["\t".join(map(str, np.atleast_1d(row))) + "\n" for row in numbers]
        files.write_text(numbers_path, "".join(rows))
        lines = [f"{index}\t{answer}\n" for index, answer in enumerate(answers)]
        files.write_text(answers_path, "index\tprediction\n" + "".join(lines))
        if self.target.is_score:
            logging.info("Predictions: scores in %s and %s.", numbers_path, answers_path)
        else:
            logging.info("Predictions: probabilities in %s, labels in %s.", numbers_path, answers_path)

    def _data_file(self, split):
        """Returns the path of the file with the examples of a development set; None if it is unknown."""
        settings = self.settings
        if settings.data_dir is None:
            return settings.dev_file or settings.train_file
        names = self.task.processor.file_names().get(split, ())
        return next(filter(files.exists, (os.path.join(settings.data_dir, name) for name in names)), None)


class PredictedRows:
    """Iterable of the `PredictedRow`s of a split. It can be iterated any number of times. Each row is made
    when it is needed, so that a large split needs little memory."""

    def __init__(self, examples, predictions, target, lengths, losses):
        """Stores the data. The lists have one element for each example, in the same order.

        Args:
          examples: list of `InputExample`. If an example has no `SourceRow`, the fields of its row are guid,
            text_a and text_b, and the line of its row is None.
          predictions: list of {name: array}, the head's predictions. With windows, these are the predictions
            for whole texts, see `text_windows.mean_over_windows`.
          target: see `classification_target`.
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


def _log_samples(split, rows):
    """Logs a few of the `PredictedRows` of a split. If possible, one prediction is right and one is wrong."""
    chosen = choose_samples([row.is_right for row in rows])
    for index, row in enumerate(itertools.islice(rows, chosen[-1] + 1)):
        if index not in chosen:
            continue
        text = _in_words(row.prediction)
        if row.probabilities:
            text += f", probability {max(row.probabilities.values()):.3f}"
        if row.label is not None:
            text += " (right)" if row.is_right else f" (label {_in_words(row.label)})"
        logging.info("Example of %s: %s -> %s", split.replace("_", " "), _quoted(row.texts), text)


def _in_words(answer):
    """Returns a label, a score or a tuple of labels as text."""
    if isinstance(answer, float):
        return f"score {answer:.3f}"
    return ", ".join(answer) or "none" if isinstance(answer, tuple) else answer


def choose_samples(right):
    """Returns the indices of up to three examples in ascending order. These are the first example with a
    right prediction, the first example with a wrong prediction, and the first of the remaining examples.

    Args:
      right: list of bool, one for each example: True if the prediction is right, None if it is unknown.
    """
    firsts = [right.index(value) for value in (True, False) if value in right]
    others = [index for index in range(min(len(right), _SHOWN)) if index not in firsts]
    return sorted([*firsts, *others][:_SHOWN])


def _quoted(texts):
    texts = [" ".join(tokenization.convert_to_unicode(text).split()) for text in texts if text]
    room = _SHOWN_CHARACTERS // max(1, len(texts))
    return " / ".join(f'"{text if len(text) <= room else text[:room - 1].rstrip() + "…"}"' for text in texts)
