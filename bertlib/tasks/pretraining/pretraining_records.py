"""Finds and checks the records of a pre-training, and writes those of the sample text."""

import os

from absl import logging

from bertlib.data import corpus, example_encoding, record_files
from bertlib.runs.settings import sample_path
from bertlib.system import files, locks, replica_group
from bertlib.tasks.pretraining import pretraining_data, pretraining_stream
import tokenization

# {split: the flag that names its records}.
FLAG_OF_SPLIT = {"train": "input_file", "dev": "eval_file"}
# Number of records that are checked in each file before the training.
_CHECKED_RECORDS = 100


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
                record, example_encoding.SEQUENCES[0], pretraining_data.POSITIONS)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Such a record "
                                 "cannot be trimmed. Write the file again, or pass --trim_padding=false.")


def directory_flag(settings):
    """Returns the name of the flag with the directory to which the records of the sample are written."""
    return "output_dir" if settings.do_train else "results_dir"


def make_sample(settings):
    """Writes records of the sample text to the files that --input_file and --eval_file name. With replicas,
    only replica 0 writes them.

    Raises:
      ValueError: the directory contains records of the sample text that were written with other settings.
    """
    sample, flag = sample_path("pretraining"), directory_flag(settings)
    directory = getattr(settings, flag)
    tokenizer = tokenization.FullTokenizer(os.path.join(sample, "vocab.txt"))
    if replica_group.is_first():
        files.make_directories(directory)
        with locks.lock_directory(directory):
            for split, passes in (("train", 10), ("dev", 2)):
                recipe = pretraining_data.Recipe(max_seq_length=settings.max_seq_length, dupe_factor=passes,
                                                 max_predictions_per_seq=settings.max_predictions_per_seq)
                try:
                    pretraining_stream.write_training_data(
                        [os.path.join(sample, f"{split}.txt")], [getattr(settings, FLAG_OF_SPLIT[split])],
                        tokenizer, recipe)
                except pretraining_stream.OtherRunError as error:
                    raise ValueError(f"--{flag}={directory} contains records of the sample text "
                                     f"with other settings: {error.changes}. Pass another "
                                     f"--{flag}, or the earlier settings.") from error
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
