"""`bertlib.serving.prediction_inputs` reads lines in five formats, with the columns of the training."""

import io

from helpers import error_of
import pytest

from bertlib.runs import trained_model
from bertlib.serving import prediction_inputs
from bertlib.tasks import answers

PAIR = ("text_a", "text_b")
OWN = {"text_column": "question,reply", "label_column": "kind"}


def source(settings=(), fields=PAIR, required=1, flags=(), kind="classification", task="own data",
           labels=("x", "y"), train_file="train.csv"):
    record = {"settings": dict(settings), "task": task, "task_type": kind,
              "files": {"train_file": train_file}}
    model = trained_model.TrainedModel("out", None, None, None, labels, record)
    asked = answers.create(model, answers.choose_task(model))
    asked.fields, asked.required = fields, required
    return prediction_inputs.InputReader(model, asked, dict(flags))


def read(text, input_format, *arguments, ahead=1000, **options):
    stream = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    return list(source(*arguments, **options).read(stream, "lines", input_format, ahead))


def values(found):
    return [item.problem or item.values for item in found]


def refusal(*arguments, **options):
    return error_of(read, *arguments, **options)


# --- Plain text ------------------------------------------------------------------------------------------


def test_plain_text_is_one_text_a_line_or_two():
    *found, bad = read("one\ntwo ||| three\n\nlast\na\0\n", "text")
    assert values(found) == [("one",), ("two", "three"), ("",), ("last",)]
    assert [item.line for item in [*found, bad]] == [1, 2, 3, 4, 5] and "a NUL character" in bad.problem
    assert found[1].fields == {"text_a": "two", "text_b": "three"}
    # For a model of single texts, the sign is a part of the text.
    assert values(read("a ||| b\n", "text", fields=("text",))) == [("a ||| b",)]
    said = values(read("a\n", "text", required=2))[0]
    assert "the line has only one text, but the model takes text_a and text_b, with ||| between them" in said


def test_lines_are_read_no_sooner_than_needed():
    taken = []

    def stream(*lines):
        for number, line in enumerate(lines, 1):
            taken.append(number)
            yield line

    found = source().read(stream(b"a\n", b"b\n", b"c\n"), "lines", "text")
    assert next(found).values == ("a",) and taken == [1]
    found = source().read(stream(b"\n", b"b\n"), "lines", "text", ahead=0)  # from a pipe
    taken.clear()
    assert next(found).values == ("",) and taken == [1]
    for input_format, lines, ready in (("tsv", [b"text_a\n", b"a\n", b"b\n"], 2),
                                       ("csv", [b"text_a\n", b'"a\n', b'"\n', b"c\n"], 3),
                                       ("jsonl", [b'{"text_a": "a"}\n', b"\n"], 1)):
        taken.clear()
        found = source().read(stream(*lines), "lines", input_format, ahead=0)
        assert next(found).values[0].strip() == "a" and taken[-1] == ready


# --- Columns ---------------------------------------------------------------------------------------------


def test_names_of_the_fields_do_in_place_of_those_of_the_training():
    assert values(read("text_b,text_a,id\nb,a,7\n", "csv", OWN, required=2)) == [("a", "b")]
    assert values(read('{"text_a": "a", "text_b": "b"}\n', "jsonl", OWN, required=2)) == [("a", "b")]
    assert "lines:1: the model was trained on single texts. Remove the column text_b." in refusal(
        "text_a,text_b\na,b\n", "csv", {"text_column": "body"}, fields=("text_a",))


def test_files_of_a_model_whose_columns_are_not_known_have_to_name_them():
    message = refusal("a\tb\n", "tsv")
    assert "lines:1: there is no column 'text_a'; the columns are a, b. Pass --text_column" in message
    assert message.endswith(" The columns may also be named text_a.")
    found = read("a\tb\t7\n", "tsv", flags={"text_column": "1,2"})
    assert values(found) == [("a", "b")]
    assert found[0].fields == {"text_a": "a", "text_b": "b", "column_3": "7"}


def test_flags_are_about_a_file_of_other_columns_than_the_training():
    trained = {"text_column": "question,reply", "label_column": "kind", "header": "true"}
    assert values(read("7\tb\ta\n", "tsv", trained, flags={"text_column": "3,2", "header": "false"})) == [
        ("a", "b")]
    assert values(read("id\tx\ty\n7\tb\ta\n", "tsv", trained, flags={"text_column": "y,x"})) == [("a", "b")]
    assert "there is no column 'y'" in refusal("7\tb\ta\n", "tsv", trained, flags={"text_column": "y,x"})
    numbered = {"text_column": "1,2", "label_column": "3", "header": "false"}
    assert values(read("p\tq\na\tb\n", "tsv", numbered, flags={"text_column": "p,q"})) == [("a", "b")]
    assert "names 3 columns, but the texts of the model are text_a and text_b" in refusal(
        "a\tb\n", "tsv", trained, flags={"text_column": "a,b,c"})


@pytest.mark.parametrize("train_file, lines, input_format, expected", [
    # The training counted columns: the first column of a DataFrame may have the name 0, 1 or any other.
    ("train.csv", '{"0": "yes", "1": "a cat", "2": "n"}\n', "jsonl",
     "--text_column of the training gives the column 2 by its number, but the columns of these rows have "
     "only names"),
    ("train.csv", "0,1\nyes,a cat\n", "csv", "this row looks like a header row: 0, 1"),
    # The training read JSON Lines or a DataFrame: 2 is a name.
    ("train.jsonl.gz", '{"2": "a cat", "1": "yes"}\n', "jsonl", ("a cat",)),
    ("train.json", "2,1\na cat,yes\n", "csv", ("a cat",))])
def test_a_number_is_a_name_only_if_the_training_read_names(train_file, lines, input_format, expected):
    options = dict(settings={"text_column": "2", "label_column": "1"}, fields=("text_a",),
                   train_file=train_file)
    try:
        found, = values(read(lines, input_format, **options))
    except ValueError as error:
        found = str(error)
    assert found == expected if isinstance(expected, tuple) else expected in found


def test_the_encoding_of_a_training_holds_for_rows_and_not_for_plain_text():
    trained = {"encoding": "utf-16", "delimiter": "pipe", "text_column": "text"}
    for content, input_format, flags in (
            ("text|label\né|x\n".encode("utf-16"), "csv", {}),
            ("text,label\né,x\n".encode("cp1252"), "csv", {"encoding": "cp1252", "delimiter": "comma"}),
            ("é\n".encode(), "text", {}), ("é\n".encode("cp1252"), "text", {"encoding": "cp1252"})):
        assert values(read(content, input_format, trained, flags=flags)) == [("é",)]
    assert "--encoding=cp1252: sentences in CoNLL's columns are always read" in refusal(
        b"a\n", "conll", flags={"encoding": "cp1252"}, kind="tagging", task="ner")


# --- Files of known tasks --------------------------------------------------------------------------------

# tests/tasks/test_glue.py contains the tasks of GLUE.
@pytest.mark.parametrize("texts", ["premise\thypo", "sentence1\tsentence2"])
def test_a_model_of_xnli_reads_its_own_files(texts):
    assert values(read(f"index\t{texts}\tlabel\n0\tone\ttwo\t1\n", "tsv", task="xnli", required=2)) == [
        ("one", "two")]


# --- Rows ------------------------------------------------------------------------------------------------


def test_sentences_in_columns_are_read_as_by_run_ner():
    lines = "-DOCSTART- O\n\n1 cats O\n2 eat O\n\n1 a\u3000b B-X\n"
    tagger = dict(fields=("text",), kind="tagging", task="ner")
    found = read(lines, "conll", {"token_column": 2, "tag_column": 3}, **tagger)
    assert [(item.line, item.values) for item in found] == [(3, (["cats", "eat"],)), (6, (["a\u3000b"],))]
    assert values(read(lines, "conll", flags={"token_column": 1}, **tagger))[0] == (["1", "2"],)
    assert "is only for models that tag words" in refusal(lines, "conll")


def test_columns_are_not_read_as_the_plain_texts_of_a_tagger():
    tagger = dict(fields=("text",), kind="tagging", task="ner", labels=("B-X", "I-X", "O"))
    settings = {"num_columns": 3, "tag_scheme": "IOB1"}
    for lines in ("-DOCSTART- -X- O\n\nAna N I-X\n", "Ana N I-X\nsleeps V O\n"):
        for ahead in (0, 1000):
            assert "pass --input_format=conll." in refusal(lines, None, settings, ahead=ahead, **tagger)
        assert values(read(lines, "text", settings, **tagger))[0] == (lines.split("\n")[0],)
    for lines in ("blood type O\nplan 9\n", "a b O\na b c\na b O\na b O\n", "a b B-Y\na b O\n", "a O\nb O\n"):
        assert values(read(lines, None, settings, **tagger)) == [(line,) for line in lines.splitlines()]
    assert values(read("a\n\nb\n", None, settings, **tagger)) == [
        ("a",), "the text is empty. If each line has one word, pass --input_format=conll.", ("b",)]


def test_a_tagger_takes_lists_of_words_under_several_names():
    lines = ['{"words": ["a", "b"], "id": 1}', '{"tokens": ["c"], "ner_tags": ["O"]}', '{"text": "d e"}',
             '{"text": ["f"]}', '{"sentence": "g"}']
    found = read("\n".join(lines), "jsonl", fields=("text",), kind="tagging", task="ner")
    assert [item.values for item in found[:4]] == [(["a", "b"],), (["c"],), ("d e",), (["f"],)]
    assert "there is no column 'text'" in found[4].problem


# --- Answers ---------------------------------------------------------------------------------------------


def test_columns_of_one_name_are_all_in_the_answer():
    found, = read("text_a,x,x\na,1,2\n", "csv")
    assert found.fields == {"text_a": "a", "x": "1", "x_2": "2"}
    found, = read("text_a,x,x,,x_2\na,1,2,3,4\n", "csv")
    assert found.fields == {"text_a": "a", "x": "1", "x_3": "2", "column_4": "3", "x_2": "4"}
