"""Scores SQuAD answers with exact match and F1, in the same way as the official scripts. Also finds the best
null threshold.

    evaluate(squad_data.read_gold("dev-v1.1.json"), texts)        # {"exact_match": 80.8, "f1": 88.5}

SQuAD 1.1: Rajpurkar et al. 2016, https://arxiv.org/abs/1606.05250; 2.0: Rajpurkar et al. 2018,
https://arxiv.org/abs/1806.03822.
"""

import collections
import re
import string

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text):
    """Returns the text in lower case, without ASCII punctuation, articles and repeated white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def score_answers(gold, texts, version_2_with_negative):
    """Scores answers. Returns {qas_id: (exact match, F1)}. Both scores are numbers from 0 to 1.

    If a question has several right answers, the best score counts.

    Exact match compares the normalized texts. F1 compares how often each word occurs in the two texts. If
    `texts` lacks a question, both scores of this question are 0. With `version_2_with_negative`, a question
    may have no right answer in `gold`. The right answer to such a question is "".

    Args:
      gold: {qas_id: list of (text, index in the context)}, the right answers.
      texts: {qas_id: text}.
    """
    scores = dict.fromkeys(gold, (0.0, 0.0))
    for qas_id, answers in gold.items():
        if qas_id not in texts:
            continue
        rights = [normalize_answer(text) for text, _ in answers]
        if version_2_with_negative:
            rights = list(filter(None, rights)) or [""]
        text = normalize_answer(texts[qas_id])
        scores[qas_id] = (float(text in rights),
                          max((_f1(text.split(), right.split(), version_2_with_negative) for right in rights),
                              default=0.0))
    return scores


def _f1(words, right_words, empty_may_be_right):
    """Returns F1, the harmonic mean of precision and recall of the words.

    If both texts are empty, F1 is 0 in SQuAD 1.1, and 1 in SQuAD 2.0 (`empty_may_be_right`).
    """
    if empty_may_be_right and not (words and right_words):
        return float(words == right_words)
    num_common = sum((collections.Counter(words) & collections.Counter(right_words)).values())
    if not num_common:
        return 0.0
    precision, recall = num_common / len(words), num_common / len(right_words)
    return (2 * precision * recall) / (precision + recall)


def evaluate(gold, texts, version_2_with_negative=False, null_odds=None):
    """Returns the same numbers as the official evaluation scripts: {name: number}. Scores are in percent.

    For SQuAD 1.1, the names are exact_match and f1. For SQuAD 2.0, the names are exact, f1 and total (the
    number of questions). These three numbers are also computed for the questions with an answer (HasAns_…)
    and for the questions without an answer (NoAns_…). If null odds are passed, there are four more numbers.
    best_exact and best_f1 are the highest scores over all null thresholds. best_exact_thresh and
    best_f1_thresh are the thresholds with these scores. An answer that is already empty in `texts` counts as
    empty at all thresholds.

    Args:
      gold: {qas_id: list of (text, index in the context)}, the right answers.
      texts: {qas_id: text}.
      version_2_with_negative: True for SQuAD 2.0, False for SQuAD 1.1.
      null_odds: {qas_id: number}, or None.
    """
    scores = score_answers(gold, texts, version_2_with_negative)
    if not version_2_with_negative:
        return dict(zip(("exact_match", "f1"), mean_scores(scores.values())))
    figures = {}
    for prefix, ids in (("", list(scores)),
                        ("HasAns_", [qas_id for qas_id in scores if gold[qas_id]]),
                        ("NoAns_", [qas_id for qas_id in scores if not gold[qas_id]])):
        if ids:
            means = mean_scores([scores[qas_id] for qas_id in ids])
            figures.update(zip((f"{prefix}exact", f"{prefix}f1", f"{prefix}total"), (*means, len(ids))))
    if null_odds is not None:
        for column, name in enumerate(("exact", "f1")):
            column_scores = {qas_id: score[column] for qas_id, score in scores.items()}
            best, threshold = _official_threshold(column_scores, texts, null_odds, gold)
            figures.update({f"best_{name}": best, f"best_{name}_thresh": threshold})
    return figures


def mean_scores(scores):
    """Returns [mean exact match, mean F1] in percent, from (exact match, F1) pairs."""
    return [100.0 * sum(column) / len(scores) for column in zip(*scores)] or [0.0, 0.0]


def _official_threshold(scores, texts, null_odds, gold):
    """Finds the best threshold in the same way as the official script. Returns (mean score in percent with
    this threshold, the threshold).

    The search begins with a threshold at which all answers are empty. Then the answers are added one by one,
    from the lowest null odds to the highest, and the score is computed after each answer.
    """
    total = best = sum(not gold[qas_id] for qas_id in scores)
    threshold = 0.0
    for qas_id in sorted(null_odds, key=null_odds.get):
        if qas_id in scores:
            total += scores[qas_id] if gold[qas_id] else -bool(texts.get(qas_id))
            if total > best:
                best, threshold = total, null_odds[qas_id]
    return 100.0 * best / len(scores), threshold


def find_null_threshold(gold, predictions):
    """Returns the lowest `null_score_diff_threshold` with the highest mean F1.

    The official script's best_f1_thresh may differ from the result of this function, for two reasons. First,
    the script reads the final answers, so it does not know the answers that the threshold of the run has
    replaced by empty answers. Second, if two questions have the same null odds, the script may count one
    question as answered and the other question as not answered, although no threshold has this effect.

    Args:
      gold: the right answers to the same questions, from `squad_data.read_gold`.
      predictions: list of `Prediction` with null odds.
    """
    scores = score_answers(gold, {prediction.qas_id: prediction.answer.text for prediction in predictions},
                           True)
    empty_scores = score_answers(gold, dict.fromkeys(scores, ""), True)
    scored = [prediction for prediction in predictions if prediction.qas_id in gold]
    odds, group = np.unique([prediction.null_odds for prediction in scored], return_inverse=True)
    gains = [scores[prediction.qas_id][1] - empty_scores[prediction.qas_id][1] for prediction in scored]
    totals = np.cumsum(np.bincount(group, gains))
    best = totals.argmax()
    return float(odds[best] if totals[best] > 0 else odds[0] - 1)
