"""run_classifier.py --dev_fraction: the first run in a directory chooses the development set.

Later runs in this directory use the same development set, whatever their flags are.
"""

import csv
import json
import shutil

import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.tasks.classification import dev_split, row_examples

# 60 different texts of three words. All words are in the vocabulary.
WORDS = ["cat", "dog", "bird", "fish", "man", "child", "house", "paper", "bread", "stone", "river", "song",
         "train"]
TEXTS = [f"{WORDS[number % 13]} {WORDS[number // 13 % 13]} {WORDS[(number * 5 + 3) % 13]}"
         for number in range(60)]
ROWS = [[text, "xy"[number % 2]] for number, text in enumerate(TEXTS)]


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    return path


def part_of(rows):
    return row_examples.Split("", [row_examples.Row(line, text, None, label)
                                   for line, (text, label) in enumerate(rows, 2)], True)


def records_in(path):
    return sorted(tf.python_io.tf_record_iterator(str(path)))


def read(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """A training with --dev_fraction=0.2 --seed=7, and its flags."""
    here = tmp_path_factory.mktemp("split")
    write_csv(here / "all.csv", ROWS)
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, train_file=here / "all.csv",
                 output_dir=here / "output", train_batch_size=16, num_train_epochs=1)
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags, dev_fraction=0.2, seed=7), cwd=here)
    assert finished.code == 0, finished.err
    return flags


def again(scripts, trained, here, rows=None, **changes):
    """Runs another command in a copy of the directory, by default an evaluation. `rows` is the training file.
    """
    if not (here / "output").exists():
        shutil.copytree(trained["output_dir"], here / "output")
    write_csv(here / "all.csv", ROWS if rows is None else rows)
    flags = {**trained, "output_dir": here / "output", "train_file": here / "all.csv", "do_eval": True,
             **changes}
    if not flags.get("do_train"):
        flags = {name: value for name, value in flags.items() if name != "init_checkpoint"}
        flags.setdefault("results_dir", here / "results")
    return scripts.run("run_classifier.py", *tiny.flags(**{
        name: value for name, value in flags.items() if value is not None}), cwd=here)


def test_the_rows_are_stored_and_recorded(trained):
    lines = (trained["output_dir"] / "dev_rows.txt").read_text().splitlines()[2:]
    expected = dev_split.stratified_split(part_of(ROWS), 0.2).dev.rows
    assert lines == [f"{row.line}\t{dev_split.row_digest(row)}" for row in expected] and len(lines) == 12
    record = json.loads((trained["output_dir"] / "run.json").read_text())
    assert {**record["dev_rows"], "fingerprint": None} == {"rows": 12, "of": 60, "fingerprint": None}
    found = {name: set(records_in(trained["output_dir"] / f"{name}.tf_record")) for name in ("train", "eval")}
    assert [len(found[name]) for name in ("train", "eval")] == [48, 12] and not found["train"] & found["eval"]


def test_an_evaluation_takes_the_same_rows_without_seed_and_fraction_wherever_they_are(
        scripts, trained, tmp_path):
    """The training file has two new rows, and a new row with the text of a development row.

    The other rows are in another order.
    """
    text, label = next(row[1:4:2] for row in dev_split.stratified_split(part_of(ROWS), 0.2).dev.rows)
    rows = [["song song song", "x"], *ROWS[30:], [text.upper(), label], *ROWS[:30], ["man man man", "y"]]
    finished = again(scripts, trained, tmp_path, rows)
    assert finished.code == 0, finished.err
    assert "--dev_fraction not given: using 0.2 (as in the training)" in finished.err
    assert finished.err.count("has 63 rows, but it had only 60 rows when the training in") == 1
    assert records_in(tmp_path / "results" / "eval.tf_record") == records_in(
        trained["output_dir"] / "eval.tf_record")
    assert read(tmp_path / "output") == read(trained["output_dir"])


@pytest.mark.slow(reason="a whole run; that the rows are stored is shown above")
def test_a_training_that_goes_on_keeps_the_rows(scripts, trained, tmp_path):
    """The training continues for a second epoch, with another seed and without --dev_fraction.

    It uses the rows that were added, but not the added row with the text of a development row.
    """
    text, label = next(row[1:4:2] for row in dev_split.stratified_split(part_of(ROWS), 0.2).dev.rows)
    rows = [["song song song", "x"], [f" {text}", label], *ROWS]
    finished = again(scripts, trained, tmp_path, rows, do_train=True, num_train_epochs=2, seed=8)
    assert finished.code == 0, finished.err
    assert "except on 1 row with the same texts as development rows" in finished.err
    before, after = read(trained["output_dir"]), read(tmp_path / "output")
    assert after["dev_rows.txt"] == before["dev_rows.txt"]
    records = [json.loads(found["run.json"]) for found in (before, after)]
    assert records[1]["changes"] and records[1]["dev_rows"] == records[0]["dev_rows"]
    old, new = (set(records_in(directory / "train.tf_record"))
                for directory in (trained["output_dir"], tmp_path / "output"))
    assert old < new and len(new) == 49
    assert records_in(tmp_path / "output" / "eval.tf_record") == records_in(
        trained["output_dir"] / "eval.tf_record")


@pytest.mark.soak(reason="a whole run; test_dev_split.py draws the rows")
def test_a_new_training_draws_the_same_rows_with_any_seed(scripts, trained, tmp_path):
    finished = again(scripts, trained, tmp_path, output_dir=tmp_path / "new", do_train=True, do_eval=None,
                     dev_fraction=0.2, seed=8, num_train_epochs=0.34)
    assert finished.code == 0, finished.err
    assert (tmp_path / "new" / "dev_rows.txt").read_bytes() == (
        trained["output_dir"] / "dev_rows.txt").read_bytes()


def change_record(directory, **changes):
    path = directory / "run.json"
    record = json.loads(path.read_text())
    record["settings"].update(changes.pop("settings", {}))
    path.write_text(json.dumps({**record, **changes}))


@pytest.mark.parametrize("damage, rows, flags, expected", [
    (None, ROWS, dict(dev_fraction=0.3), "--dev_fraction=0.3, but according to run.json in OUTPUT the model "
                                         "was trained with "
     "--dev_fraction=0.2"),
    (None, ROWS, dict(dev_fraction=0.3, do_train=True), "was trained with --dev_fraction=0.2"),
    (lambda directory: change_record(directory, dev_rows=None, settings={"dev_fraction": None}), ROWS,
     dict(dev_fraction=0.2), "was trained on all rows of its training file"),
    (None, [[text, "x"] for text in TEXTS[:30]] + ROWS[30:], {}, "rows that OUTPUT/dev_rows.txt lists. "
     "When the training started, one of these rows began in line "),
    (lambda directory: (directory / "dev_rows.txt").unlink(), ROWS, {}, "OUTPUT/dev_rows.txt is missing"),
    (lambda directory: (directory / "dev_rows.txt").write_text(
        "# \nline\tdigest\n2\t" + dev_split.row_digest(part_of(ROWS).rows[0]) + "\n"), ROWS, {},
     "OUTPUT/dev_rows.txt was changed after the training wrote it")])
def test_what_contradicts_the_training_is_refused_before_anything_is_written(
        damage, rows, flags, expected, scripts, trained, tmp_path):
    shutil.copytree(trained["output_dir"], tmp_path / "output")
    if damage:
        damage(tmp_path / "output")
    before = read(tmp_path / "output")
    finished = again(scripts, trained, tmp_path, rows, **flags)
    assert finished.code == 1 and "Traceback" not in finished.err, finished.err
    assert expected.replace("OUTPUT", str(tmp_path / "output")) in finished.err
    assert read(tmp_path / "output") == before and not (tmp_path / "results").exists()


@pytest.mark.soak(reason="starts two replicas; test_replicas_train.py has their trainings, and only one "
                         "replica writes files")
def test_replicas_store_the_rows_once(scripts, trained, tmp_path):
    finished = again(scripts, trained, tmp_path, output_dir=tmp_path / "new", do_train=True, dev_fraction=0.2,
                     num_replicas=2)
    assert finished.code == 0, finished.err
    assert (tmp_path / "new" / "dev_rows.txt").read_bytes() == (
        trained["output_dir"] / "dev_rows.txt").read_bytes()
    assert not list((tmp_path / "new").glob("*.partial"))


# --- Files of the same name, and of the same rows --------------------------------------------------------


@pytest.mark.slow(reason="a whole run and a refused one")
def test_two_training_files_of_one_name_do_not_train_into_one_directory(scripts, trained, tmp_path):
    flags = {name: value for name, value in trained.items() if name not in ("output_dir", "train_file")}
    other = [[f"{text} song", label] for text, label in ROWS]
    for folder, rows in (("a", ROWS), ("b", other), ("c", ROWS)):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / "all.csv", rows)
    ends = {}
    for folder in "abc":
        ends[folder] = scripts.run("run_classifier.py", *tiny.flags(
            **flags, do_train=True, train_file=f"{folder}/all.csv"), cwd=tmp_path)
        found = read(tmp_path / "output" / "all")
        assert "a/all.csv" in json.loads(found["run.json"])["files"]["train_file"]
    assert [end.code for end in ends.values()] == [0, 1, 0], ends["b"].err
    assert (f"--train_file=b/all.csv: the default output directory, output/all, already contains a training "
            f"on a different file, {tmp_path}/a/all.csv. Name another directory with "
            "--output_dir.") in ends["b"].err


@pytest.mark.soak(reason="three whole runs; test_dev_split.py draws and counts rows")
def test_rows_that_were_trained_on_are_counted(scripts, trained, tmp_path):
    write_csv(tmp_path / "dev.csv", [[text.upper(), label] for text, label in ROWS])
    write_csv(tmp_path / "test.csv", [["song song song", "x"], *ROWS[:3]])
    finished = again(scripts, trained, tmp_path, output_dir=tmp_path / "new", do_train=True,
                     do_predict=True, num_train_epochs=0.34, dev_file="dev.csv", test_file="test.csv")
    assert finished.code == 0, finished.err
    for part, count, line in (("dev, dev.csv", "60 of 60", 2), ("test, test.csv", "3 of 4", 3)):
        assert finished.err.count(f"{part}: {count} examples have the same texts as examples in --train_file="
                                  f"{tmp_path}/all.csv. (Letter case") == 1
        assert f"The first of these examples is in line {line}." in finished.err


@pytest.mark.parametrize("labels, expected", [
    (["caf\u00e9", "cafe\u0301"], "all.csv:3: the label 'cafe\\u0301' looks like the label 'caf\\xe9' ("),
    (["yes", "yes\u200b"], "the label 'yes\\u200b' looks like the label 'yes'"),
    (["a b", "a\u00a0b"], "the label 'a\\xa0b' looks like"), (["no", "\ufeffno"], "'\\ufeffno' looks like"),
    (["no", "\u200b"], "all.csv:3: the label '\\u200b' has no visible character")])
def test_labels_that_look_the_same_are_refused(labels, expected, scripts, trained, tmp_path):
    rows = [[text, labels[number % 2]] for number, text in enumerate(TEXTS)]
    finished = again(scripts, trained, tmp_path, rows, output_dir=tmp_path / "new", do_train=True,
                     do_eval=None)
    assert finished.code == 1 and expected in finished.err, finished.err
    assert not (tmp_path / "new").exists()


def test_a_label_that_looks_like_a_known_one_is_said(scripts, trained, tmp_path):
    write_csv(tmp_path / "dev.csv", [["a cat", "x"], ["a dog", "y\u200b"]])
    finished = again(scripts, trained, tmp_path, train_file=None, dev_file="dev.csv")
    assert finished.code == 1
    assert "dev.csv:3: the label 'y\\u200b' is not one of x, y" in finished.err
    assert "'y\\u200b' looks like 'y': the two differ only in white space, invisible" in finished.err
