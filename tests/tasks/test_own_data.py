"""Reads a user's own files: formats, columns, header rows and labels."""

import csv
import gzip
import io
import json

import pytest

from bertlib.rows import columns, text_keys
from bertlib.tasks.classification import row_examples

NAMES = ["question", "answer", "kind"]


def written(directory, name, rows, header=NAMES):
    """Writes a file of rows in the format of its name, and returns its path."""
    if name.removesuffix(".gz").endswith(".csv"):
        text = io.StringIO()
        csv.writer(text).writerows([*([header] if header else []), *rows])
        data = text.getvalue()
    elif name.removesuffix(".gz").endswith(".tsv"):
        lines = [header, *rows] if header else rows
        data = "".join("\t".join(field.replace("\n", " ") for field in row) + "\n" for row in lines)
    else:
        data = "".join(json.dumps(dict(zip(header, row))) + "\n" for row in rows)
    data = data.encode()
    path = directory / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(path)


def contents(part):
    return [tuple(row)[1:4] for row in part.rows]


# --- Formats and columns ---------------------------------------------------------------------------------


def test_a_single_text_a_byte_order_mark_and_spaces_around_names_and_labels(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("\ufefflabel, text\nyes , a cat\n no,a dog\n\n\n")
    reader = row_examples.ExampleReader("classification")
    assert contents(reader.read(str(path))) == [(" a cat", None, "yes"), ("a dog", None, "no")]
    assert (reader.text, reader.label) == (["text"], ["label"])


def test_a_missing_value_of_a_further_column_stays_missing():
    row = {"text": "a cat", "note": None, "size": 3, "tags": [None, "é"]}
    assert columns.FieldReader(None)(row) == {"text": "a cat", "note": None, "size": "3",
                                              "tags": '[null, "é"]'}


@pytest.mark.parametrize("first, delimiter, name", [
    ('"sep=;"', ";", "a.csv"), ("SEP=,", ",", "a.csv"), ("sep=\\t", "\t", "a.csv"),
    ("sep=\t", "\t", "a.tsv")])
def test_the_line_with_which_excel_names_the_delimiter_is_no_row(first, delimiter, name, tmp_path):
    path = tmp_path / name
    path.write_text(f"{first}\ntext{delimiter}label\na cat{delimiter}x\n")
    row, = row_examples.ExampleReader("classification").read(str(path)).rows
    assert row[:4] == (3, "a cat", None, "x")


@pytest.mark.parametrize("names, text", [
    (["text", "label", "id"], ["text"]), (["sentence1", "sentence2", "label"], ["sentence1", "sentence2"]),
    (["class", "answer", "question"], ["question", "answer"]), (["Text", "LABEL", "id"], ["Text"]),
    (["Text", "text", "label"], ["text"])])
def test_usual_names_are_found(names, text, tmp_path):
    path = written(tmp_path, "train.tsv", [["a", "b", "c"], ["d", "e", "f"]], names)
    reader = row_examples.ExampleReader("classification")
    reader.read(path)
    assert reader.text == text and len(reader.label) == 1


def test_columns_of_a_flag():
    assert columns.parse_columns(" a b , -1") == ["a b", -1]
    assert columns.parse_columns("01,2") == ["01", 2]
    for text, problem in (("", ": the name of a column is empty"), ("1,1", " names a column twice")):
        with pytest.raises(ValueError, match=f"--text_column={text}{problem}"):
            columns.parse_columns(text)


# --- Header rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("header, rows, expected", [
    (None, [["was", "kind"], ["a", "x"], ["b", "y"], ["c", "x"], ["d", "y"]], "looks like a header row: was"),
    (None, [["Text", "x"], ["a", "x"], ["b", "y"]], "looks like a header row: Text, x"),
    (True, [["a", "x"], ["b", "y"], ["c", "x"]], ":1: --header=true, but this row looks like an example: it "
                                                 "has 'x'"),
    (None, [["a", "x"], ["b", "y"], ["c", "x"]], None),
    # The first row can be the only example of its label, so it is no header.
    (None, [["a", "x"], ["b", "y"], ["c", "z"]], None),
    (False, [["was", "kind"], ["a", "x"], ["b", "y"], ["c", "x"], ["d", "y"]], None),
    (True, [["was", "kind"], ["a", "x"], ["b", "y"], ["c", "x"]], None)])
def test_a_header_taken_for_data_is_noticed_and_the_reverse(header, rows, expected, tmp_path):
    reader = row_examples.ExampleReader("classification", [1], [2], header)
    path = written(tmp_path, "train.csv", rows, None)
    if expected:
        with pytest.raises(ValueError) as error:
            reader.read(path)
        assert expected in str(error.value) and f"{path}:1: " in str(error.value)
    else:
        assert len(reader.read(path).rows) == len(rows) - (header is True)


ONCE = [["a good cat", "x"], ["the dog runs", "y"], ["so it is", "x"], ["one more time", "z"]]
NUMBERED = [[f"text {number}", f"{number}"] for number in (3, 4, 5)]


@pytest.mark.parametrize("rows, labels", [
    # The label of the first row is in no other row. Only one of the other labels also occurs once.
    ([["a cat", "kind"], *[[f"a dog {n}", "xy"[n % 2]] for n in range(20)], ["a bird", "z"]], [2]),
    ([["the text", "label"], *ONCE], [2]), ([["sentence", "x"], *ONCE], [2]),
    ([["sentence"], *[row[:1] for row in ONCE]], None)])
def test_a_header_is_noticed_where_a_label_occurs_once_and_where_there_are_none(rows, labels, tmp_path):
    path = written(tmp_path, "test.csv", rows, None)
    reader = row_examples.ExampleReader("classification", [1], labels)
    with pytest.raises(ValueError, match="test.csv:1: the columns are given by number, but this row looks "
                                         "like a "
                       "header row: .* pass --header=true; if it is an example, pass --header=false"):
        reader.read(path, needs_labels=False)
    for header, number in ((True, len(rows) - 1), (False, len(rows))):
        if header is True and labels and rows[0][1] == "x":
            continue
        reader = row_examples.ExampleReader("classification", [1], labels, header)
        assert len(reader.read(path, False).rows) == number


@pytest.mark.parametrize("rows, labels, known", [
    ([["Great", "z"], *ONCE], [2], None), ([["Great", "x"], *ONCE], [2], None),
    ([["Great movie, really!", "once"], *ONCE], [2], None),
    ([["Great!"], *[row[:1] for row in ONCE]], None, None),
    ([["It is", "once"], ["so", "x"], ["they say", "y"], ["and", "z"]], [2], None),
    ([["What a film"], *[row[:1] for row in ONCE]], None, None),
    ([["Great", "once"], *ONCE], [2], ["once", "x", "y", "z"]),
    ([["a cat", "n/a"], *NUMBERED], None, None), ([["7", "1"], *NUMBERED], [2], None),
    ([["so", "1"], ["it", "2"]], [2], None),
    ([["a cat sat on the mat", "once"], ["so", "x"], ["it", "x"], ["is", "y"], ["an", "y"]], [2], None),
    ([["a cat sat on the mat, 3", "unknown"], ["so", "1"], ["it", "2"]], None, None),
    ([["no", "42"]], [2], None)])
def test_a_real_first_row_is_an_example(rows, labels, known, tmp_path):
    path = written(tmp_path, "train.csv", rows, None)
    part = row_examples.ExampleReader("classification", [1], labels).read(path, labels is not None, known)
    assert [row.text_a for row in part.rows] == [row[0] for row in rows]


@pytest.mark.parametrize("header, first, expected", [
    (None, "how good", "looks like a header row"), (True, "2.5", "but this row looks like an example: it has "
                                                                 "'2.5' in the column")])
def test_a_header_of_numbers_is_noticed(header, first, expected, tmp_path):
    path = written(tmp_path, "train.tsv", [["a", first], ["b", "1"], ["c", "2"]], None)
    with pytest.raises(ValueError, match=":1: .*" + expected):
        row_examples.ExampleReader("regression", [1], [2], header).read(path)


# --- Labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels, ordered", [
    (["b", "10", "9", "b"], ["10", "9", "b"]), (["10", "9", "-1.5", "9"], ["-1.5", "9", "10"])])
def test_labels_are_sorted_and_numbers_as_numbers_if_all_are(labels, ordered):
    counts = row_examples.count_labels([row_examples.Row(1, "a", None, label) for label in labels])
    assert list(counts) == ordered and counts[ordered[1]] == labels.count(ordered[1])


@pytest.mark.parametrize("name, yes, no", [
    ("train.csv", "1", "0"), ("train.jsonl", True, False), ("train.jsonl", 1, 0)])
def test_several_labels_in_a_column_each(name, yes, no, tmp_path):
    rows = [["a", yes, no], ["b", no, no], ["c", yes, yes]]
    path = written(tmp_path, name, rows, ["text", "red", "blue"])
    found = row_examples.ExampleReader("multilabel", ["text"], ["red", "blue"]).read(path)
    assert [row.label for row in found.rows] == [("red",), (), ("red", "blue")]


def test_numbers_true_and_false_of_json_are_labels_and_scores(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "a", "label": 1}\n{"label": 2, "text": "b"}\n')
    assert [row.label for row in row_examples.ExampleReader("classification").read(str(path)).rows] == ["1",
                                                                                                        "2"]
    assert [row.label for row in row_examples.ExampleReader("regression").read(str(path)).rows] == [1.0, 2.0]


TWO = [["a cat", "x"], ["a dog", "y"]]


@pytest.mark.parametrize("training, rows, is_labelled", [
    (None, TWO, True), ([["b", "x"], ["c", "y"]], TWO, True), ([["b", "x"], ["c", "y"]], [["a"]], False),
    (None, [["a cat"], ["a dog"]], False), (None, [*TWO, ["b", "x"], ["c", "Y"]], True),
    (None, [*TWO, ["b", "Z"], ["c", "Y"]], False),
    # The last column of a file without labels is another column.
    ([["b", "e", "x"], ["c", "e", "y"]], TWO, False)])
def test_labels_of_a_test_file_without_names_are_recognized(training, rows, is_labelled, tmp_path):
    reader = row_examples.ExampleReader("classification", [1], [-1], False)
    if training:
        reader.read(written(tmp_path, "train.tsv", training, None))
    part = reader.read(written(tmp_path, "test.tsv", rows, None), needs_labels=False, known=["x", "y"])
    assert part.is_labelled == is_labelled


@pytest.mark.parametrize("name, header, rows, labels", [
    ("test.csv", ["question", "answer"], [["a", "b"]], None),
    ("test.csv", NAMES, [["a", "b", ""], ["c", "d", " "]], None),
    ("test.csv", NAMES, [["a", "b", "x"], ["c", "d", "y"]], ["x", "y"]),
    ("test.jsonl", ["question", "answer"], [["a", "b"]], None),
    ("test.jsonl", NAMES, [["a", "b", 0], ["c", "d", 0]], ["0", "0"]),
    ("test.jsonl", NAMES, [["a", "b", None], ["c", "d", None]], None)])
def test_a_test_file_may_have_labels(name, header, rows, labels, tmp_path):
    reader = row_examples.ExampleReader("classification", ["question", "answer"], ["kind"])
    part = reader.read(written(tmp_path, name, rows, header), needs_labels=False, known=["x", "y"])
    assert part.is_labelled == bool(labels)
    assert [row.label for row in part.rows] == (labels or [None] * len(rows))


# --- Errors ----------------------------------------------------------------------------------------------


# test_reader_properties.py and test_bad_lines.py have further faults.
@pytest.mark.parametrize("name, content, expected", [
    ("a.txt", "", "the format is unknown. Give the file a name that ends in one of .csv, .tsv"),
    ("a.csv", "", "the file is empty"),
    ("a.csv", "text,label\n", ":1: the file has only a header row"),
    ("a.csv", "text,label\na,x\nb\n", ":3: the row has 1 column, but line 1 has 2; all rows must have the "
                                      "same number of columns. A text "
     "with "),
    ("a.csv", 'text,label\na,x\n"b,y\nc,z\n', ":3: a quote is not closed"),
    ("a.csv", 'text,label\n"a"b,x\n', ":2: a quote is not closed, or is in the middle"),
    ("a.csv", "text,text,label\na,b,x\n", ":1: 2 columns are named 'text'"),
    ("a.csv", "body,label\na,x\n", ":1: no column has a usual name for texts. Name the columns of the texts "
                                   "with --text_column; the columns are body, "
     "label. If this row is not a header"),
    ("a.csv", "body,kind\na,x\n", "If the file has labels, also name their column with --label_column."),
    ("a.csv", "text,sentence,label\na,b,x\n", ":1: several columns could contain the texts: text or "
                                              "sentence. Name the right columns with"),
    ("a.csv", "text,kind\na,x\n", ":1: no column has a usual name for labels. Name"),
    ("a.csv", "sentence1,sentence2,label\na,b,x\nc,,y\n", ":3: the text in column sentence2 is empty"),
    ("a.csv", 'text,label\na,x\nb,"x\ny"\n', ":3: the label 'x\\ny' contains a line end"),
    ("a.jsonl", '[{"text": "a"}]\n', ":1: in JSON Lines, each line is a JSON object"),
    ("a.jsonl", '{"text": "a", "text": "b", "label": 1}\n', ":1: the line is not valid JSON: the key 'text' "
                                                            "occurs "
     "twice"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "a"}\n', ":2: the row has no 'label', only 'text'"),
    ("a.jsonl", '{"body": "b", "label": 1}\n', ":1: no column has a usual name for texts. Name the columns "
                                               "of the texts with --text_column; the columns "
     "are body, label."),
    ("a.csv", "text,label\ra,x\r", ":1: the line cannot be split at commas: it contains a carriage return "
                                   "(\\r)"),
    ("a.tsv", "text;label\na;x\n", "the columns are text;label (only one column was found: are the "
     "columns of a .csv file separated by commas or semicolons, and those of a .tsv file by tabs? If"),
    ("a.jsonl", '{"text": "a", "label": ["x"]}\n', ':1: the label is ["x"], but should be a text. If a text '
     "may have several labels, pass --task_type=multilabel."),
    ("a.jsonl.gz", b"text\n", "is not a gzip file, or is damaged"),
    ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9], "is truncated")])
def test_a_file_that_cannot_be_used_is_refused_with_its_line(name, content, expected, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as error:
        row_examples.ExampleReader("classification").read(str(path))
    assert expected in str(error.value) and str(error.value).startswith(str(path))


@pytest.mark.parametrize("text, label, expected", [
    (["queston"], ["kind"], ":1: there is no column 'queston' (--text_column); the columns are "
     "question, answer, kind. If this row is not a header, pass the numbers"),
    (["question"], ["sort"], ":1: there is no column 'sort' (--label_column)"),
    ([4], ["kind"], ":1: --text_column names column 4, but the columns have the numbers 1 to 3"),
    ([0], ["kind"], ":1: --text_column names column 0"), (["kind"], ["kind"], "name a column twice")])
def test_a_column_that_is_not_there_is_refused(text, label, expected, tmp_path):
    path = written(tmp_path, "train.csv", [["a", "b", "x"]])
    with pytest.raises(ValueError) as error:
        row_examples.ExampleReader("classification", text, label).read(path)
    assert expected in str(error.value)


def test_rows_of_json_with_and_without_labels_are_not_taken_for_unlabelled(tmp_path):
    path = written(tmp_path, "test.jsonl", [["b", "x"], ["a"]], ["text", "label"])
    for label in (None, ["label"]):
        with pytest.raises(ValueError, match="test.jsonl:2: the row has no 'label', only 'text'"):
            row_examples.ExampleReader("classification", ["text"], label).read(path, needs_labels=False)


@pytest.mark.parametrize("rows, name, line, is_advised", [
    ([["a", "much"], ["b", "?"]], "train.csv", 1, True), ([["a", "1"], ["b", "?"]], "train.csv", 2, False),
    ([["a", "?"]], "train.jsonl", 1, False)])
def test_only_what_may_be_a_header_row_is_said_to_be_one(rows, name, line, is_advised, tmp_path):
    columns = [[1], [2]] if name.endswith(".csv") else [["1"], ["2"]]
    path = written(tmp_path, name, rows, ["1", "2"] if name.endswith(".jsonl") else None)
    with pytest.raises(ValueError, match=f":{line}: the score") as error:
        row_examples.ExampleReader("regression", *columns, header=False).read(path)
    assert ("pass --header=true" in str(error.value)) == is_advised


@pytest.mark.parametrize("labels, groups", [
    (["No", "no", "yes"], [["No", "no"]]), (["1", "1.0", "2", "x"], [["1", "1.0"]]), (["a", "b", "1"], [])])
def test_labels_that_hardly_differ_are_found(labels, groups):
    assert row_examples.similar_labels(labels) == groups


@pytest.mark.parametrize("counts, found", [
    ({"positive": 673, "negative": 670, "postive": 1}, {"postive": "positive"}),
    ({"positive": 19, "postive": 1}, {}), ({"class10": 100, "class1": 1}, {}), ({"good": 99, "goo": 0}, {}),
    ({f"word{'abcdefghij'[n % 10] * (n // 10 + 1)}": 1 + 99 * (n % 2) for n in range(300)}, {})])
def test_rare_labels_that_look_like_misspellings_are_found(counts, found):
    assert text_keys.find_misspellings(counts) == found


@pytest.mark.parametrize("labels, said", [
    (["caf\u00e9", "cafe\u0301"], r"a:3: the label 'cafe\u0301' looks like the label 'caf\xe9' (a:2)"),
    (["a b", "a\u00a0b\u200b"], r"the label 'a\xa0b\u200b' looks like")])
def test_labels_that_look_the_same_are_refused(labels, said):
    rows = [row_examples.Row(line, "text", None, label) for line, label in enumerate(labels, 2)]
    with pytest.raises(ValueError) as error:
        row_examples.check_distinguishable(labels, None, row_examples.Split("a", rows, True))
    assert said in str(error.value)
    assert "looks like" in row_examples.label_checker(labels[:1], "the test")(labels[1])


@pytest.mark.parametrize("label, value, expected", [
    (["red", "blue"], "2", ":2: the column 'red' contains 2. It should contain 1"),
    (["red"], '["x", 1, null]', ":2: a label is null"),
    (["red"], '["x,y"]', ":2: the label 'x,y' contains ','"),
    (["red", "a,b"], "1", ":1: the label 'a,b' contains ','")])
def test_labels_that_cannot_be_told_apart_are_refused(label, value, expected, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "a", "red": 1, "blue": 0, "a,b": 1}\n'
                    f'{{"text": "b", "red": {value}, "blue": 0, "a,b": 0}}\n')
    with pytest.raises(ValueError) as error:
        row_examples.ExampleReader("multilabel", ["text"], label).read(str(path))
    assert expected in str(error.value)


@pytest.mark.parametrize("content, expected", [
    ("", "the file is empty"), ("a\nb\na\n", ":3: the label 'a' occurs twice"),
    ("a\n\nb\n", ":2: the line is blank"), ("a\nb\tc\n", ":2: the label 'b.tc' contains a line end or a "
                                                         "tab")])
def test_a_file_of_labels_is_checked(content, expected, tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=expected):
        row_examples.read_labels(str(path))
    path.write_text("b\na \n")
    assert row_examples.read_labels(str(path)) == ["b", "a"]
