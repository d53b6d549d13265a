"""Finds and checks the records of a pre-training, and their vocabulary. Writes those of the sample text."""

import json
import os

from absl import logging

from bertlib.data import corpus, example_encoding, tfrecord_files, tfrecord_manifests
from bertlib.runs import tokenizer_files, tokenizer_flags
from bertlib.runs.input_paths import sample_path
from bertlib.system import files, replica_group
from bertlib.tasks.pretraining import pretraining_data, pretraining_stream
import tokenization

# {split: the flag that names its records}.
FLAG_OF_SPLIT = {"train": "input_file", "dev": "eval_file"}
# Number of records that are checked in each file before the training.
_CHECKED_RECORDS = 100


def check_records(settings, flag, paths, config, trims_padding):
    """Checks the first records of some files.

    Args:
      settings: a `Settings`.
      flag: name of the flag that names the files. It is used in messages.
      paths: list of str.
      config: the `modeling.BertConfig`.
      trims_padding: whether the training trims its batches. If so, it must be possible to trim the records.

    Raises:
      ValueError: the records have other lengths than the flags say, a record contains a token id that the
        model does not have, or a record is not usable.
    """
    fields = pretraining_data.feature_fields(settings.max_seq_length, settings.max_predictions_per_seq,
                                             config.vocab_size, config.type_vocab_size)
    for path in paths:
        try:
            records = list(tfrecord_files.read_records(path, _CHECKED_RECORDS))
        except ValueError as error:
            raise ValueError(f"--{flag}: {error}") from error
        for number, record in enumerate(records):
            try:
                features = tfrecord_files.parse_features(record)
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
            problem = tfrecord_files.find_problem(record, fields)
            if problem:
                raise ValueError(f"--{flag}: {path}, record {number} (from 0): {problem}. Write the file "
                                 "again, or remove the record from the file.")
            problem = trims_padding and tfrecord_files.find_trimming_problem(
                record, example_encoding.TRIMMED_FIELDS[0], pretraining_data.POSITIONS)
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
      ValueError: the records cannot be written, for example because the directory contains records of the
        sample text that were written with other settings.
    """
    sample, flag = sample_path("pretraining"), directory_flag(settings)
    tokenizer = tokenization.FullTokenizer(os.path.join(sample, "vocab.txt"))
    for split, passes in (("train", 10), ("dev", 2)) if replica_group.is_first() else ():
        recipe = pretraining_data.Recipe(max_seq_length=settings.max_seq_length, dupe_factor=passes,
                                         max_predictions_per_seq=settings.max_predictions_per_seq)
        try:
            pretraining_stream.write_training_data(
                [os.path.join(sample, f"{split}.txt")], [getattr(settings, FLAG_OF_SPLIT[split])], tokenizer,
                recipe)
        except ValueError as error:
            raise ValueError(f"--{flag}={getattr(settings, flag)}: {error} If other records of the sample "
                             f"text are in this directory, pass another --{flag}.") from error
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
        count += tfrecord_files.count_records(path, limit - count)
    return count


# --- The vocabulary of the records ------------------------------------------------------------------------


def resolve_vocabulary(settings, paths):
    """Checks that the flags and the manifest of the records name the same vocabulary.

    Sets flags that were not given: --do_lower_case and --marker_tokens get the values in the manifest. If the
    flags name no vocabulary, --vocab_file or --spm_model_file gets the path in the manifest, unless this file
    is missing or was changed after the records were made.

    Args:
      settings: the `Settings` of a pre-training.
      paths: list of str, the files of records.

    Returns:
      the fingerprint of the vocabulary for run.json; None if it is unknown.

    Raises:
      ValueError: the vocabulary of the records, or a setting of their tokenizer, differs from the vocabulary
        in the flags and its files; or the records were made with two different vocabularies.
    """
    manifests = tfrecord_manifests.read(paths)
    _check_one(manifests)
    flag = tokenizer_flags.given_flag(settings)
    path = flag and getattr(settings, flag)
    if not manifests:
        markers = tokenizer_flags.markers(settings)
        return tokenizer_flags.hash_vocabulary(path, flag, markers) if path else None
    where, manifest = manifests[0]
    source = f"the records' manifest {where}"
    tokenizer_flags.resolve_flag(settings, "marker_tokens", manifest["settings"].get("marker_tokens"), source)
    markers = tokenizer_flags.markers(settings)
    token_hash, entry = manifest["settings"]["vocabulary"], manifest.get("vocabulary") or {}
    if path and tokenizer_flags.hash_vocabulary(path, flag, markers) != token_hash:
        known = f" ({entry['path']})" if entry else ""
        given = f"--{flag}={path}" + (f" with --marker_tokens={settings.marker_tokens}" if markers else "")
        raise ValueError(
            f"{given} differs from the vocabulary of the records{known}: other entries, or another "
            f"order. The manifest {where} describes the vocabulary of the records. Pass that vocabulary, or "
            f"write the records again with {path}.")
    tokenizer_flags.resolve_flag(settings, "do_lower_case", manifest["settings"].get("do_lower_case"), source)
    if path is None and entry and _is_vocabulary(entry["path"], entry["flag"], markers, token_hash):
        settings.set_default(entry["flag"], entry["path"], f"the vocabulary of the records, see {where}")
        path, flag = entry["path"], entry["flag"]
    if flag == "vocab_file":
        _check_tokenizer_files(settings, where, manifest["settings"])
    return token_hash


def _check_tokenizer_files(settings, where, recorded):
    """Checks that the files of the tokenizer say the same about accents and Chinese characters as the
    manifest of the records.

    Args:
      settings: the `Settings` of a pre-training with --vocab_file.
      where: path of the manifest.
      recorded: dict, the settings in the manifest.

    Raises:
      ValueError: the files differ from the manifest. A later fine-tuning would use the files, and so it would
        tokenize its texts in another way than the texts of the records.
    """
    if "strip_accents" not in recorded:
        return  # the tokenizer of the records was not made from files
    directories = tokenizer_flags.tokenizer_directories(settings, settings.vocab_file)
    options = tokenizer_files.read(directories).options

    def is_same(name, value):
        # Without a value of strip_accents, the value of do_lower_case decides.
        default = settings.do_lower_case if name == "strip_accents" else True
        found, _ = options.get(name, (None, None))
        return (default if found is None else found) == (default if value is None else value)

    expected = {"strip_accents": recorded["strip_accents"],
                "tokenize_chinese_chars": not recorded.get("keep_chinese")}
    different = {name: value for name, value in expected.items() if not is_same(name, value)}
    if different:
        raise ValueError(f"According to {where}, the tokenizer of the records has the settings "
                         f"{json.dumps(different)}, but the tokenizer files in {' and '.join(directories)} "
                         "contain other settings or none. A later fine-tuning would tokenize its texts in "
                         f"another way. Write these settings into {tokenizer_files.TOKENIZER_CONFIG} in the "
                         f"directory of {settings.vocab_file}, or write the records again with this "
                         "vocabulary.")


def _check_one(manifests):
    """Raises a ValueError if the manifests name different vocabularies, or different values of a setting of
    the tokenizer. `manifests` is a list of (path, manifest)."""
    for where, manifest in manifests[1:]:
        for name in ("vocabulary", "marker_tokens", "do_lower_case", "strip_accents", "keep_chinese"):
            if manifest["settings"].get(name) != manifests[0][1]["settings"].get(name):
                raise ValueError(f"According to {manifests[0][0]} and {where}, the records were written with "
                                 f"two different values of {name}. Train only on records with the same "
                                 f"{name}, or write some of the records again.")


def _is_vocabulary(path, flag, markers, expected):
    """Returns whether a file, with markers, is the vocabulary with the fingerprint `expected`. False if it is
    missing, or is no vocabulary."""
    try:
        return files.exists(path) and tokenizer_flags.hash_vocabulary(path, flag, markers) == expected
    except ValueError:
        return False
