"""Contains the task of run_classifier.py: one label, a score, or several labels for each text or pair of
texts."""

import functools
import itertools
import os

from absl import logging
import numpy as np

from bertlib.data.batches import split_batch
from bertlib.output_directory import output_files
from bertlib.reports import classification_report, prediction_files
from bertlib.runs import checks, model_config, results, run_record, task
from bertlib.system import files
from bertlib.tasks.classification import glue_submission_files
from bertlib.tasks.classification.classifier_data import feature_fields
from bertlib.tasks.classification.task import (
    classification_run,
    classification_splits,
    custom_task,
)

# Names of the files of a set in --results_dir. The braces are replaced by a suffix. For an additional set,
# the suffix is the name of the set, as in eval_results_mismatched.txt. If --results_dir contains a training
# on a different task, the suffix is the name of the run's task, as in test_results_ax.tsv. Otherwise, the
# suffix is empty.
_RECORDS = {"dev": "eval{}.tf_record", "test": "predict{}.tf_record"}
_RESULTS_OF = {"dev": ("eval_results{}.txt", "eval_results{}.json", "eval_predictions{}.csv",
                       "eval_predictions{}.jsonl", "eval_report{}.html"),
               "test": ("test_results{}.tsv", "test_predictions{}.tsv", "test_eval_results{}.txt",
                        "test_eval_results{}.json", "test_predictions{}.csv", "test_predictions{}.jsonl")}
_MAX_LISTED = 10  # number of labels that a message lists


class Classification(task.Task):
    """Predicts one label, a score, or several labels for each text or pair of texts.

    A run has the splits "train", "dev" and "test", and may have additional sets, such as "dev_mismatched".

    Attributes:
      source: the `classification_run.Source`, after `resolve`.
      data: the `classification_splits.Splits`, after `read`.
    """

    command = "run_classifier.py"

    def __init__(self, settings):
        super().__init__(settings)
        self.source = self.data = None
        self._official = []  # one text for each split: the name of the split and its official metrics

    @property
    def declared(self):
        """The object that declares the properties of the task, see `classification_run.task_declaration`."""
        return classification_run.task_declaration(self.source.processor)

    @property
    def _name(self):
        return self.declared.name or self.settings.task_name

    # --- Flags

    def resolve(self):
        model_config.find_named_weights(self.settings)  # the task may read its labels from this checkpoint
        self.source = classification_run.find_source(self.settings)
        model_config.resolve_model_flags(self.settings)

    # --- Files and data

    def input_files(self):
        settings = self.settings
        if settings.data_dir is None:
            return custom_task.list_files(settings)
        names = [name for names in self.declared.file_names().values() for name in names]
        return {"data_dir": [os.path.join(settings.data_dir, name) for name in names]}

    @property
    def inferred(self):
        return [part + suffix for part in ("dev", "test")
                for suffix in ("", *(f"_{name}" for name in self.declared.further_sets))]

    @property
    def records(self):
        return {"train": "train.tf_record", **{
            split: _RECORDS[_part(split)].format(self._suffix(split)) for split in self.inferred}}

    def _suffix(self, split):
        """Returns the suffix of the names of the files of a split, such as "_mismatched"."""
        return self._of_task + split.removeprefix(_part(split))

    @functools.cached_property
    def _of_task(self):
        suffix = classification_run.task_suffix(self.settings)
        if suffix:
            logging.info("The names of result files end in %s, because %s contains the training and the "
                         "results of another task.", suffix, self.settings.results_dir)
        return suffix

    def result_names(self, split):
        part, suffix = _part(split), self._suffix(split)
        # An earlier run may have evaluated additional sets that this run does not have. Their results go.
        missing = [] if self.data is None or split != part else [
            other for other in self.inferred
            if other.startswith(f"{part}_") and other not in self.data.examples]
        return [*(name for other in missing for name in self.result_names(other)),
                *(name.format(suffix) for name in _RESULTS_OF[part]),
                *(file for file, (its_split, _) in self.declared.submission.items() if its_split == split)]

    def other_names(self):
        return [output_files.SKIPPED_LINES] if self.settings.skip_bad_lines else []

    def read(self):
        examples, test_has_labels = classification_run.read_examples(self.settings, self.source.processor,
                                                                     self.target)
        if self.config and any(example.text_b for part in examples.values() for example in part):
            checks.check_segments(self.config, f"the examples of {self.settings.task_name} are pairs")
        self.data = classification_splits.Splits(self.settings, examples, self.target, self.tokenizer,
                                                 test_has_labels)

    def splits(self):
        return [split for split in self.inferred if split in self.data.examples]

    def skipped_lines(self):
        return self.source.skipped

    # --- The model

    @property
    def target(self):
        return self.source.target

    def create_head(self):
        return self.target.create_head()

    def head_for_training(self):
        return self.data.head_for_training()

    def fields(self, seq_length, split="train"):
        return feature_fields(seq_length, self.target)

    @property
    def noun(self):
        return "window" if self.settings.doc_stride else "example"

    def num_examples(self):
        return len(self.data.training)

    def num_train_steps(self):
        return task.count_steps(self.settings, self.num_examples(), f"training {self.noun}")

    def describe(self):
        settings, target, examples = self.settings, self.target, self.data.examples
        recorded = dict(self.source.recorded)
        if "task_module" in recorded:
            counts = {2 if example.text_b else 1 for rows in examples.values() for example in rows}
            recorded["task_module"] |= {"texts": counts.pop() if len(counts) == 1 else None}
        return {
            "task": settings.task_name.lower(), "labels": target.labels,
            # Later predictions use the threshold of the training.
            **({} if target.threshold is None else {"threshold": target.threshold}), **recorded,
            "train_data": run_record.describe_examples(examples["train"]) if settings.do_train else None,
            "dev_data": run_record.describe_examples(examples["dev"]) if settings.do_eval else None}

    def more_files(self):
        return self.source.files

    # --- The run

    @property
    def title(self):
        return f"Development set of {self._name}"

    @property
    def shown(self):
        names = self.target.metric_names_of_labels()
        return {f"eval_{name}": names[name] for name in self.declared.metrics}

    def write_features(self, split, path):
        self.data.write(split, path)

    def assist(self, split, inference):
        if self.data.has_labels(split):
            self._evaluate(split, inference, _read_all)
        else:
            super().assist(split, inference)

    def scores(self, split, inference):
        return self._predict(split, inference)[1]

    def _evaluate(self, split, inference, metrics):
        """Returns the result of `Inference.evaluate` for a split with labels."""
        if _part(split) == "dev":
            return inference.evaluate(metrics=metrics, name=self._suffix(split)[1:] or None)
        return inference.evaluate(metrics=metrics, name=f"test{self._of_task}",
                                  batch_size=self.settings.predict_batch_size)

    def _predict(self, split, inference):
        """Returns (list of the head's predictions for the examples of a split, metrics). The metrics are None
        if the split has no labels."""
        predictions = []

        def of_batches(batches):
            rows = itertools.chain.from_iterable(map(split_batch, batches))
            predictions.extend(self.data.in_order(split, rows))
            metrics = self.target.metrics(*self.data.arrays(split, predictions))
            if self.settings.doc_stride:
                metrics["loss"] = metrics["eval_loss"]  # of texts and not of windows
            return {**metrics, **self._own_metrics(split, predictions, [*metrics, "loss", "global_step"])}

        if self.data.has_labels(split):
            metrics = self._evaluate(split, inference, of_batches)
            return predictions, metrics
        return self.data.in_order(split, inference.rows()), None

    def _own_metrics(self, split, predictions, known):
        """Returns the metrics of the processor's method `compute_metrics`, {name in eval_results.txt: value}.

        If the method raises an error, this error is logged and an empty dict is returned, so that the other
        results are still written. The attribute `failure` keeps it for the end of the run.

        Args:
          split, predictions: see `_predict`.
          known: names of the metrics that the head computes.
        """
        if not hasattr(self.declared, "compute_metrics"):
            return {}
        try:
            found = self.declared.compute_metrics(
                [self.target.row_label(example.label) for example in self.data.examples[split]],
                [self.target.row_answer(row[self.target.output])[0] for row in predictions])
            metrics = {f"eval_{name}": float(value) for name, value in found.items()}
            for name in metrics:
                if name in known or not name.isidentifier():
                    raise ValueError(f"compute_metrics returns the metric {name[5:]!r:.80}. The name must "
                                     "consist of letters, digits and underscores, and must differ from "
                                     f"{', '.join(sorted(known)).replace('eval_', '')}.")
        except Exception as error:  # noqa: BLE001
            logging.error("compute_metrics: %r", error)
            self.failure = self.failure or error
            return {}
        return metrics

    def write(self, split, inference):
        part, suffix = _part(split), self._suffix(split)
        logging.info({"dev": "Evaluating on %d examples.", "test": "Predicting %d examples."}[part],
                     len(self.data.examples[split]))
        predictions, metrics = self._predict(split, inference)
        rows = self.data.predicted_rows(split, predictions)
        if part == "dev":
            metrics = self._write_metrics(split, f"eval_results{suffix}", metrics, predictions, rows)
            self._write_table(f"eval_predictions{suffix}", rows)
            self._write_report(split, f"eval_report{suffix}.html", metrics, rows)
        else:
            if metrics:
                self._write_metrics(split, f"test_eval_results{self._of_task}", metrics, predictions, rows)
            numbers = [prediction[self.target.output] for prediction in predictions]
            answers = [self.target.predicted_label(row) for row in numbers]
            self._write_predictions(numbers, answers, suffix)
            glue_submission_files.write_predictions(self.settings.results_dir, self.declared, split, answers)
            self._write_table(f"test_predictions{suffix}", rows)
        self._log_samples(split, predictions)

    def _log_samples(self, split, predictions):
        """Logs a few predictions for the first split, and after the last split the official metrics of all
        splits."""
        splits = self.splits()
        if split == splits[0]:
            classification_splits.log_sample_predictions(
                split, self.data.examples[split], predictions, self.target, self.data.has_labels(split))
        if split == splits[-1] and self._official:
            logging.info("%s %s", self._name, "; ".join(self._official))

    def _write_metrics(self, split, name, metrics, predictions, rows):
        """Writes the metrics of a split into NAME.txt and NAME.json, and stores the official metrics, which
        are logged at the end of the run. NAME.json also contains metrics of each label. Warns if all
        predictions are the same.

        Returns:
          the metrics in NAME.json.
        """
        names = self.target.metric_names_of_labels()
        official = ", ".join(f"{names[name]} {metrics[f'eval_{name}']:.3f}" for name in self.declared.metrics)
        self._official.append(f"{split.replace('_', ' ')}: {official}")
        labels, outputs, _ = self.data.arrays(split, predictions)
        more, file_name = self.target.details(labels, outputs), f"{name}.txt"
        # A metric of a --task_module may have the name of one of the further metrics. It has priority.
        combined = results.write_metrics(self.settings, split, name, metrics, more)
        missing = [label for label, scores in more.get("labels", {}).items() if not scores["support"]]
        if missing and any("macro F1" in text for text in names.values()):
            logging.info("%s: the macro F1 is the mean over all %d labels. %d of them have no example here, "
                         "so their F1 is 0: %s.", file_name, self.target.size, len(missing),
                         ", ".join(missing[:_MAX_LISTED]))
        warning = self.target.constant_warning(metrics, rows)
        if warning:
            logging.warning("%s: %s", file_name, warning)
        return combined

    def _write_table(self, name, rows):
        """Writes the table of the examples and their predictions."""
        settings = self.settings
        path = os.path.join(settings.results_dir, f"{name}.{settings.predictions_format}")
        prediction_files.write_predictions(path, rows, settings.predictions_format, settings.csv_safe,
                                           self.target.separator)
        logging.info("Table of the texts and their predictions: %s.", path)

    def _write_report(self, split, file_name, metrics, rows):
        """Writes the report of an evaluation; see `results.write_report`."""
        def write(path, facts):
            classification_report.write_report(path, facts, rows, self.target.labels,
                                               self.target.threshold)

        results.write_report(self.settings, file_name, write, self._name, metrics, self._data_file(split),
                             self.shown)

    def _data_file(self, split):
        """Returns the path of the file with the examples of a development set; None if it is unknown."""
        settings = self.settings
        if settings.data_dir is None:
            return settings.dev_file or settings.train_file
        names = self.declared.file_names().get(split, ())
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


def _part(split):
    """Returns the part of the data to which a split belongs, such as "dev" for "dev_mismatched"."""
    return split.partition("_")[0]


def _read_all(batches):
    """Reads all batches of an evaluation, and returns no metrics."""
    for _ in batches:
        pass
    return {}
