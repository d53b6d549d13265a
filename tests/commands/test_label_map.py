"""--label_map: one label for several spellings, in every file and in later commands."""

from helpers import error_of, example_reader, read_json, write_file
import pytest

from bertlib.data import label_map


@pytest.mark.parametrize("content, expected", [
    ("", "the file is empty"), ("old,new\n", "the file is empty"),
    ("Yes,yes\nYEP\n", ":2: the row must consist of an old and a new label"),
    ("Yes,\n", ":1: the row must consist of an old and a new label"),
    ("Yes,yes\nNo,no\nYes,no\n", ":3: the label 'Yes' becomes 'no', but in line 1 it becomes 'yes'"),
    ("a,b\nb,c\n", ":1: the label 'a' becomes 'b', which becomes 'c' in line 2"),
    ("a,b\nb,a\n", ":1: the label 'a' becomes 'b', which becomes 'a' in line 2"),
    ('a,"b\n', "a quote is not closed")])
def test_a_file_that_cannot_be_used_is_refused_with_its_line(content, expected, tmp_path):
    assert expected in error_of(label_map.read, write_file(tmp_path / "labels.csv", content))


def test_only_tables_of_separated_values_are_read(tmp_path):
    for name, expected in (("labels.jsonl", "must end in .csv or .tsv"), ("labels.txt", "unknown")):
        with pytest.raises(ValueError, match=expected):
            label_map.read(write_file(tmp_path / name, '{"old": "a", "new": "b"}\n'))
    with pytest.raises(FileNotFoundError):
        label_map.read(str(tmp_path / "missing.csv"))


@pytest.mark.parametrize("name, content", [
    ("a.csv", "Yes,yes\n\nno,no\n Yes ,yes\n"), ("a.csv", "\ufeffOld;New\n;\nYes;yes\n ; \nno;no\n"),
    ("a.tsv", "old\tnew\nYes\tyes\nno\tno\n")])
def test_a_header_semicolons_and_a_byte_order_mark(name, content, tmp_path):
    assert label_map.read(write_file(tmp_path / name, content)) == {"Yes": "yes", "no": "no"}


@pytest.mark.parametrize("name, content, label", [
    ("a.csv", 'text,label\na,"Fun,good"\nb,"FUN, fun"\n', None),
    ("a.csv", "text,label\na,\"['Fun', 'good']\"\nb,['FUN']\n", None),
    ("a.jsonl", '{"text": "a", "label": ["good", "FUN"]}\n{"text": "b", "label": ["Fun"]}\n', None),
    ("a.csv", "text,Fun,FUN,good\na,1,0,1\nb,1,1,0\n", ["Fun", "FUN", "good"])])
def test_several_labels_are_replaced_one_by_one(name, content, label, tmp_path):
    spellings = {"Fun": "fun", "FUN": "fun", "never": "x"}
    found = example_reader("multilabel", ["text"], label, mapped_labels=spellings)
    rows = found.read(write_file(tmp_path / name, content)).rows
    assert [set(row.label) for row in rows] == [{"fun", "good"}, {"fun"}]
    assert found.unused == {"never"}


def test_a_map_joins_labels_in_all_files_and_in_later_commands(run_script, tiny_model, tmp_path):
    train = "text,label\n" + 4 * "a cat,yes\nthe dog,No\na bird,Yes\nthe song,no\n"
    dev = "\ufeff" + train.replace(",", ";")
    for name, content in {"train.csv": train, "dev.csv": dev, "labels.txt": "Yes\nno\nyes\n",
                          "map.csv": "old,new\nYes,yes\nNo,no\nJa,yes\n"}.items():
        write_file(tmp_path / name, content)
    flags = dict(tiny_model.flags, train_file="train.csv", dev_file="dev.csv", num_train_epochs=1,
                 train_batch_size=8, class_weights="Yes:3", output_dir="out")
    run_script("run_classifier.py", **dict(flags, num_train_epochs=0.1)).assert_refused(
        "the labels No and no differ only", "the labels Yes and yes differ only",
        "pass --label_map=labels.csv:\nold,new\nno,No\nyes,Yes\n")
    finished = run_script("run_classifier.py", **flags, label_map="map.csv", label_file="labels.txt")
    finished.assert_success("train, train.csv: 16 examples: yes 8, no 8.", "yes 1.5 (8), no 0.5 (8)",
                            "--label_map=map.csv: no file of this run contains the labels Ja.")
    record = read_json(tmp_path / "out" / "run.json")
    assert record["labels"] == ["yes", "no"]
    assert record["settings"]["mapped_labels"] == {"Yes": "yes", "No": "no", "Ja": "yes"}
    scores = (tmp_path / "out" / "eval_results.txt").read_bytes()
    predictions = (tmp_path / "out" / "eval_predictions.csv").read_text(encoding="utf-8")
    assert predictions.startswith("\ufeffline;text;input_label;label;prediction;probability_yes;")

    (tmp_path / "map.csv").unlink()
    later = run_script("run_classifier.py", dev_file="dev.csv", output_dir="out", results_dir="later")
    assert later.code == 0 and (tmp_path / "later" / "eval_results.txt").read_bytes() == scores, later.err
    run_script("run_classifier.py", **dict(flags, num_train_epochs=2)).assert_refused(
        "The labels have changed: --output_dir=out contains a training with 2 labels, and this run has 4 "
        "(only in this run: No, Yes).", "train in another --output_dir")
    run_script("run_classifier.py", **dict(flags, class_weights=None), task_type="multilabel").assert_refused(
        "--output_dir=out contains a training with --task_type=classification, and this run has "
        "--task_type=multilabel. To continue that training, pass its --task_type.")
    write_file(tmp_path / "map.csv", "Yes,no\nNo,yes\n")
    changed = run_script("run_classifier.py", **dict(flags, num_train_epochs=2), label_map="map.csv",
                         label_file="labels.txt")
    changed.assert_refused("; label_map: {")
