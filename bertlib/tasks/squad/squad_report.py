"""Writes eval_report.html, the report of an evaluation or a prediction by run_squad.py. Makes the rows of
tables and reports."""

import collections

import numpy as np

from bertlib.data.prediction_rows import PredictedRow
from bertlib.reports import report_page, report_sections
from bertlib.reports.report_page import Html, escape
from bertlib.tasks.squad import squad_data, squad_metrics

_MAX_QUESTIONS = 2000
# A context with more than `_CONTEXT_CHARACTERS` characters is truncated. The shown part begins at most
# `_BEFORE_ANSWER` characters before the first marked answer.
_CONTEXT_CHARACTERS, _BEFORE_ANSWER = 4000, 1000
_CLASSES = ("right", "partly", "wrong")


def predicted_rows(examples, predictions, answers, gold=None, version_2_with_negative=False):
    """Returns the list of the `PredictedRow`s of questions. The texts of a row are the question and the
    context.

    Args:
      examples: list of `SquadExample`.
      predictions: list of `Prediction`, one for each example, in the order of the examples.
      answers: list of the final `Answer`s, in the same order.
      gold: {qas_id: list of (text, index in the context)}, the right answers; None if they are unknown.
      version_2_with_negative: whether some questions have no answer.
    """
    texts = {prediction.qas_id: answer.text for prediction, answer in zip(predictions, answers)}
    scores = {} if gold is None else squad_metrics.score_answers(gold, texts, version_2_with_negative)
    rows = []
    for example, prediction, answer in zip(examples, predictions, answers, strict=True):
        context, label, is_right, details = example.context, None, None, {}
        if gold is not None:
            exact, f1 = scores[prediction.qas_id]
            label = tuple(dict.fromkeys(text for text, _ in gold[prediction.qas_id]))
            is_right, details = bool(exact), {"exact_match": exact, "f1": f1}
        if prediction.null_odds is not None:
            details["null_odds"] = float(prediction.null_odds)
        rows.append(PredictedRow(
            example.line, {"id": prediction.qas_id, "question": example.question_text, "context": context},
            (example.question_text, context), label, answer.text, {"": float(answer.probability)}, is_right,
            details=details))
    return rows


def write_report(path, facts, rows, answers, gold=None):
    """Writes an HTML file with the questions and contexts. Predicted and right answers are marked in the
    contexts.

    The worst answers come first. The answers are sorted by F1, from low to high. Answers with equal F1 are
    sorted by probability, from high to low. If the right answers are unknown, all answers are sorted by
    probability, from low to high.

    Args:
      path: the file.
      facts: a `report_sections.Facts`.
      rows: list of `PredictedRow`, the result of `predicted_rows`.
      answers: list of the final `Answer`s, in the order of the rows. An answer without `start` and `end` is
        not marked in the context.
      gold: {qas_id: list of (text, index in the context)}, the right answers; None if they are unknown.
    """
    is_scored = bool(gold)
    counts, functions, lengths, order = {}, {}, [], "The least confident answers come first."
    if is_scored:
        order = ("The answers with the lowest F1 come first. Among answers with equal F1, the most confident "
                 "answers come first.")
        counts = dict.fromkeys(_CLASSES, 0) | collections.Counter(map(_class, rows))
        points = 100 * np.array([(row.details["f1"], row.details["exact_match"]) for row in rows])
        functions = {metric: lambda indices, column=column: points[indices, column].mean()
                     for column, metric in enumerate(facts.metric_titles)}
        lengths = [(len(squad_data.split_context(row.texts[1])[0]), row.details["exact_match"])
                   for row in rows]
    counts["without a predicted answer"] = sum(not row.prediction for row in rows)

    def rank(pair):
        row, answer = pair
        return (row.details["f1"], -answer.probability) if is_scored else answer.probability

    report_sections.write_sections(
        path, facts, len(rows), "questions", counts,
        report_sections.errors_section(
            "Answers", Html('<mark class="predicted">predicted</mark>, <mark class="gold">right</mark>, '
                            f'<mark class="predicted gold">both</mark>. {order}'),
            sorted(zip(rows, answers), key=rank), lambda pair: _article(*pair, gold), _MAX_QUESTIONS),
        report_sections.length_section("Exact match by length of the context", lengths, "words",
                                       "exact match", noun="questions"), functions=functions)


def _class(row):
    """Returns "right", "partly" or "wrong", the class of a row with scores."""
    return "right" if row.is_right else "partly" if row.details["f1"] else "wrong"


def _article(row, answer, gold):
    """Returns the HTML of a question, its answers and its context."""
    question, context = row.texts
    spans = [(answer.start, answer.end, "predicted")] if answer.start is not None else []
    details = [f"probability {answer.probability:.3f}"]
    if "null_odds" in row.details:
        details.append(f"null odds {row.details['null_odds']:.3f}")
    css_class = rights = ""
    if gold is not None:
        spans += [(start, start + len(text), "gold") for text, start in gold[row.fields["id"]]
                  if context[start:start + len(text)] == text]
        css_class = _class(row)
        details = [css_class, f"exact match {row.details['exact_match']:.0f}",
                   f"F1 {row.details['f1']:.3f}", *details]
        rights = " · right: " + (" | ".join(map(report_page.name, row.label)) or "no answer")
    predicted = report_page.name(answer.text, report_page.TEXT_CHARACTERS) if answer.text else "no answer"
    content = Html(f'<h3>{report_page.name(question, report_page.TEXT_CHARACTERS)}</h3>\n'
                   f'<p>predicted: <b>{predicted}</b>{rights}</p>\n'
                   f'<p class="text context" dir="auto">{_shown_context(context, spans)}</p>\n')
    return report_page.article(css_class, content, None,
                               " · ".join([*details, str(row.fields["id"])[:report_page.MAX_NAME]]))


def _shown_context(context, spans):
    """Returns the HTML of a context with marked spans. Only a part of a long context is shown. This part
    contains the first span."""
    start = 0
    if len(context) > _CONTEXT_CHARACTERS:
        start = max(0, min((first for first, _, _ in spans), default=0) - _BEFORE_ANSWER)
    part = context[start:start + _CONTEXT_CHARACTERS]
    marks = [(max(first - start, 0), min(last - start, len(part)), css, "") for first, last, css in spans
             if first < start + len(part)]
    note = report_page.truncation_note(len(part), len(context)) if len(part) < len(context) else ""
    return f"{'… ' if start else ''}{report_page.mark_spans(part, marks, escape)}{note}"
