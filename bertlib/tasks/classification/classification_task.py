"""Contains the task of run_classifier.py: one label, a score, or several labels for each text or pair of
texts."""

import collections
import functools
import itertools
import os
import re

from absl import logging

from bertlib.runs import checks, model_flags, run_record
from bertlib.tasks import split_data, task
from bertlib.tasks.classification import (
    class_weights,
    classification_run,
    classifier_features,
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


class Classification(task.TaskWithResults):
    """Predicts one label, a score, or several labels for each text or pair of texts.

    A run has the splits "train", "dev" and "test", and may have additional sets, such as "dev_mismatched".

    Attributes:
      source: the `sources.Source`, after `resolve`.
      data: see `classification_run.read_examples`, after `read`.
      features: {split: its `classifier_features.FeatureRecords`}, after `read`.
    """

    command = "run_classifier.py"
    results_class = "bertlib.tasks.classification.classification_results.ClassificationResults"

    def __init__(self, settings):
        super().__init__(settings)
        self.source, self._test_has_labels = None, False
        self.features = {}

    @property
    def processor(self):
        """The `classifier_data.DataProcessor` of the task."""
        return self.source.processor

    @property
    def name(self):
        """The name of the task in the log and in reports."""
        return self.processor.name or self.settings.task_name

    # --- Flags

    def resolve(self):
        self.source = classification_run.resolve_source(self.settings)
        model_flags.resolve_model_flags(self.settings)

    # --- Files and data

    def input_files(self):
        settings = self.settings
        if settings.data_dir is None:
            return split_data.list_files(settings, (*split_data.FILES, "label_file", "label_map"))
        names = itertools.chain.from_iterable(self.processor.file_names().values())
        return {"data_dir": [os.path.join(settings.data_dir, name) for name in names]}

    @property
    def result_splits(self):
        return [part + suffix for part in ("dev", "test")
                for suffix in ("", *(f"_{name}" for name in self.processor.further_sets))]

    @property
    def records(self):
        return {"train": "train.tf_record", **{
            split: _RECORDS[part_of(split)].format(self.suffix(split)) for split in self.result_splits}}

    def suffix(self, split):
        """Returns the suffix of the names of the files of a split, such as "_mismatched"."""
        return self.task_suffix + split.removeprefix(part_of(split))

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
        return [*(name.format(self.suffix(split)) for name in _RESULTS_OF[part_of(split)]),
                *(file for file, (its_split, _) in self.processor.submission.items() if its_split == split)]

    def read(self):
        settings, target = self.settings, self.target
        self.data, self._test_has_labels = classification_run.read_examples(settings, self.processor,
                                                                            target)
        if self.config and any(example.text_b for part in self.data.values() for example in part):
            checks.check_segments(self.config, f"the examples of {settings.task_name} are pairs")
        self.skipped = self.source.skipped
        self.dialect = next(iter(self.source.dialects.values()), self.dialect)
        if self._changes_loss:
            class_weights.parse_weights(settings, target)
        self.features = {split: classifier_features.FeatureRecords(
            examples, target, settings.max_seq_length, self.tokenizer, settings.num_workers,
            settings.doc_stride, self.has_labels(split)) for split, examples in self.data.items()}
        self.warn_of_unknown_tokens(self.data, lambda example: (
            getattr(example, "text_a", None), getattr(example, "text_b", None)))
        if settings.doc_stride and "train" in self.data:
            self.features["train"].cache()  # the number of training steps depends on the number of windows

    @property
    def _changes_loss(self):
        """Whether --class_weights or --label_smoothing is given."""
        return self.settings.class_weights is not None or self.settings.label_smoothing > 0

    def has_labels(self, split):
        """Returns whether the labels of a split are real. In a test set without labels, each example has the
        default label."""
        return not split.startswith("test") or split == "test" and self._test_has_labels

    # --- The model

    @property
    def target(self):
        return self.source.target

    def head_for_training(self):
        """Returns the head for the training. The loss of this head uses --class_weights and
        --label_smoothing."""
        if not self._changes_loss:
            return self.create_head()
        counts, train = collections.Counter(), self.data.get("train", ())
        windows = train and self.features["train"].windows or [1] * len(train)
        for example, number in zip(train, windows):
            counts[example.label] += number
        return self.target.create_head(*class_weights.loss_options(self.settings, self.target, counts))

    def fields(self, seq_length, split="train"):
        return classifier_features.feature_fields(seq_length, self.target)

    @property
    def noun(self):
        return "window" if self.settings.doc_stride else "example"

    def num_examples(self):
        train = self.data.get("train", ())
        return sum(self.features["train"].windows) if self.settings.doc_stride and train else len(train)

    def num_train_steps(self):
        return task.count_steps(self.settings, self.num_examples(), f"training {self.noun}")

    def describe(self):
        settings, target, examples = self.settings, self.target, self.data
        recorded = dict(self.source.recorded)
        if "task_module" in recorded:
            counts = {2 if example.text_b else 1 for rows in examples.values() for example in rows}
            recorded["task_module"] |= {"texts": counts.pop() if len(counts) == 1 else None}
        # Later predictions use the threshold of the training.
        values = {} if target.threshold is None else {"threshold": target.threshold}
        if settings.mapped_labels:
            values["mapped_labels"] = settings.mapped_labels
        return {
            "task": settings.task_name.lower(), "labels": target.labels, "settings": values, **recorded,
            "more_files": self.source.files,
            "train_data": run_record.describe_examples(examples["train"]) if settings.do_train else None,
            "dev_data": run_record.describe_examples(examples["dev"]) if settings.do_eval else None}

    # --- The run

    @property
    def title(self):
        return f"Development set of {self.name}"

    @property
    def shown(self):
        names = self.target.metric_names_of_labels()
        return {f"eval_{name}": names[name] for name in self.processor.metrics}

    def replaced_splits(self, split):
        # An earlier run may have evaluated additional sets that this run does not have. Their results go.
        return [*(other for other in self.result_splits
                  if other.startswith(f"{split}_") and other not in self.data), split]

    def write_features(self, split, path):
        settings, records = self.settings, self.features[split]
        records.write(path, settings.features_cache)
        logging.info("Lengths of %s: %s", split.replace("_", " "), classifier_features.describe_lengths(
            records.lengths, "example", settings.max_seq_length,
            sum(records.windows) if settings.doc_stride else None,
            "raise --max_seq_length, or pass --doc_stride to split them into windows"))

    def assist(self, split, inference):
        if self.has_labels(split):
            self.results.assist_evaluation(split, inference)
        else:
            super().assist(split, inference)


def part_of(split):
    """Returns the part of the data to which a split belongs, such as "dev" for "dev_mismatched"."""
    return split.partition("_")[0]
