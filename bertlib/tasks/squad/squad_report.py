"""Writes predicted answers as an HTML file, for inspection in a browser."""

import collections
import html
import itertools

from bertlib.system import files
from bertlib.tasks.squad import squad_scores

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --predicted: #ffd54f; --right: #2e9e5b; --partly: #d99a00;
        --wrong: #d0463b; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 0 0 .4rem; }
article { border: 1px solid var(--line); border-left: .4rem solid var(--line); border-radius: .3rem;
          padding: .8rem 1rem; margin: 1rem 0; content-visibility: auto; contain-intrinsic-size: auto 14rem; }
.right { --color: var(--right); } .partly { --color: var(--partly); } .wrong { --color: var(--wrong); }
article.right, article.partly, article.wrong { border-left-color: var(--color); }
p { margin: .4rem 0; overflow-wrap: anywhere; } .context { white-space: pre-wrap; }
.score { opacity: .75; font-size: .85rem; }
mark { background: none; color: inherit; }
.predicted { background: var(--predicted); color: #000; border-radius: .15rem; }
.gold { border-bottom: .18rem solid var(--right); }
.bar { display: flex; height: 1.2rem; margin: 1rem 0; border-radius: .3rem; overflow: hidden; }
.bar span { background: var(--color); }
td, th { text-align: left; padding: 0 1.5rem 0 0; font-variant-numeric: tabular-nums; }
"""


def write_report(path, examples, predictions, gold=None, null_score_diff_threshold=0.0):
    """Writes an HTML file with the questions and contexts. Predicted and right answers are marked in the
    contexts.

    The worst answers come first. The answers are sorted by F1, from low to high. Answers with equal F1 are
    sorted by probability, from high to low. If the right answers are unknown, all answers are sorted by
    probability, from low to high. The HTML file needs no other files.

    Args:
      path: the file.
      examples: list of `SquadExample`. Without `context` and `word_offsets`, no predicted answer is marked.
      predictions: list of `Prediction`, one for each example, in the order of the examples.
      gold: the right answers, see `squad_data.read_gold`; None if they are unknown.
      null_score_diff_threshold: see `squad_predictions.write_predictions`.
    """
    answers = [prediction.final_answer(null_score_diff_threshold) for prediction in predictions]
    scores = None
    if gold is not None:
        texts = {prediction.qas_id: answer.text for prediction, answer in zip(predictions, answers)}
        version_2_with_negative = any(prediction.null_odds is not None for prediction in predictions)
        scores = squad_scores.score_answers(gold, texts, version_2_with_negative)

    def rank(row):
        _, prediction, answer = row
        return (scores[prediction.qas_id][1], -answer.probability) if scores else answer.probability

    rows = sorted(zip(examples, predictions, answers), key=rank)
    parts = (_article(*row, gold, scores) for row in rows)
    head = ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Predicted answers</title>\n'
            f"<style>{_STYLE}</style></head><body>\n<h1>Predicted answers</h1>\n{_summary(answers, scores)}")
    with files.atomic_replacement(path) as partial, files.open_file(partial, "wb") as writer:
        for part in itertools.chain([head], parts, ["</body></html>\n"]):
            writer.write(part.encode("utf-8", "replace"))  # half a surrogate pair is possible in JSON


def _summary(answers, scores):
    """Returns the HTML of the report's beginning: counts, mean scores, and the legend."""
    rows = [("questions", len(answers)),
            ("without an answer predicted", sum(not answer.text for answer in answers))]
    bar = ""
    if scores:
        exact, f1 = squad_scores.mean_scores(scores.values())
        classes = collections.Counter(_class(score) for score in scores.values())
        rows += [("exact match", f"{exact:.2f} %"), ("F1", f"{f1:.2f} %"),
                 *((name, classes[name]) for name in _CLASSES)]
        parts = (f'<span class="{name}" style="flex: {classes[name]}" title="{name}"></span>'
                 for name in _CLASSES)
        bar = f'<div class="bar">{"".join(parts)}</div>\n'
    table = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>\n" for name, value in rows)
    order = ("The answers with the lowest F1 come first; among equal F1, the most confident "
             "answers." if scores
             else "The least confident answers come first.")
    return (f'<table>\n{table}</table>\n{bar}<p><mark class="predicted">predicted</mark>, '
            f'<mark class="gold">right</mark>, <mark class="predicted gold">both</mark>. {order}</p>\n')


_CLASSES = ("right", "partly", "wrong")


def _class(score):
    """Returns the class, one of `_CLASSES`, of a score (exact match, F1)."""
    exact, f1 = score
    return "right" if exact else "partly" if f1 else "wrong"


def _article(example, prediction, answer, gold, scores):
    """Returns the HTML of a question."""
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
            " | ".join(html.escape(text) for text in dict.fromkeys(dict(own))) or "no answer")
    return (f'<article class="{css_class}">\n<h2>{html.escape(example.question_text)}</h2>\n'
            f'<p>predicted: <b>{html.escape(answer.text) or "no answer"}</b>{rights}</p>\n'
            f'<p class="context">{_mark_spans(context, spans)}</p>\n'
            f'<p class="score">{" · ".join(details)} · {html.escape(str(prediction.qas_id))}</p>\n'
            '</article>\n')


def _mark_spans(text, spans):
    """Returns the HTML of a text with marked spans. A span is (start, end, class), and spans may overlap."""
    bounds = sorted({0, len(text), *(bound for span in spans for bound in span[:2])})
    parts = []
    for start, end in zip(bounds, bounds[1:]):
        classes = sorted({name for first, last, name in spans if first <= start and end <= last})
        part = html.escape(text[start:end])
        parts.append(f'<mark class="{" ".join(classes)}">{part}</mark>' if classes else part)
    return "".join(parts)
