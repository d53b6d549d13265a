"""The HTML reports: numbers compared with scikit-learn and seqeval, escaping, size, and a real browser."""

import collections
import html.parser
import random
import re
import shutil
import subprocess

import numpy as np
import pytest
from seqeval.metrics import classification_report as seqeval_report
from sklearn import metrics

from bertlib.reports import charts, classification_report, report_page
from bertlib.reports.prediction_rows import PredictedRow
from bertlib.reports.report_sections import Facts
from bertlib.tasks.classification import classification_metrics
from bertlib.tasks.tagging import tagging_data, tagging_metrics, tagging_report

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
        rows.append(PredictedRow(index + 2, {}, (text,), label, answer, {answer: probability},
                                 label == answer, length=chance.randrange(3, 60)))
    return rows


def numbers_of(rows, labels):
    """Returns the metrics of rows that a report shows."""
    pairs = [[getattr(row, name) for row in rows] for name in ("label", "prediction")]
    if labels is None:
        return classification_metrics.errors(*map(np.array, pairs))
    if isinstance(pairs[0][0], tuple):
        return {"labels": classification_metrics.label_scores(labels, *classification_metrics.count_sets(
            *(np.array([[label in names for label in labels] for names in column]) for column in pairs)))}
    matrix = classification_metrics.confusion_matrix(
        *(np.array(list(map(labels.index, column))) for column in pairs), len(labels))
    return {"eval_confusion_matrix": matrix, "labels": classification_metrics.label_scores(
        labels, matrix.diagonal(), matrix.sum(1), matrix.sum(0))}


def write(path, rows, labels, threshold=None, more_metrics=None, **facts):
    found = {**numbers_of(rows, labels), **(more_metrics or {})}
    classification_report.write_report(str(path), Facts("task: dev.csv", found, "dev.csv", **facts), rows,
                                       labels, threshold)
    return Page(path)


def test_the_numbers_of_a_classification(tmp_path):
    labels = ["a", "<b>", "שלום"]
    rows = classified(300, labels)
    page = write(tmp_path / "page.html", rows, labels, curve={"F1": [(0, 0.1), (9, 0.5)]},
                 losses=[(1, 0.7), (2, float("nan")), (3, 0.2)],
                 record={"train_data": {"fingerprint": "f00d"}, "settings": {"seed": 12}, "labels": labels})
    true, predicted = zip(*((row.label, row.prediction) for row in rows))
    scores = metrics.precision_recall_fscore_support(true, predicted, labels=labels)
    assert [row[0] for row in page.tables[0][1:]] == labels
    np.testing.assert_allclose([row[1:] for row in page.tables[0][1:]], np.transpose(scores), atol=1e-6)
    matrix = metrics.confusion_matrix(true, predicted, labels=labels)
    np.testing.assert_array_equal([row[1:] for row in page.tables[1][2:]], matrix)
    assert page.tables[1][1] == ["label", *labels]
    right = sum(map(str.__eq__, true, predicted))
    assert f"300 examples: {right} right ({right / 3:.1f} %), {300 - right} wrong." in page.text
    wrong = sorted((row for row in rows if not row.is_right),
                   key=lambda row: -max(row.probabilities.values()))
    assert len(wrong) > 50 and f"Showing 50 of {len(wrong)} errors." in page.text
    assert [int(re.search(r"dev.csv, line (\d+)$", text.strip()).group(1)) for text in page.articles] == [
        row.line for row in wrong[:50]]
    assert f"predicted {wrong[0].prediction} (" in page.articles[0] and wrong[0].texts[0] in page.articles[0]
    assert ["train_data.fingerprint", "f00d"] in page.tables[3] and ["settings.seed", "12"] in page.tables[3]
    assert page.tags["svg"] == page.tags["polyline"] == 2 and not page.tags["circle"]
    # Each row has the accuracy of the texts in a range of lengths. The ranges together contain all texts.
    assert page.tables[2][0] == ["tokens", "accuracy", "examples", ""]
    for span, share, count, _ in page.tables[2][1:]:
        low, high = map(int, span.split(" to "))
        inside = [row.is_right for row in rows if low <= row.length <= high]
        assert len(inside) == count and np.mean(inside) == pytest.approx(share)
    assert len(page.tables[2]) == 9 and sum(row[2] for row in page.tables[2][1:]) == 300


def test_the_f1_of_two_labels_and_curves_with_one_point(tmp_path):
    labels = ["a", "<b>"]
    page = write(tmp_path / "page.html", classified(20, labels), labels, more_metrics={"eval_f1": 0.5},
                 curve={"F1": [(0, 0.1)]}, losses=[(1, 0.7)])
    assert "eval_f1 is the F1 of the label <b>." in page.text
    assert page.tags["circle"] == 2 and not page.tags["polyline"]  # a line of one point is invisible


def test_a_label_without_examples_has_no_recall_and_the_macro_f1_counts_it(tmp_path):
    labels = ["a", "b", "none here"]
    page = write(tmp_path / "page.html", classified(20, labels[:2]), labels, more_metrics={"eval_f1": 0.5})
    assert "all 3 labels. In this mean, the F1 of 1 label without examples is 0." in page.text
    row = next(row for table in page.tables for row in table if row[0] == "none here")
    assert row[2] == "–" and row[4] == 0


def test_many_labels_have_a_list_of_confusions(tmp_path):
    labels = [f"label {number}" for number in range(31)]
    rows = classified(2000, labels)
    page = write(tmp_path / "page.html", rows, labels)
    pairs = collections.Counter((row.label, row.prediction) for row in rows if not row.is_right)
    listed = {tuple(row[:2]): row[2] for row in page.tables[1][1:]}
    assert len(listed) == 50 and listed == {pair: pairs[pair] for pair in listed}
    assert min(listed.values()) == pairs.most_common(50)[-1][1]


def test_the_numbers_of_several_labels(tmp_path):
    chance, labels, rows = random.Random(3), ["x", "y", "z"], []
    for index in range(200):
        probabilities = {label: chance.random() for label in labels}
        label = tuple(label for label in labels if chance.random() < 0.4)
        answer = tuple(label for label in labels if probabilities[label] >= 0.7)
        rows.append(PredictedRow(index + 1, {}, ("one two",), label, answer, probabilities, label == answer,
                                 length=4))
    page = write(tmp_path / "page.html", rows, labels, 0.7)
    true, predicted = (np.array([[name in answer for name in labels] for answer in answers])
                       for answers in zip(*((row.label, row.prediction) for row in rows)))
    np.testing.assert_allclose([row[1:] for row in page.tables[0][1:]], np.transpose(
        metrics.precision_recall_fscore_support(true, predicted)), atol=1e-6)
    assert f"({100 * metrics.accuracy_score(true, predicted):.1f} %)" in page.text
    assert "at least 0.7 (--threshold)" in page.text
    assert page.tables[1][0][:2] == ["tokens", "all labels right"]
    worst = max(max(row.probabilities[name] if name in row.prediction else 1 - row.probabilities[name]
                    for name in {*row.label} ^ {*row.prediction}) for row in rows if not row.is_right)
    shown = float(re.search(r"\((0\.\d+)\)", page.articles[0]).group(1))
    assert worst == pytest.approx(shown if "not in the data" in page.articles[0] else 1 - shown, abs=1e-3)


def test_the_numbers_of_a_regression(tmp_path):
    chance = random.Random(4)
    rows = [PredictedRow(None, {}, ("a b", "c"), label := chance.uniform(0, 5), label + chance.gauss(0, 1),
                         length=5) for _ in range(120)]
    page = write(tmp_path / "page.html", rows, None)
    true, predicted = zip(*((row.label, row.prediction) for row in rows))
    found = dict(page.tables[0])
    assert found == pytest.approx({"eval_mae": metrics.mean_absolute_error(true, predicted),
                                   "eval_rmse": metrics.root_mean_squared_error(true, predicted)}, abs=1e-6)
    worst = int(np.argmax(np.abs(np.subtract(true, predicted))))
    assert page.tags["circle"] == 120 and f"dev.csv, example {worst + 1}" in page.articles[0]
    assert "no run.json" in page.text and "The chart shows" not in page.text
    assert page.tables[1][1][:3] == ["5", pytest.approx(found["eval_mae"]), 120]
    page = write(tmp_path / "page.html", rows * 20, None)
    assert page.tags["circle"] == 1200 and "The chart shows 1,200 of 2,400 examples" in page.text


def test_the_names_of_curves_do_not_overlap():
    curves = {"a": [(1, 0.5)], "b": [(1, 0.501)], "c": [(1, 0.1)], "d": [(1, 0.52)]}
    svg = charts.line_chart("title", curves)
    heights = {name: float(re.search(rf'y="([\d.]+)"[^>]*>{name}: ', svg).group(1)) for name in curves}
    assert heights["d"] <= heights["b"] - 16 <= heights["a"] - 32 and heights["c"] >= heights["a"] + 16


def test_the_numbers_and_the_marks_of_a_tagging(tmp_path):
    chance = random.Random(5)
    kinds, sentences, predictions = ["PER", "LOC"], [], []
    for index in range(80):
        words = [chance.choice([*NASTY, "word"]) for _ in range(8)]
        tags, answers = (tagging_data.convert_scheme([
            chance.choice(["O", "O", *(f"{letter}-{kind}" for letter in "BI" for kind in kinds)])
            for _ in words]) for _ in range(2))
        sentences.append(tagging_data.Sentence(words, tags, list(range(10 * index, 10 * index + 8))))
        predictions.append(tags if index < 10 else answers)
    true = [sentence.tags for sentence in sentences]
    found = {f"eval_{name}": score for name, score in tagging_metrics.score_tags(true, predictions).items()}
    path = tmp_path / "page.html"
    tagging_report.write_report(str(path), Facts("tags", found, "dev.txt"), sentences, predictions)
    page = Page(path)
    expected = seqeval_report(true, predictions, output_dict=True)
    for kind, *scores, support, hits, wrong, missed in page.tables[1][1:]:
        np.testing.assert_allclose([*scores, support], list(expected[kind].values()), atol=1e-6)
        assert hits + missed == support and hits == pytest.approx(scores[1] * support)
        assert hits == pytest.approx(scores[0] * (hits + wrong))
    assert [row[0] for row in page.tables[1][1:]] == sorted(kinds)
    totals = np.sum([row[5:] for row in page.tables[1][1:]], axis=0)
    assert [page.source.count(f'class="type {status}"')
            for status in ("found", "false", "missed")] == totals.tolist()
    assert len(page.articles) == 80 and "dev.txt, line" in page.articles[0]
    # A browser ignores text inside of <bdi> when it determines the direction of a sentence. So only the types
    # of entities are inside of <bdi>.
    assert set(re.findall("<bdi>(.*?)</bdi>", page.source.split("<article")[1])) <= set(kinds)


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
    rows = [PredictedRow(None, {}, ("\"" * 10_000_000,) * 2, "a", "b", {"b": 0.5}, False) for _ in range(60)]
    page = write(tmp_path / "page.html", rows, ["a", "b"], record={"x": "y" * 10_000_000})
    assert "[2,000 of 10,000,000 characters]" in page.articles[0] and len(page.articles) == 50
    shown = report_page.examples(
        list(range(1000)), lambda item: report_page.Html(f"<{item}>" + "x" * 10_000), 900)
    items = [int(item) for item in re.findall(r"<(\d+)>", shown)]
    assert 3_000_000 < len(shown) < 4_000_000 and f"Showing {len(items)} of 1,000 examples" in shown
    assert items == list(range(len(items)))


@pytest.mark.slow(reason="starts a browser")
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_browser_shows_the_page_and_runs_nothing(tmp_path):
    write(tmp_path / "page.html", classified(300, ["a", "<b>"]), ["a", "<b>"])
    done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                           f"--user-data-dir={tmp_path / 'profile'}", str(tmp_path / "page.html")],
                          capture_output=True, encoding="utf-8", timeout=120)
    assert done.stdout.count("<article") == 50 and "<title>task: dev.csv</title>" in done.stdout
