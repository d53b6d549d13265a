"""run_ner.py as a user runs it: the log, the tagged files, files without tags, and errors.

The promises in tests/conformance have its trainings, scores, kills and predictions.
"""

import os
import re

from helpers import read_json, write_json
from outputs import scores, table
import pytest

from bertlib.tasks.tagging import conll_files, sentence_files

ROW = "tagging, columns"
EVALUATE = dict(output_dir="output", results_dir="new")  # the directory has all other settings


def test_it_says_what_it_read_and_writes_a_report(trained):
    sentences = sentence_files.read_sentences(str(trained.directory / "data" / "dev.conll")).sentences
    words = sum(len(sentence.words) for sentence in sentences)
    counts = ", ".join(f"{count} {kind}" for kind, count in conll_files.count_types(sentences).items())
    assert f"dev.conll: 8 sentences, {words} words, IOB2: {counts}." in trained.finished.err
    assert (trained.output / "labels.txt").read_text() == "B-ANIMAL\nB-THING\nO\n"
    assert read_json(trained.output / "run.json")["settings"]["tag_scheme"] == "IOB2"
    report = (trained.output / "eval_report.html").read_text()
    assert "<h1>Tagging: dev.conll</h1>" in report and report.count("<article") == len(sentences)
    rows = table(trained.output / "eval_predictions.csv")
    assert all((row["label"] == row["prediction"]) == (row["is_right"] == "true") for row in rows)
    f1 = scores(trained.output, trained.row)["eval_f1"]
    assert f'<td class="number"><data value="{f1!r}">' in report


def test_the_sample_does_not_replace_the_data_of_a_training(copy):
    record = read_json(copy.output / "run.json")
    write_json(copy.output / "run.json", {**record, "files": {"data_dir": "/moved/data"}})
    for phase in ("do_eval", "do_train"):
        refused = copy.run("run_ner.py", **EVALUATE, **{phase: True})
        refused.assert_refused("--data_dir is required: according to output/run.json, the model was trained "
                               "on /moved/data.")
        assert not (copy.directory / "new").exists()


def test_the_trained_model_tags_a_file_in_its_scheme_with_or_without_tags(copy):
    """In the file without tags, the last column contains valid tags, but the training file had two columns.
    """
    (copy.directory / "new").mkdir()
    for ending in ("txt", "json"):
        (copy.directory / "new" / f"test_eval_results.{ending}").write_text("of another file")
    before = (copy.directory / "data" / "test.conll").read_text()
    (copy.directory / "plain.txt").write_text(re.sub(r"(?m)^(\S+) \S+$", r"\1", before))
    done = copy.run("run_ner.py", **EVALUATE, do_predict=True, test_file="plain.txt")
    done.assert_success("plain.txt: 6 sentences", "without tags",
                        "plain.txt: the file has 1 column instead of 2, so it counts as untagged.")
    assert not list((copy.directory / "new").glob("test_eval_results.*"))
    # The sentences are the same, so the tags must be the same.
    tagged = (copy.output / "test_predictions.conll").read_text()
    assert re.sub(r"(?m) \S+( \S+)$", r"\1", tagged) == (
        copy.directory / "new" / "test_predictions.conll").read_text()
    lines, _, tags = zip(*(line.rpartition(" ") for line in tagged.splitlines()))
    assert list(lines) == before.splitlines() and set(tags) <= {"", "B-ANIMAL", "B-THING", "O"}


def test_tags_that_training_lacks_are_told_and_count_as_wrong(copy):
    (copy.directory / "dev.txt").write_text("cat B-ANIMAL\n\nhere B-PLACE\nbird B-ANIMAL\n"
                                            + "\nthe O" * 30 + "\n")
    done = copy.run("run_ner.py", **EVALUATE, do_eval=True, dev_file="dev.txt", label_all_pieces=True)
    done.assert_success(
        "WARNING: dev.txt has tags that the training data does not have. The model never predicts these "
        "tags, so they count as wrong: B-PLACE.",
        "1 sentences are longer than --max_seq_length=20 and were cut into windows. ",
        "WARNING: Flags with other values than in the training (output/run.json): --label_all_pieces=true "
        "(in the training: false).\n", "--vocab_file not given: using output/vocab.txt\n")
    found = read_json(copy.directory / "new" / "eval_results.json")
    assert found["eval_recall_PLACE"] == 0 <= found["eval_recall_ANIMAL"] and "eval_loss" not in found


# --- Bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files, flags, message", [
    ({"train.txt": "a O\nb O\n"}, {}, "train.txt: all tags are O, so there is nothing to learn"),
    ({"train.txt": "a B-X\n\nb O\nc I-X\n\nd B-X\n"}, {},
     "train.txt:4: the tag I-X after O is not valid in the scheme IOB2, which fits most of data/train.txt; "
     "the right tag is B-X."),
    ({"dev.txt": "a B-X\n"}, {},
     "--data_dir=data contains dev.txt and dev.conll. Choose one of these files with --dev_file."),
    ({"dev.conll": None}, {}, "--data_dir=data contains none of the files dev.txt, dev.conll, "),
    ({}, dict(do_train=False, do_eval=False), "--output_dir=out has no labels.txt"),
    ({}, dict(data_dir=None, train_file="data/train.txt"), "--dev_file or --data_dir is required."),
    ({"train.txt": "a B-X\n\n" + "b O\nc O\n\n" * 40}, dict(max_train_examples=2),
     "--max_train_examples=2: no drawn sentence of data/train.txt has an entity")])
def test_bad_input_is_told_and_nothing_is_written(files, flags, message, run_script, tiny_model, tmp_path):
    (tmp_path / "data").mkdir()
    content = dict.fromkeys(("train.txt", "dev.conll", "test.txt"), "a B-X\nb I-X\n\nc O\n" * 9)
    for name, text in {**content, **files}.items():
        if text is not None:
            (tmp_path / "data" / name).write_text(text)
    given = dict(tiny_model.flags, data_dir="data", do_train=True, do_eval=True, do_predict=True,
                 output_dir="out", train_batch_size=8)
    run_script("run_ner.py", **{**given, **flags}).assert_refused(message)
    assert os.listdir(tmp_path) == ["data"]
