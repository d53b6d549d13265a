"""Contains the task of run_classifier.py: one label, a score, or several labels for each text or pair of
texts."""

import collections
import functools
import itertools
import os

from absl import logging
import numpy as np

from bertlib.data import batches, unknown_tokens
from bertlib.reports import classification_report
from bertlib.runs import checks, model_config, run_record
from bertlib.system import files
from bertlib.tasks import results, task, window_pooling
from bertlib.tasks.classification import (
    class_weights,
    classification_run,
    classification_splits,
    classifier_features,
    glue_submission_files,
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
      source: the `sources.Source`, after `resolve`.
      data: see `classification_run.read_examples`, after `read`.
    """

    command = "run_classifier.py"

    def __init__(self, settings):
        super().__init__(settings)
        self.source, self._test_has_labels = None, False
        self._records = {}  # {split: its `classifier_features.FeatureRecords`}, after `read`
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
        return classification_run.list_files(self.settings, self.declared)

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
        missing = [] if not self.data or split != part else [
            other for other in self.inferred if other.startswith(f"{part}_") and other not in self.data]
        return [*(name for other in missing for name in self.result_names(other)),
                *(name.format(suffix) for name in _RESULTS_OF[part]),
                *(file for file, (its_split, _) in self.declared.submission.items() if its_split == split)]

    def read(self):
        settings, target = self.settings, self.target
        self.data, self._test_has_labels = classification_run.read_examples(settings, self.source.processor,
                                                                            target)
        if self.config and any(example.text_b for part in self.data.values() for example in part):
            checks.check_segments(self.config, f"the examples of {settings.task_name} are pairs")
        self.skipped = self.source.skipped
        class_weights.parse_weights(settings, target)
        self._records = {split: classifier_features.FeatureRecords(
            examples, target, settings.max_seq_length, self.tokenizer, settings.num_workers,
            settings.doc_stride, self._has_labels(split)) for split, examples in self.data.items()}
        unknown_tokens.check(self.data, lambda example: (
            getattr(example, "text_a", None), getattr(example, "text_b", None)), self.tokenizer)
        if settings.doc_stride and "train" in self.data:
            self._records["train"].cache()  # the number of training steps depends on the number of windows

    def _has_labels(self, split):
        """Returns whether the labels of a split are real. In a test set without labels, each example has the
        default label."""
        return not split.startswith("test") or split == "test" and self._test_has_labels

    # --- The model

    @property
    def target(self):
        return self.source.target

    def create_head(self):
        return self.target.create_head()

    def head_for_training(self):
        """Returns the head for the training. For a classification, the loss of this head uses --class_weights
        and --label_smoothing."""
        if not self.target.takes_class_weights:
            return self.create_head()
        counts, train = collections.Counter(), self.data.get("train", ())
        windows = train and self._records["train"].windows or [1] * len(train)
        for example, number in zip(train, windows):
            counts[example.label] += number
        return self.target.create_head(**class_weights.loss_options(self.settings, self.target, counts))

    def fields(self, seq_length, split="train"):
        return classifier_features.feature_fields(seq_length, self.target)

    @property
    def noun(self):
        return "window" if self.settings.doc_stride else "example"

    def num_examples(self):
        train = self.data.get("train", ())
        return sum(self._records["train"].windows) if self.settings.doc_stride and train else len(train)

    def num_train_steps(self):
        return task.count_steps(self.settings, self.num_examples(), f"training {self.noun}")

    def describe(self):
        settings, target, examples = self.settings, self.target, self.data
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
        settings, records = self.settings, self._records[split]
        records.write(path, settings.features_cache)
        logging.info("Lengths of %s: %s", split.replace("_", " "), classifier_features.describe_lengths(
            records.lengths, "example", settings.max_seq_length,
            sum(records.windows) if settings.doc_stride else None,
            "raise --max_seq_length, or pass --doc_stride to split them into windows"))

    def assist(self, split, inference):
        if self._has_labels(split):
            self._evaluate(split, inference, _read_all)
        else:
            super().assist(split, inference)

    def _evaluate(self, split, inference, metrics):
        """Returns the result of `Inference.evaluate` for a split with labels."""
        if _part(split) == "dev":
            return inference.evaluate(metrics=metrics, name=self._suffix(split)[1:] or None)
        return inference.evaluate(metrics=metrics, name=f"test{self._of_task}",
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

        if self._has_labels(split):
            metrics = self._evaluate(split, inference, of_batches)
            return predictions, metrics
        return self._of_examples(split, inference.rows()), None

    def _of_examples(self, split, rows):
        """Returns the predictions for the examples of a split as a list of dicts. With --doc_stride, the
        prediction for an example is the mean over the example's windows. `rows` are the predictions of the
        Estimator, in the order of the examples or windows."""
        rows = list(rows)
        return window_pooling.pooled(rows, self._records[split].windows) if self.settings.doc_stride else rows

    def _arrays(self, split, predictions):
        """Returns (labels, outputs, losses), arrays with a row for each example of a split with labels; see
        `text_targets`."""
        labels = np.array(self._records[split].label_ids)
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
        if not hasattr(self.declared, "compute_metrics"):
            return {}
        try:
            found = self.declared.compute_metrics(
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
            self.failure = self.failure or error
            return {}
        return metrics

    def write(self, split, inference):
        part, suffix = _part(split), self._suffix(split)
        logging.info({"dev": "Evaluating on %d examples.", "test": "Predicting %d examples."}[part],
                     len(self.data[split]))
        predictions, metrics = self.predict(split, inference)
        has_labels = self._has_labels(split)
        rows = classification_splits.PredictedRows(
            self.data[split], predictions, self.target, self._records[split].lengths,
            self._arrays(split, predictions)[2] if has_labels else None, has_labels)
        if part == "dev":
            metrics = self._write_metrics(split, f"eval_results{suffix}", metrics, predictions, rows)
            self.write_table(f"eval_predictions{suffix}", rows, self.target.separator)
            results.write_report(self, f"eval_report{suffix}.html", self._name, metrics,
                                 self._data_file(split), classification_report.write_report, rows,
                                 self.target.labels, self.target.threshold)
        else:
            if metrics:
                self._write_metrics(split, f"test_eval_results{self._of_task}", metrics, predictions, rows)
            numbers = [prediction[self.target.output] for prediction in predictions]
            answers = [self.target.predicted_label(row) for row in numbers]
            self._write_predictions(numbers, answers, suffix)
            glue_submission_files.write_predictions(self.settings.results_dir, self.declared, split, answers)
            self.write_table(f"test_predictions{suffix}", rows, self.target.separator)
        self._log_samples(split, predictions)

    def _log_samples(self, split, predictions):
        """Logs a few predictions for the first split, and after the last split the official metrics of all
        splits."""
        splits = self.splits()
        if split == splits[0]:
            classification_splits.log_sample_predictions(
                split, self.data[split], predictions, self.target, self._has_labels(split))
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
        labels, outputs, _ = self._arrays(split, predictions)
        more, file_name = self.target.details(labels, outputs), f"{name}.txt"
        # A metric of a --task_module may have the name of one of the further metrics. It has priority.
        combined = results.write_metrics(self.settings, split, name, metrics, more)
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
