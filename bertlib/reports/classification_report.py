"""Writes eval_report.html, the report of an evaluation of a text classification or regression."""

import heapq
import math

from bertlib.reports import report_page, report_sections
from bertlib.reports.report_page import name, number, paragraph, percent, section, table
from bertlib.runs import charts
from bertlib.system import terminal

_MAX_ERRORS = 50
# With more than `MAX_MATRIX` labels, a list of the `_MAX_CONFUSIONS` most frequent confusions replaces the
# confusion matrix.
MAX_MATRIX, _MAX_CONFUSIONS = 30, 50
# The names above the columns of a matrix are written horizontally, if they have at most this number of
# characters in total. Otherwise they are written vertically.
_MAX_HORIZONTAL = 60
_DENSE_MATRIX = 12  # a matrix with more labels than this has narrow columns


def write_report(path, facts, rows, labels, threshold=None):
    """Writes the report of an evaluation.

    Args:
      path: the file.
      facts: a `Facts`. Its metrics include "labels", the result of `classification_metrics.label_scores`.
      rows: iterable of `PredictedRow` with labels.
      labels: list of str, the labels in the order of the model's outputs; None for a regression.
      threshold: if a text can have several labels, a label counts as predicted if its probability is at least
        this number. Otherwise None.
    """
    rows = list(rows)
    parts = (_regression_parts(facts, rows) if labels is None
             else _classification_parts(facts, rows, labels, threshold))
    sentences = report_sections.compare(facts.metrics, facts.shown)
    report_page.write_page(path, facts.title, [
        *(paragraph(sentence, "summary") for sentence in sentences), *parts])


def _worst(rows, sizes):
    """Returns a list of (index, row) with at most `_MAX_ERRORS` errors, the worst first. `sizes` has the size
    of the error in each row, or None if the prediction is right."""
    errors = [(size, -index) for index, size in enumerate(sizes) if size is not None]
    return [(-index, rows[-index]) for _, index in heapq.nlargest(_MAX_ERRORS, errors)]


# --- Labels ----------------------------------------------------------------------------------------------


def _classification_parts(facts, rows, labels, threshold):
    """Returns the parts of a report for a task with labels, as a list of `Html`."""
    shown = _worst(rows, [None if row.is_right else _confidence(row, threshold) for row in rows])
    count, right = len(rows), sum(row.is_right for row in rows)
    wrong = count - right
    is_multilabel = threshold is not None
    heading = "Texts with wrong predictions" if is_multilabel else "Most confident errors"
    order = ("The predicted labels of these texts differ from the labels in the data. The most confident "
             "errors come first."
             if is_multilabel else
             "The errors with the highest probability of the wrong label come first.")
    share = percent(right / count if count else 0.0)
    summary = report_page.Html(f"{count:,} examples: {right:,} right ({share}), {wrong:,} wrong.")
    notes = [_f1_note(facts.metrics["labels"], labels, is_multilabel)]
    parts = [paragraph(summary, "summary"), report_sections.metrics_section(facts, *notes),
             _labels_section(facts.metrics["labels"], labels, threshold)]
    if not is_multilabel:
        parts.append(_confusion_section(facts.metrics["eval_confusion_matrix"], labels))
    if shown:
        more = f" Showing {len(shown)} of {wrong:,} errors." if wrong > len(shown) else ""
        parts.append(section(heading, paragraph(order + more), report_page.examples(
            shown, lambda item: _error(*item, facts.data_file, threshold), _MAX_ERRORS)))
    measure = "all labels right" if is_multilabel else "accuracy"
    return [*parts, report_sections.length_section("Accuracy by length", [
                (row.length, float(row.is_right)) for row in rows], "tokens", measure),
            report_sections.training_sections(facts)]


def _confidence(row, threshold):
    """Returns the model's confidence in a wrong answer. For a single label, this is the probability of the
    predicted label. For several labels, it is the highest confidence that `_wrong_decisions` returns."""
    if not row.probabilities:
        return 0.0
    if threshold is None:
        return row.probabilities.get(row.prediction, 0.0)
    return max((confidence for confidence, *_ in _wrong_decisions(row)), default=0.0)


def _wrong_decisions(row):
    """Returns the labels for which the model decided wrongly, the most confident decision first.

    Returns:
      list of (confidence, label, probability of the label, whether the label was predicted). The confidence
      is the probability of a predicted label, and 1 - probability for a label that was not predicted.
    """
    found = []
    for label in sorted({*row.label} ^ {*row.prediction}):
        probability, is_predicted = row.probabilities.get(label, 0.0), label in row.prediction
        found.append((probability if is_predicted else 1 - probability, label, probability, is_predicted))
    return sorted(found, key=lambda decision: -decision[0])


def _f1_note(scores, labels, is_multilabel):
    """Returns a paragraph that explains the metric eval_f1, or eval_f1_macro if a text can have several
    labels. With two labels, eval_f1 is the F1 of the second label. With more labels, it is the macro F1."""
    if len(labels) < 3 and not is_multilabel:
        return paragraph(report_page.Html(f"F1 is the F1 of the label {name(labels[-1])}."))
    missing = sum(not scores[label]["support"] for label in labels)
    text = f"The macro F1 is the mean of the F1 of all {len(labels)} labels."
    if missing:
        text += f" In this mean, the F1 of {terminal.counted(missing, 'label')} without examples is 0."
    return paragraph(text)


def _labels_section(scores, labels, threshold):
    """Returns the section with the metrics of each label; see `classification_metrics.label_scores`."""
    order = labels
    if len(labels) > report_page.MAX_TABLE_ROWS:
        order = sorted(labels, key=lambda label: -scores[label]["support"])
    columns = ("precision", "recall", "f1", "support")
    notes = [] if threshold is None else [paragraph(
        f"A label is predicted if its probability is at least {threshold:g} (--threshold).")]
    return section("Labels", *notes, table(
        ["label", "precision", "recall", "F1", "support"],
        [[name(label), *(scores[label][column] for column in columns)]
         for label in order if scores[label]["support"]]),
        paragraph("The support is the number of examples with the label. Labels without examples are left "
                  "out."))


def _confusion_section(matrix, labels):
    """Returns the section with the confusion matrix.

    Args:
      matrix: list of lists or array. `matrix[i][j]` is the number of examples with label i for which the
        model predicted label j.
      labels: list of str.
    """
    matrix = [list(map(int, row)) for row in matrix]
    if len(labels) <= MAX_MATRIX:
        return section("Confusion matrix", paragraph(
            "Each row is a label in the data, and each column is a predicted label. The color of a "
            "cell is stronger if the cell contains more of the examples in its row."),
            matrix_table(matrix, labels))
    pairs = heapq.nlargest(_MAX_CONFUSIONS, (
        (count, -row, -column) for row, counts in enumerate(matrix) for column, count in enumerate(counts)
        if count and row != column))
    return section("Most frequent confusions", table(
        ["label", "predicted", "examples", "share of the label"],
        [[name(labels[-row]), name(labels[-column]), count, percent(count / sum(matrix[-row]))]
         for count, row, column in pairs]),
        paragraph("The whole matrix is in eval_results.txt."))


def matrix_table(matrix, labels):
    """Returns the `Html` of a confusion matrix with colors; see `_confusion_section`."""
    names = [name(label) for label in labels]
    is_wide = sum(max(len(label), 4) for label in labels) > _MAX_HORIZONTAL
    css = ' class="long"' if is_wide else ' class="number"'
    lines = [f'<tr><th></th><th colspan="{len(names)}">predicted</th></tr>',
             f"<tr><th>label</th>{''.join(f'<th{css}>{each}</th>' for each in names)}</tr>"]
    body = []
    for row, counts in enumerate(matrix):
        total = sum(counts)
        cells = []
        for column, count in enumerate(counts):
            css = "hit" if row == column else "miss"
            style = f' class="{css}" style="--share: {0.7 * math.sqrt(count / total):.3f}"' if count else ""
            cells.append(f"<td{style}>{number(count)}</td>")
        body.append(f"<tr><th>{names[row]}</th>{''.join(cells)}</tr>\n")
    css = "matrix dense" if len(labels) > _DENSE_MATRIX else "matrix"
    return report_page.Html(f'<div class="scroll"><table class="{css}"><thead>{"".join(lines)}</thead>\n'
                            f'<tbody>{"".join(body)}</tbody></table></div>\n')


def _error(index, row, data_file, threshold):
    """Returns the `Html` of a wrong prediction: the labels, the texts, and the line of the file."""
    if threshold is None:
        probability = (row.probabilities or {}).get(row.prediction)
        heading = f"predicted {name(row.prediction)}{_probability(probability)}, label {name(row.label)}"
    else:
        problem = {True: "not in the data", False: "not predicted"}
        heading = "; ".join(f"{name(label)}{_probability(probability)} {problem[is_predicted]}"
                            for _, label, probability, is_predicted in _wrong_decisions(row)[:_MAX_ERRORS])
    return _article(heading, index, row, data_file)


def _probability(probability):
    return "" if probability is None else f" ({number(probability, 3)})"


def _article(heading, index, row, data_file):
    """Returns the `Html` of an example.

    Args:
      heading: `Html`.
      index: int, position of the row in the data, from 0.
      row: `PredictedRow`.
      data_file: str, or None.
    """
    place = f"example {index + 1:,}" if row.line is None else f"line {row.line}"
    texts = "".join(map(report_page.text_block, row.texts))
    return report_page.article("wrong", f"<h3>{heading}</h3>\n{texts}", data_file, place)


# --- Scores ----------------------------------------------------------------------------------------------


def _regression_parts(facts, rows):
    """Returns the parts of a report for a regression, as a list of `Html`."""
    points = [(float(row.label), float(row.prediction)) for row in rows]
    errors = [abs(prediction - label) for label, prediction in points]
    shown = _worst(rows, [error if math.isfinite(error) else math.inf for error in errors])
    drawn = [point for point in points if all(map(math.isfinite, point))]
    parts = [paragraph(f"{len(points):,} examples.", "summary"),
             report_sections.metrics_section(facts)]
    if drawn:
        svg, count = charts.scatter_chart("predicted score", drawn, "label")
        note = "" if count == len(points) else paragraph(
            f"The chart shows {count:,} of {len(points):,} examples, evenly spread over the whole list.")
        parts.append(section("Predictions and labels", note, report_page.chart(svg)))
    if shown:
        parts.append(section("Largest errors", report_page.examples(
            shown, lambda item: _article(f"predicted {number(item[1].prediction)}, label "
                                         f"{number(float(item[1].label))}", *item, facts.data_file),
            _MAX_ERRORS)))
    return [*parts, report_sections.length_section(
                "Mean absolute error by length", [(row.length, error) for row, error in zip(rows, errors)],
                "tokens", "mean absolute error", is_share=False),
            report_sections.training_sections(facts)]
