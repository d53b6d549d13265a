"""The development set of --dev_fraction: how it is drawn from a training file, stored, and found again.

The split depends on the texts and labels alone, not on a seed or the order of the rows. The training stores
its development set in dev_rows.txt, one line for each row: the line of the training file in which the row
began, a tab, and the digest of the row's texts and label. A later run finds the rows by their digests, at
whatever place in the file they are then.
"""

import collections
import hashlib
import json
from typing import NamedTuple

from bertlib.rows import text_keys
from bertlib.tasks.classification.row_examples import counts_of, names_in

_COLUMNS = "line\tdigest"


class Split(NamedTuple):
    """A training file's rows: the `own_data.Part`s `train` and `dev`, and `unused`, the rows (list of `Row`)
    that belong to neither."""

    train: object
    dev: object
    unused: list


# --- Drawing ---------------------------------------------------------------------------------------------


def split(part, fraction):
    """Draws the development set, stratified: the same share of each stratum, up to one example.

    A stratum is a label; where examples have several labels, the rarest label of each; where they have
    scores, a tenth of the examples, from the lowest to the highest score. The only example of a stratum stays
    in the training set. Examples with equal texts, see `text_keys.of_texts`, count as one example and stay on
    one side; they stay in the training set if their labels differ.

    Args:
      part: an `own_data.Part` with labels.
      fraction: the share to take, at most 0.5.

    Returns:
      a `Split`; both parts are in the file's order.

    Raises:
      ValueError: the development set would be empty.
    """
    digests = [digest_of(row) for row in part.rows]
    groups = [sorted(indices, key=digests.__getitem__) for indices in _grouped(part.rows, key_of).values()]
    keys = {group[0]: _digest(*key_of(part.rows[group[0]])) for group in groups}
    groups.sort(key=lambda group: keys[group[0]])
    return _divided(part, _taken(part, fraction, groups, keys.__getitem__))


def split_by_seed(part, fraction, seed):
    """Draws the development set as versions before dev_rows.txt did, for the directories of their trainings:
    by the seed and the rows' places in the file; only identical texts stay together. See `split`."""
    def order(index):
        return hashlib.blake2b(f"{seed} {index}".encode(), digest_size=8).digest()

    groups = list(_grouped(part.rows, lambda row: (row.text_a, row.text_b)).values())
    return _divided(part, _taken(part, fraction, groups, order))


def key_of(row):
    """Returns the key of a row's texts: equal for rows that stay on one side of a split."""
    return text_keys.of_texts(row.text_a, row.text_b)


def _digest(*values):
    """The digest of strings, hex; of any, also with half of a surrogate pair."""
    return hashlib.blake2b(json.dumps(values).encode(), digest_size=16).hexdigest()


def digest_of(row):
    """Returns the digest of a row's texts and label, hex."""
    label = sorted(row.label) if isinstance(row.label, tuple) else repr(row.label)
    return _digest(row.text_a, row.text_b, label)


def _grouped(rows, key):
    """{key: indices of the rows that have it}."""
    found = {}
    for index, row in enumerate(rows):
        found.setdefault(key(row), []).append(index)
    return found


def _taken(part, fraction, groups, order):
    """The indices of the rows to take.

    Args:
      part, fraction: see `split`.
      groups: list of lists of indices, of rows that stay together; where scores are equal, the earlier group
        counts as lower.
      order: function of a group's first index, by which groups are sorted within a stratum.
    """
    firsts = [group[0] for group in groups]
    strata = dict(zip(firsts, _strata([part.rows[index] for index in firsts])))
    sizes = collections.Counter(strata.values())
    divisible = sorted((group[0] for group in groups if sizes[strata[group[0]]] > 1
                        and len({part.rows[index].label for index in group}) == 1),
                       key=lambda index: (strata[index], order(index)))
    number = min(round(fraction * len(firsts)), len(divisible) // 2)
    if number < 1:
        single = "" if divisible else " that may be taken, for none of them shares its label"
        raise ValueError(f"--dev_fraction={fraction} of the {len(part.rows)} examples in {part.path} is none"
                         f"{single}. {'Raise it, or name' if divisible else 'Name'} a --dev_file.")
    # At even distances, so that each stratum gives its share.
    taken = {divisible[(2 * place + 1) * len(divisible) // (2 * number)] for place in range(number)}
    return {index for group in groups if group[0] in taken for index in group}


def _strata(rows):
    """The stratum of each row: an int or a str, all of one type."""
    if isinstance(rows[0].label, float):
        strata, number = [0] * len(rows), max(1, min(10, len(rows) // 2))
        for rank, index in enumerate(sorted(range(len(rows)), key=lambda index: rows[index].label)):
            strata[index] = rank * number // len(rows)
        return strata
    counts = counts_of(rows)
    return [min(names_in(row.label), key=lambda name: (counts[name], name), default="") for row in rows]


def _divided(part, taken, left_out=()):
    """The `Split` with the rows of the indices `taken` as development set and those of `left_out` unused."""
    train, dev, unused = [], [], []
    for index, row in enumerate(part.rows):
        (dev if index in taken else unused if index in left_out else train).append(row)
    return Split(part._replace(rows=train), part._replace(rows=dev), unused)


# --- Storing and finding ---------------------------------------------------------------------------------


def stored(part):
    """Returns the content of dev_rows.txt for a development set, an `own_data.Part`: str."""
    lines = [f"{row.line}\t{digest_of(row)}\n" for row in part.rows]
    return ("# The development set of this training, by lines of its training file. Do not edit: later "
            f"evaluations use these rows.\n{_COLUMNS}\n{''.join(lines)}")


def read_stored(text, path):
    """Returns the rows in the content of dev_rows.txt: list of (line, digest).

    Raises:
      ValueError: it is damaged; `path` is the file's name.
    """
    first, _, rest = text.partition("\n")
    header, *lines = rest.split("\n")
    rows = [tuple(line.split("\t")) for line in lines[:-1]]
    if not (first.startswith("#") and header == _COLUMNS and rows and lines[-1] == "" and all(
            len(row) == 2 and row[0].isdecimal() for row in rows)):
        raise ValueError(f"{path} is damaged: it should have a comment, the line {_COLUMNS!r}, and a line "
                         "number and a digest in each further line. Restore it from a copy, or evaluate on a "
                         "--dev_file.")
    return [(int(line), digest) for line, digest in rows]


def split_as_stored(part, rows, path):
    """Splits a training file into its stored development set and the rest.

    Args:
      part: the `own_data.Part` of the file.
      rows: see `read_stored`.
      path: the file dev_rows.txt, for errors.

    Returns:
      a `Split`. Rows with the texts of a development row that are not stored, so were added to the file
      later, are in neither part.

    Raises:
      ValueError: a stored row is not in the file.
    """
    wanted, taken = collections.Counter(digest for _, digest in rows), set()
    for index, row in enumerate(part.rows):
        digest = digest_of(row)
        if wanted[digest] > 0:
            wanted[digest] -= 1
            taken.add(index)
    missing = sum(wanted.values())
    if missing:
        line = next(line for line, digest in rows if wanted[digest])
        raise ValueError(f"{part.path} lacks {missing} of the {len(rows)} rows that {path} lists, such as "
                         f"the row that began in line {line} when the training started: it was removed, or "
                         "its text or label was changed. Pass the unchanged file as --train_file, or "
                         "evaluate on a --dev_file.")
    texts = {key_of(part.rows[index]) for index in taken}
    return _divided(part, taken, {index for index, row in enumerate(part.rows)
                                  if index not in taken and key_of(row) in texts})
