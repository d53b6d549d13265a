"""Writes eval_report.html, the report of an evaluation by run_ner.py, and makes the rows of its tables."""

import collections

import numpy as np

from bertlib.data.prediction_rows import PredictedRow
from bertlib.reports import classification_report, report_page, report_sections
from bertlib.reports.report_page import Html, name, paragraph
from bertlib.tasks.tagging import tagging_metrics

_MAX_SENTENCES = 1000
_MAX_WORDS = 300  # the report truncates a sentence with more words
_NO_ENTITY = "(no entity)"
# {status of an entity: description in the legend}. An entity counts as found only if all its words and its
# type are predicted exactly.
_STATUSES = {"found": "found", "false": "predicted, but not in the data", "missed": "missed"}


def write_report(path, facts, sentences, predicted):
    """Writes the report.

    The sentences with the most errors come first.

    Args:
      path: the file.
      facts: a `report_sections.Facts` with the metrics of `tagging_metrics.score_tags`, and with "labels":
        {type: its metrics}.
      sentences: list of `conll_files.Sentence`, with tags.
      predicted: list of lists of str, the predicted tags of each sentence.
    """
    results = [_Result(sentence, tags) for sentence, tags in zip(sentences, predicted, strict=True)]
    counts = np.array([(len(result.spans["found"]), result.errors) for result in results])

    def f1(indices):
        hits, errors = counts[indices].sum(0)
        return tagging_metrics.entity_f1(hits, 2 * hits + errors)

    right = int((counts[:, 1] == 0).sum())
    legend = ", ".join(f'<mark class="{status}">{text}</mark>' for status, text in _STATUSES.items())
    report_sections.write_sections(
        path, _overall(facts), len(results), "sentences", {"without an error": right},
        *_type_sections(results, facts.metrics["labels"]),
        report_sections.errors_section(
            "Sentences",
            Html(f"Entities are marked: {legend}. The sentences with the most errors come first."),
            sorted(results, key=lambda result: -result.errors),
            lambda result: _article(result, facts.data_file), _MAX_SENTENCES),
        report_sections.length_section(
            "Sentences without an error, by length",
            [(len(result.sentence.words), float(not result.errors)) for result in results], "words",
            "without an error", noun="sentences"), functions={"eval_f1": f1})


class _Result:
    """A sentence and its predicted entities.

    Attributes:
      sentence: `conll_files.Sentence`.
      spans: {status: list of (index of the first word, index after the last word, type)}; see
        `tagging_metrics.compare_entities`.
    """

    def __init__(self, sentence, predicted):
        self.sentence = sentence
        self.spans = tagging_metrics.compare_entities(sentence.tags, predicted)

    @property
    def errors(self):
        """The number of wrong and missed entities."""
        return len(self.spans["false"]) + len(self.spans["missed"])


def _overall(facts):
    """Returns `Facts` without the metrics of single types of entities."""
    return facts._replace(metrics={
        key: value for key, value in facts.metrics.items()
        if not key.startswith(("eval_precision_", "eval_recall_", "eval_f1_"))})


def _type_sections(results, scores):
    """Returns two sections: the metrics of each type, and the confusions between types.

    Args:
      results: list of `_Result`.
      scores: {type: {metric: value}}.
    """
    confusions = collections.Counter()
    for result in results:
        right = {span[:2]: span[2] for status in ("found", "missed") for span in result.spans[status]}
        predictions = {span[:2]: span[2] for status in ("found", "false") for span in result.spans[status]}
        confusions.update((right.get(bounds, _NO_ENTITY), predictions.get(bounds, _NO_ENTITY))
                          for bounds in {*right, *predictions})
    labels = [*scores, _NO_ENTITY]
    return [classification_report.labels_section("Types of entities", scores, "type", paragraph(
        "A predicted entity is right if its words and its type are predicted exactly.")),
        classification_report.confusion_section(
            [[confusions[row, column] for column in labels] for row in labels], labels, "type", paragraph(
                "Only entities of exactly the same words are compared. All others are confused with "
                f"{_NO_ENTITY}."))]


def _article(result, data_file):
    """Returns the `Html` of a sentence."""
    text = Html(f'<p class="text" dir="auto">{_marked_words(result)}</p>\n')
    return report_page.article("wrong" if result.errors else "right", text, data_file,
                               f"line {result.sentence.lines[0]}")


def _marked_words(result):
    """Returns the HTML of a sentence with marked entities."""
    # The words become the text of an element with dir="auto". With this attribute, the browser finds the
    # direction of writing from the text, but it ignores text in <bdi> elements. So if the words were in <bdi>
    # elements, the browser would show an Arabic or Hebrew sentence from left to right.
    words = [report_page.shorten(word) for word in result.sentence.words[:_MAX_WORDS]]
    spans = [(start, end, status, f' <small class="type {status}">{name(kind)}</small>')
             for status, of_status in result.spans.items() for start, end, kind in of_status
             if end <= len(words)]
    text = report_page.mark_spans(words, spans, " ".join, " ")
    rest = len(result.sentence.words) - len(words)
    note = Html(f'… <span class="note">[{rest:,} more words]</span>') if rest else ""
    return Html(text + note)


class WordRows:
    """The `PredictedRow`s of the words of a file. The object can be iterated any number of times.

    The fields of a row are "sentence" and "word". "sentence" is the number of the sentence that contains the
    word; the first sentence has the number 1. The label and the prediction are tags in the scheme of the
    file. The tags of a sentence are in consecutive rows, so the scores of entities can be computed from the
    table.
    """

    def __init__(self, sentences, predictions):
        """Stores the data.

        Args:
          sentences: list of `conll_files.Sentence`. The tags of a sentence may be None.
          predictions: list with a `tagging_windows.Prediction` for each sentence.
        """
        self._sentences, self._predictions = sentences, predictions

    def __iter__(self):
        pairs = zip(self._sentences, self._predictions, strict=True)
        for number, (sentence, prediction) in enumerate(pairs, 1):
            labels = sentence.tags or [None] * len(sentence.words)
            words = zip(sentence.lines, sentence.words, labels, *prediction, strict=True)
            for line, word, label, tag, probability in words:
                yield PredictedRow(line, {"sentence": str(number), "word": word}, (word,), label, tag,
                                   {"": probability}, None if label is None else label == tag)
