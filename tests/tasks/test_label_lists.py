"""Lists of labels as other programs write them: each form gives the same labels, or an error that names the
file and the line."""

import csv
import json

from helpers import error_of, example_reader
from hypothesis import given
from hypothesis import strategies as some
import numpy as np
import pytest

from bertlib.data import label_lists

# Names as real data have them. The first group can be written without quotes.
PLAIN = ["good", "fun", "very good", "it's", "c (old)", "été", "2024", "a-b"]
ODD = [*PLAIN, "[x]", "(none)", "{y}", "'90s", 'so "called"', "0", "1", "back\\slash", "a;b", "]", ":)"]
SEPARATOR = "|"


def as_set(names):
    return "set()" if not names else f"{{{', '.join(map(repr, names))}}}"


def quoted(names):
    """Strings with single or double quotes, without brackets."""
    return ",".join(map(json.dumps, names))


FORMS = {"list": repr, "tuple": lambda names: repr(tuple(names)), "set": as_set, "JSON": json.dumps,
         "ascii": lambda names: json.dumps(names, ensure_ascii=False), "quotes": quoted,
         "Python 2": lambda names: f"[{', '.join(f'u{name!r}' for name in names)}]",
         "NumPy": lambda names: str(np.array(names, object)).replace("\\\\", "\\\\")}
BARE = {"plain": SEPARATOR.join, "braces": lambda names: "{" + ",".join(names) + "}",
        "brackets": lambda names: "[" + ", ".join(names) + "]"}
BITS = {"list": repr, "no brackets": lambda bits: " ".join(map(str, bits)),
        "spaces": lambda bits: f"[{' '.join(map(str, bits))}]",
        "floats": lambda bits: str(np.array(bits, float)), "bools": lambda bits: str(np.array(bits, bool)),
        "JSON": lambda bits: json.dumps(list(map(bool, bits))),
        "plain": lambda bits: "|".join(map(str, bits)),
        "NumPy 2": lambda bits: str([f"np.int64({bit})" for bit in bits]).replace("'", "")}


def write(directory, values):
    """Writes a CSV file whose labels are `values`."""
    path = directory / "train.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *enumerate(values)])
    return str(path)


def read(path, known=None, separator=SEPARATOR, **more):
    reader = example_reader("multilabel", label_separator=separator)
    return [set(row.label) for row in reader.read(path, known_labels=known, **more).rows]


def rows_of(names, size):
    row = some.lists(some.sampled_from(names), max_size=size, unique=True)
    return some.lists(row, min_size=2, max_size=6)


@given(rows=rows_of(ODD, 4), form=some.sampled_from(sorted(FORMS)))
def test_names_in_each_form_are_read_as_they_were_written(tmp_path, rows, form):
    assert read(write(tmp_path, map(FORMS[form], rows))) == list(map(set, rows))


@given(rows=rows_of(PLAIN, 3), form=some.sampled_from(sorted(BARE)))
def test_names_without_quotes_are_read_as_they_were_written(tmp_path, rows, form):
    assert read(write(tmp_path, map(BARE[form], rows))) == list(map(set, rows))


@given(rows=some.lists(some.lists(some.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=6),
       form=some.sampled_from(sorted(BITS)))
def test_multi_hot_lists_need_the_names_of_the_labels(tmp_path, rows, form):
    names, path = PLAIN[:4], write(tmp_path, map(BITS[form], rows))
    assert read(path, names) == [{name for name, bit in zip(names, bits) if bit} for bits in rows]
    with pytest.raises(ValueError, match=rf"{path}:2: the labels are a list of \d zeros and ones, .*"
                       "unknown. Pass --label_file") as error:
        read(path)
    assert label_lists.FORMS in str(error.value)
    with pytest.raises(ValueError, match=":2: .* but the task has 5 labels"):
        read(path, [*names, "more"])


# --- Which form it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("values, expected", [
    # Labels that really are called 0 and 1.
    (["0", "1", "0,1", ""], [{"0"}, {"1"}, {"0", "1"}, set()]),
    (["[0]", "[1]", "[0, 1]", "[]"], [{"0"}, {"1"}, {"0", "1"}, set()]),
    (["[27]", "[0, 1]", "[2 0]"], [{"27"}, {"0", "1"}, {"2", "0"}]),
    # Brackets that belong to a name.
    (["main()", "set(up)", "f((x) y)"], [{"main()"}, {"set(up)"}, {"f((x) y)"}]),
    (["['[x]', '(none)']", "['[x]']"], [{"[x]", "(none)"}, {"[x]"}]),
    # One name in brackets is a list if the other rows say so.
    (["{good}", "{good,fun}", "{}"], [{"good"}, {"good", "fun"}, set()]),
    (["{good}", "{fun}"], [{"good"}, {"fun"}]), (["{'good'}", "set()"], [{"good"}, set()]),
    (["rock 'n' roll", "'90s,rock"], [{"rock 'n' roll"}, {"'90s", "rock"}])])
def test_the_other_rows_decide_between_a_list_and_a_name(values, expected, tmp_path):
    assert read(write(tmp_path, values), separator=",") == expected


def test_known_labels_keep_their_brackets_quotes_and_digits(tmp_path):
    known = ["[x]", "'good'", "0", "1"]
    path = write(tmp_path, ["[x]", "'good'", "0,1", "[x],'good'"])
    assert read(path, known, ",") == [{"[x]"}, {"'good'"}, {"0", "1"}, {"[x]", "'good'"}]


@pytest.mark.parametrize("values, line, problem", [
    (["[0 1 0]", "good,fun"], 2, "zeros and ones, but other rows contain names"),
    (["['good', 'fun'", "good"], 2, "list \"['good', 'fun'\" is nested or not complete"),
    (["[[0 1 0]]", "[[1 0 0]]"], 2, "nested or not complete"),
    (["{'good': 1, 'fun': 0}", "{}"], 2, "nested or not complete"),
    (["c('good', 'fun')", "good"], 2, "begins like a list"),
    (["frozenset({'good'})", "frozenset()"], 2, "begins like a list"),
    (["tensor([0., 1.])", "tensor([1., 1.])"], 2, "begins like a list"),
    (["good", "[0 1 0 ... 0 1 0]"], 3, "is shortened"), (["good", "['fun', None]"], 3, "a missing value"),
    (["['good, very', 'fun']", "['fun']"], 2, "the label 'good, very' contains ','"),
    (['"good, very",fun', "fun"], 2, "the label 'good, very' contains ','"),
    (["['']", "fun"], 2, "is empty")])
def test_a_row_that_cannot_be_a_list_is_refused(values, line, problem, tmp_path):
    path = write(tmp_path, values)
    said = error_of(read, path, separator=",")
    assert f"{path}:{line}: " in said and problem in said


def test_multi_hot_rows_of_different_lengths_are_refused(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f'{{"text": "a", "label": {bits}}}\n'
                            for bits in ("[0, 1, 0]", "[1, 1, 0]", "[0, 1]")))
    with pytest.raises(ValueError, match=f"{path}:3: the labels are a list of 2 zeros and ones, but the list "
                       "in line 1 has 3."):
        read(str(path), ["a", "b", "c"])


def test_sorted_labels_are_not_the_order_of_a_multi_hot_list(tmp_path):
    path = write(tmp_path, ["[0, 1, 0]", "[1, 1, 0]"])
    with pytest.raises(ValueError, match=f"{path}:2: .* the order of the labels in the list is unknown"):
        read(path, ["a", "b", "c"], is_ordered=False)
    assert read(write(tmp_path, ["a,b", "c"]), ["a", "b", "c"], ",", is_ordered=False)


def test_a_list_of_several_labels_is_no_label_of_a_classification(tmp_path):
    path = write(tmp_path, ["good", "['good', 'fun']"])
    with pytest.raises(ValueError, match=f"{path}:3: .* is a list. .* --task_type=multilabel"):
        example_reader().read(path)
