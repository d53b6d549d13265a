"""Contains the task of run_swag.py: chooses the right one of several endings of a text.
Also makes the rows of its tables."""

from absl import logging
import numpy as np

from bertlib.data import tables
from bertlib.data.prediction_rows import PredictedRow, shortest
from bertlib.runs import recorded_flags
from bertlib.runs.input_paths import require_file
from bertlib.system import terminal
from bertlib.tasks import data_splits, task, text_windows
from bertlib.tasks.classification import choice_target

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}
# The sample is small, so the training needs more epochs and a higher learning rate than with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 8, "learning_rate": 1e-4}


class MultipleChoice(task.Task):
    """Chooses the right one of several endings of a text. The data of a split are a list of
    `labelled_rows.Row`.

    Attributes:
      files: {split: its `labelled_rows.ExampleFile`}, after `read`; see `choice_target.QuestionReader`.
      lengths: {split: the numbers of tokens of its questions}, after `write_features`.
    """

    command, noun, title = "run_swag.py", "question", "Questions of the development file"
    target = choice_target.Endings()
    metric_titles = {"eval_accuracy": "accuracy"}
    segments_reason = "each input is a sentence and an ending"

    def __init__(self, settings):
        super().__init__(settings)
        self.files, self.lengths = {}, {}

    # --- Flags

    def resolve(self):
        self.resolve_splits("swag", _SAMPLE_DEFAULTS, lambda split: [[
            name + ending + packed for name in _FILES[split] for ending in tables.ENDINGS
            for packed in ("", ".gz")]])

    # --- Files and data

    def read(self):
        settings = self.settings
        for split in data_splits.needed(settings):
            # Each question of the test file needs a prediction. So a bad line in the test file is always an
            # error, even with --skip_bad_lines. None: the error does not advise this flag.
            reader = choice_target.QuestionReader(settings.get, recorded_flags.columns_by_name(settings),
                                                None if split == "test" else settings.skip_bad_lines)
            file = reader.read(require_file(settings, f"{split}_file"), needs_labels=split != "test")
            self.skipped += reader.skipped
            self.dialect = file.dialect
            rows = self.draw(split, file.rows, lambda row: [*row.texts, int(row.label)])
            file = self.files[split] = file._replace(rows=rows)
            self.data[split] = rows
            logging.info("%s: %s with %d endings%s.", file.path,
                         terminal.counted(len(file.rows), "question"), choice_target.count_endings(file),
                         "" if file.is_labelled else ", without labels")
        self.target = choice_target.Endings(choice_target.count_endings(next(iter(self.files.values()))))
        self.warn_of_unknown_tokens(lambda row: row.texts)

    # --- The model

    def feature_fields(self, seq_length, split="train"):
        file = self.files.get(split)
        return choice_target.feature_fields(
            seq_length, choice_target.count_endings(file) if file else self.target.num_choices)

    def record_fields(self):
        return {"task": "swag", "settings": {"num_choices": self.target.num_choices},
                **data_splits.data_fields(self.settings, lambda: len(self.data["dev"]))}

    # --- The run

    def write_features(self, split, path):
        settings, file = self.settings, self.files[split]
        lengths = choice_target.write_features(file, settings.max_seq_length, self.tokenizer, path,
                                             settings.num_workers, settings.features_cache)
        log = logging.warning if max(lengths) > settings.max_seq_length else logging.info
        log("%s: %s", file.path, text_windows.describe_lengths(
            lengths, "question", settings.max_seq_length))
        self.lengths[split] = lengths

    def predict(self, split, inference):
        """Returns (list with the prediction for each question, scores). For a prediction, see
        `classification_head.Choice`. The scores are None if the split has no labels."""
        outputs = list(inference.rows())
        if not self.files[split].is_labelled:
            return outputs, None
        is_right = [output["scores"].argmax() == int(row.label)
                    for output, row in zip(outputs, self.data[split])]
        return outputs, {"eval_accuracy": float(np.mean(is_right)),
                         "eval_loss": float(np.mean([output["loss"] for output in outputs],
                                                    dtype=np.float64)),
                         "global_step": inference.step}

    def evaluate_and_write(self, split, inference):
        from bertlib.reports import choice_report
        from bertlib.tasks import results
        file = self.files[split]
        logging.info("Choosing endings for the %d questions of %s.", len(file.rows), file.path)
        outputs, scores = self.predict(split, inference)
        if scores:
            results.write_metrics(self.settings, split, task.RESULT_NAMES[split], scores)
        rows = predicted_rows(file, outputs, self.lengths[split])
        self.write_table(task.TABLE_NAMES[split], rows, dialect=file.dialect)
        if split == "dev":
            results.write_report_or_warn(self, task.REPORT, "Multiple choice", scores, file.path,
                                         choice_report.write_report, rows)


def predicted_rows(file, outputs, lengths):
    """Returns the list of the `PredictedRow`s of a file. The labels, the predictions and the keys of the
    probabilities are names from `choice_target.label_names`.

    `outputs` and `lengths` have one element for each row of `file`, in the order of the rows.

    Args:
      file: a `labelled_rows.ExampleFile`.
      outputs: list of {name: array}, the predictions of `classification_head.Choice`.
      lengths: list of int, see `choice_target.write_features`.
    """
    names = choice_target.label_names(choice_target.count_endings(file))
    read_fields, rows = file.field_reader(), []
    for row, output, length in zip(file.rows, outputs, lengths, strict=True):
        numbers = map(shortest, choice_target.probabilities(output["scores"]))
        prediction, is_labelled = names[int(output["scores"].argmax())], row.label is not None
        rows.append(PredictedRow(
            row.line, read_fields(row.values), row.texts, row.label, prediction, dict(zip(names, numbers)),
            row.label == prediction if is_labelled else None,
            shortest(output["loss"]) if is_labelled else None, length))
    return rows
