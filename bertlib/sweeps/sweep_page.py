"""Writes sweep.html, a page for a browser about the runs of a sweep."""

import numpy as np

from bertlib.output_directory import best_weights
from bertlib.reports import charts, report_page
from bertlib.reports.report_page import Html, paragraph, section, table
from bertlib.sweeps import run_rows

# Names of flags whose values are random seeds.
SEEDS = ("seed",)
_MAX_STRIPS = 40  # largest number of groups in a chart
_MAX_LABEL = 44  # largest number of characters in the label of a group


def write_page(path, ended, metric, planned, script, base):
    """Writes the page.

    Args:
      path: the file.
      ended: list of (`grid.Run`, `run_rows.Row`), the runs that have ended.
      metric: name of the metric.
      planned: number of all runs of the sweep.
      script: name of the training command.
      base: {flag: value as text}, the flags that all runs share.
    """
    rows = [row for _, row in ended]
    ranked = run_rows.by_rank(rows, metric)
    settings = list(dict.fromkeys(name for row in rows for name in row.settings))
    report_page.write_page(path, f"Sweep of {script}: {metric}", [
        _summary(rows, ranked, metric, planned),
        _settings_section(ranked, settings, metric),
        _seeds_section(ranked, settings, metric),
        _expected_section(ranked, metric),
        _problems_section(rows, settings),
        _table_section(ranked, settings, metric),
        section("Flags of all runs", table(None, [[f"--{name}", value] for name, value in base.items()]))
        if base else Html()])


def _summary(rows, ranked, metric, planned):
    counts = ", ".join(f"{sum(row.status == status for row in rows)} {status}"
                       for status in (run_rows.DONE, run_rows.DIVERGED, run_rows.FAILED))
    text = f"{len(rows)} of {planned} runs have ended: {counts}."
    if ranked:
        text += f" The best run has {metric} {ranked[0].value(metric):.6g}: {_describe(ranked[0].settings)}."
    order = "lower" if best_weights.is_lower_better(metric) else "higher"
    note = paragraph(f"A {order} {metric} is better. The best of many runs is chosen on the same development "
                     "set that gives its score, so this score is too optimistic for new data.")
    return Html(paragraph(text, "summary") + note)


def _describe(settings, without=()):
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name not in without)


def _settings_cell(text):
    """Returns the `Html` of a text that `_describe` returned. A browser may begin a new line after each
    setting. It may begin a new line within a setting only if the setting is longer than `_MAX_LABEL`. The
    text can be split at commas, because no value contains a comma."""
    *parts, last = text.split(", ")
    return Html(" ".join(
        f'<span class="unbroken">{report_page.escape(part)}</span>' if len(part) <= _MAX_LABEL else
        report_page.escape(part) for part in [*(f"{part}," for part in parts), last]))


def _strips(rows, label_of, metric):
    """Groups rows by the label that `label_of` returns. Returns a list of (label, values of the metric), one
    for each group. The groups are in the order of their first rows."""
    groups = {}
    for row in rows:
        groups.setdefault(label_of(row), []).append(row.value(metric))
    return list(groups.items())


def _strip_chart(title, strips, metric):
    """Returns the `Html` of a chart that shows the metric of each run. Each group of runs has one strip. The
    chart shows at most `_MAX_STRIPS` groups."""
    def short(label):
        return label if len(label) <= _MAX_LABEL else f"{label[:_MAX_LABEL - 1]}…"

    drawn = [(short(label), values) for label, values in strips[:_MAX_STRIPS]]
    rest = "" if len(drawn) == len(strips) else paragraph(
        f"The chart shows the first {len(drawn)} of {len(strips)} groups.")
    return Html(report_page.chart(charts.strip_chart(title, drawn, metric)) + rest)


def _settings_section(ranked, settings, metric):
    """Returns a section with a chart for each setting that has several values. A chart shows the metric for
    each value of the setting. Seeds have no chart here, see `_seeds_section`."""
    parts = []
    for name in settings:
        strips = _strips(ranked, lambda row, name=name: row.settings.get(name, "not in the grid"), metric)
        if len(strips) > 1 and name not in SEEDS:
            parts.append(_strip_chart(name, sorted(strips, key=lambda strip: _order(strip[0])), metric))
    if not parts:
        return Html()
    note = paragraph("Each point is a run. A short vertical line is the mean of a group. The runs of a group "
                     "may differ in all other settings.")
    return section("Metric against each setting", note, *parts)


def _order(text):
    """Returns a sort key for a text. Texts that are numbers come first, sorted by their value."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _seeds_section(ranked, settings, metric):
    """Returns the section with a chart and a table. They compare runs that differ only in their seed."""
    if not any(name in SEEDS for name in settings):
        return Html()
    strips = _strips(ranked, lambda row: _describe(row.settings, SEEDS) or "all runs", metric)
    if not any(len(values) > 1 for _, values in strips):
        return Html()
    ascending = best_weights.is_lower_better(metric)
    strips.sort(key=lambda strip: np.mean(strip[1]) * (1 if ascending else -1))
    rows = [[_settings_cell(label), len(values), float(np.mean(values)),
             float(np.std(values, ddof=1)) if len(values) > 1 else "", min(values), max(values)]
            for label, values in strips]
    return section("Distribution over seeds", paragraph(
        "The runs in one row differ only in their seed. The row with the best mean comes first."),
        _strip_chart("Settings without the seed", strips, metric),
        table(["settings", "runs", "mean", "standard deviation", "lowest", "highest"], rows))


def _expected_section(ranked, metric):
    """Returns a section of the page. For each number k, it shows the best result that can be expected from k
    runs. The section is empty if there are fewer than two results."""
    if len(ranked) < 2:
        return Html()
    expected = run_rows.expected_best([row.value(metric) for row in ranked],
                                      best_weights.is_lower_better(metric))
    shown = [k for k in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500) if k < len(expected)] + [len(expected)]
    points = list(enumerate(expected, 1))
    return section(
        "Expected best of k runs",
        paragraph("If you draw k runs from the finished runs of this sweep at random, with replacement, the "
                  "best of them has this value on average (Dodge et al. 2019, arXiv:1909.03004; Dodge et al. "
                  "2020, arXiv:2002.06305). Diverged and failed runs are left out."),
        report_page.chart(charts.curve_chart(f"Expected best {metric}", points, "k, number of runs")),
        table(["k", f"expected best {metric}"], [[str(k), expected[k - 1]] for k in shown]))


def _problems_section(rows, settings):
    """Returns the table of the runs that diverged, that failed or that have a warning."""
    found = [row for row in rows if row.message]
    note = paragraph("A run diverged if its loss or its gradients were not finite, or if its metric is not a "
                     "finite number. A run failed if its command ended with an error or was killed. A run "
                     "is degenerate if it predicts one class for all examples, or if its accuracy is lower "
                     "than the share of the most frequent class. A degenerate run is finished, and it has a "
                     "rank.")
    heading = "Diverged, failed and degenerate runs"
    if not found:
        return section(heading, note, paragraph("There are no such runs.", "summary"))
    return section(heading, note, table(
        ["run", "status", "message"],
        [[_settings_cell(_describe({name: row.settings[name] for name in settings if name in row.settings})),
          row.status,
          row.message[:report_page.TEXT_CHARACTERS]] for row in found]))


def _table_section(ranked, settings, metric):
    """Returns the table of the finished runs."""
    if not ranked:
        return Html()
    ranks = run_rows.ranks(ranked, metric)
    return section("Runs by rank", table(
        ["rank", *settings, metric, "seconds"],
        [[str(ranks[row.value(metric)]), *(row.settings.get(name, "") for name in settings),
          row.value(metric), report_page.number(row.seconds, 1)] for row in ranked]))
