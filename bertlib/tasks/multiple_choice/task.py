"""Contains the task of run_swag.py: chooses the right one of several endings of a text."""

from absl import logging

from bertlib.data import unknown_tokens
from bertlib.reports.prediction_rows import PredictedRow
from bertlib.rows import columns, tables
from bertlib.runs import checks, results, run_record, split_data, task
from bertlib.runs.settings import require_file
from bertlib.system import fingerprints, terminal
from bertlib.tasks.multiple_choice import (
    choice_data,
    choice_metrics,
    choice_report,
    choice_target,
)

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}
# The sample is small, so the training needs more epochs and a higher learning rate than with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 8, "learning_rate": 1e-4}


class MultipleChoice(task.Task):
    """Chooses the right one of several endings of a text. The data of a split are a
    `choice_data.QuestionFile`."""

    command, noun, title = "run_swag.py", "question", "Questions of the development file"
    shown = {"eval_accuracy": "accuracy"}

    def __init__(self, settings):
        super().__init__(settings)
        self._lengths = {}  # the numbers of tokens of the questions of each split

    # --- Flags

    def resolve(self):
        self.resolve_splits("swag", _SAMPLE_DEFAULTS, lambda split: [[
            name + ending + packed for name in _FILES[split] for ending in tables.ENDINGS
            for packed in ("", ".gz")]])

    def load_model(self):
        super().load_model()
        checks.check_segments(self.config, "each input is a sentence and an ending")

    # --- Files and data

    def read(self):
        settings = self.settings
        for split in split_data.needed(settings):
            # Each question of the test file needs a prediction. So a bad line in the test file is always an
            # error, even with --skip_bad_lines. None: the error does not advise this flag.
            file = choice_data.read_questions(
                require_file(settings, f"{split}_file"), lambda name, _: getattr(settings, name),
                needs_labels=split != "test",
                skip_bad_lines=None if split == "test" else settings.skip_bad_lines,
                by_name=run_record.columns_by_name(settings))
            questions = split_data.draw_examples(
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
                **split_data.describe(self.settings, lambda: len(self.data["dev"].questions))}

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
            results.write_metrics(settings, split, task.SCORES[split], scores)
        rows = predicted_rows(file, outputs, self._lengths[split])
        self.write_table(task.TABLES[split], rows)
        if split == "dev":
            results.write_report(settings, task.REPORT, lambda report, facts: choice_report.write_report(
                report, facts, rows), "Multiple choice", scores, file.path, self.shown)


def predicted_rows(file, outputs, lengths):
    """Returns the list of the `PredictedRow`s of a file. The labels, the predictions and the keys of the
    probabilities are names from `choice_data.label_names`.

    `outputs` and `lengths` have one element for each question in `file`, in the order of the questions.

    Args:
      file: a `choice_data.QuestionFile`.
      outputs: list of {name: array}, the predictions of `choice_head.Choice`.
      lengths: list of int, see `choice_data.write_features`.
    """
    names, read_fields = choice_data.label_names(file.num_choices), columns.FieldReader(file.names)
    rows = []
    for question, output, length in zip(file.questions, outputs, lengths, strict=True):
        # Uses the shortest decimal form of each float32, so that the table contains 0.1 and not
        # 0.10000000149.
        numbers = [float(str(value)) for value in choice_metrics.probabilities(output["scores"])]
        prediction = names[int(output["scores"].argmax())]
        label = None if question.label is None else names[question.label]
        rows.append(PredictedRow(
            question.line, read_fields(question.values),
            (question.sent1, question.sent2, *question.endings), label, prediction,
            dict(zip(names, numbers)), None if label is None else label == prediction,
            None if label is None else float(str(output["loss"])), length))
    return rows
