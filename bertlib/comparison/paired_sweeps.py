"""Compares a metric between two sweeps. Runs with the same settings, such as the same seed, form a pair."""

import math
import os
import re

from bertlib.comparison import paired_predictions, paired_tests
from bertlib.output_directory import best_weights
from bertlib.output_directory.directory import OutputDirectory
from bertlib.system import files
from bertlib.tasks import targets

TABLE, RECORD = "sweep.csv", "sweep.json"
_FINISHED, _NOT_GIVEN = "finished", "not given"
# Columns that are neither settings nor scores.
_OTHERS = ("run", "status", "directory", "message", "seconds", "global_step")
_SEED = "seed"  # runs of two sweeps that differ only in this setting can be compared without pairs
# Matches the names of the SQuAD metrics, whose values are in percent.
_PERCENT = re.compile("(HasAns_|NoAns_|best_)?(exact|exact_match|f1)")


def read_sweep(directory):
    """Reads the table of a sweep. Returns (list of its columns, list of its rows as {column: text})."""
    path = os.path.join(directory, TABLE)
    rows = paired_predictions.read_rows(path)
    if not rows or "status" not in rows[0]:
        raise ValueError(f"{path} is not the table of a sweep: " + (
            "the column 'status' is missing." if rows else "it has no rows."))
    return list(rows[0]), rows


def _read_settings(directory):
    """Reads the record of a sweep. Returns a pair: the set of the columns that contain settings; and the
    flags that have the same value in all runs, as {flag: value as text}."""
    path = os.path.join(directory, RECORD)
    record = files.read_json_object(path)
    try:
        return {name for settings in record["runs"] for name in settings}, dict(record["flags"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the record of a sweep. Restore the file.") from error


def compare(directories, metric=None):
    """Compares two sweeps.

    Two runs form a pair if they have the same settings, apart from the settings that distinguish the two
    sweeps (see `_find_compared`). If there are no pairs because the seeds differ, the two groups of runs are
    compared without pairs.

    Args:
      directories: two directories with sweep.csv and sweep.json.
      metric: name of the column to compare. None: the first score that both tables contain is compared. A
        score is a metric for which higher values are better. If the tables have no common score, the first
        metric that both tables contain is compared, such as a loss.

    Returns:
      a dict that can be written as JSON: "metrics" with one entry, "test", and the numbers of runs.

    Raises:
      ValueError: the sweeps have no common metric, too few runs, different development sets, or other
        settings than the seed that have no value in common.
    """
    columns, rows = zip(*map(read_sweep, directories))
    paths = [os.path.join(directory, TABLE) for directory in directories]
    settings, flags = zip(*map(_read_settings, directories))
    settings = set.union(*settings)
    name = _choose_metric(metric, columns, settings, paths)
    sweeps = [[row for row in of_sweep if row["status"] == _FINISHED and _number(row.get(name)) is not None]
              for of_sweep in rows]
    for path, of_sweep in zip(paths, sweeps):
        if not of_sweep:
            raise ValueError(f"{path} has no finished run with the metric {name}. Continue the sweep, or "
                             "pass another --metric.")
    outputs = [_output_directories(*pair) for pair in zip(directories, sweeps)]
    records = [[record for output in of_sweep if (record := OutputDirectory(output).record)]
               for of_sweep in outputs]
    if all(outputs):
        _check_same_evaluation(name, [of_sweep[0] for of_sweep in outputs])
    compared = {**_find_compared(sweeps, settings, flags), **_find_compared_data(records)}
    keys = [one for one in columns[0] if one in settings and one in columns[1] and one not in compared]
    groups = [_by_settings(of_sweep, keys, name, path) for of_sweep, path in zip(sweeps, paths)]
    common = [key for key in groups[0] if key in groups[1]]
    if not common:
        _refuse_other_settings(directories, groups, keys)
    lower, is_fraction = best_weights.is_lower_better(name), _is_fraction(name, [*records[0], *records[1]])
    scale = 100.0 if is_fraction else 1.0
    values = [[scale * group[key] for key in common or group] for group in groups]
    if min(map(len, values)) < 2:
        raise ValueError(f"{directories[0]} and {directories[1]} have only one " + (
            "pair of finished runs with the same settings" if common else "finished run in one of the sweeps")
            + ". A test needs at least two. Add seeds to the sweeps.")
    test = (paired_tests.compare_pairs if common else paired_tests.compare_groups)(*values)
    return {"kind": "sweeps", "tables": paths, "is_paired": bool(common), "paired_by": keys,
            "compared": compared, "runs": list(map(len, rows)), "used_runs": list(map(len, values)),
            "metrics": [paired_tests.describe(
                name, [sum(group) / len(group) for group in values], test.pop("interval"), lower,
                "points" if is_fraction or _PERCENT.fullmatch(name) else "")], "test": test}


def _output_directories(directory, rows):
    """Returns the existing output directories of the runs in some rows of a sweep's table."""
    names = [os.path.basename(row.get("directory") or "") for row in rows]
    paths = [os.path.join(directory, "runs", name) for name in names if name]
    return list(filter(files.is_directory, paths))


def _check_same_evaluation(name, outputs):
    """Checks that a run of one sweep and a run of the other one were evaluated on the same examples, and that
    a metric has the same meaning for both. If the runs have no tables of predictions, the fingerprints of the
    development data in run.json are compared.

    Args:
      name: name of the metric.
      outputs: the output directories of the two runs.
    """
    tables = list(map(paired_predictions.find_table, outputs))
    records = [OutputDirectory(output).record or {} for output in outputs]
    data = [(record.get("dev_data") or {}).get("fingerprint") for record in records]
    if all(tables):
        paired_predictions.check_pairs(*paired_predictions.read_tables(tables))
    elif all(data) and data[0] != data[1]:
        raise ValueError(f"{outputs[0]} and {outputs[1]} were evaluated on different development data, "
                         "according to the fingerprints in their run.json. Evaluate both sweeps on the same "
                         "data.")
    if all(record.get("labels") for record in records):
        reason = paired_predictions.explain_difference(name, [
            targets.find(record["task_type"]).describe_metric(name, record["labels"]) for record in records])
        if reason:
            raise ValueError(f"The sweeps cannot be compared by this metric: {reason}. Pass another "
                             "--metric.")


def _find_compared_data(records):
    """Returns the kinds of data in which two sweeps differ, in the form of `_find_compared`. The values are
    fingerprints.

    Args:
      records: for each sweep, the list of the records of its runs.
    """
    found = {}
    for words, field in (("training data", "train_data"), ("task module", "task_module")):
        first, second = ({record[field]["fingerprint"][:8] for record in of_sweep if record[field]}
                         for of_sweep in records)
        if len(first) == len(second) == 1 and first != second:
            found[words] = [*first, *second]
    return found


def _is_fraction(name, records):
    """Returns whether a metric is a fraction from 0 to 1, according to the kind of the heads."""
    patterns = {targets.find(record["task_type"]).fractions for record in records}
    return any(re.fullmatch(pattern, name) for pattern in patterns if pattern)


def _refuse_other_settings(directories, groups, keys):
    """Raises a ValueError if two sweeps without pairs differ not only in the seed.

    Args:
      directories: the directories of the sweeps.
      groups: for each sweep, the result of `_by_settings`.
      keys: names of the settings in the keys of the groups.
    """
    first, second = ({tuple(text for name, text in zip(keys, key) if name != _SEED) for key in group}
                     for group in groups)
    if first != second:
        others = ", ".join(name for name in keys if name != _SEED)
        raise ValueError(f"{directories[0]} and {directories[1]} have no runs with the same values of "
                         f"{others}. Compare sweeps in which each setting has either a single value, or "
                         "values that both sweeps have.")


def _find_compared(sweeps, settings, flags):
    """Returns the settings in which two sweeps differ, as {setting: [value in the first sweep, value in the
    second sweep]}. All runs of the first sweep have the same value of such a setting, and all runs of the
    second sweep have a different value.

    Args:
      sweeps: two lists of rows.
      settings: names of the columns that are settings.
      flags: for each sweep, {flag: value} of the flags that all of its runs share.
    """
    def values(name, rows, shared):
        texts = {row[name] for row in rows} if name in rows[0] else {shared.get(name)}
        return {text or _NOT_GIVEN for text in texts}

    found = {name: [values(name, *pair) for pair in zip(sweeps, flags)]
             for name in sorted({*settings, *flags[0], *flags[1]})}
    return {name: [next(iter(first)), next(iter(second))] for name, (first, second) in found.items()
            if len(first) == len(second) == 1 and first != second}


def _choose_metric(metric, columns, settings, paths):
    metrics = [name for name in columns[0]
               if name in columns[1] and name not in _OTHERS and name not in settings]
    if metric is not None:
        metrics = [name for name in metrics if metric in (name, name.removeprefix("eval_"))]
    if not metrics:
        wanted = f"--metric={metric}: " if metric else ""
        raise ValueError(f"{wanted}{' and '.join(paths)} have no matching metric in common. The columns of "
                         f"these tables are {' and '.join(map(', '.join, columns))}.")
    scores = [name for name in metrics if (name.startswith("eval_") or _PERCENT.fullmatch(name))
              and not best_weights.is_lower_better(name)]
    return (scores or metrics)[0]


def _number(text):
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _by_settings(rows, keys, metric, path):
    """Returns {tuple with the values of the settings: value of the metric}, one entry for each run."""
    found = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key in found:
            values = ", ".join(f"{name}={value}" for name, value in zip(keys, key)) or "the common settings"
            raise ValueError(f"{path}: several runs have {values}. Only sweeps with the same flags in --grid "
                             "can be compared.")
        found[key] = _number(row[metric])
    return found
