"""`bertlib.serving.prediction_inputs` reads lines in five formats, with the columns of the training."""

import io
import json

import pytest

from bertlib.output_directory import model_directory
from bertlib.serving import prediction_inputs
from bertlib.tasks import answers

PAIR = ("text_a", "text_b")
OWN = {"text_column": "question,reply", "label_column": "kind"}


def source(settings=(), fields=PAIR, required=1, flags=(), kind="classification", task="own data",
           labels=("x", "y"), train_file="train.csv"):
    record = {"settings": dict(settings), "task": task, "files": {"train_file": train_file}}
    model = model_directory.ModelDirectory("out", kind, None, None, None, labels, record)
    asked = answers.create(model, answers.resolve(model))
    asked.fields, asked.required = fields, required
    return prediction_inputs.InputReader(model, asked, dict(flags))


def read(text, input_format, *arguments, ahead=1000, **options):
    stream = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    return list(source(*arguments, **options).read(stream, "lines", input_format, ahead))


def values(found):
    return [item.problem or item.values for item in found]


def refusal(*arguments, **options):
    with pytest.raises(ValueError) as error:
        read(*arguments, **options)
    return str(error.value)


# --- Plain text ------------------------------------------------------------------------------------------


def test_plain_text_is_one_text_a_line_or_two():
    found = read("one\ntwo ||| three\n\nlast", "text")
    assert values(found) == [("one",), ("two", "three"), ("",), ("last",)]
    assert [item.line for item in found] == [1, 2, 3, 4]
    assert found[1].fields == {"text_a": "two", "text_b": "three"}


def test_the_sign_between_two_texts_means_that_only_to_models_of_two():
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


def test_columns_that_are_not_there_are_an_error_that_lists_those_that_are():
    assert ("lines:1: there is no column 'reply' (--text_column); the columns are question, replies"
            in refusal("question\treplies\na\tb\n", "tsv", OWN, required=2))


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


@pytest.mark.parametrize("flags, expected", [
    ({"text_column": "a,b,c"}, "names 3 columns, but the texts of the model are text_a and text_b"),
    ({"header": "false"}, "--header=false: without a header row, columns have no names")])
def test_flags_that_cannot_be_are_refused(flags, expected):
    assert expected in refusal("a\tb\n", "tsv", OWN, flags=flags)


@pytest.mark.parametrize("train_file, lines, input_format, expected", [
    # The training counted columns: the first column of a DataFrame may have the name 0, 1 or any other.
    ("train.csv", '{"0": "yes", "1": "a cat", "2": "n"}\n', "jsonl",
     "--text_column gives the column 2 by its number, but the columns of these rows have only names"),
    ("train.csv", "x,a cat\n", "csv", ("a cat",)),
    ("train.csv", "0,1\nyes,a cat\n", "csv", "this row looks like a header row: 0, 1"),
    # The training read JSON Lines or a DataFrame: 2 is a name.
    ("train.jsonl.gz", '{"2": "a cat", "1": "yes"}\n', "jsonl", ("a cat",)),
    ("train.json", "x,a cat\n", "csv", "there is no column '2' (--text_column); the columns are x, a cat"),
    ("train.json", "2,1\na cat,yes\n", "csv", ("a cat",))])
def test_a_number_is_a_name_only_if_the_training_read_names(train_file, lines, input_format, expected):
    options = dict(settings={"text_column": "2", "label_column": "1"}, fields=("text_a",),
                   train_file=train_file)
    try:
        found, = values(read(lines, input_format, **options))
    except ValueError as error:
        found = str(error)
    assert found == expected if isinstance(expected, tuple) else expected in found


# --- Files of known tasks --------------------------------------------------------------------------------

GLUE = {
    "mrpc": ("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tone\ttwo\n",
             "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tone\ttwo\n"),
    "rte": ("index\tsentence1\tsentence2\n0\tone\ttwo\n",
            "index\tsentence1\tsentence2\tlabel\n0\tone\ttwo\tentailment\n"),
    "wnli": ("index\tsentence1\tsentence2\n0\tone\ttwo\n",),
    "qnli": ("index\tquestion\tsentence\n0\tone\ttwo\n",),
    "qqp": ("id\tquestion1\tquestion2\n0\tone\ttwo\n",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\tone\ttwo\t1\n"),
    "sts-b": ("index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
              "0\tg\tf\t2012\t7\ts\ts\tone\ttwo\n",),
    "mnli": ("index\tpromptID\tpairID\tgenre\tp1\tp2\tp3\tp4\tsentence1\tsentence2\n"
             "0\t1\t2\tg\ta\tb\tc\td\tone\ttwo\n", "index\tsentence1\tsentence2\n0\tone\ttwo\n"),
    "xnli": ("premise\thypo\tlabel\none\ttwo\tentailment\n",
             "language\tgold_label\tb1\tb2\tp1\tp2\tsentence1\tsentence2\n"
             "zh\tneutral\t1\t2\t3\t4\tone\ttwo\n")}
SINGLE = {"cola": ("index\tsentence\n0\tone\n",),
          "sst-2": ("index\tsentence\n0\tone\n", "sentence\tlabel\none\t0\n")}


@pytest.mark.parametrize("task, lines", [(task, lines) for task, files in {**GLUE, **SINGLE}.items()
                                         for lines in files])
def test_a_model_of_a_known_task_reads_its_own_files(task, lines):
    fields = PAIR if task in GLUE else PAIR[:1]
    found = read(lines, "tsv", task=task, fields=fields, required=len(fields), labels=("0", "1"))
    assert values(found) == [("one", "two")[:len(fields)]]


# --- Rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines, input_format, problem", [
    (b"a\xff\n", "text", "byte 0xff at offset 1 is not UTF-8"),
    ("a\0\n", "text", "contains a NUL character"), ("{\n", "jsonl", "not valid JSON"),
    ('{"other": 1}\n', "jsonl", "there is no column 'text_a'; the columns are other"),
    ("x\n", "tsv", "1 column, but line 1 has 2"), ("\n", "csv", "the line is blank"),
])
def test_a_bad_line_is_named_and_the_next_one_is_read(lines, input_format, problem):
    header = {"tsv": b"text_a\ttext_b\n", "csv": b"text_a,text_b\n"}.get(input_format, b"")
    good = {"jsonl": '{"text_a": "x", "text_b": "y"}\n', "tsv": "x\ty\n", "csv": "x,y\n", "text": "x ||| y\n"}
    lines = lines if isinstance(lines, bytes) else lines.encode()
    found = read(header + lines + good[input_format].encode(), input_format)
    assert problem in found[0].problem
    assert found[0].line == 1 + bool(header)
    assert (found[1].values, found[1].line) == (("x", "y"), found[0].line + 1)


def test_sentences_in_columns_are_read_as_by_run_ner():
    lines = "-DOCSTART- O\n\n1 cats O\n2 eat O\n\n1 a\u3000b B-X\n"
    tagger = dict(fields=("text",), kind="tagging", task="ner")
    found = read(lines, "conll", {"token_column": 2, "tag_column": 3}, **tagger)
    assert [(item.line, item.values) for item in found] == [(3, (["cats", "eat"],)),
                                                                       (6, (["a\u3000b"],))]
    assert values(read(lines, "conll", flags={"token_column": 1}, **tagger))[0] == (["1", "2"],)
    assert "is only for models that tag words" in refusal(lines, "conll")


def test_a_tagger_takes_lists_of_words_under_several_names():
    lines = ['{"words": ["a", "b"], "id": 1}', '{"tokens": ["c"], "ner_tags": ["O"]}', '{"text": "d e"}',
             '{"text": ["f"]}', '{"sentence": "g"}']
    found = read("\n".join(lines), "jsonl", fields=("text",), kind="tagging", task="ner")
    assert [item.values for item in found[:4]] == [(["a", "b"],), (["c"],), ("d e",), (["f"],)]
    assert "there is no column 'text'" in found[4].problem


@pytest.mark.parametrize("name, expected", [
    ("one.CSV", "csv"), ("a.tsv.gz", "tsv"), ("a.JSON.GZ", "jsonl"), ("a.conll", "conll"), ("csv", "text")])
def test_the_format_is_that_of_the_ending_in_any_letter_case(name, expected):
    assert prediction_inputs.format_from_name(name) == expected


# --- Answers ---------------------------------------------------------------------------------------------


def test_an_answer_has_the_fields_of_the_input_and_overwrites_none():
    item = prediction_inputs.Input(1, {"text_a": "ä", "label": "no"}, ("ä",))
    assert json.loads(prediction_inputs.format_answer(item, {"label": "yes"})) == {
        "label": "yes", "text_a": "ä", "input_label": "no"}
    for fields in ({"label": "1", "input_label": "2"}, {"input_label": "2", "label": "1"}):
        item = prediction_inputs.Input(1, fields)
        found = json.loads(prediction_inputs.format_answer(item, {"label": "yes"}))
        assert found == {"label": "yes", "input_label": "2", "input_input_label": "1"}


def test_columns_of_one_name_are_all_in_the_answer():
    found, = read("text_a,x,x,,x_2\na,1,2,3,4\n", "csv")
    assert found.fields == {"text_a": "a", "x": "1", "x_3": "2", "column_4": "3", "x_2": "4"}


def test_an_answer_that_is_no_json_is_an_error():
    with pytest.raises(ValueError, match="line 7 has a number that is not finite"):
        prediction_inputs.format_answer(prediction_inputs.Input(7, {"text_a": "a"}), {"score": float("nan")})
