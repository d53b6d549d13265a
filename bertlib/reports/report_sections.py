"""Writes a report. Makes the parts that all tasks share: scores, accuracy by length, curves and settings."""

import itertools
import json
import math
from typing import Any, NamedTuple

from bertlib.reports import charts, intervals, report_page
from bertlib.reports.report_page import Html, paragraph, percent

_MAX_BARS = 8
# A report shows at most `_MAX_SETTINGS` settings, and at most `_VALUE_CHARACTERS` characters of each value.
_VALUE_CHARACTERS, _MAX_SETTINGS = 200, 400
_ERROR = "eval_mae"  # the mean absolute error
# The section "Metrics" leaves these metrics out, because other parts of a report show them. "loss" is
# eval_loss under a second name.
_HIDDEN_METRICS = ("eval_confusion_matrix", "labels", "baselines", "intervals", "loss")


class Facts(NamedTuple):
    """Describes an evaluation. The reports of all tasks show these facts.

    Attributes:
      title: str, the task and the data.
      metrics: {name: number}, the metrics of the evaluation. A few metrics are not numbers, see
        `classification_metrics.label_scores`.
      data_file: str, name of the evaluated file; None if it is unknown.
      curve: {name of a metric: list of (step, value)}, the evaluations during the training. Each value is
        divided by the highest possible value of the metric, so a perfect model has the value 1.
      losses: list of (step, loss) of the training.
      record: the content of run.json as a dict; None if there is no record.
      metric_titles: {name of a metric: its name for the reader}, the official metrics.
      warnings: list of str, the warnings in the log of the run.
    """

    title: str
    metrics: dict[str, Any]
    data_file: str | None = None
    curve: dict[str, list] = {}
    losses: list = []
    record: dict[str, Any] | None = None
    metric_titles: dict[str, str] = {}
    warnings: list = []


def write_sections(path, facts, total, noun, counts, *parts, notes=(), functions=None):
    """Writes a report. It begins with the official metrics and ends with the training.

    Args:
      path: the file.
      facts: a `Facts`.
      total: number of examples.
      noun: str, the word for the examples, as a plural.
      counts: {word: number of examples}, such as {"right": 5, "wrong": 3}.
      *parts: `Html`, shown between the section "Metrics" and the training: the metrics of labels, the errors,
        and the accuracy by length, in this order.
      notes: list of `Html`, shown below the table of metrics.
      functions: {official metric: function} for `intervals.of_metrics`; None if `facts.metrics` contains the
        intervals.
    """
    metrics = {"intervals": intervals.of_metrics(functions or {}, total), **facts.metrics}
    shares = ", ".join(f"{count:,} {word} ({percent(count / total if total else 0.0)})"
                       for word, count in counts.items())
    report_page.write_page(path, facts.title, [
        *(paragraph(sentence, "summary") for sentence in compare_in_words(metrics, facts.metric_titles)),
        paragraph(Html(f"{total:,} {noun}{': ' if shares else ''}{shares}."), "summary"),
        _metrics_section(facts, *notes),
        *([report_page.section("Warnings of this run", *map(paragraph, facts.warnings))] if facts.warnings
          else ()),
        *parts, _training_sections(facts)])


def errors_section(heading, order, errors, render, most=50):
    """Returns the `Html` of the errors, or of all examples, the worst first. It is empty if there are none.

    Args:
      heading: str.
      order: a sentence about the order.
      errors: sorted list.
      render, most: see `report_page.examples`.
    """
    return report_page.section(heading, paragraph(order), report_page.examples(
        errors, render, most)) if errors else Html()


def compare_in_words(metrics, metric_titles):
    """Returns a list with a sentence for each official metric: its value, its interval, and the values of
    baselines. A second sentence says if a baseline is as good. For a regression, the last sentence is about
    the mean absolute error.

    Args:
      metrics: {name: value}. It may contain "baselines" and "intervals", see `baselines`.
      metric_titles: {metric: its name}, the official metrics. A higher value is better.
    """
    sentences, constant = [], "mean_score"
    if constant in metrics.get("baselines", {}):
        metric_titles = {**metric_titles, _ERROR: "mean absolute error"}
    for metric in filter(metrics.__contains__, metric_titles):
        bounds = metrics.get("intervals", {}).get(metric)
        interval = f" (95 % interval {bounds[0]:.3f} to {bounds[1]:.3f})" if bounds else ""
        # The mean score is a constant, so it has an error, but no correlation.
        baselines = {baseline.replace("_", " "): values[metric]
                     for baseline, values in metrics.get("baselines", {}).items()
                     if metric == _ERROR or baseline != constant}
        of_the = "error of the " if metric == _ERROR else ""
        comparisons = "".join(f"; {of_the}{baseline} {value:.3f}" for baseline, value in baselines.items())
        sign = -1 if metric == _ERROR else 1
        best = [f"the {baseline}" for baseline, value in baselines.items()
                if sign * value >= sign * metrics[metric]]
        warning = f" The model is not better than {' and '.join(best)}." if best else ""
        sentences.append(f"{metric_titles[metric]} {metrics[metric]:.3f}{interval}{comparisons}.{warning}")
    return sentences


def _metrics_section(facts, *notes):
    """Returns the `Html` of the metrics that are numbers. The `Html` is empty if no metric is a number.

    Args:
      facts: a `Facts`.
      *notes: `Html`, shown below the metrics.
    """
    rows = [[report_page.name(facts.metric_titles.get(name, name.removeprefix("eval_"))),
             value.item() if hasattr(value, "item") else value]
            for name, value in sorted(facts.metrics.items()) if name not in _HIDDEN_METRICS]
    return report_page.section("Metrics", report_page.table(None, rows), *notes) if rows else (
        Html())


def length_section(heading, values, unit, measure, is_share=True, noun="examples"):
    """Returns the `Html` of a table that shows how a value, such as the accuracy, depends on the length of
    the examples.

    Each row of the table describes a group of examples with similar lengths, and shows their mean value as a
    number and as a bar. All groups have about the same number of examples.

    Args:
      heading: str.
      values: list of (length, value), one for each example. Values are not negative. Examples whose length
        is None are left out.
      unit: str, the unit of the lengths, such as "tokens".
      measure: str, the name of the mean value.
      is_share: whether the values are fractions from 0 to 1, which the table shows as percentages.
      noun: str, the word for the examples, as a plural, such as "sentences".
    """
    values = sorted(pair for pair in values if pair[0] is not None)
    if not values:
        return ""
    groups = _groups_of_lengths(values)
    means = [sum(value for _, value in group) / len(group) for group in groups]
    largest = 1 if is_share else max(filter(math.isfinite, means), default=0) or 1
    rows = []
    for group, mean in zip(groups, means):
        first, last = group[0][0], group[-1][0]
        rows.append([str(first) if first == last else f"{first} to {last}",
                     percent(mean) if is_share else mean, len(group),
                     report_page.bar(mean / largest if math.isfinite(mean) else 0)])
    return report_page.section(heading, report_page.table([unit, measure, noun, ""], rows))


def _groups_of_lengths(values):
    """Cuts a sorted list of (length, value) into at most `_MAX_BARS` groups of about the same size. Examples
    of the same length are in the same group."""
    ends = (len(values) * number // _MAX_BARS for number in range(1, _MAX_BARS + 1))
    longest = sorted({values[end - 1][0] for end in ends if end})  # of each group
    return [[value for value in values if shorter < value[0] <= length]
            for shorter, length in zip([-1, *longest], longest)]


def _training_sections(facts):
    """Returns the `Html` of the parts about the training: the learning curve and the settings."""
    losses = [(step, loss) for step, loss in facts.losses if math.isfinite(loss)]
    settings = None if facts.record is None else [
        [report_page.name(name), Html(f"<code>{report_page.escape(text)}</code>")]
        for name, text in itertools.islice(_flatten("", facts.record), _MAX_SETTINGS)]
    return report_page.render("training.html", {
        "evaluations": any(facts.curve.values()) and charts.line_chart("Evaluations during the training",
                                                                       facts.curve),
        "losses": losses and charts.loss_chart("Training loss", losses), "settings": settings})


def _flatten(prefix, values):
    """Yields (name, text) for each value of nested dicts. Example of a name: settings.learning_rate."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flatten(f"{prefix}{name}.", value)
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield prefix + name, text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"
