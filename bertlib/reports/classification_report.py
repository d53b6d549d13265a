"""Writes eval_report.html, the report of an evaluation of a text classification or regression."""

import heapq
import math

from bertlib.reports import charts, report_page, report_sections
from bertlib.reports.report_page import name, number, paragraph, percent, section, table
from bertlib.system import terminal

_MAX_DECISIONS = 50  # wrong labels that the heading of an error names
_MAX_OTHERS = 3  # columns of an example, other than its texts and its label
# With more than `_MAX_MATRIX` labels, a list of the `_MAX_CONFUSIONS` most frequent confusions replaces the
# confusion matrix.
_MAX_MATRIX, _MAX_CONFUSIONS = 30, 50
# The names above the columns of a matrix are written horizontally, if they have at most this number of
# characters in total. Otherwise they are written vertically.
_MAX_HORIZONTAL = 60
_CONFIDENCES = (0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # rows of the table of confidences
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
    if labels is None:
        _report_scores(path, facts, rows)
    else:
        _report_labels(path, facts, rows, labels, threshold)


# --- Labels ----------------------------------------------------------------------------------------------


def _report_labels(path, facts, rows, labels, threshold):
    """Writes the report of a task with labels; see `write_report`."""
    wrong_rows = sorted(((index, row) for index, row in enumerate(rows) if not row.is_right),
                        key=lambda item: -_confidence(item[1], threshold))
    is_multilabel = threshold is not None
    scores, parts, notes = facts.metrics["labels"], [], []
    if is_multilabel:
        notes.append(paragraph(
            f"A label is predicted if its probability is at least {threshold:g} (--threshold)."))
        heading, measure = "Texts with wrong predictions", "all labels right"
        order = ("The predicted labels of these texts differ from the labels in the data. The most confident "
                 "errors come first.")
    else:
        parts.append(confusion_section(facts.metrics["eval_confusion_matrix"], labels, "label",
                                       paragraph("The whole matrix is in eval_results.json.")))
        parts.append(_confidence_section(rows))
        heading, measure = "Most confident errors", "accuracy"
        order = "The errors with the highest probability of the wrong label come first."
    report_sections.write_sections(
        path, facts, len(rows), "examples", {"right": len(rows) - len(wrong_rows), "wrong": len(wrong_rows)},
        labels_section("Labels", {label: scores[label] for label in labels}, "label", *notes), *parts,
        report_sections.errors_section(heading, order, wrong_rows,
                                       lambda item: _error(*item, facts, threshold)),
        report_sections.length_section("Accuracy by length", [
            (row.length, float(row.is_right)) for row in rows], "tokens", measure),
        notes=[_f1_note(scores, labels, is_multilabel)])


def _confidence(row, threshold):
    """Returns the model's confidence in an answer. For a single label, this is the probability of the
    predicted label. For several labels, it is the highest confidence that `_wrong_decisions` returns."""
    if not row.probabilities:
        return 0.0
    if threshold is None:
        return row.probabilities.get(row.prediction, 0.0)
    return max((confidence for confidence, *_ in _wrong_decisions(row)), default=0.0)


def _confidence_section(rows):
    """Returns the section that shows how many of the `PredictedRow`s have a high probability, and the
    accuracy of these predictions."""
    groups = [(least, [row.is_right for row in rows if _confidence(row, None) >= least])
              for least in _CONFIDENCES]
    header = ["confidence at least", "share of the examples", "accuracy"]
    return section("Accuracy by confidence", table(header, [
        [f"{least:g}", percent(len(group) / len(rows)), percent(sum(group) / len(group))]
        for least, group in groups if group]), paragraph(
            "The confidence is the probability of the predicted label. If a program accepts only "
            "predictions above a limit, and people decide about the others, choose the limit here."))


def _wrong_decisions(row):
    """Returns the labels for which the model decided wrongly, the most confident decision first.

    Returns:
      list of (confidence, label, probability of the label, whether the label was predicted). The confidence
      is the probability of a predicted label, and 1 - probability for a label that was not predicted.
    """
    decisions = []
    for label in sorted({*row.label} ^ {*row.prediction}):
        probability, is_predicted = row.probabilities.get(label, 0.0), label in row.prediction
        decisions.append((probability if is_predicted else 1 - probability, label, probability, is_predicted))
    return sorted(decisions, key=lambda decision: -decision[0])


def _f1_note(scores, labels, is_multilabel):
    """Returns a paragraph that explains the metric eval_f1, or eval_f1_macro if a text can have several
    labels. With two labels, eval_f1 is the F1 of the second label. With more labels, it is the macro F1."""
    if len(labels) < 3 and not is_multilabel:
        return paragraph(report_page.Html(f"F1 is the F1 of the label {name(labels[-1])}."))
    num_absent = sum(not scores[label]["support"] for label in labels)
    text = f"The macro F1 is the mean of the F1 of all {len(labels)} labels."
    if num_absent:
        text += f" In this mean, the F1 of {terminal.counted(num_absent, 'label')} without examples is 0."
    return paragraph(text)


def labels_section(heading, scores, noun, *notes):
    """Returns the section with the metrics of each label that is in the data.

    Args:
      heading: str.
      scores: {label: {"precision", "recall", "f1", "support", and further columns}}, see
        `classification_metrics.label_scores`.
      noun: str, the word for a label.
      *notes: `Html`, shown below the table.
    """
    rows = [(label, columns) for label, columns in scores.items() if columns["support"]]
    if len(rows) > report_page.MAX_TABLE_ROWS:
        rows.sort(key=lambda pair: -pair[1]["support"])
    names = [column.replace("f1", "F1") for column in next(iter(scores.values()), ())]
    return section(heading, table([noun, *names], [[name(label), *columns.values()]
                                                   for label, columns in rows]),
                   paragraph(f"The support is how often the {noun} occurs in the data. Each {noun} that does "
                             "not occur is left out."), *notes)


def confusion_section(matrix, labels, noun, *notes):
    """Returns the section with the confusion matrix of the labels that occur or are predicted. With many of
    these labels, it is a list of confusions.

    Args:
      matrix: list of lists or array. `matrix[i][j]` is the number of examples with label i for which the
        model predicted label j.
      labels: list of str.
      noun: str, the word for a label.
      *notes: `Html`, shown at the end.
    """
    used = [index for index, row in enumerate(matrix) if sum(row) or any(other[index] for other in matrix)]
    matrix, labels = [[int(matrix[row][column]) for column in used] for row in used], [
        labels[index] for index in used]
    if len(labels) <= _MAX_MATRIX:
        return section("Confusion matrix", paragraph(
            f"Each row is a {noun} in the data, and each column is a predicted {noun}. The color of a "
            f"cell is stronger if the cell contains more of the examples in its row. Each {noun} that does "
            "not occur and is not predicted is left out."),
            _matrix_table(matrix, labels), *notes)
    pairs = heapq.nlargest(_MAX_CONFUSIONS, (
        (count, -row, -column) for row, counts in enumerate(matrix) for column, count in enumerate(counts)
        if count and row != column))
    return section("Most frequent confusions", table(
        [noun, "predicted", "examples", f"share of the {noun}"],
        [[name(labels[-row]), name(labels[-column]), count, percent(count / sum(matrix[-row]))]
         for count, row, column in pairs]), *notes)


def _matrix_table(matrix, labels):
    """Returns the `Html` of a confusion matrix with colors; see `confusion_section`."""
    return report_page.render("matrix.html", {
        "labels": labels, "matrix": matrix, "name": name, "is_dense": len(labels) > _DENSE_MATRIX,
        "is_wide": sum(max(len(label), 4) for label in labels) > _MAX_HORIZONTAL})


def _error(index, row, facts, threshold):
    """Returns the `Html` of a wrong prediction: the labels, the texts, and the line of the file."""
    if threshold is None:
        probability = (row.probabilities or {}).get(row.prediction)
        heading = f"predicted {name(row.prediction)}{_probability(probability)}, label {name(row.label)}"
    else:
        problem = {True: "not in the data", False: "not predicted"}
        heading = "; ".join(f"{name(label)}{_probability(probability)} {problem[is_predicted]}"
                            for _, label, probability, is_predicted in _wrong_decisions(row)[:_MAX_DECISIONS])
    return _article(heading, index, row, facts)


def _probability(probability):
    return "" if probability is None else f" ({number(probability, 3)})"


def _article(heading, index, row, facts):
    """Returns the `Html` of an example. It also shows a few other columns of the input, such as an id.

    Args:
      heading: `Html`.
      index: int, position of the row in the data, from 0.
      row: `PredictedRow`.
      facts: a `Facts`.
    """
    place = f"example {index + 1:,}" if row.line is None else f"line {row.line}"
    flags = (facts.record or {}).get("settings", {})
    model_columns = ",".join(flags.get(flag) or "" for flag in ("text_column", "label_column")).split(",")
    remarks = [f"{column:.40}: {value:.80}" for column, value in row.fields.items()
               if value and column not in model_columns and value not in row.texts]
    place = "; ".join([place, *remarks[:_MAX_OTHERS]])
    texts = "".join(map(report_page.text_block, row.texts))
    return report_page.article("wrong", f"<h3>{heading}</h3>\n{texts}", facts.data_file, place)


# --- Scores ----------------------------------------------------------------------------------------------


def _report_scores(path, facts, rows):
    """Writes the report of a regression."""
    points = [(float(row.label), float(row.prediction)) for row in rows]
    errors = [abs(prediction - label) for label, prediction in points]
    finite_points = [point for point in points if all(map(math.isfinite, point))]
    parts = []
    if finite_points:
        svg, count = charts.scatter_chart("predicted score", finite_points, "label")
        note = "" if count == len(points) else paragraph(
            f"The chart shows {count:,} of {len(points):,} examples, evenly spread over the whole list.")
        parts.append(section("Predictions and labels", note, report_page.chart(svg)))
    # An error that is not a number comes first.
    worst = sorted(range(len(rows)), key=lambda index: (math.isfinite(errors[index]), -errors[index]))
    report_sections.write_sections(
        path, facts, len(rows), "examples", {}, *parts,
        report_sections.errors_section(
            "Largest errors", "The largest errors come first.", worst, lambda index: _article(
                f"predicted {number(rows[index].prediction)}, label {number(float(rows[index].label))}",
                index, rows[index], facts)),
        report_sections.length_section(
            "Mean absolute error by length", [(row.length, error) for row, error in zip(rows, errors)],
            "tokens", "mean absolute error", is_share=False))
