"""Writes eval_report.html, the report of an evaluation or a prediction by run_squad.py."""

import collections

from bertlib.reports import report_page, report_sections
from bertlib.reports.report_page import Html, escape, paragraph
from bertlib.tasks.squad import squad_metrics

_MAX_QUESTIONS = 2000
# A context with more than `_CONTEXT_CHARACTERS` characters is truncated. The shown part begins at most
# `_BEFORE_ANSWER` characters before the first marked answer.
_CONTEXT_CHARACTERS, _BEFORE_ANSWER = 4000, 1000
_CLASSES = ("right", "partly", "wrong")


def write_report(path, facts, examples, predictions, gold=None, null_score_diff_threshold=0.0):
    """Writes an HTML file with the questions and contexts. Predicted and right answers are marked in the
    contexts.

    The worst answers come first. The answers are sorted by F1, from low to high. Answers with equal F1 are
    sorted by probability, from high to low. If the right answers are unknown, all answers are sorted by
    probability, from low to high.

    Args:
      path: the file.
      facts: a `report_sections.Facts`.
      examples: list of `SquadExample`. If an example lacks `context` and `word_offsets`, its predicted answer
        is not marked in the context.
      predictions: list of `Prediction`, one for each example, in the order of the examples.
      gold: the right answers, see `squad_data.read_gold`; None if they are unknown.
      null_score_diff_threshold: see `squad_predictions.write_predictions`.
    """
    answers = [prediction.final_answer(null_score_diff_threshold) for prediction in predictions]
    scores = None
    if gold is not None:
        texts = {prediction.qas_id: answer.text for prediction, answer in zip(predictions, answers)}
        version_2_with_negative = any(prediction.null_odds is not None for prediction in predictions)
        scores = squad_metrics.score_answers(gold, texts, version_2_with_negative)

    def rank(row):
        _, prediction, answer = row
        return (scores[prediction.qas_id][1], -answer.probability) if scores else answer.probability

    rows = sorted(zip(examples, predictions, answers), key=rank)
    order = ("The answers with the lowest F1 come first. Among answers with equal F1, the most confident "
             "answers come first." if scores else "The least confident answers come first.")
    legend = Html('<mark class="predicted">predicted</mark>, <mark class="gold">right</mark>, '
                  f'<mark class="predicted gold">both</mark>. {order}')
    report_page.write_page(path, facts.title, [
        _summary(answers, scores), report_sections.metrics_section(facts.metrics) if scores else "",
        _length_section(examples, scores), report_sections.training_sections(facts),
        report_page.section("Answers", paragraph(legend, "legend"), report_page.examples(
            rows, lambda row: _article(*row, gold, scores), _MAX_QUESTIONS))])


def _summary(answers, scores):
    """Returns the first part of the report as HTML: a table that counts questions and answers, and a bar
    with the shares of right, partly right and wrong answers. Without scores, there is no bar."""
    rows = [["questions", len(answers)],
            ["without an answer predicted", sum(not answer.text for answer in answers)]]
    bar = ""
    if scores:
        classes = collections.Counter(_class(score) for score in scores.values())
        rows += [[name, classes[name]] for name in _CLASSES]
        parts = (f'<span class="{name}" style="flex: {classes[name]}" title="{name}"></span>'
                 for name in _CLASSES)
        bar = f'<div class="bar">{"".join(parts)}</div>\n'
    return Html(report_page.table(None, rows) + bar)


def _length_section(examples, scores):
    """Returns the section with the share of right answers for contexts of different lengths."""
    if not scores:
        return ""
    return report_sections.length_section(
        "Exact match by length of the context",
        [(len(example.doc_tokens), scores[example.qas_id][0]) for example in examples], "words",
        "exact match", counted="questions")


def _class(score):
    """Returns "right", "partly" or "wrong". `score` is the pair (exact match, F1) of an answer."""
    exact, f1 = score
    return "right" if exact else "partly" if f1 else "wrong"


def _article(example, prediction, answer, gold, scores):
    """Returns the HTML of a question, its answers and its context."""
    context = getattr(example, "context", None) or " ".join(example.doc_tokens)
    spans = [(answer.start, answer.end, "predicted")] if answer.start is not None else []
    details = [f"probability {answer.probability:.3f}"]
    if prediction.null_odds is not None:
        details.append(f"null odds {prediction.null_odds:.3f}")
    css_class = rights = ""
    if gold is not None:
        own = gold[prediction.qas_id]
        spans += [(start, start + len(text), "gold") for text, start in own
                  if context[start:start + len(text)] == text]
        exact, f1 = scores[prediction.qas_id]
        css_class = _class((exact, f1))
        details = [css_class, f"exact match {exact:.0f}", f"F1 {f1:.3f}", *details]
        rights = " · right: " + (
            " | ".join(map(report_page.name, dict.fromkeys(dict(own)))) or "no answer")
    question = report_page.name(example.question_text, report_page.TEXT_CHARACTERS)
    predicted = report_page.name(answer.text, report_page.TEXT_CHARACTERS) if answer.text else "no answer"
    return Html(f'<article class="{css_class}">\n<h3>{question}</h3>\n'
                f'<p>predicted: <b>{predicted}</b>{rights}</p>\n'
                f'<p class="text context" dir="auto">{_shown_context(context, spans)}</p>\n'
                f'{paragraph(" · ".join([*details, str(prediction.qas_id)[:report_page.MAX_NAME]]))}'
                '</article>\n')


def _shown_context(context, spans):
    """Returns the HTML of a context with marked spans. Only a part of a long context is shown. This part
    contains the first span."""
    start = 0
    if len(context) > _CONTEXT_CHARACTERS:
        start = max(0, min((first for first, _, _ in spans), default=0) - _BEFORE_ANSWER)
    part = context[start:start + _CONTEXT_CHARACTERS]
    inside = [(max(first - start, 0), min(last - start, len(part)), css, "") for first, last, css in spans
              if first < start + len(part)]
    note = report_page.truncation_note(len(part), len(context)) if len(part) < len(context) else ""
    return f"{'… ' if start else ''}{report_page.mark_spans(part, inside, escape)}{note}"
