"""Tests the tables of predictions that write_predictions writes."""

import csv
import json
import math

from helpers import read_json
import pytest

from bertlib.data import tables
from bertlib.data.prediction_files import format_csv_row, write_predictions
from bertlib.data.prediction_rows import PredictedRow
from bertlib.reports import paired_predictions


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_safe_table_contains_no_formula():
    formulas = ["=1+1", "+a", "-a", "@a", "\ta", "-1_0", "-1-1"]
    others = ["-3.5", "-3,5", "+1e-5", "a=b", -3.5]
    assert format_csv_row(formulas, csv_safe=True) == ",".join(f"'{text}" for text in formulas) + "\n"
    assert format_csv_row(["\ra", *others, True, None], csv_safe=True) == (
        "\"'\ra\",-3.5,\"-3,5\",+1e-5,a=b,-3.5,true,\n")
    assert format_csv_row(formulas) == ",".join(formulas) + "\n"


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
    """tests/commands/test_run_squad.py has the columns of CSV."""
    row = PredictedRow(None, {"id": "1"}, ("q", "c"), ("x",), "x", {"": 0.5}, True)
    write_predictions(tmp_path / "a.jsonl", [row], "jsonl")
    assert read_json(tmp_path / "a.jsonl")["probability"] == 0.5


@pytest.mark.parametrize("has_mark, decimal", [(False, "."), (True, ",")])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "e"])
def test_a_table_with_any_delimiter_is_read_again(delimiter, has_mark, decimal, tmp_path):
    path, text = tmp_path / "a.csv", ' =a;b,"c"|d\te\nf '
    rows = [PredictedRow(2, {"x,y": text, "z;": "é"}, (), text, "l", {"a,b": 0.5, "l": 0.25})]
    write_predictions(path, rows, dialect=tables.Dialect(delimiter, has_mark, decimal))
    assert path.read_bytes().startswith(b"\xef\xbb\xbf") == has_mark
    row, = paired_predictions.read_rows(str(path))
    assert row == {"line": "2", "x,y": text, "z;": "é", "label": text, "prediction": "l",
                   "probability_a,b": f"0{decimal}5", "probability_l": f"0{decimal}25", "is_right": "",
                   "loss": ""}
    if delimiter in ",;":  # a command recognizes these without a flag
        with open(path, "rb") as stream:
            table = tables.Table(stream, "csv")
            assert [list(values) for _, values in table] == [list(row), list(row.values())]
        assert table.dialect == tables.Dialect(delimiter, has_mark)
