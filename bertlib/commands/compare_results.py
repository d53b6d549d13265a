"""Tests whether the results of two trainings differ significantly.

    python compare_results.py output/a output/b

Each argument is a file eval_predictions.csv or eval_predictions.jsonl, or a directory with such a file. If a
directory lacks it, the test_predictions of both directories are compared. Both models must have been
evaluated on the same examples. If both arguments are directories of sweeps, the
command compares the two sweeps. A run of the first sweep and a run of the second sweep form a pair if they
differ only in the compared settings. For example, both runs have the same seed. This command compares two
settings of one sweep:

    python compare_results.py output/sweep --setting=learning_rate=5e-5,2e-5
"""

import os

from bertlib.commands import common_flags

from bertlib.reports import paired_predictions, paired_sweeps, paired_tests, sweep_directory
from bertlib.runs import entries
from bertlib.system import files

TAKES_PATHS = True


ENTRIES = entries.section("Comparison", None, [
    entries.Text("metric", None,
                 "Compare only this metric, such as f1. By default, the command compares all metrics of two "
                 "tables of predictions, or only the metric that ranked the runs of two sweeps."),
    entries.Text("setting", None,
                 "With one directory of a sweep: a setting of its grid and the two values to compare, such "
                 "as learning_rate=5e-5,2e-5."),
    entries.Integer("resamples", 9999, "Number of bootstrap resamples.", least=100),
    entries.Integer("seed", 0, "Seed of the bootstrap. The same seed gives the same interval.", least=0),
    entries.Choice("output_format", "text", ["text", "json"], "Format of the answer."),
])


def find_tables(paths):
    """Finds out whether two arguments are sweeps or tables of predictions.

    Returns:
      ("sweeps", directories of the two sweeps) or ("predictions", paths of the two tables).

    Raises:
      ValueError, OSError: an argument contains nothing that can be compared.
    """
    if len(paths) != 2:
        raise ValueError("Name two directories or tables. Example: python compare_results.py output/a "
                         "output/b")
    for path in paths:
        if not files.exists(path):
            raise FileNotFoundError(f"{path}: there is no such file or directory.")
    if files.file_identity(paths[0]) == files.file_identity(paths[1]):
        raise ValueError(f"{paths[0]} and {paths[1]} are the same path. Name two different trainings. To "
                         "compare two values of a setting in one sweep, name it once and pass --setting.")
    if all(files.exists(os.path.join(path, sweep_directory.RECORD)) for path in paths):
        return "sweeps", paths
    candidates = [[paired_predictions.find_table(path, name) for path in paths]
                  for name in paired_predictions.TABLES]
    for tables in candidates:
        if None not in tables:
            return "predictions", tables
    raise ValueError(f"{paths[candidates[0].index(None)]} contains no {paired_predictions.TABLE}.csv and no "
                     f"{paired_predictions.TABLE}.jsonl, and the arguments are not two directories with "
                     f"{sweep_directory.RECORD} or with {paired_predictions.TABLES[1]}. Evaluate the model "
                     "with --do_eval=true, or name a table.")


def to_text(result, names):
    """Returns the result of a comparison as a list of lines.

    Args:
      result: dict, the result of `paired_predictions.compare` or `paired_sweeps.compare`.
      names: two str, the names of the compared tables or sweeps.
    """
    lines = [paired_tests.to_words(entry, names) for entry in result["metrics"]]
    if result["kind"] == "predictions":
        test = result["mcnemar"]
        lines += [f"{name}: not compared, because {reason}" for name, reason in result["refused"].items()]
        lines.append(f"n = {result['n']} {result['unit']}; paired bootstrap of {result['resamples']} samples")
        if paired_predictions.TABLES[1] in result["tables"][0]:
            lines.append(f"compared test tables: {' and '.join(result['tables'])}")
        if test:
            lines.append(f"{test['discordant']} discordant {result['unit']}: {test['only_first']} are right "
                         f"only in {names[0]}, {test['only_second']} only in {names[1]}; McNemar's exact "
                         f"test: p {_p(test['p_value'])}")
        return lines
    test, runs, used_runs = result["test"], result["runs"], result["used_runs"]
    for name, values in result["compared"].items():
        lines.append(f"compared setting: {name} = {values[0]} and {values[1]}")
    if result["is_paired"]:
        same = ", ".join(result["paired_by"]) or "settings"
        lines.append(f"n = {test['n']} pairs of runs with the same {same}; paired t-test: p "
                     f"{_p(test['p_value'])}; Wilcoxon's test: p {_p(test['p_value_wilcoxon'])}")
    else:
        lines.append(f"n = {used_runs[0]} and {used_runs[1]} runs without pairs, because the sweeps have no "
                     f"seed in common; Welch's t-test: p {_p(test['p_value'])}")
    if result["pooled"]:
        lines.append("These runs also differ in other settings than the seed. Runs with the same seed may "
                     "have similar results, so the interval and p may be too small. The difference for each "
                     "setting:")
        lines += [f"  {text}: {difference:.4g}" for text, difference in result["pooled"].items()]
    for name, total, count, unfinished in zip(names, runs, used_runs, result["open_runs"]):
        if unfinished:
            lines.append(f"{name} is unfinished: {unfinished} of {total + unfinished} runs have not ended. "
                         "Compare the sweeps again when all runs have ended.")
        if total > count:
            lines.append(f"{name}: {total - count} of {total} runs are left out, because they failed or have "
                         "no partner")
    return lines


def _p(value):
    if value is None:
        return "is not defined, because all differences are equal"
    return "< 0.0001" if value < 0.0001 else f"= {value:.3g}"


def main(argv):
    """Compares the two arguments and prints the result."""
    settings, names = common_flags.read_settings(), argv[1:]
    if settings.setting is None:
        kind, paths = find_tables(names)
    elif len(names) == 1 and files.exists(os.path.join(names[0], sweep_directory.RECORD)):
        kind, paths = "sweeps", names * 2
    else:
        raise ValueError("--setting compares two values of a setting in one sweep. Name the directory of the "
                         "sweep, and no other directory.")
    paired_tests.load_scipy()  # if SciPy is missing, the command fails here, before the work
    if kind == "sweeps":
        result = paired_sweeps.compare(paths, settings.metric, settings.setting)
    else:
        result = paired_predictions.compare(paths, settings.metric, settings.resamples, settings.seed)
    if settings.setting:
        setting, _, values = settings.setting.partition("=")
        names = [f"{setting}={value}" for value in values.split(",")]
    lines = to_text(result, names)
    if settings.output_format == "json":
        print(files.json_text({**result, "conclusion": lines}, indent=1))
    else:
        print("\n".join(lines))
