"""The HTML reports: the numbers and examples that they show, escaping, size, and a real browser."""

import collections
import html.parser
import random
import re

import numpy as np
import pytest

from bertlib.data.prediction_rows import PredictedRow
from bertlib.reports import choice_report, classification_report, intervals, report_page
from bertlib.reports.report_sections import Facts
from bertlib.tasks.tagging import conll_files, tagging_report

NASTY = ("<script>document.title = 'run'</script> &amp; \"quotes\"",
         "שלום \u202e end", "😀 NUL \x00 \x1b[0m \ud800")


class Page(html.parser.HTMLParser):
    """A parsed page.

    Attributes:
      tables: list of tables. A table is a list of rows, and a cell is a text or a number.
      articles: list of texts.
      tags: number of each tag.
      text: the whole text.
    """

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        assert path.stat().st_size <= report_page.MAX_BYTES
        self.tables, self.articles, self.tags, self.text, self._open = [], [], collections.Counter(), "", []
        self.feed(self.source)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        if tag == "meta":
            return
        self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "article":
            self.articles.append("")
        elif tag == "data" and "td" in self._open:
            self.tables[-1][-1][-1] = float(dict(attributes)["value"])

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "article" in self._open:
            self.articles[-1] += data
        elif {"td", "th"} & {*self._open} and isinstance(self.tables[-1][-1][-1], str):
            self.tables[-1][-1][-1] += data


def classified(count, labels, seed=0):
    chance = random.Random(seed)
    rows = []
    for index in range(count):
        label = chance.choice(labels)
        answer = label if chance.random() < 0.6 else chance.choice(labels)
        probability = chance.uniform(0.5, 1)
        text = NASTY[index] if index < len(NASTY) else f"text {index}"
        fields = {"text": text, "gold": label, "empty": "", "id": f"<{index}>", "null": None}
        rows.append(PredictedRow(index + 2, fields, (text,), label, answer, {answer: probability},
                                 label == answer, length=chance.randrange(3, 60)))
    return rows


def numbers_of(labels):
    """Returns metrics of a classification, as they could be. The last label has no examples."""
    scores = {label: {"precision": index / 8, "recall": index / 4, "f1": index / 2, "support": 10 - index}
              for index, label in enumerate(labels)}
    scores[labels[-1]]["support"] = 0
    return {"labels": scores, "eval_confusion_matrix": np.diag(range(1, len(labels) + 1)), "eval_f1": 0.5}


def write(path, rows, labels, metrics=None, threshold=None, **facts):
    facts = Facts("task: dev.csv", metrics or numbers_of(labels), "dev.csv", **facts)
    classification_report.write_report(str(path), facts, rows, labels, threshold)
    return Page(path)


def test_a_classification(tmp_path):
    labels = ["a", "<b>", "שלום", "unused"]
    rows, numbers = classified(300, labels[:3]), numbers_of(labels)
    numbers["eval_confusion_matrix"] = [[1, 0, 1, 0], [0, 2, 0, 0], [0] * 4, [0] * 4]
    numbers |= {"baselines": {"bag_of_words": {"eval_f1": 0.25}, "most_frequent_label": {"eval_f1": 0.5}},
                "intervals": {"eval_f1": [0.4, 0.6]}}
    page = write(tmp_path / "page.html", rows, labels, numbers,
                 curve={"F1": [(0, 0.1), (9, 0.5)], "accuracy": [(0, 0.1), (9, 0.5)]},
                 losses=[(1, 0.7), (2, float("nan")), (3, 0.2)],
                 record={"train_data": {"fingerprint": "f00d"}, "labels": labels,
                         "settings": {"seed": 12, "label_column": "gold"}},
                 metric_titles={"eval_f1": "macro F1"})
    overall, scores, matrix, confidences, lengths, record = page.tables
    assert overall == [["macro F1", 0.5]]
    assert scores[1:] == [[label, *numbers["labels"][label].values()] for label in labels[:-1]]
    assert page.text.index(
        "F1 0.500 (95 % interval 0.400 to 0.600); bag of words 0.250; most frequent label 0.500. The model "
        "is not better than the most frequent label.") < page.text.index("300 examples: ")
    assert page.text.index("Most confident errors") < page.text.index("Accuracy by length")
    assert "all 4 labels. In this mean, the F1 of 1 label without examples is 0." in page.text
    # The matrix has only labels that occur or are predicted.
    assert matrix[1:] == [["label", *labels[:3]], ["a", 1, 0, 1], ["<b>", 0, 2, 0], ["שלום", 0, 0, 0]]
    for least, share, accuracy in confidences[1:]:
        inside = [row.is_right for row in rows if max(row.probabilities.values()) >= float(least)]
        assert (share, accuracy) == pytest.approx((len(inside) / 300, np.mean(inside)))
    assert [row[0] for row in confidences[1:]] == ["0", "0.5", "0.7", "0.8", "0.9", "0.95", "0.99"]
    assert ["train_data.fingerprint", "f00d"] in record and ["settings.seed", "12"] in record
    assert page.tags["svg"] == 2 and page.tags["polyline"] == 3 and not page.tags["circle"]
    assert len(set(re.findall(r'y="([\d.]+)"[^>]*>(?:F1|accuracy): ', page.source))) == 2
    wrong = sorted((row for row in rows if not row.is_right),
                   key=lambda row: -max(row.probabilities.values()))
    right = 300 - len(wrong)
    assert f"300 examples: {right} right ({right / 3:.1f} %), {len(wrong)} wrong (" in page.text
    assert len(wrong) > 50 and f"Showing 50 of {len(wrong)} examples." in page.text
    places = [text.strip().splitlines()[-1] for text in page.articles]
    assert places == [f"dev.csv, line {row.line}; id: {row.fields['id']}" for row in wrong[:50]]
    assert f"predicted {wrong[0].prediction} (" in page.articles[0] and wrong[0].texts[0] in page.articles[0]
    # Each row has the accuracy of the texts in a range of lengths. The ranges together contain all texts.
    assert lengths[0] == ["tokens", "accuracy", "examples", ""]
    for span, share, count, _ in lengths[1:]:
        low, high = map(int, span.split(" to "))
        inside = [row.is_right for row in rows if low <= row.length <= high]
        assert len(inside) == count and np.mean(inside) == pytest.approx(share)
    assert len(lengths) == 9 and sum(row[2] for row in lengths[1:]) == 300


def test_many_labels_have_a_list_of_confusions(tmp_path):
    labels = [f"label {number}" for number in range(31)]
    matrix = np.arange(31 * 31).reshape(31, 31) % 101
    page = write(tmp_path / "page.html", classified(9, labels), labels, {
        **numbers_of(labels), "eval_confusion_matrix": matrix})
    listed = {(row[0], row[1]): row[2] for row in page.tables[2][1:]}
    np.fill_diagonal(matrix, 0)
    assert list(listed.values()) == sorted(matrix.ravel())[:-51:-1]
    assert all(matrix[labels.index(label), labels.index(answer)] == count
               for (label, answer), count in listed.items())


def test_several_labels(tmp_path):
    labels, text = ["x", "y", "z"], ("one two",)
    page = write(tmp_path / "page.html", [
        PredictedRow(1, {}, text, ("x",), ("x", "y"), {"x": 0.9, "y": 0.8, "z": 0.1}, False, length=4),
        PredictedRow(2, {}, text, ("x", "z"), ("x",), {"x": 0.75, "y": 0.1, "z": 0.05}, False, length=4),
        PredictedRow(3, {}, text, ("y",), ("y",), {"x": 0.1, "y": 0.9, "z": 0.1}, True, length=4),
    ], labels, threshold=0.7)
    assert "3 examples: 1 right (33.3 %), 2 wrong (66.7 %)." in page.text
    assert "at least 0.7 (--threshold)" in page.text
    assert page.tables[2] == [["tokens", "all labels right", "examples", ""],
                              ["4", pytest.approx(1 / 3), 3, ""]]
    worst, second = page.articles
    assert "z (0.050) not predicted" in worst and "y (0.800) not in the data" in second


def test_a_regression(tmp_path):
    rows = [PredictedRow(None, {}, ("a b", "c"), float(number), number + error, length=5)
            for number, error in enumerate((0.5, -2.0, 1.0))]
    scores = {"bag_of_words": {"eval_pearson": 0.7, "eval_mae": 6.0},
              "mean_score": {"eval_pearson": 0.0, "eval_mae": 9.0}}
    metrics = {"eval_mae": 7.0, "eval_rmse": 8.0}
    page = write(tmp_path / "page.html", rows, None, {**metrics, "eval_pearson": 0.9, "baselines": scores},
                 metric_titles={"eval_pearson": "Pearson"})
    assert "Pearson 0.900; bag of words 0.700." in page.text
    assert ("mean absolute error 7.000; error of the bag of words 6.000; error of the mean score 9.000. The "
            "model is not better than the bag of words.") in page.text
    page = write(tmp_path / "page.html", rows, None, metrics)
    assert dict(page.tables[0]) == {"mae": 7.0, "rmse": 8.0}
    assert [re.search(r"dev.csv, example \d", text)[0][-1] for text in page.articles] == ["2", "3", "1"]
    assert page.tags["circle"] == 3 and "no run.json" in page.text and "The chart shows" not in page.text
    assert page.tables[1][1][:3] == ["5", pytest.approx(3.5 / 3), 3]
    page = write(tmp_path / "page.html", rows * 800, None, metrics)
    assert page.tags["circle"] == 1200 and "The chart shows 1,200 of 2,400 examples" in page.text


def test_a_tagging(tmp_path):
    tags = ["O", "B-PER", "I-PER", "O", "B-LOC"]
    sentences = [conll_files.Sentence([*NASTY, "word", "end"], tags, list(range(first, first + 5)))
                 for first in (1, 7)]
    scores = {"precision": 0.5, "recall": 0.25, "f1": 0.125}
    metrics = {"eval_f1": 0.75, "eval_f1_LOC": 0.125, "labels": {
        kind: {**scores, "support": support} for kind, support in (("LOC", 2), ("MISC", 0), ("PER", 2))}}
    path = tmp_path / "page.html"
    tagging_report.write_report(str(path), Facts("tags", metrics, "dev.txt", metric_titles={"eval_f1": "F1"}),
                                sentences, [tags, ["O", "B-PER", "I-PER", "B-LOC", "O"]])
    page = Page(path)
    overall, kinds, confusions, *_ = page.tables
    assert overall == [["F1", 0.75]]
    assert re.search(r"F1 0\.750 \(95 % interval 0\.\d+ to 1\.000\)\.\s*"
                     r"2 sentences: 1 without an error \(50.0 %\)", page.text)
    assert kinds[1:] == [["LOC", 0.5, 0.25, 0.125, 2], ["PER", 0.5, 0.25, 0.125, 2]]
    assert confusions[1:] == [["label", "LOC", "PER", "(no entity)"], ["LOC", 1, 0, 1],
                              ["PER", 0, 2, 0], ["(no entity)", 1, 0, 0]]
    assert page.text.index("Sentences") < page.text.index("Sentences without an error, by length")
    assert [page.source.count(f'"type {status}"') for status in ("found", "false", "missed")] == [3, 1, 1]
    assert ["dev.txt, line 7" in text for text in page.articles] == [True, False]  # most errors first
    # A browser ignores text inside of <bdi> when it determines the direction of a sentence. So only the types
    # of entities are inside of <bdi>.
    assert set(re.findall("<bdi>(.*?)</bdi>", page.source.split("<article")[1])) == {"LOC", "PER"}


def test_a_multiple_choice(tmp_path):
    rows = [PredictedRow(line, {}, ("one", "two", *NASTY), "0", str(line % 2), {"0": 0.4, "1": 0.5, "2": 0.1},
                         line % 2 == 0, length=9) for line in range(120)]
    path = tmp_path / "page.html"
    choice_report.write_report(str(path), Facts("task", {"eval_accuracy": 0.5}, "val.csv",
                                                metric_titles={"eval_accuracy": "accuracy"}), rows)
    page = Page(path)
    low, high = intervals.wilson(0.5, 120)
    assert re.search(rf"accuracy 0\.500 \(95 % interval {low:.3f} to {high:.3f}\)\.\s*"
                     r"120 questions: 60 right \(50\.0 %\), 60 wrong", page.text)
    assert page.tables[:2] == [[["accuracy", 0.5]], [["ending", "right", "chosen"], ["0", 120, 60],
                                                     ["1", 0, 60], ["2", 0, 0]]]
    # The first 50 errors are open, and the accuracy by length comes after all errors.
    assert len(page.articles) == 60 and page.text.count("Further examples") == 1
    assert re.search(r"0\.400\D", page.articles[0])
    assert page.source.split("Further examples")[0].count("<article") == 50
    assert page.source.rindex("</article>") < page.source.index("Accuracy by length")


def test_two_labels_without_errors_and_curves_with_one_point(tmp_path):
    right = [row for row in classified(30, ["a", "<b>"]) if row.is_right]
    page = write(tmp_path / "page.html", right, ["a", "<b>"], curve={"F1": [(0, 0.1)]}, losses=[(1, 0.7)])
    assert not page.articles and "errors" not in page.text and "[]" not in page.text
    assert "F1 is the F1 of the label <b>." in page.text and page.tables[0] == [["f1", 0.5]]
    assert page.tags["circle"] == 2 and not page.tags["polyline"]  # a line of one point is invisible


def test_every_text_is_escaped(tmp_path):
    rows = [PredictedRow(None, {}, NASTY, text, NASTY[1 - index], {NASTY[1 - index]: 1.0}, False)
            for index, text in enumerate(NASTY[:2])]
    page = write(tmp_path / "page.html", rows, list(NASTY), record={NASTY[0]: NASTY[2]},
                 curve={NASTY[0]: [(1, 0.5)]})
    assert not {"script", "img", "link", "iframe", "a"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page.source)
    assert not re.search("[\x00-\x08\x0b-\x1f]", page.source)
    assert "default-src 'none'" in page.source
    for text in (NASTY[0], NASTY[1], "😀 NUL ␀ ␛[0m \ufffd"):
        assert text in page.articles[0]


def test_a_page_is_bounded(tmp_path):
    rows = [PredictedRow(None, {}, ("\"" * 100_000,) * 2, "a", "b", {"b": 0.5}, False) for _ in range(60)]
    page = write(tmp_path / "page.html", rows, ["a", "b"], record={"x": "y" * 5_000_000})
    assert "[2,000 of 100,000 characters]" in page.articles[0] and len(page.articles) == 50
    shown = report_page.examples(
        list(range(1000)), lambda item: report_page.Html(f"<{item}>" + "x" * 10_000), 900)
    items = [int(item) for item in re.findall(r"<(\d+)>", shown)]
    assert 3_000_000 < len(shown) < 4_000_000 and f"Showing {len(items)} of 1,000 examples" in shown
    assert items == list(range(len(items)))
