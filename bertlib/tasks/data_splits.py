"""Finds the files of the splits "train", "dev" and "test", and draws the examples that a run uses. Also reads
the development set of a trained model again.
"""

import os

from absl import logging

from bertlib.runs import learning_curve, recorded_flags
from bertlib.runs.input_paths import require_data_dir, sample_path
from bertlib.system import files, fingerprints

# {split: the phase that needs its file}, and the flags of these files.
PHASE_OF_SPLIT = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
FILES = ("train_file", "dev_file", "test_file")
# Maps the first word of a set's name to (flag, name of the examples in the log). For example, the first word
# of "dev_mismatched" is "dev". Test sets have no limit.
_LIMITS = {"train": ("max_train_examples", "training examples"),
           "dev": ("max_eval_examples", "examples of the development set")}


def needed(settings):
    """Returns the splits that the phases of a run need."""
    return [split for split, phase in PHASE_OF_SPLIT.items() if getattr(settings, phase)]


def base_split(split):
    """Returns the part of the data to which a split belongs, such as "dev" for "dev_mismatched"."""
    return split.partition("_")[0]


# --- The files -------------------------------------------------------------------------------------------


def list_files(settings, flags=FILES):
    """Returns the files that some flags name, as {flag: list of paths}."""
    return {flag: [path] for flag in flags if (path := getattr(settings, flag))}


def resolve_flags(settings, sample, sample_defaults, names):
    """Sets the flags of the files that the run needs and that were not given. If no flag names data, the run
    uses a sample of this project.

    Args:
      settings: a `Settings`.
      sample: name of the folder of the sample.
      sample_defaults: {flag: its default for the sample}.
      names: function that takes a split. It returns lists of possible names of the split's file in
        --data_dir, see `find_split_file`.

    Raises:
      ValueError, OSError: a file is missing.
    """
    missing = [split for split in needed(settings) if getattr(settings, f"{split}_file") is None]
    if settings.data_dir is None and missing:
        flags = f"--{missing[0]}_file or --data_dir"
        if list_files(settings):
            raise ValueError(f"{flags} is required.")
        recorded_flags.refuse_sample(settings, sample_path(sample), flags)
        settings.set_default("data_dir", sample_path(sample), "a small sample made for this repository")
        for name, value in sample_defaults.items():
            if not settings.is_fixed(name):
                settings.set_default(name, value, "for the sample, which is small")
    for split in missing:
        settings.set_default(f"{split}_file", find_split_file(settings.data_dir, split, *names(split)))


def find_split_file(directory, split, *groups):
    """Returns the path of a split's file in --data_dir.

    Args:
      directory: the value of --data_dir.
      split: "train", "dev" or "test".
      *groups: lists of possible names of the file. A group of names is used only if no file of an earlier
        group exists.

    Raises:
      NotADirectoryError, FileNotFoundError, ValueError: --data_dir is no directory, or contains no file of
        this split, or contains more than one file of this split.
    """
    require_data_dir(directory)
    for names in groups:
        existing = [name for name in names if files.exists(os.path.join(directory, name))]
        if len(existing) > 1:
            raise ValueError(f"--data_dir={directory} contains {' and '.join(existing)}. Choose one of these "
                             f"files with --{split}_file.")
        if existing:
            return os.path.join(directory, existing[0])
    raise FileNotFoundError(f"--data_dir={directory} contains none of the files "
                            f"{', '.join(name for names in groups for name in names)}. Name the file with "
                            f"--{split}_file.")


# --- The examples ----------------------------------------------------------------------------------------


def row_digest(row):
    """Returns the digest of a row's texts and label, in hex."""
    label = sorted(row.label) if isinstance(row.label, tuple) else repr(row.label)
    return fingerprints.hash_values(row.text_a, row.text_b, label)


def draw_examples(settings, split, examples, digest):
    """Draws examples for --max_train_examples or --max_eval_examples, and logs their number. Returns the
    drawn examples in the order that they have in `examples`.

    The choice depends only on the content of the examples, not on their order. If you raise the number in the
    flag, the result contains the same examples as before and further examples.

    Args:
      settings: a `Settings`.
      split: name of the set, such as "train" or "dev_mismatched". A test set is returned unchanged.
      examples: list.
      digest: function that returns the digest of an example's content as a str.
    """
    first, _, further = split.partition("_")
    flag, words = _LIMITS.get(first, (None, None))
    number = getattr(settings, flag) if flag else None
    if number is None or len(examples) <= number:
        return examples
    logging.info("Drawn: %s of %s %s%s (--%s=%d).", f"{number:,}", f"{len(examples):,}", words,
                 f" {further}".rstrip(), flag, number)
    return fingerprints.draw(examples, number, digest)


# --- The record ------------------------------------------------------------------------------------------


def data_fields(settings, count_dev_examples, train=None, dev=None):
    """Returns the fields of a `record_content.Description` for the data, as {name: value}.

    Each value is the result of `fingerprints.hash_files`, or None if the run does not read the split. That of
    the development set also contains "examples", the number of examples that an evaluation reads.

    Args:
      settings: a `Settings`.
      count_dev_examples: function without arguments that returns the number of examples that an evaluation
        reads.
      train, dev: lists of the paths of both splits; by default, --train_file and --dev_file.
    """
    data = dict.fromkeys(("train_data", "dev_data"))
    if settings.do_train:
        data["train_data"] = fingerprints.hash_files(train or [settings.train_file])
    if settings.do_eval or learning_curve.is_requested(settings):
        data["dev_data"] = {**fingerprints.hash_files(dev or [settings.dev_file]),
                            "examples": count_dev_examples()}
        if train is None:  # a pre-training evaluates its training records if there is no --eval_file
            _warn_if_trained_on(settings, data["dev_data"])
    return data


def _warn_if_trained_on(settings, dev_data):
    """Warns if an earlier training has trained on the files of the development set, `dev_data`."""
    earlier = settings.earlier_training
    trained = earlier and earlier.record and earlier.record["train_data"]
    if trained and trained["fingerprint"] == dev_data["fingerprint"]:
        logging.warning("The development data are the training data of %s, so the metrics will say little "
                        "about new data. Evaluate on other data.", earlier.path)


def fingerprint_examples(examples):
    """Returns the entry of the record for examples: {"examples": number of the examples, "fingerprint": their
    fingerprint}.

    Args:
      examples: list of `InputExample`, or of other objects whose `vars` contain all of their data.
    """
    texts = (tuple(vars(example).values()) for example in examples)
    return {"examples": len(examples), "fingerprint": fingerprints.hash_texts(texts)}


# --- The development set of a trained model --------------------------------------------------------------


def read_dev_set(model):
    """Returns the development set of a model's training: inputs of the model, and the correct answers.

    Args:
      model: a `trained_model.TrainedModel`.

    Returns:
      list of pairs. The first element is a tuple of the texts of one input, in the form that
      `Predictor.prepare` takes. For a tagger, the text is a list of words. The second element is the correct
      answer: a label, a score, a tuple of labels, or the list of the tags. It is None for a question, and if
      the file has no labels.

    Raises:
      ValueError, OSError: run.json names no development set, or its file is missing or damaged.
    """
    if model.record.get("task_module"):
        raise ValueError("the data were read by a task module, which is not executed here.")

    def path_of(flag):
        path = model.record.get("files", {}).get(flag)
        if not path:
            raise ValueError(f"the run.json in {model.path} does not name the file of the development set.")
        if not files.exists(path):
            raise FileNotFoundError(f"{path} does not exist any more.")
        return path

    return model.target.answers().read_dev_set(model, path_of)
