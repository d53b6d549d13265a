"""Writes eval_report.html, the report of an evaluation by run_swag.py."""

import collections

import numpy as np

from bertlib.reports import report_page, report_sections
from bertlib.reports.report_page import Html, escape

_MAX_ERRORS = 500


def write_report(path, facts, rows):
    """Writes an HTML file with the metrics, the counts of `_endings_section`, and the wrong answers. The most
    confident wrong answers come first.

    Args:
      path: the file.
      facts: a `report_sections.Facts`.
      rows: list of `PredictedRow` with labels. The texts of a row are the two sentences and the endings.
    """
    is_right = np.array([row.is_right for row in rows], float)
    wrong_rows = sorted((row for row in rows if not row.is_right),
                        key=lambda row: -row.probabilities[row.prediction])
    report_sections.write_sections(
        path, facts, len(rows), "questions", {"right": len(rows) - len(wrong_rows), "wrong": len(wrong_rows)},
        _endings_section(rows),
        report_sections.errors_section(
            "Wrong answers", "The most confident wrong answers come first.", wrong_rows,
            lambda row: _article(row, facts.data_file), _MAX_ERRORS),
        report_sections.length_section(
            "Accuracy by length of the longest sequence", [(row.length, float(row.is_right)) for row in rows],
            "tokens", "accuracy", noun="questions"),
        functions={"eval_accuracy": lambda indices: is_right[indices].mean()})


def _endings_section(rows):
    """Returns the section with two counts for each position in the list of endings: how often the ending at
    this position is right, and how often the model chose the ending at this position."""
    labels, predictions = (collections.Counter(getattr(row, name) for row in rows)
                           for name in ("label", "prediction"))
    names = list(rows[0].probabilities) if rows else []
    return report_page.section("Endings", report_page.table(
        ["ending", "right", "chosen"], [[name, labels[name], predictions[name]] for name in names]))


def _article(row, data_file):
    """Returns the `Html` of a wrong answer: the sentences, and the endings with their probabilities."""
    context = report_page.text_block(f"{row.texts[0]} {row.texts[1]} …")
    marks = {row.label: "gold", row.prediction: "predicted"}
    endings = []
    for (name, probability), ending in zip(row.probabilities.items(), row.texts[2:]):
        text = escape(report_page.shorten(ending, report_page.TEXT_CHARACTERS))
        if name in marks:
            text = f'<mark class="{marks[name]}">{text}</mark>'
        endings.append([name, Html(text), report_page.number(probability, 3)])
    heading = escape(f"chosen {row.prediction}, right {row.label}")
    table = report_page.table(["ending", "text", "probability"], endings)
    return report_page.article("wrong", f"<h3>{heading}</h3>\n{context}{table}", data_file,
                               f"line {row.line}")
