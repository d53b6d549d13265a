"""Tests the tables of predictions that write_predictions writes."""

import csv
import json
import math

from helpers import read_json
import pytest

from bertlib.reports.prediction_files import format_csv_row, write_predictions
from bertlib.reports.prediction_rows import PredictedRow


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("text", ['say "no", so', "two\nlines", "a\rb", " a ", "=1+1", "ä\x00🙂"])
def test_a_text_is_unchanged(text, tmp_path):
    path = tmp_path / "a.csv"
    write_predictions(path, [PredictedRow(1, {"note": text, text: "x"}, ("a",), text, text)])
    header, row = read_csv(path)
    assert header[1:3] == ["note", text] and row[1:] == [text, "x", text, text, "", ""]


@pytest.mark.parametrize("text, expected", [
    ("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@a", "'@a"), ("\ta", "'\ta"), ("\ra", "\"'\ra\""),
    ("-3.5", "-3.5"), ("+1e-5", "+1e-5"), ("-1_0", "'-1_0"), ("-1-1", "'-1-1"), ("a=b", "a=b"),
    (-3.5, "-3.5"), (True, "true"), (None, "")])
def test_a_safe_table_contains_no_formula(text, expected):
    assert format_csv_row([1, text], csv_safe=True) == f"1,{expected}\n"
    if isinstance(text, str) and text.startswith("="):
        assert format_csv_row([1, text]) == f"1,{text}\n"


def test_columns_keep_their_contents(tmp_path):
    """The second row has different fields. One field has the same name as a column of probabilities."""
    rows = [PredictedRow(1, {"probability_a": "p", "line": "l"}, ("t",), ("a", "b"), ("b",),
                         {"a": 0.1, "b": math.nan}, False, 0.25, 7, {"f1": 0.5}),
            PredictedRow(None, {"x": "y", "input_line": "m"}, ("t",), None, (), {"a": 1e-30, "b": 1.0})]
    write_predictions(tmp_path / "a.csv", rows, separator=";")
    assert read_csv(tmp_path / "a.csv") == [
        ["line", "input_probability_a", "input_input_line", "x", "input_line", "label", "prediction",
         "probability_a", "probability_b", "is_right", "loss", "f1"],
        ["1", "p", "l", "", "", "a;b", "b", "0.1", "nan", "false", "0.25", "0.5"],
        ["", "", "", "y", "m", "", "", "1e-30", "1.0", "", "", ""]]
    write_predictions(tmp_path / "a.jsonl", rows, "jsonl")
    first, second = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert first == {"line": 1, "probability_a": "p", "input_input_line": "l", "label": ["a", "b"],
                     "prediction": ["b"], "probabilities": {"a": 0.1, "b": None}, "is_right": False,
                     "loss": 0.25, "f1": 0.5}
    assert second["input_line"] == "m" and second["prediction"] == [] and second["label"] is None


def test_a_question_has_one_probability(tmp_path):
    row = PredictedRow(None, {"id": "1"}, ("q", "c"), ("x",), "x", {"": 0.5}, True)
    write_predictions(tmp_path / "a.csv", [row])
    assert read_csv(tmp_path / "a.csv")[0] == ["line", "id", "label", "prediction", "probability", "is_right",
                                               "loss"]
    write_predictions(tmp_path / "a.jsonl", [row], "jsonl")
    assert read_json(tmp_path / "a.jsonl")["probability"] == 0.5
