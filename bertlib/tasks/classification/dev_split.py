"""Draws the development set of --dev_fraction from a training file. In a later run, finds the same set again.

The split depends on the texts, and a little on the labels, but not on a seed or on the order of the rows. The
training stores its development set in dev_rows.txt, which has one line for each row of the development set.
Such a line contains three values with tabs between them: a line number, the digest of the row's texts and
label, and the digest of the texts. The line number says where the row begins in the training file. A later
run finds the rows by their digests, even if the rows have moved to other lines of the training file, or their
labels were corrected.
"""

import collections
import itertools
import os
from typing import NamedTuple

from absl import logging

from bertlib.data import text_keys
from bertlib.runs import file_names, recorded_flags
from bertlib.system import files, fingerprints
from bertlib.tasks.classification.classifier_data import OWN_DATA
from bertlib.tasks.classification.row_examples import (
    count_labels,
    label_names,
    texts_as_in_training,
)
from bertlib.tasks.data_splits import row_digest

# The settings that change the labels of a file when it is read, and those that change its rows or labels.
_LABELS = ("mapped_labels", "task_type", "label_column", "label_separator")
_READING = (*_LABELS, "text_column", "header", "delimiter", "encoding", "skip_bad_lines")


class DevSplit(NamedTuple):
    """The rows of a training file, divided into two sets.

    Attributes:
      train: `labelled_rows.ExampleFile`, the training set.
      dev: `labelled_rows.ExampleFile`, the development set.
      unused: list of the `Row`s that belong to neither set.
    """

    train: object
    dev: object
    unused: list


# --- Drawing ---------------------------------------------------------------------------------------------


def draw_split(file, fraction):
    """Draws a development set: the examples whose texts have the lowest digests. So a corrected label moves
    no example to the other set, and an added example moves at most a few.

    Examples with equal texts (see `text_keys.text_key`) count as one example and are never divided between
    the two sets. If they have different labels, all of them stay in the training set.

    Examples are added or left out so that the development set contains between half and twice the share of
    each label, and at least one example if the share is at least one. One example of each label stays in the
    training set. In a multi-label task, this holds for the rarest label of each example.

    Args:
      file: a `labelled_rows.ExampleFile` with labels.
      fraction: the share of the examples to draw, at most 0.5.

    Returns:
      a `DevSplit`; both sets are in the order of the file.

    Raises:
      ValueError: the development set would be empty.
    """
    rows, groups, strata = file.rows, collections.defaultdict(list), collections.defaultdict(list)
    for index, row in enumerate(rows):
        groups[_text_digest(row)].append(index)
    order = sorted(groups)
    lowest = set(order[:round(fraction * len(order))])
    divisible = [key for key in order if len({rows[index].label for index in groups[key]}) == 1]
    for key, stratum in zip(divisible, _strata([rows[groups[key][0]] for key in divisible])):
        strata[stratum].append(key)
    chosen = [key for keys in strata.values() for key in keys[:_count_chosen(keys, lowest, fraction)]]
    if lowest and not chosen:
        chosen = sorted(key for keys in strata.values() if len(keys) > 1 for key in keys)[:1]
    if not chosen:
        single = "" if any(len(keys) > 1 for keys in strata.values()) else (
            ", because none of them shares its label with another example")
        raise ValueError(f"--dev_fraction={fraction} selects none of the {len(rows)} examples in "
                         f"{file.path}{single}. {'Name' if single else 'Raise --dev_fraction, or name'} "
                         "a --dev_file.")
    return _divide_rows(file, {index for key in chosen for index in groups[key]})


def _count_chosen(keys, lowest, fraction):
    """Returns the number of examples of a label in the development set. `keys` are the digests of these
    examples, and `lowest` is the set of the lowest digests of all examples."""
    share = fraction * len(keys)
    number = max(len(lowest.intersection(keys)), int(share / 2), int(share >= 1))
    return min(number, max(int(2 * share), 1), len(keys) - 1)


def text_key_of_row(row):
    """Returns the key of a row's texts. Rows with equal keys are in the same set: either all in
    the training set, or all in the development set."""
    return text_keys.text_key(row.text_a, row.text_b)


def _text_digest(row):
    return fingerprints.hash_values(*text_key_of_row(row))


def _strata(rows):
    """Returns a list with the rarest label of each row. Scores are not divided into strata."""
    if rows and isinstance(rows[0].label, float):
        return [""] * len(rows)
    counts = count_labels(rows)
    return [min(label_names(row.label), key=lambda name: (counts[name], name), default="") for row in rows]


def _divide_rows(file, taken, left_out=()):
    """Returns the `DevSplit` whose development set contains the rows with the indices `taken`. Rows with the
    indices `left_out` are in neither set."""
    train, dev, unused = [], [], []
    for index, row in enumerate(file.rows):
        (dev if index in taken else unused if index in left_out else train).append(row)
    return DevSplit(file._replace(rows=train), file._replace(rows=dev), unused)


# --- Storing and finding ---------------------------------------------------------------------------------


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
    earlier, record = _find_training_with_split(settings)
    if record is None or not settings.train_file:
        return
    trained, now = record["settings"].get("dev_fraction"), settings.dev_fraction
    if now is None and trained is not None:
        settings.set_default("dev_fraction", trained, "as in the training")
    elif now != trained:
        had = "on all rows of its training file" if trained is None else f"with --dev_fraction={trained}"
        instead = "" if trained is None else "leave --dev_fraction out, or "
        raise ValueError(f"--dev_fraction={now}, but according to {file_names.RECORD} in {earlier.path} "
                         f"the model was trained {had}. With --dev_fraction={now}, the model would be "
                         f"evaluated on rows on which it was trained. To continue, {instead}pass a "
                         "--dev_file. To use another split, train in another --output_dir.")


def split_training_file(settings, file):
    """Splits the training file into a training set and a development set.

    Args:
      settings: a `Settings`, with --dev_fraction.
      file: the `labelled_rows.ExampleFile` of the training file.

    Returns:
      (a `DevSplit`, the `DevRows`).

    Raises:
      ValueError: dev_rows.txt is missing, dev_rows.txt or the training file was changed, or the development
        set would be empty.
    """
    earlier, record = _find_training_with_split(settings)
    if record:
        return split_by_dev_rows(file, earlier.path, record["dev_rows"], describe_reading(settings, record),
                                 bool(describe_reading(settings, record, _LABELS)))
    parts = draw_split(file, settings.dev_fraction)
    content = format_dev_rows(parts.dev)
    return parts, DevRows(content, {"rows": len(parts.dev.rows), "of": len(file.rows),
                                    "fingerprint": fingerprints.hash_texts([content])})


def describe_reading(settings, record, names=_READING):
    """Returns the flags of `names` that differ from the record of a training, as text; "" for none."""
    return recorded_flags.describe_changes(settings, record, names).replace(
        "--mapped_labels", "--label_map")


def _find_training_with_split(settings):
    """Returns (`OutputDirectory`, record) of the training that the run continues, or of the training whose
    weights the run uses. The record is None if there is no such training, or if that training did not use the
    user's own data."""
    earlier = settings.reused_training
    record = earlier and earlier.record
    # A training on a different task did not use the rows of this training file. Therefore, the record of such
    # a training is ignored.
    return earlier, record if record and record["task"] == OWN_DATA else None


def format_dev_rows(file):
    """Returns the content of dev_rows.txt (str) for a development set, a `labelled_rows.ExampleFile`."""
    lines = [f"{row.line}\t{row_digest(row)}\t{_text_digest(row)}\n" for row in file.rows]
    return ("# The development set of this training, by lines of its training file. Do not edit: later "
            f"evaluations use these rows.\nline\tdigest\ttexts\n{''.join(lines)}")


def split_by_dev_rows(file, directory, recorded, changed="", reads_other_labels=False):
    """Splits a training file into two sets: the development set that dev_rows.txt lists, and the training set
    with the remaining rows.

    Args:
      file: the `labelled_rows.ExampleFile` of the file.
      directory: path of the output directory with dev_rows.txt.
      recorded: see `DevRows`.
      changed: the flags of `_READING` that differ from the training, as text.
      reads_other_labels: whether flags of `_LABELS` differ. Otherwise, other labels are corrected labels.

    Returns:
      (a `DevSplit`, the `DevRows`). If a row was added to the training file later and has the same texts as a
      row of the development set, the added row is in neither set.

    Raises:
      ValueError: dev_rows.txt is missing or was changed, or a stored row is not in the training file.
    """
    path = os.path.join(directory, file_names.DEV_ROWS)
    content = files.read_text(path) if files.exists(path) else None
    if content is None or fingerprints.hash_texts([content]) != recorded["fingerprint"]:
        raise ValueError(f"{path} is missing, or was changed after the training wrote it: the file lists the "
                         "rows on which the model was not trained. Restore the file from a copy, or evaluate "
                         "on a --dev_file.")
    parts = find_rows(file, content, path, changed, reads_other_labels)
    if len(file.rows) > recorded["of"]:
        logging.warning("%s has %d rows, but it had only %d rows when the training in %s started. The added "
                        "rows are not used for evaluation. If the training is continued, it trains on the "
                        "added rows, except on %d rows with the same texts as development rows. To split all "
                        "rows again, train in a new --output_dir.", file.path, len(file.rows),
                        recorded["of"], directory, len(parts.unused))
    return parts, DevRows(content, recorded)


def find_trained(directory, record, path, keys):
    """Returns the keys of texts on which an earlier training was trained. The rows of its file are read one
    after the other, so a large file needs little memory.

    Args:
      directory: the output directory of the training.
      record: its record.
      path: its training file.
      keys: set of keys, see `text_key_of_row`. Only these are searched.

    Raises:
      ValueError, OSError: a file is missing, or the columns are not those of the training.
    """
    rows = []
    if record["dev_rows"]:
        rows = files.read_text(os.path.join(directory, file_names.DEV_ROWS)).splitlines()[2:]
    # Older files have no digests of texts. There, the lines identify the rows.
    left_out = {fields[2] if len(fields) > 2 else fields[0] for fields in (row.split("\t") for row in rows)}
    shared_keys = set()
    for row in texts_as_in_training(record, path):
        key = text_keys.text_key(*row.texts)
        if key in keys and left_out.isdisjoint((str(row.line), fingerprints.hash_values(*key))):
            shared_keys.add(key)
    return shared_keys


def find_rows(file, content, path, changed="", reads_other_labels=False):
    """Returns the `DevSplit` of a training file according to the content of dev_rows.txt, whose path is
    `path`. For the other arguments and the errors, see `split_by_dev_rows`."""
    lost, taken = [line.split("\t") for line in content.splitlines()[2:]], set()
    number = len(lost)
    # If labels were corrected, the texts find the rows. Older files have no digests of texts.
    for column, digest_of in ((1, row_digest), (2, _text_digest))[:1 if reads_other_labels else 2]:
        wanted = collections.defaultdict(list)
        for stored in lost:
            wanted[stored[column] if column < len(stored) else None].append(stored)
        for index, row in enumerate(file.rows if lost else ()):
            waiting = index not in taken and wanted.get(digest_of(row))
            if waiting:
                waiting.pop()
                taken.add(index)
        lost = list(itertools.chain.from_iterable(wanted.values()))
    if lost:
        cause = ("The rows were removed, or their texts or labels were changed. Pass the unchanged file as "
                 "--train_file, evaluate on a --dev_file, or train in another --output_dir.")
        if changed:
            cause = (f"The cause may be these flags, which change rows or labels: {changed}. Pass the values "
                     "of the training, or train in another --output_dir.")
        raise ValueError(f"{file.path} lacks {len(lost)} of the {number} rows that {path} lists. When the "
                         f"training started, one of these rows began in line {lost[0][0]}. {cause}")
    texts = {text_key_of_row(file.rows[index]) for index in taken}
    return _divide_rows(file, taken, {index for index, row in enumerate(file.rows)
                                      if index not in taken and text_key_of_row(row) in texts})
