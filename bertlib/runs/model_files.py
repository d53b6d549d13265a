"""Makes the contents of the files that describe a model, compares them with the files in a directory, and
writes them. Also checks that the files of a trained model are those that its record describes.

A training writes these files atomically before its first step (`run_record.RunRecord`). A file with one of
these names (`file_names.MODEL_FILES`) is replaced only if a training wrote it.
"""

import functools
import json
import os

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.checkpoints.bert_config import BertConfig
from bertlib.runs import record_comparison, tokenizer_files, tokenizer_flags
from bertlib.runs.file_names import (
    BERT_CONFIG,
    FILES_OF_SOME_FLAGS,
    LABELS,
    MODEL_FILES,
    SENTENCE_PIECES,
    VOCABULARIES,
    VOCABULARY,
)
from bertlib.system import files, fingerprints


def model_file_contents(settings, config, labels=None):
    """Returns {name: content in bytes} of the files that describe a model.

    Args:
      settings: a `Settings`. It contains no vocabulary if the command reads no text.
      config: a `modeling.BertConfig`, or the configuration of a hub module. The configuration of a hub module
        has a different class, and is not written.
      labels: list of str in the order of the model's outputs, or None.
    """
    contents = {}
    if isinstance(config, BertConfig):
        contents[BERT_CONFIG] = format_json(published_settings(config))
    for flag, name in VOCABULARIES.items():
        if path := settings.get(flag):
            contents[name] = tokenizer_files.vocabulary_content(path, tokenizer_flags.markers(settings))
            contents[tokenizer_files.TOKENIZER_CONFIG] = format_json(
                tokenizer_content(settings, config, flag))
    if labels is not None and not any("\n" in label for label in labels):
        contents[LABELS] = format_labels(labels)
    return contents


def format_labels(labels):
    """Returns the content of labels.txt as bytes."""
    return "".join(f"{label}\n" for label in labels).encode()


def published_settings(config):
    """Returns a dict of the settings in a `modeling.BertConfig` that published configurations also have."""
    known = BertConfig(vocab_size=1).to_dict()
    return {name: value for name, value in config.to_dict().items() if name in known}


def tokenizer_content(settings, config, flag):
    """Returns a dict, the content of tokenizer_config.json for the tokenizer of a run."""
    directories = tokenizer_flags.tokenizer_directories(settings, getattr(settings, flag))
    tokenizer_settings = tokenizer_files.read(directories)
    options = {name: value for name, (value, _) in tokenizer_settings.options.items()}
    if settings.do_lower_case is not None:
        options["do_lower_case"] = settings.do_lower_case
    if flag == "spm_model_file":
        return options
    added = sorted({*tokenizer_files.added_tokens(tokenizer_settings), *tokenizer_flags.markers(settings)})
    length = getattr(config, "max_position_embeddings", None)
    return {"tokenizer_class": "BertTokenizer", **options,
            **({"additional_special_tokens": added} if added else {}),
            **({"model_max_length": length} if length else {})}


def format_json(content):
    """Returns a JSON object as bytes, in the form in which it is written to a file."""
    return (files.json_text(content, indent=2, sort_keys=True) + "\n").encode()


def hash_contents(contents):
    """Returns the fingerprints of files as {name: fingerprint}, given {name: content in bytes}."""
    return {name: fingerprints.hash_bytes(content) for name, content in contents.items()}


def list_changed_files(directory, contents, recorded):
    """Compares the files in a directory with the files that a run would write.

    Args:
      directory: the output directory.
      contents: the run's files, see `model_file_contents`.
      recorded: {name: fingerprint} of the files that an earlier training wrote into the directory. Only files
        with these fingerprints are replaced.

    Returns:
      (names of the files to write, names of the files to remove).

    Raises:
      ValueError: the directory contains a file that no training wrote. The training would replace this file,
        or later commands would use it as the model's vocabulary.
    """
    paths = {name: os.path.join(directory, name) for name in (*MODEL_FILES, *FILES_OF_SOME_FLAGS)}
    existing = {name: files.read_bytes(path) for name, path in paths.items() if files.exists(path)}
    replaceable = {name for name, value in hash_contents(existing).items() if recorded.get(name) == value}
    changed = [name for name, content in contents.items()
               if name not in existing or not _is_same_content(name, existing[name], content)]
    foreign = [name for name in changed if name in existing and name not in replaceable]
    if SENTENCE_PIECES in contents and VOCABULARY in set(existing) - replaceable:
        foreign.append(VOCABULARY)  # later commands would use this file instead of the SentencePiece model
    if foreign:
        names = " and ".join(foreign)
        raise ValueError(f"--output_dir={directory} contains {names}, which this training did not write. In "
                         "an output directory, files with these names belong to the trained model. Use "
                         f"another directory, or move {names} to another place.")
    return changed, sorted(replaceable - set(contents))


def _is_same_content(name, before, after):
    """Returns whether two contents of a file have the same meaning, like two JSON texts that differ only in
    white space."""
    if before == after or name in (VOCABULARY, SENTENCE_PIECES, LABELS, *FILES_OF_SOME_FLAGS):
        return before == after
    try:
        before, after = (json.loads(content.decode("utf-8-sig")) for content in (before, after))
    except (ValueError, RecursionError):
        return False
    if not isinstance(before, dict):
        return False
    if name == BERT_CONFIG:
        return published_settings(BertConfig.from_dict(before)) == after
    # The file is tokenizer_config.json. Keys that are only in the old content are ignored, because they have
    # no effect.
    return all(before.get(key) == value for key, value in after.items()
               if key not in ("tokenizer_class", "model_max_length"))


# --- The files of a trained model ------------------------------------------------------------------------


def check_trained_vocabulary(training, path=None):
    """Checks that a vocabulary is the vocabulary with which the model was trained.

    Args:
      training: the `OutputDirectory` of the training, which has a record.
      path: a vocab.txt; None for the vocabulary in the directory.

    Raises:
      ValueError: the entries of the vocabulary, or their order, differ from the vocabulary of the training.
    """
    pieces, flag = training.join(SENTENCE_PIECES), "vocab_file"
    if path is None and files.exists(pieces):
        path, flag = pieces, "spm_model_file"
    path = path or training.join(VOCABULARY)
    trained = training.record.get("vocabulary")
    if files.exists(path) and trained not in (None, tokenizer_flags.hash_vocabulary(path, flag)):
        raise ValueError(f"{path} differs from the vocabulary with which the model was trained: other "
                         f"entries, or another order. {training.record_path} records the vocabulary of the "
                         "training. With the other vocabulary, tokens would get the vectors of other tokens. "
                         "Restore the file.")


def check_trained_config(path, config, training):
    """Checks that a configuration is the configuration with which the model was trained.

    Args:
      path: the configuration's file.
      config: the `modeling.BertConfig` in this file.
      training: the `OutputDirectory` of the training. Without a record, nothing is checked.

    Raises:
      ValueError: a value that changes the model's outputs differs from the value in run.json.
    """
    trained, now = training.record["bert_config"] if training.record else {}, config.to_dict()
    compared = record_comparison.CONFIG_KEYS - {*record_comparison.TRAINING_CONFIG_KEYS}
    for name in sorted(compared & {*trained} & {*now}):
        if trained[name] != now[name]:
            is_own = os.path.realpath(training.path) == os.path.realpath(os.path.dirname(path))
            restore = f"Restore {path}." if is_own else "Pass the configuration of the training."
            raise ValueError(f"{path}: {name} is {json.dumps(now[name])}, but according to "
                             f"{training.record_path} the model was trained with "
                             f"{json.dumps(trained[name])}. {restore}")


def check_trained_weights(record, checkpoint):
    """Checks that the weights for an evaluation or a prediction have been trained. Warns once if the training
    of the weights is unfinished.

    A training is finished if it reached its last step. It is also finished if it ended earlier by itself, for
    example because of early stopping. A training that was killed or terminated is not finished.

    Args:
      record: dict, the content of run.json.
      checkpoint: path of the training's weights.

    Raises:
      ValueError: the weights are from step 0, before any training.
    """
    weights = checkpoint_formats.open_checkpoint(checkpoint)
    if "global_step" not in weights.shapes:  # the step is unknown, so it cannot be checked
        return
    step = int(weights.read("global_step"))
    planned, finished = record.get("planned_steps"), record.get("finished_step")
    if step == 0:
        raise ValueError(f"{weights.path} is the checkpoint of step 0. Its head is random, because "
                         "no step was trained. Run the training command again, and let it train for some "
                         "steps.")
    if planned is not None and step < planned and (finished is None or step > finished):
        _warn_of_unfinished(weights.path, step, planned)


@functools.cache
def _warn_of_unfinished(path, step, planned):
    logging.warning("%s comes from an unfinished training: step %d of %d. If you run the training command "
                    "again, the training continues from this step.", path, step, planned)
