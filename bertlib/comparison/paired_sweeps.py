"""Compares a metric between two sweeps. Runs with the same settings, such as the same seed, form a pair."""

import math
import os
import re

from bertlib.comparison import paired_predictions, paired_tests
from bertlib.flag_table import training
from bertlib.output_directory import best_weights
from bertlib.output_directory.directory import OutputDirectory
from bertlib.system import files
from bertlib.tasks import targets

TABLE, RECORD = "sweep.csv", "sweep.json"
_FINISHED, _NOT_GIVEN = "finished", "not given"
# Columns that describe a run. They are neither settings nor metrics.
_OTHERS = ("run", "status", "directory", "message", "error", "seconds", "started")
# Runs of two sweeps that differ in these settings can be compared without pairs.
_SEEDS = ("seed",)
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


def read_settings(directory, columns):
    """Reads the settings of a sweep.

    Args:
      directory: the directory of the sweep. If it contains no sweep.json, the settings are recognized by
        the names of their columns, and the flags are unknown.
      columns: the columns of the sweep's table.

    Returns:
      a pair: the set of the columns that contain settings; and the flags that have the same value in all
      runs, as {flag: value as text}. If the flags are unknown, this dict is empty.
    """
    path = os.path.join(directory, RECORD)
    if not files.exists(path):
        return {name for name in columns if _is_setting(name)}, {}
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
      directories: two directories with sweep.csv.
      metric: name of the column to compare. None: the first score that both tables contain is compared. A
        score is a metric for which higher values are better. If the tables have no common score, the first
        metric that both tables contain is compared, such as a loss.

    Returns:
      a dict that can be written as JSON: "metrics" with one entry, "test", and the numbers of runs.

    Raises:
      ValueError: the sweeps have no common metric, too few runs, different development sets, or other
        settings than the seed that have no value in common.
    """
    (columns, first), (other_columns, second) = map(read_sweep, directories)
    described = [read_settings(*pair) for pair in zip(directories, (columns, other_columns))]
    settings = described[0][0] | described[1][0]
    name = _choose_metric(metric, columns, other_columns, settings, directories)
    sweeps = [[row for row in rows if row["status"] == _FINISHED and _number(row.get(name)) is not None]
              for rows in (first, second)]
    for directory, rows in zip(directories, sweeps):
        if not rows:
            raise ValueError(f"{os.path.join(directory, TABLE)} has no finished run with the metric {name}. "
                             "Continue the sweep, or pass another --metric.")
    outputs = [_output_directories(*pair) for pair in zip(directories, sweeps)]
    records = [[OutputDirectory(output).record for output in paths] for paths in outputs]
    _check_same_examples([paths[:1] for paths in outputs], [found[:1] for found in records])
    _check_same_metric(name, [found[:1] for found in records])
    compared = {**_find_compared(sweeps, settings, [flags for _, flags in described]),
                **_find_compared_data(records)}
    keys = [one for one in columns if one in settings and one in other_columns and one not in compared]
    groups = [_by_settings(rows, keys, name, directory) for rows, directory in zip(sweeps, directories)]
    common = [key for key in groups[0] if key in groups[1]]
    lower = best_weights.is_lower_better(name)
    has_module = any("task_module" in names or "task_module" in flags for names, flags in described)
    is_fraction = not lower and _is_fraction(name, [*records[0], *records[1]], has_module)
    scale = 100.0 if is_fraction else 1.0
    if common:
        values = [[scale * group[key] for key in common] for group in groups]
        if len(common) < 2:
            raise ValueError(f"{directories[0]} and {directories[1]} have only one pair of finished runs "
                             "with the same settings. A test needs at least two pairs. Add seeds to the "
                             "sweeps.")
        test = paired_tests.compare_pairs(*values)
    else:
        _refuse_other_settings(directories, groups, keys)
        values = [[scale * value for value in group.values()] for group in groups]
        if min(map(len, values)) < 2:
            raise ValueError("The sweeps have no pairs of runs with the same settings, and one of the two "
                             "sweeps has only one finished run. A test needs at least two finished runs of "
                             "each sweep. Add seeds to the sweeps.")
        test = paired_tests.compare_groups(*values)
    means = [sum(group) / len(group) for group in values]
    difference = paired_tests.Difference(name, means, means[1] - means[0], test.pop("interval"), lower,
                                         "points" if is_fraction or _PERCENT.fullmatch(name) else "")
    return {"kind": "sweeps", "tables": [os.path.join(directory, TABLE) for directory in directories],
            "is_paired": bool(common), "paired_by": keys, "compared": compared,
            "runs": [len(first), len(second)], "used_runs": [len(group) for group in values],
            "metrics": [{**difference._asdict(), "is_evidence": difference.is_evidence}], "test": test}


def _output_directories(directory, rows):
    """Returns the existing output directories of the runs in some rows of a sweep's table."""
    paths = [os.path.join(directory, "runs", os.path.basename(row.get("directory") or "")) for row in rows]
    return [path for path in paths if os.path.basename(path) and files.is_directory(path)]


def _check_same_examples(outputs, records):
    """Checks that runs of two sweeps were evaluated on the same examples. If the runs have no tables of
    predictions, the fingerprints of the development data in run.json are compared.

    Args:
      outputs: for each sweep, the list of the output directories of its runs.
      records: for each sweep, the list of the records in these directories.
    """
    tables = [path for paths in outputs for output in paths
              if (path := paired_predictions.find_table(output))]
    if len(tables) == 2:
        paired_predictions.check_pairs(*paired_predictions.read_tables(tables))
        return
    data = [(record or {}).get("dev_data") for found in records for record in found]
    if len(data) == 2 and all(data) and data[0]["fingerprint"] != data[1]["fingerprint"]:
        raise ValueError(f"{outputs[0][0]} and {outputs[1][0]} were evaluated on different development data, "
                         "according to the fingerprints in their run.json. Evaluate both sweeps on the same "
                         "data.")


def _check_same_metric(name, records):
    """Checks that a metric has the same meaning in two sweeps; see `targets.Target.describe_metric`."""
    known = [record for found in records for record in found if record and record.get("labels")]
    reason = len(known) == 2 and paired_predictions.explain_difference(name, [
        targets.find(record["task_type"]).describe_metric(name, record["labels"])
        for record in known])
    if reason:
        raise ValueError(f"The sweeps cannot be compared by this metric: {reason}. Pass another --metric.")


def _find_compared_data(records):
    """Returns the kinds of data in which two sweeps differ, in the form of `_find_compared`. The values are
    fingerprints.

    Args:
      records: for each sweep, the list of the records of its runs. Records may be None.
    """
    found = {}
    for words, field in (("training data", "train_data"), ("task module", "task_module")):
        first, second = ({record[field]["fingerprint"][:8] for record in of_sweep
                          if record and record.get(field)} for of_sweep in records)
        if len(first) == len(second) == 1 and first != second:
            found[words] = [*first, *second]
    return found


def _is_fraction(name, records, has_module):
    """Returns whether a metric is a fraction from 0 to 1, according to the kind of the head.

    Args:
      name: name of the metric.
      records: list of the records of the runs. If there are none, the kind of the head is unknown.
      has_module: whether the sweeps have a task module, which only a classification or regression can have.
    """
    found = [targets.find(record["task_type"]) for record in records if record] or [
        target for target in targets.find_all() if not has_module or target.takes_modules]
    return any(re.fullmatch(target.fractions, name) for target in found if target.fractions)


def _refuse_other_settings(directories, groups, keys):
    """Raises a ValueError if two sweeps without pairs differ not only in the seed.

    Args:
      directories: the directories of the sweeps.
      groups: for each sweep, the result of `_by_settings`.
      keys: names of the settings in the keys of the groups.
    """
    places = [place for place, name in enumerate(keys) if name not in _SEEDS]
    if {tuple(key[place] for place in places) for key in groups[0]} == {
            tuple(key[place] for place in places) for key in groups[1]}:
        return
    differing = []
    for place in places:
        first, second = (", ".join(sorted({key[place] or _NOT_GIVEN for key in group})) for group in groups)
        if first != second:
            differing.append(f"{keys[place]} is {first} in the first sweep, and {second} in the second sweep")
    raise ValueError(f"{directories[0]} and {directories[1]} have no runs with the same settings: "
                     f"{'; '.join(differing) or 'the combinations of the values differ'}. Compare sweeps in "
                     "which each setting has either a single value, or values that both sweeps have.")


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


def _is_setting(name):
    return name not in _OTHERS and bool(training.find(name))


def _choose_metric(metric, columns, other_columns, settings, directories):
    metrics = [name for name in columns if name in other_columns and name not in _OTHERS
               and name not in settings and name != "global_step"]
    if metric is not None:
        metrics = [name for name in metrics if metric in (name, name.removeprefix("eval_"))]
    if not metrics:
        wanted, paths = f"--metric={metric}: " if metric else "", [
            os.path.join(directory, TABLE) for directory in directories]
        raise ValueError(f"{wanted}{' and '.join(paths)} have no matching metric in common. The columns of "
                         f"these tables are {', '.join(columns)} and {', '.join(other_columns)}.")
    scores = [name for name in metrics if (name.startswith("eval_") or _PERCENT.fullmatch(name))
              and not best_weights.is_lower_better(name)]
    return (scores or metrics)[0]


def _number(text):
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _by_settings(rows, keys, metric, directory):
    """Returns {tuple with the values of the settings: value of the metric}, one entry for each run."""
    found = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        if key in found:
            values = ", ".join(f"{name}={value}" for name, value in zip(keys, key)) or "the common settings"
            raise ValueError(f"{os.path.join(directory, TABLE)}: several runs have {values}. "
                             "Only sweeps with the same flags in --grid can be compared.")
        found[key] = _number(row[metric])
    return found
