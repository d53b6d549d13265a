"""Contains the task of run_pretraining.py: predicts masked words and next sentences."""

import functools
import itertools
import os

from absl import logging

from bertlib.data import record_files
from bertlib.replicas import replica_group
from bertlib.runs import checks, model_config, results, run_record, task, vocabularies
from bertlib.runs.settings import sample_path
from bertlib.system import files, locks
from bertlib.tasks.pretraining import (
    corpus,
    pretraining_data,
    pretraining_metrics,
    pretraining_stream,
    pretraining_target,
)
import tokenization

# Default values of flags for a training on the sample.
_SAMPLE_FLAGS = dict(max_seq_length=64, max_predictions_per_seq=10, num_train_steps=1500,
                     num_warmup_steps=150, learning_rate=1e-3, eval_batch_size=32, save_checkpoints_steps=150,
                     log_steps=50)
# {split: the flag that names its records}.
_FLAGS = {"train": "input_file", "dev": "eval_file"}
# Number of records that are checked in each file before the training.
_CHECKED_RECORDS = 100


class Pretraining(task.Task):
    """Predicts masked words, and whether the second text follows the first one. The data are records that
    create_pretraining_data.py wrote.

    Attributes:
      paths: {split: list of the paths of its records}, after `read`.
    """

    command, noun = "run_pretraining.py", "file"
    title = "Masked words that were predicted correctly"
    shown = {"masked_lm_accuracy": "the model", "masked_lm_baseline": "the most frequent word"}
    records, inferred = {}, ("dev",)  # the data are features already
    needs_do_eval = False

    def __init__(self, settings):
        super().__init__(settings)
        self.paths, self._is_sample, self._vocabulary = {}, False, None

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_run("pretraining")
        self._is_sample = (settings.input_file is settings.eval_file is settings.bert_config_file
                           is settings.init_checkpoint is None)
        if self._is_sample:
            self._use_sample()
        model_config.fill_in_model_files(settings)
        for name in ("input_file", "bert_config_file"):
            if not getattr(settings, name) and not (self._is_sample and name == "input_file"):
                raise ValueError(f"--{name} is required.")
        if settings.num_warmup_steps >= settings.num_train_steps and settings.do_train:
            logging.warning("--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate "
                            "never gets to --learning_rate.", settings.num_warmup_steps,
                            settings.num_train_steps)

    def _use_sample(self):
        """Sets the flags for a training on the sample text."""
        settings, sample = self.settings, sample_path("pretraining")
        # The records of the sample lie in the output directory, but its configuration lies in the sample.
        run_record.refuse_sample(settings, sample, "--input_file", ("input_file", "bert_config_file"))
        logging.info("--input_file not given: using %s, a small text made for this repository", sample)
        for name, value in {"bert_config_file": os.path.join(sample, "bert_config.json"),
                            "vocab_file": os.path.join(sample, "vocab.txt"), "do_lower_case": True,
                            **_SAMPLE_FLAGS,
                            **({"eval_each_checkpoint": True} if settings.do_train else {})}.items():
            if not settings.is_resolved(name):
                settings.set_default(name, value)

    def load_model(self):
        self.config = model_config.load_config(self.settings)
        vocabularies.check_vocabulary(self.settings, self.config)
        checks.check_segments(self.config, "an example of pre-training is a pair")

    # --- Files and data

    def input_files(self):
        settings = self.settings
        if self._is_sample:  # `make_data` writes these files
            directory = getattr(settings, _directory_flag(settings))
            for split, flag in _FLAGS.items():
                setattr(settings, flag, os.path.join(directory, f"{split}.tf_record"))
                self.paths[split] = [getattr(settings, flag)]
        else:
            self.paths["train"] = list_files(settings, "input_file")
            self.paths["dev"] = (list_files(settings, "eval_file") if settings.eval_file
                                 else self.paths["train"])
        return {flag: self.paths[split] for split, flag in _FLAGS.items()}

    def result_names(self, split):
        return ["eval_results.txt", "eval_results.json"]

    def read(self):
        if not self._is_sample:
            self._check_records()

    def _check_records(self):
        """Checks the records, and finds their vocabulary."""
        settings = self.settings
        for split, flag in _FLAGS.items():
            check_records(settings, flag, self.paths[split], self.config)
        self._vocabulary = vocabularies.resolve_from_records(
            settings, list(dict.fromkeys(itertools.chain(*self.paths.values()))))
        vocabularies.check_vocabulary(settings, self.config)

    def splits(self):
        return ["dev"] if self.settings.do_eval else []

    # --- The model

    target = pretraining_target.MaskedTokens
    sequences, position_fields = pretraining_data.SEQUENCES, pretraining_data.POSITIONS
    # Trimming sorts the examples by length. The first --max_eval_steps batches would then contain too many of
    # the long examples.
    trims_evaluation = False

    def create_head(self):
        # This module loads no TensorFlow.
        from bertlib.tasks.pretraining import pretraining_head
        return pretraining_head.Pretraining()

    def fields(self, seq_length, split="train"):
        return pretraining_data.feature_fields(seq_length, self.settings.max_predictions_per_seq,
                                               self.config.vocab_size, self.config.type_vocab_size)

    def num_examples(self):
        return len(self.paths["train"])

    def num_train_steps(self):
        return self.settings.num_train_steps

    def num_warmup_steps(self):
        return self.settings.num_warmup_steps

    def make_data(self):
        if self._is_sample:
            make_sample(self.settings)
            self._check_records()

    def describe(self):
        settings, paths = self.settings, self.paths
        return {"task": self.target.name, "vocabulary": self._vocabulary,
                "train_data": run_record.hash_files(paths["train"]) if settings.do_train else None,
                "dev_data": run_record.describe_dev_files(
                    settings, paths["dev"], lambda: count_evaluated(settings, paths["dev"]))}

    # --- The run

    def record_paths(self, split):
        return self.paths[split]

    def assist(self, split, inference):
        self.scores(split, inference)

    def scores(self, split, inference):
        return inference.evaluate(steps=self.settings.max_eval_steps, metrics=functools.partial(
            pretraining_metrics.evaluate, vocab_size=self.config.vocab_size))

    def write(self, split, inference):
        metrics = self.scores(split, inference)
        results.write_metrics(self.settings, "dev", "eval_results", metrics)


# --- Records ---------------------------------------------------------------------------------------------


def check_records(settings, flag, paths, config):
    """Checks the first records of some files.

    Args:
      settings: a `Settings`.
      flag: name of the flag that names the files. It is used in messages.
      paths: list of str.
      config: the `modeling.BertConfig`.

    Raises:
      ValueError: the records have other lengths than the flags say, a record contains a token id that the
        model does not have, or a record is not usable.
    """
    fields = pretraining_data.feature_fields(settings.max_seq_length, settings.max_predictions_per_seq,
                                             config.vocab_size, config.type_vocab_size)
    for path in paths:
        try:
            records = list(record_files.read_records(path, _CHECKED_RECORDS))
        except ValueError as error:
            raise ValueError(f"--{flag}: {error}") from error
        for number, record in enumerate(records):
            try:
                features = record_files.parse_features(record)
            except Exception as error:  # different implementations of protobuf raise different errors
                raise ValueError(f"--{flag}: {path} contains a record that is not a tf.train.Example. Name "
                                 "files that create_pretraining_data.py wrote.") from error
            for name, length in (("input_ids", "max_seq_length"),
                                 ("masked_lm_positions", "max_predictions_per_seq")):
                actual = len(features[name].int64_list.value)
                if actual and actual != getattr(settings, length):
                    raise ValueError(f"--{length}={getattr(settings, length)}, but {path} was written with "
                                     f"--{length}={actual}. Pass --{length}={actual}, or write the file "
                                     f"again with create_pretraining_data.py "
                                     f"--{length}={getattr(settings, length)}.")
            largest = max([0, *features["input_ids"].int64_list.value,
                           *features["masked_lm_ids"].int64_list.value])
            if largest >= config.vocab_size:
                raise ValueError(f"--{flag}: {path} contains the token id {largest}, but vocab_size in "
                                 f"{settings.bert_config_file} is {config.vocab_size}. Pass the "
                                 "--bert_config_file of a model with the vocabulary of the records.")
            problem = record_files.find_problem(record, fields)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Write the file "
                                 "again, or remove the record from the file.")
            problem = settings.trim_padding is not False and record_files.find_trimming_problem(
                record, pretraining_data.SEQUENCES[0], pretraining_data.POSITIONS)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Such a record "
                                 "cannot be trimmed. Write the file again, or pass --trim_padding=false.")


def _directory_flag(settings):
    """Returns the name of the flag with the directory to which the records of the sample are written."""
    return "output_dir" if settings.do_train else "results_dir"


def make_sample(settings):
    """Writes records of the sample text to the files that --input_file and --eval_file name. With replicas,
    only replica 0 writes them.

    Raises:
      ValueError: the directory contains records of the sample text that were written with other settings.
    """
    sample, directory_flag = sample_path("pretraining"), _directory_flag(settings)
    directory = getattr(settings, directory_flag)
    tokenizer = tokenization.FullTokenizer(os.path.join(sample, "vocab.txt"))
    if replica_group.is_first():
        files.make_directories(directory)
        with locks.lock_directory(directory):
            for split, passes in (("train", 10), ("dev", 2)):
                recipe = pretraining_data.Recipe(max_seq_length=settings.max_seq_length, dupe_factor=passes,
                                                 max_predictions_per_seq=settings.max_predictions_per_seq)
                try:
                    pretraining_stream.write_training_data(
                        [os.path.join(sample, f"{split}.txt")], [getattr(settings, _FLAGS[split])], tokenizer,
                        recipe)
                except pretraining_stream.OtherRunError as error:
                    raise ValueError(f"--{directory_flag}={directory} contains records of the sample text "
                                     f"with other settings: {error.changes}. Pass another "
                                     f"--{directory_flag}, or the earlier settings.") from error
    if group := replica_group.current():
        group.barrier()


def list_files(settings, name):
    """Returns the files that a flag names by paths and globs. Files without a record are left out.

    Raises:
      FileNotFoundError, IsADirectoryError: see `corpus.find_input_files`.
      ValueError: no file contains a record.
    """
    paths = corpus.find_input_files(
        [pattern.strip() for pattern in getattr(settings, name).split(",") if pattern.strip()], name)
    filled = [path for path in paths if files.size(path)]
    if not filled:
        raise ValueError(f"--{name}={getattr(settings, name)}: all these files are empty. Name files that "
                         "create_pretraining_data.py wrote.")
    if len(filled) < len(paths):
        logging.warning("--%s: %d of the %d files are empty. They are left out.", name,
                        len(paths) - len(filled), len(paths))
    return filled


def count_evaluated(settings, paths):
    """Returns the number of records in some files that an evaluation reads. --max_eval_steps and
    --eval_batch_size limit this number."""
    limit, count = settings.max_eval_steps * settings.eval_batch_size, 0
    for path in paths:
        if count == limit:
            break
        count += record_files.count_records(path, limit - count)
    return count
