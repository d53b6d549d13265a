"""Reads a user's own files: formats, columns, header rows and labels."""

import gzip

from helpers import error_of, example_reader, settings_of, write_file
import pytest

from bertlib.data import columns, labelled_rows, text_keys
from bertlib.tasks.classification import classification_target, own_data, row_examples


def reader(text=None, label=None, header=None, task_type="classification", **more):
    return example_reader(task_type, text, label, header, **more)


# --- Formats and columns ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name, content", [
    ("a.csv", '"SEP=;"\ntext;label\na cat;x\n'), ("a.csv", "sep=\\t\ntext\tlabel\na cat\tx\n")])
def test_the_line_with_which_excel_names_the_delimiter_is_no_row(name, content, tmp_path):
    row, = reader().read(write_file(tmp_path / name, content)).rows
    assert row[:3] == (3, ("a cat",), "x")


def test_columns_of_a_flag():
    assert columns.parse_columns(" a b , -1") == ["a b", -1]
    assert columns.parse_columns("01,2") == ["01", 2]
    for text, problem in (("", ": the name of a column is empty"), ("1,1", " names a column twice")):
        with pytest.raises(ValueError, match=f"--text_column={text}{problem}"):
            columns.parse_columns(text)


# --- Header rows -----------------------------------------------------------------------------------------

ONCE = "a good cat,x\nthe dog runs,y\nso it is,x\none more time,z\n"
TEXTS = "a good cat\nthe dog runs\nso it is\none more time\n"
NUMBERED = "text 3,3\ntext 4,4\ntext 5,5\n"
MANY = "".join(f"a dog {number},{'xy'[number % 2]}\n" for number in range(20))


@pytest.mark.parametrize("content, labels, expected", [
    ("was,kind\na,x\nb,y\nc,x\nd,y\n", [2], "header row: was"),
    ("Text,x\na,x\nb,y\n", [2], "header row: Text, x"),
    # The label of the first row is in no other row. Only one of the other labels also occurs once.
    (f"a cat,kind\n{MANY}a bird,z\n", [2], "header row"), (f"sentence\n{TEXTS}", None, "header row")])
def test_a_header_taken_for_an_example_is_noticed(content, labels, expected, tmp_path, caplog):
    path = write_file(tmp_path / "test.csv", content)
    with pytest.raises(ValueError, match="test.csv:1: the columns are given by number, but this row looks "
                       f"like a {expected}.* pass --header=true; if it is an example, pass --header=false"):
        reader([1], labels).read(path, needs_labels=False)
    assert len(reader([1], labels, False).read(path, False).rows) == content.count("\n")
    assert (f"test.csv:1: this row is an example, because --header is false, but it looks like a {expected}"
            in caplog.text)


@pytest.mark.parametrize("header, content, count", [
    (None, "a,x\nb,y\nc,z\n", 3), (True, "was,kind\na,x\nb,y\nc,x\n", 3),
    # A first row in which a label of other rows occurs is an example.
    (True, "a,x\nb,y\nc,x\n", None)])
def test_an_example_taken_for_a_header_is_noticed(header, content, count, tmp_path):
    path = write_file(tmp_path / "train.csv", content)
    if count:
        assert len(reader([1], [2], header).read(path).rows) == count
    else:
        with pytest.raises(ValueError, match=f"{path}:1: --header=true, but this row looks like an example: "
                           "it has 'x'"):
            reader([1], [2], header).read(path)


@pytest.mark.parametrize("content, labels, known", [
    (f"Great,x\n{ONCE}", [2], None), (f'"Great movie, really!",once\n{ONCE}', [2], None),
    (f"Great!\n{TEXTS}", None, None), ("It is,once\nso,x\nthey say,y\nand,z\n", [2], None),
    (f"Great,once\n{ONCE}", [2], ["once", "x", "y", "z"]), (f"a cat,n/a\n{NUMBERED}", None, None),
    (f"7,1\n{NUMBERED}", [2], None), ("no,42\n", [2], None),
    ("a cat sat on the mat,once\nso,x\nit,x\nis,y\nan,y\n", [2], None),
    ('"a cat sat on the mat, 3",unknown\nso,1\nit,2\n', None, None)])
def test_a_real_first_row_is_an_example(content, labels, known, tmp_path):
    part = reader([1], labels).read(write_file(tmp_path / "train.csv", content), labels is not None, known)
    assert len(part.rows) == content.count("\n")


# --- Labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels, ordered", [
    (["b", "10", "9", "b"], ["10", "9", "b"]), (["10", "9", "-1.5", "9"], ["-1.5", "9", "10"])])
def test_labels_are_sorted_and_numbers_as_numbers_if_all_are(labels, ordered):
    counts = row_examples.count_labels([labelled_rows.Row(1, ("a",), label) for label in labels])
    assert list(counts) == ordered and counts[ordered[1]] == labels.count(ordered[1])


@pytest.mark.parametrize("name, content", [
    ("train.csv", "text,red,blue\na,1,0\nb,0,0\nc,1,1\n"),
    ("train.jsonl", '{"text": "a", "red": true, "blue": false}\n{"text": "b", "red": 0, "blue": 0}\n'
                    '{"text": "c", "red": 1, "blue": true}\n')])
def test_several_labels_in_a_column_each(name, content, tmp_path):
    found = reader(["text"], ["red", "blue"], None, "multilabel").read(write_file(tmp_path / name, content))
    assert [row.label for row in found.rows] == [("red",), (), ("red", "blue")]


def test_numbers_of_json_are_labels_and_scores(tmp_path):
    path = write_file(tmp_path / "train.jsonl", '{"text": "a", "label": 1}\n{"label": 2, "text": "b"}\n')
    for task_type, labels in (("classification", ["1", "2"]), ("regression", [1.0, 2.0])):
        assert [row.label for row in reader(task_type=task_type).read(path).rows] == labels


@pytest.mark.parametrize("training, content, is_labelled", [
    (None, "a cat\tx\na dog\ty\n", True), (None, "a cat\na dog\n", False),
    ("b\tx\nc\ty\n", "a cat\na dog\n", False),
    # Most labels are known.
    (None, "a cat\tx\na dog\ty\nb\tx\nc\tY\n", True), (None, "a cat\tx\na dog\tZ\nb\tx\nc\tY\n", False),
    # The last column of a file without labels is another column.
    ("b\te\tx\nc\te\ty\n", "a cat\tx\na dog\ty\n", False)])
def test_labels_of_a_test_file_without_names_are_recognized(training, content, is_labelled, tmp_path):
    found = reader([1], [-1], False)
    if training:
        found.read(write_file(tmp_path / "train.tsv", training))
    part = found.read(write_file(tmp_path / "test.tsv", content), needs_labels=False, known_labels=["x", "y"])
    assert part.is_labelled == is_labelled


@pytest.mark.parametrize("name, content, labels", [
    ("test.csv", "question,answer,kind\na,b,\nc,d, \n", None),
    ("test.csv", "question,answer,kind\na,b,x\nc,d,y\n", ["x", "y"]),
    ("test.jsonl", '{"question": "a", "answer": "b", "kind": 0}\n', ["0"]),
    ("test.jsonl", '{"question": "a", "answer": "b", "kind": null}\n', None)])
def test_a_test_file_may_have_labels(name, content, labels, tmp_path):
    part = reader(["question", "answer"], ["kind"]).read(
        write_file(tmp_path / name, content), needs_labels=False, known_labels=["x", "y"])
    assert part.is_labelled == bool(labels)
    assert [row.label for row in part.rows] == (labels or [None] * len(part.rows))


# --- Errors ----------------------------------------------------------------------------------------------


# test_reader_properties.py and test_bad_lines.py have further faults.
@pytest.mark.parametrize("name, content, expected", [
    ("a.txt", "", "the format is unknown. Give the file a name that ends in one of .csv, .tsv"),
    ("a.csv", "text,label\n", ":1: the file has only a header row"),
    ("a.csv", "text,text,label\na,b,x\n", ":1: 2 columns are named 'text'"),
    ("a.csv", "note,label\na,x\n", ":1: no column has a usual name for texts. Name the columns of the texts "
                                   "with --text_column; the columns are note, "
     "label. If this row is not a header"),
    ("a.csv", "text,sentence,label\na,b,x\n", ":1: several columns could contain the texts: text or "
                                              "sentence. Name the right columns with"),
    ("a.csv", "text,kind\na,x\n", ":1: no column has a usual name for labels. Name"),
    ("a.jsonl", '[{"text": "a"}]\n', ":1: in JSON Lines, each line is a JSON object"),
    ("a.csv", "body,message,label\na,b,x\n", ":1: several columns could contain the texts: body or message."),
    ("a.csv", "nr;text, long;label\n1;a;x\n", "are nr;text, long;label (a name contains a semicolon: if "
                                             "semicolons separate the columns, pass --delimiter="),
    ("a.tsv", "text;label\na;x\n", "the columns are text;label (only one column was found: are the "
     "columns of a .csv file separated by commas or semicolons, and those of a .tsv file by tabs? If"),
    ("a.jsonl", '{"text": "a", "label": ["x"]}\n', ':1: the label is ["x"], but should be a text. If a text '
     "may have several labels, pass --task_type=multilabel."),
    ("a.jsonl.gz", b"text\n", "is not a gzip file, or is damaged"), ("a.csv", "", "the file is empty"),
    ("a.csv.gz", gzip.compress(b"text,label\na,x\n", mtime=0)[:-9],
     "is truncated: the end of its compressed content"),
    ("a.csv", b"PK\x03\x04", ":1: the file is a ZIP archive or the workbook of a spreadsheet program")])
def test_a_file_that_cannot_be_used_is_refused_with_its_line(name, content, expected, tmp_path):
    path = write_file(tmp_path / name, content)
    said = error_of(reader().read, path)
    assert expected in said and said.startswith(path)


@pytest.mark.parametrize("text, label, expected", [
    (["queston"], ["kind"], ":1: there is no column 'queston' (--text_column); the columns are "
     "question, answer, kind. If this row is not a header, pass the numbers of the columns, from 1. Did you "
     "mean 'question'?"),
    (["question"], ["sort"], ":1: there is no column 'sort' (--label_column)"),
    ([4], ["kind"], ":1: --text_column names column 4, but the columns have the numbers 1 to 3"),
    (["kind"], ["kind"], "name a column twice")])
def test_a_column_that_is_not_there_is_refused(text, label, expected, tmp_path):
    path = write_file(tmp_path / "train.csv", "question,answer,kind\na,b,x\n")
    assert expected in error_of(reader(text, label).read, path)


def test_a_column_with_a_comma_in_its_name_has_a_number(tmp_path):
    path = write_file(tmp_path / "train.csv", 'id;"Text, long";label\n1;a;x\n2;b;y\n')
    assert ("no column 'Text' (--text_column); the columns are id, 'Text, long', label. If" in (
        said := error_of(reader(["Text", "long"]).read, path)))
    assert said.endswith("For the column 'Text, long', pass its number, 2, and --header=true."), said
    assert [row.text_a for row in reader([2], ["label"], True).read(path).rows] == ["a", "b"]


@pytest.mark.parametrize("text, expected", [
    (["txt"], "there is no column 'txt' (--text_column); the columns are note, label."),
    (None, "no column has a usual name for texts. Name the columns of the texts with --text_column; the "
           "columns are note, label.")])
def test_a_column_that_no_row_of_json_has_is_one_error(text, expected, tmp_path):
    path = write_file(tmp_path / "train.jsonl", '{"note": "b", "label": 1}\n' * 60)
    assert error_of(reader(text).read, path) == f"{path}:1: {expected}"


def test_further_usual_names_are_used_only_if_no_row_of_json_has_the_first_ones(tmp_path):
    first, second = '{"comment": "c", "label": "x"}\n', '{"comment": "d", "text": "t", "label": "y"}\n'
    with pytest.raises(ValueError, match="a.jsonl:1: no column has a usual name for texts"):
        reader().read(write_file(tmp_path / "a.jsonl", first + second))
    rows = reader().read(write_file(tmp_path / "a.jsonl", first + second.replace("text", "more"))).rows
    assert [(row.line, row.texts) for row in rows] == [(1, ("c",)), (2, ("d",))]


def test_rows_of_json_with_and_without_labels_are_not_taken_for_unlabelled(tmp_path):
    path = write_file(tmp_path / "test.jsonl", '{"text": "b", "label": "x"}\n{"text": "a"}\n')
    for label in (None, ["label"]):
        with pytest.raises(ValueError, match="test.jsonl:2: the row has no 'label', only 'text'"):
            reader(["text"], label).read(path, needs_labels=False)


@pytest.mark.parametrize("labels, groups", [
    (["No", "no", "yes"], [["No", "no"]]), (["1", "1.0", "2", "x"], [["1", "1.0"]]),
    (["Qualit\u00e4t", "qualitaet", "Gr\u00f6\u00dfe", "GROESSE"], [
        ["Qualit\u00e4t", "qualitaet"], ["Gr\u00f6\u00dfe", "GROESSE"]]), (["a", "b", "1"], [])])
def test_labels_that_hardly_differ_are_found(labels, groups):
    assert row_examples.similar_labels(labels) == groups


@pytest.mark.parametrize("labels, count, is_warned", [
    ([f"{n},5" for n in range(6)], 99, True), (["1.5", "2", "3", "4", "5"], 99, False),
    ([*map(str, range(20))], 200, False), ([f"{n}.5" for n in range(9)] + ["a", "b"], 99, False),
    ([f"{n} a" for n in range(20)], 39, True)])
def test_labels_that_are_probably_scores_are_noticed(labels, count, is_warned, caplog):
    rows = [labelled_rows.Row(line, ("text",), labels[line % len(labels)]) for line in range(count)]
    row_examples.log_labels("train", labelled_rows.ExampleFile("a", rows, True),
                          classification_target.SingleLabel(labels), True)
    assert ("pass --task_type=regression" in caplog.text) == is_warned


@pytest.mark.parametrize("labels, said", [
    (["a", "b", "a; b", "c"], "'a; b' consists of other labels. If an example can have several labels, pass "
                              "--task_type=multilabel --label_separator=';'."),
    (["a", "b", "a; c", "a/"], "")])
def test_labels_that_consist_of_other_labels_are_noticed(labels, said, caplog):
    rows = [labelled_rows.Row(line, ("text",), label) for line, label in enumerate(labels * 9)]
    row_examples.log_labels("train", labelled_rows.ExampleFile("a", rows, True),
                            classification_target.SingleLabel(labels), True)
    assert said in caplog.text and ("consists of" in caplog.text) == bool(said)


@pytest.mark.parametrize("scores, is_train, is_warned", [
    ([0.0, 5.0], True, False), ([-6.0, 1.0], True, True), ([9.0], False, False)])
def test_scores_that_are_hard_to_reach_are_noticed_before_the_training(scores, is_train, is_warned, caplog):
    rows = [labelled_rows.Row(1, ("text",), score) for score in scores]
    row_examples.log_labels("train", labelled_rows.ExampleFile("a", rows, True),
                            classification_target.Score(), is_train)
    assert ("Scale them to a small range around 0" in caplog.text) == is_warned


@pytest.mark.parametrize("counts, found", [
    ({"positive": 673, "negative": 670, "postive": 1}, {"postive": "positive"}),
    ({"positive": 7, "postive": 1}, {}), ({"class10": 100, "class1": 1}, {}), ({"good": 99, "goo": 0}, {}),
    ({"Technische Fragen": 51, "Technishce Fragen": 6}, {"Technishce Fragen": "Technische Fragen"}),
    ({"Kundendienst": 51, "Kundendinst": 7}, {}), ({"atypical": 1, "typical": 15}, {}),
    ({"negative": 1, "positive": 15}, {}), ({"GroupA": 1, "GroupB": 15}, {})])
def test_rare_labels_that_look_like_misspellings_are_found(counts, found):
    assert text_keys.find_misspellings(counts) == found


@pytest.mark.parametrize("labels, said", [
    (["caf\u00e9", "cafe\u0301"], r"a:3: the label 'cafe\u0301' looks like the label 'caf\xe9' (a:2)"),
    (["a b", "a\u00a0b\u200b"], r"the label 'a\xa0b\u200b' looks like"),
    (["a b", "a  b"], "or pass --label_map=labels.csv, a file with `a  b,a b`.")])
def test_labels_that_look_the_same_are_refused(labels, said):
    rows = [labelled_rows.Row(line, ("text",), label) for line, label in enumerate(labels, 2)]
    split = labelled_rows.ExampleFile("a", rows, True)
    assert said in error_of(row_examples.check_distinguishable, labels, None, split)
    assert "looks like" in row_examples.label_checker(labels[:1], "the test")(rows[1], labels[1])


@pytest.mark.parametrize("label, has_hint", [("1.0", True), ("01", True), ("2.0", False), ("x", False)])
def test_an_unknown_label_that_equals_a_known_number_has_a_hint(label, has_hint):
    said = row_examples.label_checker(["0", "1", "y"], "the test")(None, label)
    assert (f"{label!r} looks like '1'" in said) == has_hint


@pytest.mark.parametrize("label, value, expected", [
    (["red", "blue"], "2", ":2: the column 'red' contains 2. It should contain 1"),
    (["red"], '["x", 1, null]', ":2: a label is missing"),
    (["red"], '["x,y"]', ":2: the label 'x,y' contains ','"),
    (["red", "a;b"], "1", ":1: the label 'a;b' contains ';'")])
def test_labels_that_cannot_be_told_apart_are_refused(label, value, expected, tmp_path):
    path = write_file(tmp_path / "train.jsonl", '{"text": "a", "red": 1, "blue": 0, "a;b": 1}\n'
                 f'{{"text": "b", "red": {value}, "blue": 0, "a;b": 0}}\n')
    separator = ";" if "a;b" in label else ","
    found = reader(["text"], label, None, "multilabel", label_separator=separator)
    assert expected in error_of(found.read, path)


@pytest.mark.parametrize("content, expected", [
    ("", "the file is empty"), ("a\nb\na\n", ":3: the label 'a' occurs twice"),
    ("a\n\nb\n", ":2: the line is blank"), ("a\nb\tc\n", ":2: the label 'b.tc' contains a line end")])
def test_a_file_of_labels_is_checked(content, expected, tmp_path):
    with pytest.raises(ValueError, match=expected):
        row_examples.read_labels(write_file(tmp_path / "labels.txt", content))
    assert row_examples.read_labels(write_file(tmp_path / "labels.txt", "b\na \n")) == ["b", "a"]


def test_the_decimal_sign_of_the_training_is_that_of_its_scores(tmp_path):
    for score, decimal in (("2,5", "comma"), ("2.5", "auto")):
        path = write_file(tmp_path / "train.csv", f"text;label\na cat;{score}\na dog;1\n")
        settings = settings_of("run_classifier", task_type="regression", train_file=str(path),
                               do_train=True, output_dir=str(tmp_path / "out"))
        data = own_data.OwnData(settings)
        data.resolve("")
        data.read()
        assert settings.output_decimal == decimal
