"""The tables eval_predictions.csv and test_predictions.csv.

They contain the unchanged texts of the right lines.
"""

import csv
import math
import random
import types

from helpers import read_json
import numpy as np
from outputs import table
import pytest
import tiny

from bertlib.tasks.classification import classification_results, classification_target, classifier_data

ROW = "one text"
TRICKY = ['he said "no", twice', "two\nlines", "carriage\rreturn", "=cmd|' /C calc'!A0", "-3.5", "@x, y",
          " a ", "tab\tbird"]


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([header, *rows])


def test_rows_of_a_processor_that_changes_its_examples(tmp_path):
    """Examples that were left out do not shift the lines. An example of another class has no line."""
    tiny.write_task(tmp_path, "mrpc", dev=5)
    first, *_, last = classifier_data.MrpcProcessor().get_dev_examples(str(tmp_path))
    mine = types.SimpleNamespace(guid="mine-1", text_a="a", text_b=None, label="1")
    predictions = [{"probabilities": np.float32([0.75, 0.25])}] * 3
    rows = list(classification_results.PredictedRows(
        [last, mine, first], predictions, classification_target.create_target(["0", "1"]), [7, 8, 9],
        np.float32([0.5] * 3)))
    assert [(row.line, row.length) for row in rows] == [(6, 7), (None, 8), (2, 9)]
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert ["\t".join(rows[index].fields.values()) for index in (0, 2)] == [lines[5], lines[1]]
    assert rows[1].fields == {"guid": "mine-1", "text_a": "a"}
    assert (rows[1].label, rows[1].prediction, rows[1].is_right, rows[1].loss) == ("1", "0", False, 0.5)


def test_rows_have_their_lines_and_their_unchanged_texts(copy):
    """The texts are difficult to write as CSV. The test file has the first 20 rows."""
    draw, rows = random.Random(4), []
    for number in range(40):
        text = " ".join(tiny.sentence(draw) for _ in range(number % 4 + 1))
        rows.append([f"{TRICKY[number % len(TRICKY)]} {number}", text, ("pets", "wild, big")[number % 2],
                     f"p{number}", TRICKY[(number + 1) % len(TRICKY)]])
    for name, count in (("dev", 40), ("test", 20)):
        write_csv(copy.directory / f"{name}.csv", ["note", "text", "label", "prediction", "line"],
                  rows[:count])
    copy.train(do_train=False, dev_file="dev.csv", test_file="test.csv").assert_success()
    evaluated, line = table(copy.output / "eval_predictions.csv"), 2
    assert list(evaluated[0])[:6] == ["line", "note", "text", "input_label", "input_prediction", "input_line"]
    for row, expected in zip(evaluated, rows, strict=True):
        assert list(row.values())[:6] == [str(line), *expected] and row["label"] == row["input_label"]
        line += 1 + sum(text.count("\n") for text in expected)
    # The promise `scores` in tests/conformance has the metrics.
    losses = [-math.log(float(row[f"probability_{row['label']}"])) for row in evaluated]
    np.testing.assert_allclose([float(row["loss"]) for row in evaluated], losses, rtol=1e-5)
    assert {row["is_right"] for row in evaluated} == {"true", "false"}
    tested = table(copy.output / "test_predictions.csv")
    assert [row["note"] for row in tested] == [row[0] for row in rows[:20]]
    right = [row["is_right"] == "true" for row in tested]
    assert read_json(copy.output / "test_eval_results.json")["eval_accuracy"] == pytest.approx(np.mean(right))
