"""The development set of --dev_fraction in an output directory: drawn when a training starts there, kept in
dev_rows.txt, and the same in every later run on these weights."""

import os
from typing import NamedTuple

from absl import logging

from bertlib.checkpoints import checkpoint_formats
from bertlib.output_directory import output_files
from bertlib.runs import run_record
from bertlib.system import files
from bertlib.tasks.classification import dev_split, row_examples


class DevRows(NamedTuple):
    """The stored development set of a directory: the `content` of dev_rows.txt, a str, and its entry in
    run.json, `recorded`: {"rows": in the development set, "of": in the training file, "fingerprint"}."""

    content: str
    recorded: dict


def take_fraction(settings):
    """Fills in --dev_fraction from the training that the run goes on with or takes its weights from.

    Raises:
      ValueError: the flag contradicts that training.
    """
    directory, record = _find_earlier_training(settings)
    if record is None or not settings.train_file:
        return
    trained, now = record["settings"].get("dev_fraction"), settings.dev_fraction
    if now is None and trained is not None:
        settings.set_default("dev_fraction", trained, "as in the training")
    elif now != trained:
        had = "without a part taken out, so on all rows of its training file" if trained is None else (
            f"with --dev_fraction={trained}")
        instead = "" if trained is None else "leave --dev_fraction out, or "
        raise ValueError(f"--dev_fraction={now}, but the model in {directory} was trained {had}, says "
                         f"{output_files.RECORD} there. An evaluation would be on rows that it was trained "
                         f"on. To go on, {instead}name a --dev_file; for another split, train in another "
                         "--output_dir.")


def split_training_file(settings, split):
    """Takes the development set out of the training file.

    Args:
      settings: a `Settings`, with --dev_fraction.
      split: the `row_examples.Split` of the training file.

    Returns:
      (a `dev_split.DevSplit`, the `DevRows`); the latter are None in a directory of a version that kept none.

    Raises:
      ValueError: dev_rows.txt or the training file is not what it was; or the development set would be empty.
    """
    directory, record = _find_earlier_training(settings)
    path = directory and os.path.join(directory, output_files.DEV_ROWS)
    if record and record.get("dev_rows"):
        return _split_by_dev_rows(split, path, record["dev_rows"])
    if record:
        return _split_by_seed(settings, split, directory, record)
    found = dev_split.stratified_split(split, settings.dev_fraction)
    content = dev_split.format_dev_rows(found.dev)
    return found, DevRows(content, {"rows": len(found.dev.rows), "of": len(split.rows),
                                    "fingerprint": run_record.hash_texts([content])})


def _find_earlier_training(settings):
    """(The directory of the training on own data that the run goes on with or takes its weights from, its
    record); the record is None if there is none."""
    if checkpoint_formats.latest_checkpoint(settings.output_dir):
        directory = settings.output_dir
    else:
        directory = run_record.directory_of_weights(settings)
    record = directory and output_files.read_record(directory)
    # A model of another task was trained on none of these rows.
    return directory, record if record and record["task"] == row_examples.TASK else None


def _split_by_dev_rows(split, path, recorded):
    """`split_training_file`, by dev_rows.txt."""
    if not files.exists(path):
        raise FileNotFoundError(f"{path} is missing. It lists the rows that the model there was not trained "
                                "on. Restore it from a copy, or evaluate on a --dev_file.")
    content = files.read_text(path)
    if run_record.hash_texts([content]) != recorded["fingerprint"]:
        raise ValueError(f"{path} was changed since the training wrote it: its fingerprint is not the one in "
                         f"{output_files.RECORD}. Restore it from a copy, or evaluate on a --dev_file.")
    found = dev_split.split_by_dev_rows(split, dev_split.parse_dev_rows(content, path), path)
    more = len(split.rows) - recorded["of"]
    if more > 0:
        excepted = (f", except {len(found.unused)} with the texts of development rows"
                    if found.unused else "")
        logging.warning("%s has %d rows; it had %d when the training in %s started. The %d added rows are "
                        "not evaluated on. A training that goes on there trains on them%s. To split all rows "
                        "again, train in a new --output_dir.", split.path, len(split.rows), recorded["of"],
                        os.path.dirname(path), more, excepted)
    return found, DevRows(content, recorded)


# --- Directories of earlier versions ---------------------------------------------------------------------


def _split_by_seed(settings, split, directory, record):
    """`split_training_file`, in a directory whose training kept no dev_rows.txt: by the seed that it had."""
    seed = record["settings"].get("seed", settings.seed)
    logging.info("%s has no %s: the development set is drawn by the rule of the version that trained there, "
                 "by --seed=%s and the places of the rows in %s.", directory, output_files.DEV_ROWS, seed,
                 split.path)
    return dev_split.split_by_seed(split, settings.dev_fraction, seed), None
