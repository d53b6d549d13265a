"""The tables eval_predictions.csv and test_predictions.csv.

Each number in the result files can be computed from the table. The table contains the unchanged texts of the
right lines.
"""

import csv
import dataclasses
import json
import random
import re

import numpy as np
import pytest
from rows import ROWS
from sklearn import metrics
import tiny

from bertlib.tasks.classification import classifier_data, text_targets
from bertlib.tasks.classification.task import classification_splits

TRICKY = ['he said "no", twice', "two\nlines", "carriage\rreturn", "=cmd|' /C calc'!A0", "-3.5", "@x, y",
          " a ", "tab\tbird"]


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([header, *rows])


def check_metrics(rows, path):
    """Checks that the metrics in a file of results and in its JSON file follow from the table.
    tests/tasks/test_classification_metrics.py tests further metrics."""
    found = json.loads(path.with_suffix(".json").read_text())
    lines = dict(line.split(" = ") for line in path.read_text().splitlines())
    assert {name: found[name] for name in lines} == {name: json.loads(text) for name, text in lines.items()}
    truth, predicted = ([row[name] for row in rows] for name in ("label", "prediction"))
    scores = np.array([[float(row[f"probability_{label}"]) for label in "xyz"] for row in rows])
    assert ["xyz"[best] for best in scores.argmax(axis=1)] == predicted and len(set(predicted)) > 1
    assert [row["is_right"] for row in rows] == [str(a == b).lower() for a, b in zip(truth, predicted)]
    assert found["eval_confusion_matrix"] == metrics.confusion_matrix(truth, predicted).tolist()
    losses = [-np.log(row["xyz".index(label)]) for row, label in zip(scores, truth)]
    np.testing.assert_allclose([float(row["loss"]) for row in rows], losses, rtol=1e-5)
    assert found["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-6)


def test_rows_of_a_processor_that_changes_its_examples(tmp_path):
    """Examples that were left out do not shift the lines. An example of another class has no line."""
    @dataclasses.dataclass
    class Mine:
        guid: str
        text_a: str
        text_b: str | None
        label: str

    class Processor(classifier_data.MrpcProcessor):
        def get_dev_examples(self, data_dir):
            first, *_, last = super().get_dev_examples(data_dir)
            return [last, Mine("mine-1", "a", None, "1"), first]

    tiny.write_task(tmp_path, "mrpc", dev=5)
    processor = Processor()
    examples = processor.get_dev_examples(str(tmp_path))
    predictions = [{"probabilities": np.float32([0.75, 0.25])}] * 3
    rows = list(classification_splits.PredictedRows(
        examples, predictions, text_targets.create_target(["0", "1"]), [7, 8, 9]))
    assert [row.line for row in rows] == [6, None, 2] and [row.length for row in rows] == [7, 8, 9]
    lines = (tmp_path / "dev.tsv").read_text().splitlines()
    assert ["\t".join(rows[index].fields.values()) for index in (0, 2)] == [lines[5], lines[1]]
    assert rows[1].fields == {"guid": "mine-1", "text_a": "a"} and rows[1].texts == ("a",)
    assert (rows[1].label, rows[1].prediction, rows[1].is_right, rows[1].loss) == ("1", "0", False, None)


@pytest.fixture(scope="module")
def messy(scripts, tiny_model, tmp_path_factory):
    """A training with --dev_fraction and windows, on texts that are difficult to write as CSV.

    Returns (directory, rows of the training file).
    """
    here, draw = tmp_path_factory.mktemp("messy"), random.Random(4)
    rows = []
    for number in range(64):
        text = " ".join(tiny.sentence(draw) for _ in range(number % 4 + 1))
        rows.append([f"{TRICKY[number % len(TRICKY)]} {number}", text, "xyz"[number % 3], f"p{number}",
                     TRICKY[(number + 1) % len(TRICKY)]])
    write_csv(here / "all.csv", ["note", "text", "label", "prediction", "line"], rows)
    write_csv(here / "test.csv", ["note", "text", "label", "prediction", "line"], rows[:20])
    # The answers of this head differ between examples.
    head = np.random.RandomState(3).standard_normal((3, tiny.CONFIG["hidden_size"])).astype(np.float32)
    checkpoint = tiny.write_tensorflow(here / "trained.ckpt", {
        **tiny_model.weights, "output_weights": head, "output_bias": np.zeros(3, np.float32)})
    finished = scripts.run("run_classifier.py", *tiny.flags(**{
        **tiny_model.flags, "bert_config_file": tiny_model.shallow, "train_batch_size": 16,
        "num_train_epochs": 1, "init_checkpoint": checkpoint, "output_dir": here / "out",
        "train_file": "all.csv", "dev_fraction": 0.3, "test_file": "test.csv", "text_column": "text",
        "doc_stride": 6}), cwd=here)
    finished.assert_success()
    assert re.search(r" Training on \d+ windows: --num_train_epochs=1 means \d+ steps", finished.err)
    assert re.search(r" With --doc_stride, all examples together have \d+ windows\.", finished.err)
    return here, rows


def test_dev_fraction_names_lines_of_the_training_file(messy):
    here, written = messy
    rows = read_csv(here / "out" / "eval_predictions.csv")
    assert list(rows[0])[:6] == ["line", "note", "text", "input_label", "input_prediction", "input_line"]
    assert [int(row["line"]) for row in rows] == [
        int(line.split("\t")[0]) for line in (here / "out" / "dev_rows.txt").read_text().splitlines()[2:]]
    first_lines, line = {}, 2
    for row in written:
        first_lines[line] = row
        line += 1 + sum(text.count("\n") for text in row)
    assert [list(row.values())[1:6] for row in rows] == [first_lines[int(row["line"])] for row in rows]
    assert all(row["label"] == row["input_label"] for row in rows)
    check_metrics(rows, here / "out" / "eval_results.txt")


def test_the_test_set_is_scored_too(messy):
    rows = read_csv(messy[0] / "out" / "test_predictions.csv")
    assert [row["note"] for row in rows] == [row[0] for row in messy[1][:20]]
    check_metrics(rows, messy[0] / "out" / "test_eval_results.txt")


def test_the_table_of_a_known_task_has_its_columns(workspaces):
    work = workspaces(ROWS["pairs"])
    rows = read_csv(work.output / "eval_predictions.csv")
    assert list(rows[0]) == ["line", "Quality", "#1 ID", "#2 ID", "#1 String", "#2 String", "label",
                             "prediction", "probability_0", "probability_1", "is_right", "loss"]
    lines = (work.directory / "data" / "dev.tsv").read_text().splitlines()
    assert ["\t".join(list(row.values())[1:6]) for row in rows] == lines[1:]
