"""Pairs the runs of two sweeps by their settings, and compares a metric over their seeds."""

import csv
import io
import os

from bertlib.comparison import paired_tests
from bertlib.output_directory import record_fields
from bertlib.runs.settings import PATH_SUFFIXES
from bertlib.system import files

TABLE = "sweep.csv"
_FINISHED = "finished"
# Columns that describe a run. They are neither settings nor metrics.
_OTHERS = ("run", "status", "directory", "message", "error", "seconds", "started")
_FLAGS_AT_TOP = ("task_name", "task_type", "do_lower_case", "max_steps", "recompute", "num_workers")
_PERCENT = ("exact_match", "exact", "f1", "best_exact", "best_f1")


def read_sweep(directory):
    """Returns (list of columns, list of {column: text}) of the table of a sweep."""
    path = os.path.join(directory, TABLE)
    text = files.read_bytes(path).decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = list(reader)
    if not rows or "status" not in rows[0]:
        raise ValueError(f"{path} is not the table of a sweep: " + (
            "the column 'status' is missing." if rows else "it has no rows."))
    return list(reader.fieldnames), rows


def compare(directories, metric=None):
    """Compares two sweeps.

    Runs with the same settings are pairs. If no settings are the same, for example because the seeds differ,
    the runs are compared without pairs.

    Args:
      directories: two directories with sweep.csv.
      metric: name of the column to compare; None for the first metric of both tables.

    Returns:
      a dict that can be written as JSON. It contains "metrics", with one entry; "test", the statistical test;
      and the numbers of runs.
    """
    (columns, first), (other_columns, second) = map(read_sweep, directories)
    settings = [name for name in columns if name in other_columns and _is_setting(name)]
    name = _choose_metric(metric, columns, other_columns, directories)
    sweeps = [[row for row in rows if row["status"] == _FINISHED and _number(row.get(name)) is not None]
              for rows in (first, second)]
    for directory, rows in zip(directories, sweeps):
        if not rows:
            raise ValueError(f"{os.path.join(directory, TABLE)} has no finished run with the metric {name}. "
                             "Continue the sweep, or pass another --metric.")
    # The sweeps compare a setting if it has a single value in each sweep, and the two values differ.
    compared = {}
    for one in settings:
        values = [{row[one] for row in rows} for rows in sweeps]
        if len(values[0]) == len(values[1]) == 1 and values[0] != values[1]:
            compared[one] = [value.pop() for value in values]
    keys = [one for one in settings if one not in compared]
    groups = [_by_settings(rows, keys, name, directory) for rows, directory in zip(sweeps, directories)]
    common = [key for key in groups[0] if key in groups[1]]
    scale = 1.0 if name in _PERCENT or "loss" in name or "perplexity" in name else 100.0
    if common:
        values = [[scale * group[key] for key in common] for group in groups]
        if len(common) < 2:
            raise ValueError(f"{directories[0]} and {directories[1]} have only one finished run with the "
                             "same settings. A test needs at least two pairs. Add seeds to the sweeps.")
        test = paired_tests.compare_pairs(*values)
    else:
        values = [[scale * value for value in group.values()] for group in groups]
        if min(map(len, values)) < 2:
            raise ValueError("The sweeps have no pairs of runs with the same settings, and one of them has "
                             "only one run. A test needs at least two runs. Add seeds to the sweeps.")
        test = paired_tests.compare_groups(*values)
    means = [sum(group) / len(group) for group in values]
    lower = "loss" in name or "perplexity" in name
    difference = paired_tests.Difference(name, means, means[1] - means[0], test.pop("interval"), lower,
                                         "" if lower else "points")
    return {"kind": "sweeps", "tables": [os.path.join(directory, TABLE) for directory in directories],
            "is_paired": bool(common), "paired_by": keys, "compared": compared,
            "runs": [len(first), len(second)], "used_runs": [len(group) for group in values],
            "metrics": [{**difference._asdict(), "is_evidence": difference.is_evidence}], "test": test}


def _is_setting(name):
    return (name in record_fields.SETTINGS or name in _FLAGS_AT_TOP or name.endswith(PATH_SUFFIXES)) and (
        name not in _OTHERS)


def _choose_metric(metric, columns, other_columns, directories):
    metrics = [name for name in columns if name in other_columns and name not in _OTHERS
               and not _is_setting(name) and name != "global_step"]
    if metric is not None:
        metrics = [name for name in metrics if metric in (name, name.removeprefix("eval_"))]
    if not metrics:
        wanted, paths = f"--metric={metric}: " if metric else "", [
            os.path.join(directory, TABLE) for directory in directories]
        raise ValueError(f"{wanted}{' and '.join(paths)} have no such metric in common. Their columns are "
                         f"{', '.join(columns)} and {', '.join(other_columns)}.")
    scores = [name for name in metrics if name in _PERCENT or name.startswith("eval_") and "loss" not in name]
    return (scores or metrics)[0]


def _number(text):
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if number == number else None


def _by_settings(rows, keys, metric, directory):
    """Returns {tuple with the values of the settings: value of the metric}, one entry for each run."""
    found = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key in found:
            values = ", ".join(f"{name}={value}" for name, value in zip(keys, key)) or "the common settings"
            raise ValueError(f"{os.path.join(directory, TABLE)}: several runs have {values}. "
                             "Compare sweeps with the same flags in --grid.")
        found[key] = _number(row[metric])
    return found
