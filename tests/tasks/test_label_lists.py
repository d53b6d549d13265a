"""Lists of labels as other programs write them: each form gives the same labels, in each format of a file, or
an error that names the file and the line."""

import csv
import io
import json

from hypothesis import assume, given
from hypothesis import strategies as some
import numpy as np
import pandas
import pytest

from bertlib.api import data_files
from bertlib.rows import label_lists
from bertlib.tasks.classification import row_examples

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
         "ascii": lambda names: json.dumps(names, ensure_ascii=False), "frozenset":
         lambda names: f"frozenset({as_set(names) if names else ''})", "quotes": quoted,
         "array": lambda names: f"array({names!r}, dtype=object)",
         "Index": lambda names: f"Index({names!r}, dtype='object')",
         "deque": lambda names: f"deque({names!r})",
         "Python 2": lambda names: f"[{', '.join(f'u{name!r}' for name in names)}]",
         "NumPy": lambda names: str(np.array(names, object)).replace("\\\\", "\\\\")}
BARE = {"plain": SEPARATOR.join, "braces": lambda names: "{" + ",".join(names) + "}",
        "brackets": lambda names: "[" + ", ".join(names) + "]"}
BITS = {"list": repr, "spaces": lambda bits: f"[{' '.join(map(str, bits))}]",
        "floats": lambda bits: str(np.array(bits, float)), "bools": lambda bits: str(np.array(bits, bool)),
        "JSON": lambda bits: json.dumps(list(map(bool, bits))),
        "plain": lambda bits: "|".join(map(str, bits)),
        "tensor": lambda bits: f"tensor({list(map(float, bits))}, device='cuda:0')",
        "NumPy 2": lambda bits: str([f"np.int64({bit})" for bit in bits]).replace("'", "")}


def write(directory, ending, values):
    """Writes a file whose labels are `values`: texts, or lists for JSON Lines and a DataFrame."""
    path = directory / f"train{ending}"
    if ending == ".frame":
        frame = pandas.DataFrame({"text": [f"text {number}" for number in range(len(values))],
                                  "label": values})
        file = data_files.prepare(frame, str(directory), "train", data_files.Columns())
        data_files.write(file)
        return file.path
    rows = [(f"text {number}", value) for number, value in enumerate(values)]
    if ending == ".csv":
        stream = io.StringIO()
        csv.writer(stream).writerows([("text", "label"), *rows])
        text = stream.getvalue()
    elif ending == ".tsv":
        text = "text\tlabel\n" + "".join(f"{one}\t{value}\n" for one, value in rows)
    else:
        text = "".join(json.dumps(dict(zip(("text", "label"), row))) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path, known=None, separator=SEPARATOR, **more):
    reader = row_examples.ExampleReader("multilabel", separator=separator)
    return [set(row.label) for row in reader.read(path, known=known, **more).rows]


ENDINGS = some.sampled_from([".csv", ".tsv", ".jsonl", ".frame"])


def rows_of(names, size):
    row = some.lists(some.sampled_from(names), max_size=size, unique=True)
    return some.lists(row, min_size=2, max_size=6)


@given(rows=rows_of(ODD, 4), form=some.sampled_from(sorted(FORMS)), ending=ENDINGS)
def test_names_in_each_form_are_read_as_they_were_written(tmp_path, rows, form, ending):
    """JSON Lines and DataFrames have lists instead."""
    values = [FORMS[form](names) for names in rows]
    if ending in (".jsonl", ".frame"):
        shapes = {"tuple": tuple, "set": set, "NumPy": lambda names: np.array(names, object)}
        values = [shapes.get(form, list)(names) for names in rows]
        values = values if ending == ".frame" else list(map(list, rows))
    assume(ending != ".tsv" or not any("\n" in value for value in values))
    assert read(write(tmp_path, ending, values)) == list(map(set, rows))


@given(rows=rows_of(PLAIN, 3), form=some.sampled_from(sorted(BARE)))
def test_names_without_quotes_are_read_as_they_were_written(tmp_path, rows, form):
    assert read(write(tmp_path, ".csv", [BARE[form](names) for names in rows])) == list(map(set, rows))


@given(rows=some.lists(some.lists(some.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=6),
       form=some.sampled_from(sorted(BITS)), ending=ENDINGS)
def test_multi_hot_lists_need_the_names_of_the_labels(tmp_path, rows, form, ending):
    names = PLAIN[:4]
    values = [BITS[form](bits) for bits in rows]
    if ending in (".jsonl", ".frame"):
        values = [list(map({"bools": bool, "floats": float}.get(form, int), bits)) for bits in rows]
        values = list(map(np.array, values)) if ending == ".frame" and form != "list" else values
    path = write(tmp_path, ending, values)
    assert read(path, names) == [{name for name, bit in zip(names, bits) if bit} for bits in rows]
    first = 1 if path.endswith("l") else 2
    with pytest.raises(ValueError, match=rf"{path}:{first}: the labels are a list of \d zeros and ones, .*"
                       "unknown. Pass --label_file") as error:
        read(path)
    assert label_lists.FORMS in str(error.value)
    with pytest.raises(ValueError, match=rf":{first}: .* but the task has {len(names) + 1} labels"):
        read(path, [*names, "more"])


# --- Which form it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("values, expected", [
    # Labels that really are called 0 and 1.
    (["0", "1", "0,1", ""], [{"0"}, {"1"}, {"0", "1"}, set()]),
    (["['0']", "['1', '0']", "[]"], [{"0"}, {"0", "1"}, set()]),
    (["[0]", "[1]", "[0, 1]", "[]"], [{"0"}, {"1"}, {"0", "1"}, set()]),
    (["[27]", "[0, 1]", "[2 0]"], [{"27"}, {"0", "1"}, {"2", "0"}]),
    # Brackets that belong to a name.
    (["sport", "(none)", "sport,[x]"], [{"sport"}, {"(none)"}, {"sport", "[x]"}]),
    (["[x],[y]", "[x]"], [{"[x]", "[y]"}, {"[x]"}]),
    (["main()", "set(up)", "f((x) y)"], [{"main()"}, {"set(up)"}, {"f((x) y)"}]),
    (["['[x]', '(none)']", "['[x]']"], [{"[x]", "(none)"}, {"[x]"}]),
    # One name in brackets is a list if the other rows say so.
    (["{good}", "{good,fun}", "{}"], [{"good"}, {"good", "fun"}, set()]),
    (["{good}", "{fun}"], [{"good"}, {"fun"}]), (["{good}", "good,fun"], [{"good"}, {"good", "fun"}]),
    (["'good','fun'", "'good'"], [{"good", "fun"}, {"good"}]),
    (["rock 'n' roll", "'90s,rock"], [{"rock 'n' roll"}, {"'90s", "rock"}])])
def test_the_other_rows_decide_between_a_list_and_a_name(values, expected, tmp_path):
    assert read(write(tmp_path, ".csv", values), separator=",") == expected


def test_known_labels_keep_their_brackets_quotes_and_digits(tmp_path):
    known = ["[x]", "'good'", "0", "1"]
    path = write(tmp_path, ".csv", ["[x]", "'good'", "0,1", "[x],'good'"])
    assert read(path, known, ",") == [{"[x]"}, {"'good'"}, {"0", "1"}, {"[x]", "'good'"}]


@pytest.mark.parametrize("values, line, problem", [
    (["good", "0,1,0", "fun"], 3, "zeros and ones, but other rows contain names of labels"),
    (["['good']", "['fun']", "[0, 1]"], 4, "zeros and ones, but other rows contain names"),
    (["[0 1 0]", "good,fun"], 2, "zeros and ones, but other rows contain names"),
    (["['good', 'fun'", "good"], 2, "list \"['good', 'fun'\" is nested or not complete"),
    (["[['good'], ['fun']]", "good"], 2, "nested or not complete"),
    (["[[0, 1], [1, 0]]", "good"], 2, "nested or not complete"),
    (["[[0 1 0]]", "[[1 0 0]]"], 2, "nested or not complete"),
    (["{'good': 1, 'fun': 0}", "{}"], 2, "nested or not complete"),
    (["c('good', 'fun')", "good"], 2, "begins like a list"),
    (["good", "[0 1 0 ... 0 1 0]"], 3, "is shortened"), (["good", "['fun', None]"], 3, "a missing value"),
    (["['good, very', 'fun']", "['fun']"], 2, "the label 'good, very' contains ','"),
    (['"good, very",fun', "fun"], 2, "the label 'good, very' contains ','"),
    (["['']", "fun"], 2, "is empty")])
def test_a_row_that_cannot_be_a_list_is_refused(values, line, problem, tmp_path):
    path = write(tmp_path, ".csv", values)
    with pytest.raises(ValueError, match=f"{path}:{line}: ") as error:
        read(path, separator=",")
    assert problem in str(error.value)


def test_multi_hot_rows_of_different_lengths_are_refused(tmp_path):
    path = write(tmp_path, ".jsonl", [[0, 1, 0], [1, 1, 0], [0, 1], []])
    with pytest.raises(ValueError) as error:
        read(path, ["a", "b", "c"])
    assert f"{path}:3: the labels are a list of 2 zeros and ones, but the list in line 1 has 3." in str(
        error.value)


def test_sorted_labels_are_not_the_order_of_a_multi_hot_list(tmp_path):
    path = write(tmp_path, ".csv", ["[0, 1, 0]", "[1, 1, 0]"])
    with pytest.raises(ValueError, match=f"{path}:2: .* the order of the labels in the list is unknown"):
        read(path, ["a", "b", "c"], is_ordered=False)
    assert read(write(tmp_path, ".csv", ["a,b", "c"]), ["a", "b", "c"], ",", is_ordered=False)


def test_a_list_of_several_labels_is_no_label_of_a_classification(tmp_path):
    path = write(tmp_path, ".csv", ["good", "['good', 'fun']"])
    with pytest.raises(ValueError, match=f"{path}:3: .* is a list. .* --task_type=multilabel"):
        row_examples.ExampleReader("classification").read(path)
