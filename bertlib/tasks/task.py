"""The base class of the tasks. A task contains all that a command that trains does not share with the others:
its flags and files, its head, its metrics and its results. `bertlib.tasks.driver` runs it. The modules of
the tasks load no TensorFlow; their heads do.
"""

import abc
import os
from typing import Any

from absl import logging

from bertlib.data import example_encoding, prediction_files, tables, unknown_tokens
from bertlib.runs import checks, model_config, recorded_flags, tokenizer_flags
from bertlib.system import fingerprints, terminal
from bertlib.tasks import data_splits

# {split: beginning of the names of the files with its scores}, and the same for its table of predictions.
RESULT_NAMES = {"dev": "eval_results", "test": "test_eval_results"}
TABLE_NAMES = {"dev": "eval_predictions", "test": "test_predictions"}
REPORT = "eval_report.html"


class Task(abc.ABC):
    """The task of a run: its flags and files, its head, its metrics and its results.

    The sections of this class, and of its subclasses, are the steps of `driver.run`, in their order. Each
    method is in the section of the step that first uses it. `driver.run` does not call the methods of the
    last section.

    Attributes:
      settings: the `Settings` of the run.
      config: the `modeling.BertConfig`, after `load_config_and_tokenizer`.
      encoder_module: the `hub_encoder.EncoderModule` with the encoder, after `load_config_and_tokenizer`;
        None if the encoder is the `modeling.BertModel` of `config`.
      module: the `task_module.Module` of --task_module; None without this flag.
      tokenizer: the tokenizer, after `load_config_and_tokenizer`; None if the run reads no text.
      skipped: list of `faults.Fault`, the lines that --skip_bad_lines left out, after `read`.
      dialect: the `tables.Dialect` of skipped_lines.csv, after `read`.
      data: {split: its examples}, after `read`, for the splits that the phases need. The form of the examples
        depends on the task.
    """

    # File name of the command, such as "run_squad.py".
    command: str
    # What the model predicts: a `bertlib.tasks.target.Target`.
    target: Any
    # {split: name of its TFRecord file of features}. That of "train" is written to --output_dir, all others
    # are written to --results_dir. A task whose data are features already writes no files.
    feature_files = {"train": "train.tf_record", "dev": "eval.tf_record", "test": "predict.tf_record"}
    # The splits that a run can evaluate or predict.
    result_splits = "dev", "test"
    # The words for one example of the training in messages, and for the examples in the title of the picture.
    noun: str
    title: str
    # {metric: its name in the picture}, and the best possible value of these metrics.
    metric_titles: dict[str, str]
    full_score = 1.0
    # Whether the development data are read only with --do_eval=true.
    needs_do_eval = True
    # Names of the fields that are trimmed, the mask first, and of the fields that contain positions in them;
    # see `input_pipeline.record_dataset`.
    trimmed_fields = example_encoding.TRIMMED_FIELDS
    position_fields = ()
    # Whether batches of the training are trimmed if --trim_padding is not given, and whether batches of an
    # evaluation may be trimmed; see `trims_padding`.
    trims_padding_in_training = trims_padding_in_evaluation = True
    # Why each input has two segments, as a clause for the error of `checks.check_segments`; None otherwise.
    segments_reason = None

    def __init__(self, settings):
        self.settings, self.data = settings, {}
        self.skipped, self.dialect = [], tables.PLAIN
        self.config = self.encoder_module = self.tokenizer = self.module = None

    @property
    def has_own_head(self):
        """Whether the task has another head than its target: a user's class overrides `create_head`."""
        return type(self).create_head is not Task.create_head

    @property
    def known_metrics(self):
        """Names of the metrics of an evaluation, see `bertlib.tasks.target`. Empty if they are not known
        before the first evaluation: a class of a user may have more metrics than its target."""
        return self.target.known_metrics if type(self).__module__.startswith("bertlib.") else ()

    # --- Flags

    @abc.abstractmethod
    def resolve(self):
        """Sets each flag that is missing on the command line to its default for this run.

        Raises:
          ValueError, OSError: a required flag is missing, or flags contradict each other.
        """

    def load_config_and_tokenizer(self):
        """Reads the configuration and the vocabulary of the model, and checks that the task can use them."""
        self.config = model_config.load_config(self.settings)
        self.tokenizer = tokenizer_flags.load_tokenizer(self.settings, self.config.vocab_size)
        tokenizer_flags.grow_vocab_size(self.config, self.tokenizer.vocab)
        if self.segments_reason:
            checks.check_segments(self.config, self.segments_reason)

    # --- Files and data

    def input_files(self):
        """Returns the data files that the run reads, as {name of a flag: list of paths}."""
        return data_splits.list_files(self.settings)

    def result_names(self, split):
        """Returns the names of all files that the evaluation or the prediction of a split can write into
        --results_dir."""
        return [f"{RESULT_NAMES[split]}.txt", f"{RESULT_NAMES[split]}.json",
                *(f"{TABLE_NAMES[split]}.{ending}" for ending in prediction_files.FORMATS),
                *([REPORT] if split == "dev" else [])]

    @abc.abstractmethod
    def read(self):
        """Reads the data, and checks them.

        Raises:
          ValueError, OSError: a file is not usable.
        """

    # --- The model

    def create_head(self):
        """Returns the head, a `bertlib.tasks.head.Head`."""
        return self.target.create_head()

    def head_for_training(self):
        """Returns the head whose loss is trained."""
        return self.create_head()

    def head_shapes(self):
        """Returns {name: shape} of the variables that are added to the encoder of `config`."""
        return self.create_head().shapes(self.config)

    def feature_fields(self, seq_length, split="train"):
        """Returns the list of `example_encoding.Field`s of an example of a split."""
        return self.target.feature_fields(seq_length, split == "train")

    def trims_padding(self, is_training):
        """Returns whether batches are sorted by length and trimmed to their longest example: the value of
        --trim_padding, or the default of the task.

        Args:
          is_training: bool. False for evaluation and prediction.
        """
        flag = self.settings.trim_padding
        if is_training:
            return self.trims_padding_in_training if flag is None else flag
        return self.trims_padding_in_evaluation and flag is not False

    def num_examples(self):
        """Returns the number of examples in an epoch of the training; 0 if the run does not train."""
        return len(self.data.get("train", ()))

    def num_train_steps(self):
        """Returns the number of steps of the schedule."""
        return count_steps(self.settings, self.num_examples(), f"training {self.noun}")

    def last_step(self):
        """Returns the step at which the training ends: --max_steps, or the last step of the schedule."""
        return min(self.num_train_steps(), self.settings.max_steps or self.num_train_steps())

    def num_warmup_steps(self):
        """Returns the number of steps in which the learning rate rises."""
        return int(self.num_train_steps() * self.settings.warmup_proportion)

    def make_data(self):
        """Writes and reads data that the run makes itself, such as records of a sample. It is called after
        all checks that do not need these data."""
        return

    @property
    def num_texts(self):
        """The number of texts in each example, 1 or 2; None if it differs or is unknown."""
        return None

    @abc.abstractmethod
    def record_fields(self):
        """Returns the other fields of the `record_content.Description` of the run, as {name: value}."""

    # --- The run

    def write_skipped_lines(self):
        """Writes skipped_lines.csv, the lines that were left out, if --skip_bad_lines was given."""
        if self.settings.get("skip_bad_lines"):
            from bertlib.tasks import results
            results.write_skipped_lines(self.settings, self.skipped, self.dialect)

    def training_size(self):
        """Returns the size of the training data in words, such as "3,668 examples"."""
        return terminal.counted(self.num_examples(), self.noun)

    def splits(self):
        """Returns the splits that the run evaluates or predicts at its end, such as ["dev", "test"]."""
        return [split for split in self.data if split != "train"]

    def replaced_splits(self, split):
        """Returns the splits whose earlier results are removed when the results of a split are written."""
        return [split]

    def write_features(self, split, path):
        """Writes the features of a split to a TFRecord file. With replicas, only replica 0 calls this method.

        Args:
          split: name of the split.
          path: path of the file, which has a name in `feature_files`.
        """
        raise NotImplementedError

    def feature_paths(self, split):
        """Returns the paths of the features of a split that has no file in `feature_files`."""
        raise NotImplementedError

    def evaluate_during_training(self, split, inference):
        """Evaluates a split during the training; see `predict`. Returns the scores."""
        return self.predict(split, inference)[1]

    def predict(self, split, inference):
        """Computes the predictions of a split. Writes no file.

        Args:
          split: name of the split.
          inference: the `inference.Inference`.

        Returns:
          (predictions, scores). The form of the predictions depends on the task. The scores are {metric:
          number}, with "global_step"; None if the right answers are unknown.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def evaluate_and_write(self, split, inference):
        """Evaluates or predicts a split, and writes the results into --results_dir. They replace the older
        results when this method returns. For the arguments, see `predict`."""

    def finish(self):
        """Ends the run, when all its files are written.

        Raises:
          Exception: an error that should end the command, but not lose the results.
        """
        return

    # --- Called by the methods of subclasses

    def resolve_run(self, folder):
        """Sets the flags that most tasks resolve in the same way: those of the phases, --output_dir, and
        those that the training of the weights recorded.

        Args:
          folder: name of the default --output_dir below output/.
        """
        self.settings.choose_phases()
        if self.settings.output_dir is None:
            self.settings.set_default("output_dir", os.path.join("output", folder))
        recorded_flags.inherit(self.settings, self.target.name)

    def resolve_splits(self, folder, sample_defaults, names):
        """Sets the flags of a task with the files --train_file, --dev_file and --test_file, or --data_dir.

        Args:
          folder: name of the default --output_dir below output/, and of the sample.
          sample_defaults, names: see `data_splits.resolve_flags`.
        """
        self.resolve_run(folder)
        data_splits.resolve_flags(self.settings, folder, sample_defaults, names)
        model_config.resolve_model_flags(self.settings)

    def draw(self, split, examples, texts_of):
        """Returns the examples of a split that --max_train_examples and --max_eval_examples draw.

        Args:
          split: name of the split.
          examples: list of the examples in the file.
          texts_of: function that takes an example and returns the iterable of its texts and labels, by whose
            fingerprint examples are drawn.
        """
        return data_splits.draw_examples(self.settings, split, examples,
                                         lambda example: fingerprints.hash_texts(texts_of(example)))

    def warn_of_unknown_tokens(self, texts_of):
        """Warns if many tokens of the texts are [UNK]."""
        unknown_tokens.warn_if_many(self.data, texts_of, self.tokenizer)

    def write_table(self, name, rows, separator=",", dialect=tables.PLAIN):
        """Writes a table of predictions; see `prediction_files.write_predictions`. `name` is the name of the
        file without its extension. `dialect` is the `tables.Dialect` of the input."""
        settings = self.settings
        path = os.path.join(settings.results_dir, f"{name}.{settings.predictions_format}")
        dialect = dialect.of_output(settings)
        prediction_files.write_predictions(path, rows, settings.predictions_format, settings.csv_safe,
                                           separator, dialect)
        logging.info("Table of the predictions: %s.", path)
        if settings.predictions_format == "csv" and dialect.delimiter == ";" and dialect.decimal == ".":
            logging.info("Its numbers have decimal points. For a spreadsheet with decimal commas, pass "
                         "--output_decimal=comma.")


def count_steps(settings, count, noun):
    """Returns the number of training steps in --num_train_epochs epochs.

    Args:
      settings: a `Settings`.
      count: number of examples in an epoch.
      noun: name of an example for the error message, such as "sentence".

    Raises:
      ValueError: the run trains, but the number of steps is 0.
    """
    steps = int(count / settings.train_batch_size * settings.num_train_epochs)
    if settings.do_train and steps < 1:
        raise ValueError(f"{terminal.counted(count, noun)} and "
                         f"--num_train_epochs={settings.num_train_epochs} make no batch of "
                         f"--train_batch_size={settings.train_batch_size}. Lower the batch size.")
    return steps
