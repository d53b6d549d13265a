"""Compares the runs of two sweeps: runs with the same settings are pairs."""

import os
import re
from typing import NamedTuple

from bertlib.reports import paired_predictions, paired_tests, sweep_directory, sweep_runs
from bertlib.runs import best_weights, registry
from bertlib.runs.output_directory import OutputDirectory

_NOT_GIVEN = "not given"
# {name of an input of a run in messages: its field in run.json}. Inputs are compared like settings.
_INPUTS = {"training data": "train_data", "task module": "task_module"}
# Matches the names of the SQuAD metrics, whose values are in percent.
_PERCENT = re.compile("(HasAns_|NoAns_|best_)?(exact|exact_match|f1)")


class _Result(NamedTuple):
    """A run that has a value of the compared metric.

    Attributes:
      output_dir: the output directory of the run.
      record: the content of its run.json; {} without this file.
      varied: names of the settings in --grid.
      settings: {name: value as text} of all settings, with the fingerprints of the inputs.
      value: the value of the metric.
    """

    output_dir: str
    record: dict
    varied: list
    settings: dict
    value: float


def compare(directories, metric=None, setting=None):
    """Compares two sweeps, or runs of one sweep.

    Two runs form a pair if they have the same settings, apart from the settings that distinguish the two
    sweeps (see `_find_differences`). If there are no pairs because the seeds differ, the two groups of runs
    are compared without pairs.

    Args:
      directories: the directories of the two sweeps.
      metric: name of the metric to compare. None: the metric by which both sweeps ranked their runs.
      setting: text such as "learning_rate=5e-5,2e-5". The runs with the first value and the runs with the
        second value are compared. The two directories are then the same sweep.

    Returns:
      a dict that can be written as JSON: "metrics" with one entry, "test", the numbers of runs, and "pooled":
      {values of the settings besides the seed, as text: difference of the means}, {} for a single entry.

    Raises:
      ValueError: the sweeps have no common metric, no or too few finished runs, different development sets,
        or other settings than the seed that have no value in common.
    """
    sweeps = list(map(sweep_directory.SweepDirectory, directories))
    ended_runs, open_runs = _select_runs(sweeps, setting)
    names = [{name for run in runs for name in run.metrics} for runs in ended_runs]
    if metric is None and sweeps[0].metric == sweeps[1].metric:
        metric = sweeps[0].metric
    name = _choose_metric(metric, names, directories)
    result_lists = [_results(sweep, runs, name) for sweep, runs in zip(sweeps, ended_runs)]
    _check_same_evaluation(name, [results[0] for results in result_lists])
    differences = _find_differences(result_lists)
    keys = list(dict.fromkeys(key for result in sum(result_lists, []) for key in result.varied
                              if key not in differences))
    groups = [{tuple(map(result.settings.get, keys)): result.value for result in results}
              for results in result_lists]
    pairs = [key for key in groups[0] if key in groups[1]]
    if not pairs:
        _refuse_other_settings(directories, groups, keys)
    is_fraction = _is_fraction(name, sum(result_lists, []))
    lower = best_weights.is_lower_better(name)
    scale = 100.0 if is_fraction else 1.0
    groups = [{key: scale * group[key] for key in pairs or group} for group in groups]
    values = [list(group.values()) for group in groups]
    if min(map(len, values)) < 2:
        raise ValueError(f"{directories[0]} and {directories[1]} have only one " + (
            "pair of finished runs with the same settings" if pairs else "finished run in one of the sweeps")
            + ". A test needs at least two. Add seeds to the sweeps.")
    test = (paired_tests.compare_pairs if pairs else paired_tests.compare_groups)(*values)
    return {"kind": "sweeps",
            "tables": [os.path.join(directory, sweep_directory.TABLE) for directory in directories],
            "is_paired": bool(pairs), "paired_by": keys, "compared": differences,
            "pooled": _pooled(groups, keys),
            "runs": list(map(len, ended_runs)), "used_runs": list(map(len, values)), "open_runs": open_runs,
            "metrics": [paired_tests.compare_values(
                name, [sum(group) / len(group) for group in values], test.pop("interval"), lower,
                "points" if is_fraction or _PERCENT.fullmatch(name) else "")], "test": test}


def _select_runs(sweeps, setting):
    """Returns (the ended runs that are compared, a list for each sweep; the numbers of runs that have not
    ended). For the arguments, see `compare`."""
    chosen = _selections(setting, sweeps[0])
    ended_runs = [list(filter(is_chosen, sweep.ended_runs())) for is_chosen, sweep in zip(chosen, sweeps)]
    open_runs = [sum(map(is_chosen, sweep.runs)) - len(runs)
                 for is_chosen, sweep, runs in zip(chosen, sweeps, ended_runs)]
    for sweep, runs, count in zip(sweeps, ended_runs, open_runs):
        if not any(run.is_evaluated for run in runs):
            raise ValueError(f"{sweep.path} has no finished run: {len(runs)} failed or diverged, and {count} "
                             "have not ended. Wait for the sweep, or run its command again.")
    return ended_runs, open_runs


def _selections(setting, sweep):
    """Returns two functions. Each takes a `sweep_runs.Run`, and returns whether the run is compared: as one
    of the first, or of the second runs. For `setting` see `compare`. `sweep` is the `SweepDirectory`."""
    if setting is None:
        return [lambda run: True] * 2
    name, _, text = setting.partition("=")
    values = list(dict.fromkeys(run.settings[name] for run in sweep.runs if name in run.settings))
    texts = [next((value for value in values if _number(value) == _number(one)), None)
             for one in text.split(",")]
    if len(texts) != 2 or None in texts or texts[0] == texts[1]:
        known = f"Values of {name}: {', '.join(values)}." if values else f"The sweep has no setting {name}."
        raise ValueError(f"--setting={setting}: write a setting in the --grid of {sweep.path} and two of its "
                         f"values, such as --setting=learning_rate=5e-5,2e-5. {known}")
    return [lambda run, value=value: run.settings.get(name) == value for value in texts]


def _number(text):
    """Returns the number that a text contains; a text that is no number is returned unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _pooled(groups, keys):
    """Returns {values of the settings besides the seed, as text: difference of the means}; {} if these
    settings have one combination of values. For the arguments see `_refuse_other_settings`."""
    values = {}
    for place, group in enumerate(groups):
        for key, value in group.items():
            rest = ", ".join(f"{name}={text}" for name, text in zip(keys, key) if name != sweep_runs.SEED)
            values.setdefault(rest, ([], []))[place].append(value)
    return {rest: sum(second) / len(second) - sum(first) / len(first)
            for rest, (first, second) in values.items()} if len(values) > 1 else {}


def _results(sweep, runs, metric):
    """Returns the list of the `_Result`s of the runs of a `sweep_directory.SweepDirectory`."""
    results = []
    for run in runs:
        if run.value(metric) is not None:
            output_dir = sweep.output_dir(run)
            record = OutputDirectory(output_dir).record or {}
            inputs = {name: record[field]["fingerprint"][:8] for name, field in _INPUTS.items()
                      if record.get(field)}
            results.append(_Result(output_dir, record, list(run.settings),
                                   {**sweep.base, **run.settings, **inputs}, run.value(metric)))
    if not results:
        raise ValueError(f"{sweep.path} has no finished run with the metric {metric}. Continue the sweep, or "
                         "pass another --metric.")
    return results


def _is_fraction(name, results):
    """Returns whether a metric is a fraction from 0 to 1, according to the kinds of the trained heads."""
    patterns = {registry.find_target(result.record["task_type"]).fractions for result in results
                if result.record}
    return any(re.fullmatch(pattern, name) for pattern in patterns if pattern)


def _choose_metric(metric, names, directories):
    """Returns the name of the compared metric. `names` contains the names of the metrics of each sweep."""
    for name in (metric, f"eval_{metric}"):
        if all(name in of_sweep for of_sweep in names):
            return name
    problem = f"no metric {metric} in common" if metric else "different values of --metric"
    raise ValueError(f"{' and '.join(directories)} have {problem}. Pass one of their metrics as --metric: "
                     f"{' and '.join(', '.join(sorted(of_sweep)) for of_sweep in names)}.")


def _check_same_evaluation(name, results):
    """Checks that a run of one sweep and a run of the other one were evaluated on the same examples, and that
    a metric has the same meaning for both. If the runs have no tables of predictions, the fingerprints of the
    development data in run.json are compared.

    Args:
      name: name of the metric.
      results: the `_Result`s of the two runs.
    """
    outputs, records = [result.output_dir for result in results], [result.record for result in results]
    tables = list(map(paired_predictions.find_table, outputs))
    data = [(record.get("dev_data") or {}).get("fingerprint") for record in records]
    if all(tables):
        paired_predictions.check_pairs(*paired_predictions.read_tables(tables))
    elif all(data) and data[0] != data[1]:
        raise ValueError(f"{outputs[0]} and {outputs[1]} were evaluated on different development data, "
                         "according to the fingerprints in their run.json. Evaluate both sweeps on the same "
                         "data.")
    if all(record.get("labels") for record in records):
        reason = paired_predictions.explain_difference(name, [
            registry.find_target(record["task_type"]).with_labels(
                record["labels"], record["settings"].get).describe_metric(name) for record in records])
        if reason:
            raise ValueError(f"The sweeps cannot be compared by this metric: {reason}. Pass another "
                             "--metric.")


def _find_differences(sweeps):
    """Returns the settings in which two sweeps differ, as {setting: [value in the first sweep, value in the
    second sweep]}. All runs of the first sweep have the same value of such a setting, and all runs of the
    second sweep have a different value.

    Args:
      sweeps: for each sweep, the list of its `_Result`s.
    """
    differences = {}
    for name in sorted({name for result in sum(sweeps, []) for name in result.settings}):
        first, second = ({result.settings.get(name, _NOT_GIVEN) for result in results} for results in sweeps)
        if len(first) == len(second) == 1 and first != second:
            differences[name] = [*first, *second]
    return differences


def _refuse_other_settings(directories, groups, keys):
    """Raises a ValueError if two sweeps without pairs differ not only in the seed.

    Args:
      directories: the directories of the sweeps.
      groups: for each sweep, {tuple with the values of the settings: value of the metric}.
      keys: names of the settings in the keys of the groups.
    """
    first, second = ({tuple(text for name, text in zip(keys, key) if name != sweep_runs.SEED)
                      for key in group} for group in groups)
    if first != second:
        names = ", ".join(name for name in keys if name != sweep_runs.SEED)
        raise ValueError(f"{directories[0]} and {directories[1]} have no runs with the same values of "
                         f"{names}. Compare sweeps in which each setting has either a single value, or "
                         "values that both sweeps have.")
