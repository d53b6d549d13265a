"""Tests the answers of predict.py as rows of a CSV table."""

import csv
import io

from bertlib.serving.line_answers import AnswerTable
from bertlib.serving.prediction_inputs import Input


def rows_of(table, *pairs):
    assert not any(table.find_problem(item) for item, _ in pairs if item.problem is None)
    text = "".join(table.format(*pair) for pair in pairs) + table.finish()
    return list(csv.reader(io.StringIO(text, newline="")))


def bad(line, **fields):
    return Input(line, fields, problem="bad"), {"error": f"line {line}: bad"}


def test_an_answer_is_a_row():
    answer = {"labels": ["a", "b"], "probabilities": {"a": 0.9, "b": 0.5, "c": 0.1}, "words": ["x", 'y "z"'],
              "null": None}
    item = Input(1, {"text_a": "two\nlines", "labels": "mine", "n": 3})
    assert rows_of(AnswerTable(label_separator=";"), (item, answer)) == [
        ["text_a", "labels", "n", "prediction", "probability_a", "probability_b", "probability_c", "words",
         "null"],
        ["two\nlines", "mine", "3", "a;b", "0.9", "0.5", "0.1", '["x", "y \\"z\\""]', ""]]


def test_the_header_comes_with_the_first_answer():
    table = AnswerTable(has_errors=True, csv_safe=True)
    assert table.format(*bad(1, text="=1")) == ""
    good = Input(2, {"text": "b", "error": "e"}), {"score": -1.5}
    assert table.find_problem(good[0]) is None
    assert table.format(*good) == ("text,input_error,prediction,error\n'=1,,,line 1: bad\nb,e,-1.5,\n")
    assert table.format(*bad(3, column_7="x")) == ",,,line 3: bad\n" and table.finish() == ""


def test_only_bad_lines():
    table = AnswerTable(has_errors=True)
    assert rows_of(table, bad(1), bad(2, text="x")) == [["text", "error"], ["", "line 1: bad"],
                                                        ["x", "line 2: bad"]]
    assert AnswerTable().finish() == ""
