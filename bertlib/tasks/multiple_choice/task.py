"""Contains the task of run_swag.py: chooses the right one of several endings of a text."""

import os

from absl import logging

from bertlib.data import unknown_tokens
from bertlib.output_directory import output_files
from bertlib.reports import prediction_files
from bertlib.rows import tables
from bertlib.runs import (
    checks,
    example_limits,
    model_config,
    results,
    run_record,
    split_files,
    task,
)
from bertlib.runs.settings import require_file
from bertlib.system import fingerprints, terminal
from bertlib.tasks.multiple_choice import (
    choice_data,
    choice_metrics,
    choice_report,
    choice_rows,
    choice_target,
)

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}
# Beginnings of the names of the files with the scores and with the table of a split, in --results_dir.
_RESULTS = {"dev": "eval_results", "test": "test_eval_results"}
_TABLES = {"dev": "eval_predictions", "test": "test_predictions"}
_REPORT = "eval_report.html"
# The sample is small, so the training needs more epochs and a higher learning rate than with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 8, "learning_rate": 1e-4}


class MultipleChoice(task.Task):
    """Chooses the right one of several endings of a text.

    Attributes:
      data: {split: `choice_data.QuestionFile`}, after `read`. It contains the splits that the phases need.
    """

    command, noun, title = "run_swag.py", "question", "Questions of the development file"
    records = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
    shown = {"eval_accuracy": "accuracy"}

    def __init__(self, settings):
        super().__init__(settings)
        self.data, self._lengths = {}, {}  # _lengths: the numbers of tokens of the questions of each split

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_run("swag")
        split_files.resolve(settings, "swag", _SAMPLE_DEFAULTS, lambda split: [[
            name + ending + packed for name in _FILES[split] for ending in tables.ENDINGS
            for packed in ("", ".gz")]])
        model_config.resolve_model_flags(settings)

    def load_model(self):
        super().load_model()
        checks.check_segments(self.config, "each input is a sentence and an ending")

    # --- Files and data

    def input_files(self):
        return split_files.list_files(self.settings)

    def result_names(self, split):
        return [*(f"{_RESULTS[split]}.{ending}" for ending in ("txt", "json")),
                *(f"{_TABLES[split]}.{ending}" for ending in prediction_files.FORMATS),
                *([_REPORT] if split == "dev" else [])]

    def other_names(self):
        return [output_files.SKIPPED_LINES]

    def read(self):
        settings = self.settings
        for split in split_files.needed(settings):
            # Each question of the test file needs a prediction. So a bad line in the test file is always an
            # error, even with --skip_bad_lines. None: the error does not advise this flag.
            file = choice_data.read_questions(
                require_file(settings, f"{split}_file"), lambda name, _: getattr(settings, name),
                needs_labels=split != "test",
                skip_bad_lines=None if split == "test" else settings.skip_bad_lines,
                by_name=run_record.columns_by_name(settings))
            questions = example_limits.draw_examples(
                settings, split, file.questions, lambda question: fingerprints.hash_texts(
                    [question.sent1, question.sent2, *question.endings, question.label]))
            self.data[split] = file._replace(questions=questions)
            logging.info("%s: %s with %d endings%s.", file.path,
                         terminal.counted(len(questions), "question"), file.num_choices,
                         "" if file.is_labelled else ", without labels")
        self._compare_numbers_of_endings()
        unknown_tokens.check({split: file.questions for split, file in self.data.items()},
                             lambda question: (question.sent1, question.sent2, *question.endings),
                             self.tokenizer)

    def _compare_numbers_of_endings(self):
        """Logs a warning for each file whose questions have more or fewer endings than the training
        questions."""
        record = self.settings.trained and self.settings.trained.record
        trained = (self.data["train"].num_choices if "train" in self.data
                   else record and record["settings"].get("num_choices"))
        for file in self.data.values():
            if trained and file.num_choices != trained:
                logging.warning("%s: the questions have %d endings, and those of the training have %d. A "
                                "random choice has an accuracy of %.2f on this file, and of %.2f on the "
                                "training data.", file.path, file.num_choices, trained, 1 / file.num_choices,
                                1 / trained)

    def splits(self):
        return [split for split in self.data if split != "train"]

    def skipped_lines(self):
        return [fault for file in self.data.values() for fault in file.skipped]

    # --- The model

    target = choice_target.Endings

    def create_head(self):
        return choice_target.create_head(self._num_choices)

    def fields(self, seq_length, split="train"):
        return choice_data.feature_fields(seq_length, self.data[split].num_choices if split in self.data
                                          else self._num_choices)

    def num_examples(self):
        return len(self.data["train"].questions) if "train" in self.data else 0

    @property
    def _num_choices(self):
        return next(iter(self.data.values())).num_choices

    def describe(self):
        return {"task": "swag", "num_choices": self._num_choices,
                **split_files.describe(self.settings, lambda: len(self.data["dev"].questions))}

    # --- The run

    def write_features(self, split, path):
        settings, file = self.settings, self.data[split]
        lengths = choice_data.write_features(file, settings.max_seq_length, self.tokenizer, path,
                                             settings.num_workers, settings.features_cache)
        log = logging.warning if max(lengths) > settings.max_seq_length else logging.info
        log("%s: %s", file.path, choice_data.describe_lengths(lengths, settings.max_seq_length))
        self._lengths[split] = lengths

    def scores(self, split, inference):
        return self._choose(split, inference)[1]

    def _choose(self, split, inference):
        """Returns (list with the prediction for each question, scores). For a prediction, see
        `choice_head.Choice`. The scores are None if the split has no labels."""
        outputs = list(inference.rows())
        if not self.data[split].is_labelled:
            return outputs, None
        metrics = choice_metrics.evaluate([question.label for question in self.data[split].questions],
                                          [output["scores"] for output in outputs],
                                          [output["loss"] for output in outputs])
        return outputs, {**metrics, "global_step": inference.step}

    def write(self, split, inference):
        settings, file = self.settings, self.data[split]
        logging.info("Choosing endings for the %d questions of %s.", len(file.questions), file.path)
        outputs, scores = self._choose(split, inference)
        warning = choice_metrics.equal_scores_warning([output["scores"] for output in outputs])
        if warning:
            logging.warning("%s: %s", file.path, warning)
        if scores:
            results.write_metrics(settings, split, _RESULTS[split], scores)
        rows = choice_rows.ChoiceRows(file, outputs, self._lengths[split])
        path = os.path.join(settings.results_dir, f"{_TABLES[split]}.{settings.predictions_format}")
        prediction_files.write_predictions(path, rows, settings.predictions_format, settings.csv_safe)
        logging.info("Table of the questions and their predictions: %s.", path)
        if split == "dev":
            results.write_report(settings, _REPORT, lambda report, facts: choice_report.write_report(
                report, facts, rows), "Multiple choice", scores, file.path, self.shown)
