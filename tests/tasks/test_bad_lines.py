"""Files with lines that cannot be used. Delimiters and encodings.

All faults of a file are in one error, or the bad lines are left out.
"""

import codecs
import io
import json
import random
import types

import helpers
from helpers import example_reader, write_file
import pytest

from bertlib.data import faults, tables
from bertlib.tasks import data_splits
from bertlib.tasks.classification import dev_split, row_examples
from bertlib.tasks.classification.classifier_data import InputExample

GOOD = "".join(f"a cat {number},x\n" for number in range(30))


def written(directory, content, name="a.csv", encoding="utf-8"):
    return write_file(directory / name, content, encoding)


def error_of(path, find_problem=None, **options):
    return helpers.error_of(example_reader(**options).read, path, find_problem=find_problem)


# --- All faults of a file --------------------------------------------------------------------------------


def test_an_error_lists_a_fault_of_each_kind_and_names_the_encoding_first(tmp_path):
    path = written(tmp_path, b"text,label\n" + b"\xe9,x\n" * 30 + b",x\n" * 30 + b"a\n")
    title, *listed, encoding, advice = error_of(path).split("\n")
    assert title == (f"{path}: 61 lines cannot be used (bad encoding 30, empty text 30, wrong width 1); "
                     "the first 20, and the first line of each kind that is not among them, are:")
    assert [int(line.removeprefix(f"{path}:").split(":")[0]) for line in listed] == [*range(2, 22), 32, 62]
    assert encoding.startswith("Begin with the encoding: 30 lines cannot be decoded.")


def test_lines_with_the_same_problem_are_listed_together(tmp_path):
    path = written(tmp_path, "text,label\n" + ",x\n" * 25)
    _, listed, _ = error_of(path).split("\n")
    numbers = ", ".join(map(str, range(3, 23)))
    assert listed == (f"{path}:2: the text is empty; complete the row or remove it. The same problem in "
                      f"other lines (24): {numbers}, …")


@pytest.mark.parametrize("skips", [False, True])
def test_a_quote_that_is_not_closed_ends_the_list(skips, tmp_path):
    content = f'text,label\n,x\n{GOOD}"b,x\n{GOOD},x\n"c",x\n,x\n'
    path = written(tmp_path, content)
    title, *listed, advice = error_of(path, skip_bad_lines=skips).split("\n")
    assert [line.split(":")[1] for line in listed] == ["2", "33"] and "2 lines" in title
    assert "lines after line 33 cannot be read, not even with --skip_bad_lines=true" in advice


def test_a_first_row_that_cannot_be_read_is_never_left_out(tmp_path):
    path = written(tmp_path, b"text,lab\xe9l\n" + GOOD.encode())
    expected = f"{path}:1: byte 0xe9 at offset 8 is not UTF-8; convert the file to UTF-8, or pass " \
        "--encoding=cp1252. Line 1 determines the columns, so "
    assert error_of(path, text=[1], label=[2]).startswith(expected)
    assert error_of(path, skip_bad_lines=True).startswith(expected)


def test_a_header_with_another_delimiter_names_the_flag(tmp_path):
    message = error_of(written(tmp_path, '"Nr, lang"|label\na;x\nb;y\n'))
    assert "a.csv:1: a quote is not closed, or is in the middle" in message
    assert "If another character separates the columns, pass --delimiter." in message


def test_scores_with_separators_are_one_problem(tmp_path):
    """In the last row, the space between thousands is a narrow one, as in French."""
    scores = ["2,2 ", "x", "1,234.5", "1.234.567", "-1'234", "+1\u202f234,5"]
    path = written(tmp_path, "text,score\n" + "".join(f'a,"{score}"\n' for score in scores))
    message = error_of(path, task_type="regression", label=["score"])
    assert f"{path}:2: the score has a decimal comma, or separators between thousands. Write" in message
    assert "The value is '2,2'. The same problem in other lines (4): 4, 5, 6, 7\n" in message
    assert f"\n{path}:3: the score 'x' is not a finite number" in message


@pytest.mark.parametrize("row, delimiter", [
    ("-1,5e3 ;x\r", ";"), ("0,5;,25;x", ";"), ("a; b,1", ","), ("3,5", ",")])
def test_a_decimal_comma_in_the_first_row_separates_no_columns(row, delimiter):
    assert tables.Table(io.BytesIO(f"{row}\n".encode()), "csv").delimiter == delimiter


@pytest.mark.parametrize("scores, decimal, problem", [
    (["3,5", "-1,125", "2", "1,5E+03"], ",", None), (["1,234", "2,5"], ",", None),
    (["1,234", "2"], ".", ":1: the score has a decimal comma, or separators between thousands"),
    (["3.5", "1.5", "2,5"], ".", ":3: the score has a decimal comma"),
    (["3,5", "1,5", "2.5"], ",", ":3: the score has a point or separators between thousands, but other"),
    (["3,5", "1 234,5"], ",", ":2: the score has a")])
def test_scores_have_decimal_commas_if_another_character_separates_columns(scores, decimal, problem,
                                                                          tmp_path):
    path = written(tmp_path, "".join(f"a;{score}\n" for score in scores))
    options = dict(task_type="regression", text=[1], label=[2], delimiter=";", header=False)
    if problem:
        assert f"{path}{problem}" in error_of(path, **options)
    else:
        file = example_reader(**options).read(path)
        assert [row.label for row in file.rows] == [float(text.replace(",", ".")) for text in scores]
        assert file.dialect.decimal == decimal


def test_a_line_is_named_with_its_row_in_a_spreadsheet(tmp_path):
    content = 'sep=,\ntext,label\na,x\n,x\n"b\n\nb",x\n,x\n"c\nd",y\n ,y\ne\n'
    empty, width = error_of(path := written(tmp_path, content.encode())).split("\n")[1:3]
    assert empty == (f"{path}:4: the text is empty; complete the row or remove it. In a spreadsheet, this is "
                     "row 3. The same problem in other lines (2): 8 (row 5), 11 (row 7)")
    assert width.startswith(f"{path}:12: ") and width.endswith(" In a spreadsheet, this is row 8.")
    assert "In a spreadsheet" not in error_of(written(tmp_path, 'text,label\n,x\n"b\nb",x\n'))


# --- Bad lines that are left out -------------------------------------------------------------------------

FAULTS = {
    "csv": [(",x", "empty text"), ("a\0b,x", "NUL character"), ("a", "wrong width"), ("", "blank line"),
            ("a, ", "missing label"), ('a,"x\ty"', "bad label"), ("a,z", "unknown label"),
            ('"a" b,x', "wrong quote"), ("a\rb,x", "wrong line end"), ("caf\udce9,x", "bad encoding")],
    "tsv": [("a\tx\t", "wrong width")],
    "jsonl": [('{"text": "a", "label": "x"', "bad JSON"), ('{"text": null, "label": "x"}', "missing text"),
              ('{"label": "x"}', "missing text"), ('{"text": "a"}', "missing label"),
              ('{"text": "a", "label": ["x"]}', "missing label"),
              ('{"text": " ", "label": "x"}', "empty text")]}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_each_kind_of_bad_line_is_left_out_and_listed(name, tmp_path):
    rows = [["text", "label"], *([f"a cat {number}", "xy"[number % 2]] for number in range(12))]
    good = [json.dumps(dict(zip(rows[0], row))) for row in rows[1:]] if name == "jsonl" else [
        {"csv": ",", "tsv": "\t"}[name].join(row) for row in rows]
    bad = [line for line, _ in FAULTS[name]]
    content = "".join(f"{line}\n" for line in [*good[:-1], *bad, good[-1]])
    path, read = written(tmp_path, content.encode(errors="surrogateescape"), f"a.{name}"), example_reader(
        skip_bad_lines=True)
    check = row_examples.label_checker(["x", "y"], "the test")
    split = read.read(path, find_problem=check)
    assert [[row.text_a, row.label] for row in split.rows] == rows[1:]
    assert [fault[:3] for fault in read.skipped] == [
        (path, line, kind) for line, (_, kind) in enumerate(FAULTS[name], len(good))]
    assert faults.format_table(read.skipped, tables.Dialect(";", True)).startswith("\ufefffile;line;kind;")
    for fault in read.skipped:
        assert f"{path}:{fault.line}: {fault.problem}" in error_of(path, check)


def test_a_file_of_mostly_bad_lines_is_an_error(tmp_path):
    path = written(tmp_path, "text,label\na,x\nb,y\n,x\n,x\n")
    assert len(example_reader(skip_bad_lines=True).read(path).rows) == 2
    path = written(tmp_path, "text,label\na,x\nb,y\n,x\nc\n,x\n")
    message = error_of(path, skip_bad_lines=True)
    assert "More than half of the 5 rows" in message and "(empty text 2, wrong width 1)" in message
    assert message.count(f"{path}:") == 3 and f"{path}:4: the text is empty" in message
    assert "The same problem in other lines (1): 6\n" in message


def test_the_text_in_the_table_is_truncated(tmp_path):
    read = example_reader(skip_bad_lines=True)
    read.read(written(tmp_path, f"text,label\n{GOOD}{'long ' * 100},x,y\n"))
    assert read.skipped[0].text == ("long " * 40)


# --- Delimiters and encodings ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", '"', "\n", "\r", "\0", "commas", "||"])
def test_other_delimiters_are_refused(value):
    assert not tables.is_delimiter(value)


# In UTF-16, U+0A00 to U+0AFF and U+010A contain a byte 0x0a. U+2028 and \x85 do not end a line.
TEXTS = ["café", "Ċ\u0a0a\u0aff", "a\u2028b\u0085c", "文字", "🙂", 'a\nb"']


@pytest.mark.parametrize("encoding, mark", [
    ("utf-16", ""), ("utf-16-be", "\ufeff"), ("utf-32", ""), ("UTF8", ""), ("gb18030", "")])
def test_texts_are_the_same_in_each_encoding(encoding, mark, tmp_path):
    quoted = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
    content = mark + "text,label\r\n" + "".join(f"{text},x\r\n" for text in quoted)
    rows = example_reader(encoding=encoding).read(written(tmp_path, content, encoding=encoding)).rows
    assert [(row.line, row.text_a) for row in rows] == list(enumerate(TEXTS, 2))


class Pieces(io.BytesIO):
    """A stream that returns at most `size` bytes at a time."""

    def __init__(self, data, size):
        super().__init__(data)
        self._size = size

    def readinto(self, buffer):
        return super().readinto(memoryview(buffer)[:self._size])


def test_lines_do_not_depend_on_the_pieces_that_a_stream_returns():
    text = "".join(random.Random(1).choices("ab\nĊé🙂\r", k=5000)) + "end\n"
    for encoding in ("utf-16-le", "utf-8", "cp037", "iso2022_jp_2"):
        data = text.encode(encoding, "ignore")
        expected = [line + "\n" for line in data.decode(encoding).split("\n")[:-1]]
        for size in (1, 2, 3, 1000):
            stream = io.BytesIO(data) if encoding == "utf-8" else io.BufferedReader(Pieces(data, size))
            assert list(tables.read_lines(stream, encoding)) == list(enumerate(expected, 1))


def test_utf8_that_is_read_with_another_encoding_is_named_once(tmp_path, caplog):
    content = "text,label\na,x\na “nice” café,x\ncafé,x\n"
    example_reader(encoding="latin-1").read(written(tmp_path, content))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "a.csv:3: this row is probably UTF-8, but --encoding is latin-1." in warning
    assert "it would be 'a “nice” café'" in warning and "--encoding=utf-8" in warning
    caplog.clear()
    path = written(tmp_path, content, encoding="cp1252")
    assert example_reader(encoding="cp1252").read(path).rows[2].text_a == "café"
    assert not caplog.records


def test_a_byte_that_no_encoding_explains_is_one_bad_line(tmp_path):
    content = "text,label\na,x\n€,x\nb,x\n".encode("cp1252").replace(b"\x80", b"\x81")
    assert error_of(written(tmp_path, content), encoding="cp1252").endswith(
        ":3: the line cannot be decoded with --encoding=cp1252. Correct the line, or pass the encoding of "
        "the file.")
    truncated = "text,label\na,x\nb,x\n".encode("utf-16")[:-1]
    assert "a.csv:3: the line cannot be decoded with" in error_of(written(tmp_path, truncated),
                                                                  encoding="utf-16")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_a_file_with_the_mark_of_utf_8_is_utf_8(encoding, tmp_path):
    """A run reads several files with one --encoding, for example an old file and a --label_map from Excel."""
    marked = written(tmp_path, "text,label\nMüll,grün\n", encoding="utf-8-sig")
    row, = example_reader(encoding=encoding, text=["text"]).read(marked).rows
    assert (row.text_a, row.label) == ("Müll", "grün")
    old = written(tmp_path, "\ufeffMüll,grün\n".encode("utf-8") + b"\xfc,x\n")
    said = error_of(old, encoding=encoding, text=[1], label=[2])
    assert ("convert the file to UTF-8." in said) == (encoding != "utf-8")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_an_encoding_that_needs_a_mark_names_the_file_without_it(encoding, tmp_path):
    path = written(tmp_path, "text,label\na,x\n")
    assert f"a.csv:1: the file has no byte-order mark of {encoding}, but --encoding={encoding}. Pass" in (
        error_of(path, encoding=encoding, text=["text"]))


@pytest.mark.parametrize("content, advice", [
    ("text,label\na,x\n".encode("utf-16"), "byte 0xff at offset 0 is not UTF-8; convert the file to UTF-8, "
     "or pass --encoding=utf-16."), ("text,label\na,x\n".encode("utf-16-le"), "pass --encoding=utf-16"),
    (b"text,label\n\xe9,x\n", "convert the file to UTF-8, or pass --encoding=cp1252."),
    ("text\tlabel\na\tx\n".encode("utf-16"), "pass --encoding=utf-16. The columns are separated by tabs: ")])
def test_an_error_names_the_flag_of_the_encoding(content, advice, tmp_path):
    assert advice in error_of(written(tmp_path, content))
    said = error_of(written(tmp_path, content, "a.txt"))  # as Excel's "Unicode text"
    is_marked = content.startswith(codecs.BOM_UTF16)
    assert "the format is unknown" in said and ("The file is UTF-16: pass --enc" in said) == is_marked
    assert ("separated by tabs: give the file a name that ends in .tsv" in said) == (b"\t" in content)


@pytest.mark.parametrize("name, holds", [("utf-16", True), ("cp1252", True), ("Latin-1", True), ("", False),
                                         ("rot13", False), ("hex", False), ("nothing", False),
                                         ("a\0b", False), ("undefined", False)])
def test_names_of_encodings(name, holds):
    assert tables.check_encoding(name) == holds


# --- A part of the examples ------------------------------------------------------------------------------


def test_examples_are_drawn_by_content_and_more_of_them_include_fewer():
    def draw(examples, number):
        settings = types.SimpleNamespace(max_train_examples=3, max_eval_examples=number)
        return data_splits.draw_examples(settings, "dev_mismatched", examples, dev_split.row_digest)

    examples = [InputExample(f"dev-{number}", f"text {number}", None, "x") for number in range(60)]
    before = []
    for number in (1, 5, 59, 60, 99):
        drawn = draw(examples, number)
        assert len(drawn) == min(number, 60) and drawn == [one for one in examples if one in drawn]
        assert set(drawn) == set(draw(examples[::-1], number)) and set(before) <= set(drawn)
        before = drawn
    assert draw(examples, None) is examples
