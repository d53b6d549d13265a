"""Draws or finds the development set of --dev_fraction. The development set is drawn when a training starts
in an output directory, and is stored in the file dev_rows.txt in this directory. All later runs with the
trained weights use the stored development set."""

import os
from typing import NamedTuple

from absl import logging

from bertlib.output_directory import output_files
from bertlib.runs import run_record
from bertlib.system import files, terminal
from bertlib.tasks.classification import dev_split, row_examples


class DevRows(NamedTuple):
    """The stored development set of an output directory.

    Attributes:
      content: content of dev_rows.txt.
      recorded: the entry of the development set in run.json: {"rows": number of rows in the development set,
        "of": number of rows in the training file, "fingerprint": fingerprint of dev_rows.txt}.
    """

    content: str
    recorded: dict


def take_fraction(settings):
    """Sets --dev_fraction to the value in an earlier training. The earlier training is the training that the
    run continues, or the training whose weights the run uses.

    Args:
      settings: a `Settings`.

    Raises:
      ValueError: the flag was given, and its value differs from the value in the earlier training.
    """
    directory, record = _find_earlier_training(settings)
    if record is None or not settings.train_file:
        return
    trained, now = record["settings"].get("dev_fraction"), settings.dev_fraction
    if now is None and trained is not None:
        settings.set_default("dev_fraction", trained, "as in the training")
    elif now != trained:
        had = "on all rows of its training file" if trained is None else f"with --dev_fraction={trained}"
        instead = "" if trained is None else "leave --dev_fraction out, or "
        raise ValueError(f"--dev_fraction={now}, but according to {output_files.RECORD} in {directory.path} "
                         f"the model was trained {had}. With --dev_fraction={now}, the model would be "
                         f"evaluated on rows on which it was trained. To continue, {instead}pass a "
                         "--dev_file. To use another split, train in another --output_dir.")


def split_training_file(settings, split):
    """Splits the training file into a training set and a development set.

    Args:
      settings: a `Settings`, with --dev_fraction.
      split: the `row_examples.Split` of the training file.

    Returns:
      (a `dev_split.DevSplit`, the `DevRows`).

    Raises:
      ValueError: dev_rows.txt or the training file was changed, or the development set would be empty.
      FileNotFoundError: dev_rows.txt is missing.
    """
    directory, record = _find_earlier_training(settings)
    path = directory and directory.join(output_files.DEV_ROWS)
    if record:
        return split_by_dev_rows(split, path, record["dev_rows"])
    parts = dev_split.stratified_split(split, settings.dev_fraction)
    content = dev_split.format_dev_rows(parts.dev)
    return parts, DevRows(content, {"rows": len(parts.dev.rows), "of": len(split.rows),
                                    "fingerprint": run_record.hash_texts([content])})


def _find_earlier_training(settings):
    """Returns (directory, record) of the training that the run continues, or of the training whose weights
    the run uses. The record is None if there is no such training, or if that training did not use the user's
    own data."""
    directory = settings.directory if settings.directory.newest else settings.trained
    record = directory and directory.record
    # A training on a different task did not use the rows of this training file. Therefore, the record of such
    # a training is ignored.
    return directory, record if record and record["task"] == row_examples.TASK else None


def split_by_dev_rows(split, path, recorded):
    """Splits the training file as dev_rows.txt describes; see `split_training_file`.

    Args:
      split: see `split_training_file`.
      path: path of dev_rows.txt.
      recorded: see `DevRows`.
    """
    if not files.exists(path):
        raise FileNotFoundError(f"{path} is missing. This file lists the rows on which the model was not "
                                "trained. Restore the file from a copy, or evaluate on a --dev_file.")
    content = files.read_text(path)
    if run_record.hash_texts([content]) != recorded["fingerprint"]:
        raise ValueError(f"{path} was changed after the training wrote it: its fingerprint differs from the "
                         f"fingerprint in {output_files.RECORD}. Restore the file from a copy, or evaluate "
                         "on a --dev_file.")
    parts = dev_split.split_by_dev_rows(split, dev_split.parse_dev_rows(content, path), path)
    more = len(split.rows) - recorded["of"]
    if more > 0:
        excepted = (f", except on {terminal.counted(len(parts.unused), 'row')} with the same texts as "
                    "development rows"
                    if parts.unused else "")
        logging.warning("%s has %d rows, but it had only %d rows when the training in %s started. The %d "
                        "added rows are not used for evaluation. If the training is continued, it trains on "
                        "the added rows%s. To split all rows again, train in a new "
                        "--output_dir.", split.path, len(split.rows), recorded["of"],
                        os.path.dirname(path), more, excepted)
    return parts, DevRows(content, recorded)
