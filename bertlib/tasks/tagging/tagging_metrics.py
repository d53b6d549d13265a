"""Metrics of tagging, computed from the tags of words."""

import collections

import numpy as np

from bertlib.data.prediction_tables import Scored
from bertlib.tasks.tagging.tag_schemes import entity_spans


def compare_entities(right, predicted):
    """Compares the entities of a sentence. A predicted entity is right if its first word, its last word and
    its type are right.

    Args:
      right, predicted: lists of tags in the same scheme.

    Returns:
      {"found": the right ones of the predicted entities, "false": the wrong ones, "missed": the entities that
      were not predicted}. Each value is a sorted list; see `tag_schemes.entity_spans`.
    """
    right, predicted = (set(entity_spans(tags)) for tags in (right, predicted))
    return {"found": sorted(right & predicted), "false": sorted(predicted - right),
            "missed": sorted(right - predicted)}


def score_tags(right, predicted):
    """Scores predicted tags in the same way as the script conlleval of CoNLL-2000; see `compare_entities`.

    Args:
      right, predicted: lists with a list of tags for each sentence, in the same scheme.

    Returns:
      {name: float}. accuracy is the share of words whose tag is right. precision, recall and f1 are scores of
      all entities. These three scores are also computed for each type of entity, for example precision_PER.
      If the denominator of a score is 0, the score is 0.
    """
    hits, false, missed = counters = [collections.Counter() for _ in range(3)]
    words = equal = 0
    for tags, predicted_tags in zip(right, predicted, strict=True):
        for counter, entities in zip(counters, compare_entities(tags, predicted_tags).values()):
            counter.update(kind for _, _, kind in entities)
        words += len(tags)
        equal += sum(map(str.__eq__, tags, predicted_tags))
    predictions, real = hits + false, hits + missed
    results = {"accuracy": equal / words if words else 0.0}
    totals = [counter.total() for counter in (hits, predictions, real)]
    results.update(_precision_recall_f1("", *totals))
    for kind in sorted({*predictions, *real}):
        results.update(_precision_recall_f1(f"_{kind}", hits[kind], predictions[kind], real[kind]))
    return results


def _precision_recall_f1(ending, hits, predictions, real):
    """Computes precision, recall and F1 from numbers of entities. Returns {name: score}.

    Args:
      ending: str, the text after "f1" in the name of a score, such as "_PER"; "" for all types.
      hits, predictions, real: number of right predictions, number of predicted entities, and number of
        entities in the data.
    """
    return {f"precision{ending}": hits / predictions if predictions else 0.0,
            f"recall{ending}": hits / real if real else 0.0,
            f"f1{ending}": entity_f1(hits, predictions + real)}


def entity_f1(hits, total):
    """Returns the F1 of entities.

    Args:
      hits: number of right predictions.
      total: number of predicted entities plus number of entities in the data.
    """
    return 2 * hits / total if hits else 0.0


def score_table(table):
    """Returns the `prediction_tables.Scored` of a table of words and their tags. Its units are sentences."""
    sentences = {}
    for row in table.rows:
        sentences.setdefault(row["sentence"], []).append((str(row["label"]), str(row["prediction"])))
    counts, right_words, is_right = [], [], []
    for pairs in sentences.values():
        right, predicted = map(list, zip(*pairs))
        hits, false, missed = map(len, compare_entities(right, predicted).values())
        counts.append((hits, 2 * hits + false + missed))
        right_words.append((sum(map(str.__eq__, right, predicted)), len(right)))
        is_right.append(right == predicted)
    counts, right_words = np.array(counts), np.array(right_words)

    def f1(rows):
        return 100 * float(entity_f1(*counts[rows].sum(0)))

    def accuracy(rows):
        hits, words = right_words[rows].sum(0)
        return 100 * float(hits / words)

    return Scored({"eval_f1": f1, "eval_accuracy": accuracy}, is_right, len(counts), "sentences")
