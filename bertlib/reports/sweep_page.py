"""Writes sweep.html, a page for a browser about the runs of a sweep."""

import numpy as np

from bertlib.reports import charts, report_page, sweep_runs
from bertlib.runs import best_weights
from bertlib.system import files

_MAX_STRIPS = 40  # largest number of groups in a chart
# The page shows the expected best of these numbers of runs, and of all runs.
_SHOWN_COUNTS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def write_page(path, runs, metric, num_planned, script, base, num_dev_sets=1):
    """Writes the page.

    Args:
      path: the file.
      runs: list of `sweep_runs.Run`, the runs that have ended.
      metric: name of the metric.
      num_planned: number of all runs of the sweep.
      script: name of the training command.
      base: {flag: value as text}, the flags that all runs share.
      num_dev_sets: number of different development sets that the runs evaluated.
    """
    ranking = sweep_runs.by_rank(runs, metric)
    settings = list(dict.fromkeys(name for run in runs for name in run.settings))
    ranks = sweep_runs.ranks(ranking, metric)
    is_lower_better = best_weights.is_lower_better(metric)
    values = [run.value(metric) for run in ranking]
    expected_best = list(enumerate(sweep_runs.expected_best(values, is_lower_better), 1))
    files.write_text(path, report_page.render("sweep.html", {
        "title": f"Sweep of {script}: {metric}", "charts": charts, "most_groups": _MAX_STRIPS,
        "runs": runs, "planned": num_planned, "metric": metric, "is_lower_better": is_lower_better,
        "best": ranking and f"{ranking[0].value(metric):.6g}: " + "; also ".join(
            _describe(run.settings) for run in ranking if ranks[run.value(metric)] == 1),
        "statuses": (sweep_runs.DONE, sweep_runs.DIVERGED, sweep_runs.FAILED),
        "by_setting": _by_setting(ranking, settings, metric),
        "by_seed": _by_seed(ranking, settings, metric, is_lower_better),
        "expected": expected_best,
        "shown": [[str(k), value] for k, value in expected_best if k in (*_SHOWN_COUNTS, len(expected_best))],
        "problems": [[_describe(run.settings), run.status, run.message[:report_page.TEXT_CHARACTERS]]
                     for run in runs if run.message],
        "settings": settings, "num_dev_sets": num_dev_sets,
        "ranking": [[str(ranks[run.value(metric)]),
                     *(run.settings.get(name, "") for name in settings),
                     run.value(metric), report_page.number(run.seconds, 1)] for run in ranking],
        "base": [[f"--{name}", value] for name, value in base.items() if name not in settings]}))


def _describe(settings, has_seed=True):
    """Returns settings as text, with or without the seed. A browser may begin a new line after each setting,
    but not within one."""
    return ", ".join(f"{name}\u00a0{value}" for name, value in settings.items()
                     if has_seed or name != sweep_runs.SEED)


def _strips(runs, label_of, metric):
    """Groups runs by the label that `label_of` returns. Returns a list of (label, values of the metric), one
    for each group. The groups are in the order of their first runs."""
    groups = {}
    for run in runs:
        groups.setdefault(label_of(run), []).append(run.value(metric))
    return list(groups.items())


def _by_setting(ranking, settings, metric):
    """Returns [(setting, strips)] for each setting that has several values, except the seed. A strip has the
    metrics of the runs with one value of the setting."""
    groups = []
    for name in settings:
        strips = _strips(ranking, lambda run, name=name: run.settings.get(name, "not in the grid"), metric)
        if len(strips) > 1 and name != sweep_runs.SEED:
            groups.append((name, sorted(strips, key=lambda strip: _order(strip[0]))))
    return groups


def _order(text):
    """Returns a sort key for a text. Texts that are numbers come first, sorted by their value."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _by_seed(ranking, settings, metric, is_lower_better):
    """Returns (strips, rows of the table) of the runs that differ only in their seed, the best mean first.
    The lists are empty if no two runs differ only in their seed."""
    strips = _strips(ranking, lambda run: _describe(run.settings, has_seed=False) or "all runs", metric)
    if sweep_runs.SEED not in settings or all(len(values) == 1 for _, values in strips):
        return [], []
    strips.sort(key=lambda strip: np.mean(strip[1]) * (1 if is_lower_better else -1))
    return strips, [[label, len(values), float(np.mean(values)),
                     float(np.std(values, ddof=1)) if len(values) > 1 else "", min(values), max(values)]
                    for label, values in strips]
