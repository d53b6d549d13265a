"""Contains the task of run_swag.py: chooses the right one of several endings of a text."""

from absl import logging

from bertlib.data import tables
from bertlib.runs import recorded_flags
from bertlib.runs.input_paths import require_file
from bertlib.system import terminal
from bertlib.tasks import split_data, task
from bertlib.tasks.classification import (
    choice_data,
    choice_target,
    classifier_features,
)

# {split: possible names of its file in --data_dir, without the file extension}.
_FILES = {"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}
# The sample is small, so the training needs more epochs and a higher learning rate than with other data.
_SAMPLE_DEFAULTS = {"num_train_epochs": 10.0, "train_batch_size": 8, "learning_rate": 1e-4}


class MultipleChoice(task.TaskWithResults):
    """Chooses the right one of several endings of a text. The data of a split are a list of
    `row_examples.Row`.

    Attributes:
      files: {split: the `row_examples.Split` of its file}, after `read`; see `choice_data.QuestionReader`.
      lengths: {split: the numbers of tokens of its questions}, after `write_features`.
    """

    command, noun, title = "run_swag.py", "question", "Questions of the development file"
    results_class = "bertlib.tasks.classification.choice_results.ChoiceResults"
    shown = {"eval_accuracy": "accuracy"}
    needs_segments = "each input is a sentence and an ending"

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
        for split in split_data.needed(settings):
            # Each question of the test file needs a prediction. So a bad line in the test file is always an
            # error, even with --skip_bad_lines. None: the error does not advise this flag.
            reader = choice_data.QuestionReader(lambda name, _: getattr(settings, name),
                                                None if split == "test" else settings.skip_bad_lines,
                                                recorded_flags.columns_by_name(settings))
            file = reader.read(require_file(settings, f"{split}_file"), needs_labels=split != "test")
            self.skipped += reader.skipped
            self.dialect = file.dialect
            rows = self.draw(split, file.rows, lambda row: [*row.texts, int(row.label)])
            file = self.files[split] = file._replace(rows=rows)
            self.data[split] = rows
            logging.info("%s: %s with %d endings%s.", file.path,
                         terminal.counted(len(file.rows), "question"), choice_data.count_endings(file),
                         "" if file.is_labelled else ", without labels")
        self._compare_numbers_of_endings()
        self.warn_of_unknown_tokens(self.data, lambda row: row.texts)

    def _compare_numbers_of_endings(self):
        """Logs a warning for each file whose questions have more or fewer endings than the training
        questions."""
        record = self.settings.trained and self.settings.trained.record
        trained = (choice_data.count_endings(self.files["train"]) if "train" in self.files
                   else record and record["settings"].get("num_choices"))
        for file in self.files.values():
            number = choice_data.count_endings(file)
            if trained and number != trained:
                logging.warning("%s: the questions have %d endings, and those of the training have %d. A "
                                "random choice has an accuracy of %.2f on this file, and of %.2f on the "
                                "training data.", file.path, number, trained, 1 / number, 1 / trained)

    # --- The model

    target = choice_target.Endings

    def create_head(self):
        return self.target.create_head(choice_data.count_endings(self._first_file))

    def fields(self, seq_length, split="train"):
        return choice_data.feature_fields(seq_length, choice_data.count_endings(
            self.files.get(split, self._first_file)))

    @property
    def _first_file(self):
        return next(iter(self.files.values()))

    def describe(self):
        return {"task": "swag", "settings": {"num_choices": choice_data.count_endings(self._first_file)},
                **split_data.describe(self.settings, lambda: len(self.data["dev"]))}

    # --- The run

    def write_features(self, split, path):
        settings, file = self.settings, self.files[split]
        lengths = choice_data.write_features(file, settings.max_seq_length, self.tokenizer, path,
                                             settings.num_workers, settings.features_cache)
        log = logging.warning if max(lengths) > settings.max_seq_length else logging.info
        log("%s: %s", file.path, classifier_features.describe_lengths(
            lengths, "question", settings.max_seq_length))
        self.lengths[split] = lengths
