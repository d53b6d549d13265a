"""Contains the task of run_classifier.py: one label, a score, or several labels for each text or pair of
texts."""

import collections
import functools
import itertools
import os
import re

from absl import logging
import numpy as np

from bertlib.runs import checks, file_names, model_config, registry
from bertlib.tasks import data_splits, task, text_windows
from bertlib.tasks.classification import (
    class_weights,
    classification_processor,
    classifier_features,
)
from bertlib.tasks.classification.classifier_data import XnliProcessor


class Classification(task.Task):
    """Predicts one label, a score, or several labels for each text or pair of texts.

    A run has the splits "train", "dev" and "test", and may have additional sets, such as "dev_mismatched".

    Attributes:
      processor: the `classifier_data.DataProcessor` that reads the examples, after `resolve`.
      own_data: `processor` if it is an `own_data.OwnData`, otherwise None.
      target: see `classification_target`, after `read`.
      data: {name of a set: list of `InputExample`}, after `read`; see
        `classification_processor.read_examples`.
      features: {split: its `classifier_features.FeatureRecords`}, after `read`.
    """

    command = "run_classifier.py"

    def __init__(self, settings):
        super().__init__(settings)
        self.processor = self.own_data = self.target = None
        self.features, self._test_has_labels = {}, False
        self._failure = None  # the first error of compute_metrics

    @property
    def name(self):
        """The name of the task in the log and in reports."""
        return self.processor.name or self.settings.task_name

    # --- Flags

    def resolve(self):
        self.resolve_processor()
        model_config.resolve_model_flags(self.settings)

    def resolve_processor(self, suffix=""):
        """Finds the processor, and resolves the flags that depend on it. `suffix` is the end of the default
        --output_dir."""
        settings = self.settings
        classification_processor.resolve_task_module(settings)
        if settings.task_module:
            self.processor, self.module = classification_processor.resolve_module(settings, suffix)
        elif classification_processor.uses_own_data(settings):
            self.resolve_own_data(suffix)
        else:
            self.processor = classification_processor.resolve_known_task(settings, suffix)
        if settings.is_given("xnli_language") and not isinstance(self.processor, XnliProcessor):
            raise ValueError(f"--xnli_language={settings.xnli_language}: this flag is only for the task "
                             "XNLI. Leave the flag out.")
        if not self.own_data:
            self.target = registry.find_target(self.processor.task_type).for_run(
                settings, self.processor.get_labels())

    def resolve_own_data(self, suffix=""):
        """Like `resolve_processor`, for the user's own data."""
        from bertlib.tasks.classification import own_data
        self.processor = self.own_data = own_data.OwnData(self.settings)
        self.own_data.resolve(suffix)

    # --- Files and data

    def input_files(self):
        settings = self.settings
        if settings.data_dir is None:
            return data_splits.list_files(settings, (*data_splits.FILES, "label_file", "label_map"))
        names = itertools.chain.from_iterable(self.processor.file_names().values())
        return {"data_dir": [os.path.join(settings.data_dir, name) for name in names]}

    @property
    def result_splits(self):
        return [part + suffix for part in ("dev", "test")
                for suffix in ("", *(f"_{name}" for name in self.processor.further_sets))]

    @property
    def feature_files(self):
        names = task.Task.feature_files
        return {**names, **{split: self._with_suffix(names[data_splits.base_split(split)], split)
                            for split in self.result_splits}}

    def suffix(self, split):
        """Returns the suffix of the names of the files of a split, before the extension.

        This is the name of an additional set, as in eval_results_mismatched.txt. If --results_dir contains a
        training on a different task, the name of this run's task comes before it, as in test_results_ax.tsv.
        """
        return self.task_suffix + split.removeprefix(data_splits.base_split(split))

    def _with_suffix(self, name, split):
        """Returns the name of a file of a split, with its suffix."""
        return name.replace(".", f"{self.suffix(split)}.")

    @functools.cached_property
    def task_suffix(self):
        """The suffix of the names of result files, before the extension.

        If --results_dir contains the training of a different task, the suffix is the name of this run's task,
        such as "_ax". So the run does not overwrite the result files of that training. In all other cases,
        the suffix is empty.
        """
        settings = self.settings
        record = None if settings.do_train else settings.results_directory.record
        own_task = settings.task_name.lower()
        if record is None or record["task"] == own_task:
            return ""
        suffix = "_" + re.sub(r"\W+", "_", own_task)
        logging.info("The names of result files end in %s, because %s contains the training and the "
                     "results of another task.", suffix, settings.results_dir)
        return suffix

    def result_names(self, split):
        part = data_splits.base_split(split)
        names = [*super().result_names(part),
                 *(("test_results.tsv", "test_predictions.tsv") if part == "test" else ())]
        return [*(self._with_suffix(name, split) for name in names),
                *(file for file, (its_split, _) in self.processor.submission.items() if its_split == split)]

    def read(self):
        settings, own_data = self.settings, self.own_data
        if own_data:
            own_data.read()
            self.target, self.skipped = own_data.target, own_data.skipped
            self.dialect = next(iter(own_data.dialects.values()))
        target = self.target
        examples, self._test_has_labels = classification_processor.read_examples(settings, self.processor,
                                                                                 target)
        self.data = classification_processor.draw_examples(settings, examples, target)
        if self.config and any(example.text_b for part in self.data.values() for example in part):
            checks.check_segments(self.config, f"the examples of {settings.task_name} are pairs")
        self.features = {split: classifier_features.FeatureRecords(
            examples, target, settings.max_seq_length, self.tokenizer, settings.num_workers,
            settings.doc_stride, self.has_labels(split)) for split, examples in self.data.items()}
        self.warn_of_unknown_tokens(lambda example: (
            getattr(example, "text_a", None), getattr(example, "text_b", None)))
        if settings.doc_stride and "train" in self.data:
            self.features["train"].cache()  # the number of training steps depends on the number of windows

    def read_baseline_examples(self):
        """Returns the training examples for the baseline of a run without training, as a list of
        `InputExample`. The list is empty if the run has no training data."""
        try:
            examples = self.processor.get_train_examples(self.settings.data_dir)
        except (NotImplementedError, OSError) as error:
            logging.info("Baseline: the training examples cannot be read: %s", error)
            return []
        drawn = classification_processor.draw_examples(self.settings, {"train": examples}, self.target)
        return drawn["train"]

    def has_labels(self, split):
        """Returns whether the labels of a split are real. In a test set without labels, each example has the
        default label."""
        return not split.startswith("test") or split == "test" and self._test_has_labels

    # --- The model

    def head_for_training(self):
        """Returns the head for the training. The loss of this head uses --class_weights and
        --label_smoothing.

        Raises:
          ValueError: one of these flags was given, but a user's class has its own head.
        """
        given = [name for name in ("class_weights", "label_smoothing") if getattr(self.settings, name)]
        if not given:
            return self.create_head()
        if self.has_own_head:
            raise ValueError(f"--{given[0]} has no effect on the head of {type(self).__name__}: its loss is "
                             "in the task module. Leave the flag out, or override `head_for_training`.")
        counts, train = collections.Counter(), self.data.get("train", ())
        windows = train and self.features["train"].windows or [1] * len(train)
        for example, number in zip(train, windows):
            counts[example.label] += number
        return self.target.create_head(*class_weights.loss_options(self.settings, self.target, counts))

    @property
    def noun(self):
        return "window" if self.settings.doc_stride else "example"

    def num_examples(self):
        train = self.data.get("train", ())
        return sum(self.features["train"].windows) if self.settings.doc_stride and train else len(train)

    @property
    def num_texts(self):
        counts = {2 if example.text_b else 1 for examples in self.data.values() for example in examples}
        return counts.pop() if len(counts) == 1 else None

    def record_fields(self):
        settings, target, examples = self.settings, self.target, self.data
        dev_rows = self.own_data and self.own_data.dev_rows
        contents = {file_names.DEV_ROWS: dev_rows.content.encode()} if dev_rows else {}
        values = {"mapped_labels": settings.mapped_labels} if settings.mapped_labels else {}
        return {
            "task": settings.task_name.lower(), "labels": target.labels, "settings": values,
            "dev_rows": dev_rows and dev_rows.recorded, "more_files": contents,
            "train_data": data_splits.fingerprint_examples(examples["train"]) if settings.do_train else None,
            "dev_data": data_splits.fingerprint_examples(examples["dev"]) if settings.do_eval else None}

    # --- The run

    @property
    def title(self):
        return f"Development set of {self.name}"

    @property
    def metric_titles(self):
        return {f"eval_{name}": self.target.metric_names[name] for name in self.processor.metrics}

    def replaced_splits(self, split):
        # An earlier run may have evaluated additional sets that this run does not have. Their results are
        # removed.
        return [*(other for other in self.result_splits
                  if other.startswith(f"{split}_") and other not in self.data), split]

    def write_features(self, split, path):
        settings, records = self.settings, self.features[split]
        records.write(path, settings.features_cache)
        logging.info("Lengths of %s: %s", split.replace("_", " "), text_windows.describe_lengths(
            records.lengths, "example", settings.max_seq_length,
            sum(records.windows) if settings.doc_stride else None,
            "raise --max_seq_length, or pass --doc_stride to split them into windows"))

    @property
    def known_metrics(self):
        return () if hasattr(self.processor, "compute_metrics") else super().known_metrics

    def predict(self, split, inference):
        """Returns (list of the head's predictions for the examples of a split, metrics). The metrics are None
        if the split has no labels."""
        if not self.has_labels(split):
            return self._of_examples(split, inference.rows()), None

        def score(batches):
            predictions = self._of_examples(split, inference.rows_of(batches))
            return predictions, self._score(split, predictions)

        if data_splits.base_split(split) == "dev":
            return inference.evaluate(score, "eval_batch_size", name=self.suffix(split)[1:] or None)
        return inference.evaluate(score, "predict_batch_size", name=f"test{self.task_suffix}")

    def _score(self, split, predictions):
        """Returns the metrics of a split with labels; see `predict`."""
        metrics = self.target.metrics(*self.arrays(split, predictions))
        if self.settings.doc_stride:
            metrics["loss"] = metrics["eval_loss"]  # of texts and not of windows
        metrics |= self._own_metrics(split, predictions, [*metrics, "loss", "global_step"])
        if self.target.is_score:  # a metric of compute_metrics may have the name of one of these errors
            metrics = {**self.target.further_metrics(*self.arrays(split, predictions)[:2]), **metrics}
        return metrics

    def _of_examples(self, split, rows):
        """Returns the predictions for the examples of a split as a list of dicts. With --doc_stride, the
        prediction for an example is the mean over the example's windows. `rows` are the predictions of the
        Estimator, in the order of the examples or windows."""
        rows = list(rows)
        if not self.settings.doc_stride:
            return rows
        return text_windows.mean_over_windows(rows, self.features[split].windows)

    def arrays(self, split, predictions):
        """Returns (labels, outputs, losses), arrays with a row for each example of a split with labels; see
        `classification_target`."""
        labels = np.array([self.target.encode_label(example.label) for example in self.data[split]])
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
        results are still written. `finish` raises it at the end of the run.

        Args:
          split, predictions: see `predict`.
          known: names of the metrics that the head computes.
        """
        if not hasattr(self.processor, "compute_metrics"):
            return {}
        try:
            own_metrics = self.processor.compute_metrics(
                [self.target.row_label(example.label) for example in self.data[split]],
                [self.target.row_answer(row[self.target.output])[0] for row in predictions])
            metrics = {f"eval_{name}": float(value) for name, value in own_metrics.items()}
            for name in metrics:
                if name in known or not name.isidentifier():
                    raise ValueError(f"compute_metrics returns the metric {name[5:]!r:.80}. The name must "
                                     "consist of letters, digits and underscores, and must differ from "
                                     f"{', '.join(sorted(known)).replace('eval_', '')}.")
        except Exception as error:  # noqa: BLE001
            logging.error("compute_metrics: %r", error)
            self._failure = self._failure or error
            return {}
        return metrics

    def evaluate_and_write(self, split, inference):
        logging.info("%s %d examples.", {"dev": "Evaluating on", "test": "Predicting"}[
            data_splits.base_split(split)], len(self.data[split]))
        self._results.write(split, *self.predict(split, inference))

    @functools.cached_property
    def _results(self):
        """The `ClassificationResults`. Only runs that evaluate or predict load their module."""
        from bertlib.tasks.classification.classification_results import ClassificationResults
        return ClassificationResults(self)

    def finish(self):
        if self._failure:
            raise self._failure
