"""GLUE's files are read in the form of the benchmark. Its files of predictions are written and checked."""

import io
import os
import zipfile

import pytest

from bertlib.runs import trained_model
from bertlib.serving import prediction_inputs
from bertlib.tasks import answers
from bertlib.tasks.classification import classifier_data, glue_submission_files

# {task: (header of the training and the development file or None, a row of these files, header of the test
# file, a row of this file, texts and label of the first row)}. Columns are separated by "|" here.
MRPC = "#1 ID|#2 ID|#1 String|#2 String"
MNLI = "index|promptID|pairID|genre|p1|p2|p3|p4|sentence1|sentence2"
STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
# The last column of a row has to be one that the task reads.
LAYOUTS = {
    "mrpc": (f"Quality|{MRPC}", '1|10|11|He said " no|A b .', f"index|{MRPC}", '7|10|11|He said " no|A b .',
             ('He said " no', "A b .", "1")),
    "mnli": (f"{MNLI}|label1|gold_label", "0|1|2|3|4|5|6|7|A|B|neutral|entailment", MNLI,
             "0|1|2|3|4|5|6|7|A|B", ("A", "B", "entailment")),
    "cola": ("", "gj04|1||Fine it is .", "index|sentence", "0|Fine it is .", ("Fine it is .", None, "1")),
    "sst-2": ("sentence|label", "good film |1", "index|sentence", "0|good film ", ("good film ", None, "1")),
    "qqp": ("id|qid1|qid2|question1|question2|is_duplicate", "7|8|9|A?|B?|1", "id|question1|question2",
            "0|A?|B?", ("A?", "B?", "1")),
    "qnli": ("index|question|sentence|label", '0|A?|B "c|not_entailment', "index|question|sentence",
             '0|A?|B "c', ("A?", 'B "c', "not_entailment")),
    "rte": ("index|sentence1|sentence2|label", "0|A|B|not_entailment", "index|sentence1|sentence2", "0|A|B",
            ("A", "B", "not_entailment")),
    "wnli": ("index|sentence1|sentence2|label", "0|A|B|1", "index|sentence1|sentence2", "0|A|B",
             ("A", "B", "1")),
    "sts-b": (f"{STSB}|score", "0|1|2|3|4|5|6|A|B|3.800", STSB, "0|1|2|3|4|5|6|A|B", ("A", "B", 3.8))}
BY_NUMBER = "mrpc", "mnli", "cola"  # the columns of these tasks are found by number


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(row.replace("|", "\t") + "\n" for row in rows if row), encoding="utf-8")
    return path


def described(examples):
    return [(example.text_a, example.text_b, example.label) for example in examples]


def test_each_task_has_a_row_of_its_files():
    missing = set(classifier_data.PROCESSORS) - set(LAYOUTS) - {"ax", "xnli"}  # they have tests of their own
    assert not missing, f"Add these tasks to LAYOUTS, or to this test and tests of their own: {missing}"


@pytest.mark.parametrize("task", sorted(LAYOUTS))
def test_a_task_is_read_as_it_is_distributed(task, tmp_path):
    header, row, test_header, test_row, expected = LAYOUTS[task]
    processor = classifier_data.get_processor(task)
    for part in ("train", "dev"):
        write(tmp_path / processor.files[part], header, row, row)
    write(tmp_path / processor.files["test"], test_header, test_row)
    examples = processor.get_train_examples(tmp_path)
    assert described(examples) == [expected] * 2
    assert examples[0].guid == f"train-{0 if task in ('mnli', 'cola') else 1}"
    assert described(processor.get_dev_examples(tmp_path)) == [expected] * 2
    stand_in = (processor.get_labels() or [0.0])[0]
    assert described(processor.get_test_examples(tmp_path)) == [(*expected[:2], stand_in)]
    assert processor.get_test_labels(tmp_path) is None
    write(tmp_path / processor.files["test"], header, row)  # a test file may have labels
    assert described(processor.get_test_examples(tmp_path)) == [(*expected[:2], stand_in)]
    assert processor.get_test_labels(tmp_path) == [expected[2]]


@pytest.mark.parametrize("task", sorted(LAYOUTS))
def test_predict_reads_the_files_of_the_task_of_its_model(task):
    _, _, header, row, expected = LAYOUTS[task]
    model = trained_model.TrainedModel("out", None, None, None, ("0", "1"), {
        "settings": {}, "task": task, "task_type": "classification", "files": {}})
    reader = prediction_inputs.InputReader(model, answers.create(model, answers.choose_task(model)), {})
    lines = f"{header}\n{row}\n".replace("|", "\t").encode()
    found, = reader.read(io.BytesIO(lines), "lines", "tsv", 9)
    assert found.values == tuple(text for text in expected[:2] if text is not None), found.problem


@pytest.mark.parametrize("name", ["diagnostic.tsv", "AX.tsv"])
def test_the_diagnostic_set_has_the_labels_of_mnli_and_nothing_to_train_on(name, tmp_path):
    write(tmp_path / name, *LAYOUTS["rte"][2:4])
    processor = classifier_data.get_processor("AX")
    assert described(processor.get_test_examples(tmp_path)) == [("A", "B", "contradiction")]
    assert processor.get_labels() == classifier_data.MnliProcessor().get_labels()
    assert processor.get_test_labels(tmp_path) is None
    for read in (processor.get_train_examples, processor.get_dev_examples):
        with pytest.raises(NotImplementedError):
            read(tmp_path)


def test_mnli_has_mismatched_sets_besides(tmp_path):
    processor = classifier_data.MnliProcessor()
    for split in ("dev_mismatched", "test_mismatched"):
        assert processor.get_further_examples(tmp_path, split) is None
    row = "31|1|2|3|4|5|6|7|A|B"
    write(tmp_path / "dev_mismatched.tsv", f"{MNLI}|label1|label2|gold_label",
          f"{row}|neutral|entailment|neutral")
    write(tmp_path / "test_mismatched.tsv", MNLI, row)
    dev, = processor.get_further_examples(tmp_path, "dev_mismatched")
    assert (dev.guid, dev.label) == ("dev_mismatched-31", "neutral")
    test, = processor.get_further_examples(tmp_path, "test_mismatched")
    assert (test.guid, test.label) == ("test_mismatched-31", "contradiction")


class OtherLabels(classifier_data.MnliProcessor):
    """A processor as users wrote them. It defines nothing about mismatched genres."""

    def get_labels(self):
        return ["yes", "no"]


def test_a_users_kind_of_mnli_is_not_given_files_that_it_does_not_know(tmp_path):
    write(tmp_path / "dev_mismatched.tsv", f"{MNLI}|gold_label", "31|1|2|3|4|5|6|7|A|B|neutral")
    assert OtherLabels().get_further_examples(tmp_path, "dev_mismatched") is None


# --- Bad input -------------------------------------------------------------------------------------------


def test_cut_off_rows_of_qqp_are_left_out_but_in_the_test_set(tmp_path):
    header, row, test_header, test_row, expected = LAYOUTS["qqp"]
    write(tmp_path / "train.tsv", header, row, "7|8|9|A?", row)
    write(tmp_path / "test.tsv", test_header, test_row, "0|A?")
    processor = classifier_data.QqpProcessor()
    assert described(processor.get_train_examples(tmp_path)) == [expected] * 2
    with pytest.raises(ValueError, match=r"test\.tsv:3: the row has 2 .* at least 3 are needed"):
        processor.get_test_examples(tmp_path)


@pytest.mark.parametrize("score, problem", [
    ("0", None), ("5.000", None), ("-0.01", "'-0.01' is not between 0 and 5"), ("5.01", "'5.01' is not bet"),
    ("nan", "'nan' is not a finite number")])
def test_scores_are_numbers_from_0_to_5(score, problem, tmp_path):
    header, row = LAYOUTS["sts-b"][:2]
    path = write(tmp_path / "dev.tsv", header, row, row.replace("3.800", score))
    if problem is None:
        assert classifier_data.StsbProcessor().get_dev_examples(tmp_path)[1].label == float(score)
        return
    with pytest.raises(ValueError, match=f"{path}:3: the score {problem}"):
        classifier_data.StsbProcessor().get_dev_examples(tmp_path)


@pytest.mark.parametrize("task", sorted(LAYOUTS))
@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_column_that_is_missing_and_a_row_that_is_cut_off(task, split, tmp_path):
    header, row = LAYOUTS[task][:2] if split == "dev" else LAYOUTS[task][2:4]
    processor = classifier_data.get_processor(task)
    read = getattr(processor, f"get_{split}_examples")
    path = write(tmp_path / processor.files[split], header, row, row.rpartition("|")[0])
    if (task, split) != ("qqp", "dev"):
        cut = row.count("|")
        message = f"{path}:{3 if header else 2}: the row has {cut} .* at least {cut + 1} are needed"
        with pytest.raises(ValueError, match=message):
            read(tmp_path)
    if task in BY_NUMBER:
        return
    names, _, last = header.rpartition("|")
    write(path, f"{names}|other", row)
    message = f"{path}:1: the header row has no column '{last}', only {names.replace('|', ', ')}, other"
    with pytest.raises(ValueError, match=message):
        read(tmp_path)
    write(path, '{"text": "A", "label": "B"}')
    with pytest.raises(ValueError, match=f"{path}:1: .* A declared file must be a TSV file, not JSON Lines"):
        read(tmp_path)


# --- Files of predictions --------------------------------------------------------------------------------


def test_labels_are_written_in_words_and_scores_within_the_range(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    glue_submission_files.write_predictions(tmp_path, classifier_data.MnliProcessor(), "test_mismatched",
                                            ["neutral", "entailment"])
    assert f"File for a GLUE submission: {tmp_path / 'MNLI-mm.tsv'}." in caplog.text
    assert os.listdir(tmp_path) == ["MNLI-mm.tsv"]
    assert (tmp_path / "MNLI-mm.tsv").read_text() == "index\tprediction\n0\tneutral\n1\tentailment\n"
    glue_submission_files.write_predictions(tmp_path, classifier_data.StsbProcessor(), "test",
                                            [-0.2, 1e-7, 3.25, 5.75])
    assert (tmp_path / "STS-B.tsv").read_text() == (
        "index\tprediction\n0\t0.000000\n1\t0.000000\n2\t3.250000\n3\t5.000000\n")
    glue_submission_files.write_predictions(tmp_path, classifier_data.XnliProcessor(), "test", ["neutral"])
    assert len(list(tmp_path.iterdir())) == 2
    expected = glue_submission_files.TestSet("task", 4, None, (0.0, 5.0))
    assert glue_submission_files.find_problem(tmp_path / "STS-B.tsv", expected) is None


HEADER = b"index\tprediction\n"


# (rows after the header, problem).
LABELLED = [
    (b"0\t1\n1\t0\n", None), (b"0\t1\n1\t0", ":3: the last line has no line end"),
    (b"0\t1\n2\t0\n", ":3: the index must be 1, but is '2'"),
    (b"0\t1\n1 0\n", ":3: the index must be 1, but is '1 0'"),
    (b"0\t1\n1\t0\n2\t0\n", " contains 3 predictions, but the test set has 2 examples")]
SCORED = [
    (b"0\t0\n1\t5.000\n", None), (b"0\t0\n1\t5.001\n", ":3: '5.001' is not a number from 0 to 5"),
    (b"0\tnan\n1\t5\n", ":2: 'nan' is not a number from 0 to 5"),
    (b"0\t\n1\t5\n", ":2: '' is not a number"), (b"0\t\xe9\n1\t5\n", " is not UTF-8")]


@pytest.mark.parametrize("labels, content, problem", [
    *((["0", "1"], HEADER + rows, problem) for rows, problem in LABELLED),
    *((None, HEADER + rows, problem) for rows, problem in SCORED),
    (None, b"0\t1\n1\t0\n", ":1: the header must be 'index\\tprediction', but is '0\\t1'")])
def test_what_is_wrong_with_a_file_of_predictions(labels, content, problem, tmp_path):
    path = tmp_path / "X.tsv"
    path.write_bytes(content)
    expected = glue_submission_files.TestSet("x", 2, labels, (0.0, 5.0))
    found = glue_submission_files.find_problem(path, expected)
    assert found is None if problem is None else found.startswith(f"{path}{problem}")


def test_a_zip_holds_the_files_and_is_a_function_of_them(tmp_path):
    path = tmp_path / "A.tsv"
    path.write_text("A" * 100)
    for seconds, name in enumerate(("first.zip", "second.zip")):
        os.utime(path, (10**9 * (1 + seconds),) * 2)
        glue_submission_files.write_zip(str(tmp_path / name), [str(path)])
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "first.zip") as archive:
        assert archive.namelist() == ["A.tsv"] and archive.read("A.tsv") == b"A" * 100
