"""run_classifier.py --dev_fraction: the first run in a directory chooses the development set.

Later runs in this directory use the same development set, whatever their flags are.
"""

import csv
import shutil

from helpers import read_json, write_json
from outputs import contents
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
    return row_examples.Split("", [row_examples.Row(line, (text,), label)
                                   for line, (text, label) in enumerate(rows, 2)], True)


def records_in(path):
    return sorted(tf.python_io.tf_record_iterator(str(path)))


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """A training with --dev_fraction=0.2 --seed=7, and its flags."""
    here = tmp_path_factory.mktemp("split")
    write_csv(here / "all.csv", ROWS)
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, train_file=here / "all.csv",
                 output_dir=here / "output", train_batch_size=16, num_train_epochs=1)
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags, dev_fraction=0.2, seed=7), cwd=here)
    finished.assert_success()
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
    return scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here)


def test_an_evaluation_takes_the_same_rows_without_seed_and_fraction_wherever_they_are(
        scripts, trained, tmp_path):
    """The training file has two new rows, and a new row with the text of a development row.

    The other rows are in another order.
    """
    chosen = dev_split.stratified_split(part_of(ROWS), 0.2).dev.rows[0]
    rows = [["song song song", "x"], *ROWS[30:], [chosen.text_a.upper(), chosen.label], *ROWS[:30],
            ["man man man", "y"]]
    finished = again(scripts, trained, tmp_path, rows)
    finished.assert_success()
    assert "--dev_fraction not given: using 0.2 (as in the training)" in finished.err
    assert finished.err.count("has 63 rows, but it had only 60 rows when the training in") == 1
    assert records_in(tmp_path / "results" / "eval.tf_record") == records_in(
        trained["output_dir"] / "eval.tf_record")
    assert contents(tmp_path / "output") == contents(trained["output_dir"])


def change_record(directory, **changes):
    path = directory / "run.json"
    record = read_json(path)
    record["settings"].update(changes.pop("settings", {}))
    write_json(path, {**record, **changes})


@pytest.mark.parametrize("damage, rows, flags, expected", [
    (None, ROWS, dict(dev_fraction=0.3), "--dev_fraction=0.3, but according to run.json in OUTPUT the model "
                                         "was trained with --dev_fraction=0.2"),
    (lambda directory: change_record(directory, dev_rows=None, settings={"dev_fraction": None}), ROWS,
     dict(dev_fraction=0.2), "was trained on all rows of its training file"),
    (lambda directory: (directory / "dev_rows.txt").write_text(
        "# \nline\tdigest\n2\t" + dev_split.row_digest(part_of(ROWS).rows[0]) + "\n"), ROWS, {},
     "OUTPUT/dev_rows.txt is missing, or was changed after the training wrote it")])
def test_what_contradicts_the_training_is_refused_before_anything_is_written(
        damage, rows, flags, expected, scripts, trained, tmp_path):
    shutil.copytree(trained["output_dir"], tmp_path / "output")
    if damage:
        damage(tmp_path / "output")
    before = contents(tmp_path / "output")
    finished = again(scripts, trained, tmp_path, rows, **flags)
    finished.assert_refused()
    assert expected.replace("OUTPUT", str(tmp_path / "output")) in finished.err
    assert contents(tmp_path / "output") == before and not (tmp_path / "results").exists()


# --- Files of the same name, and of the same rows --------------------------------------------------------


def test_two_training_files_of_one_name_do_not_train_into_one_directory(run_script, trained, tmp_path):
    flags = {name: value for name, value in trained.items() if name not in ("output_dir", "train_file")}
    output = shutil.copytree(trained["output_dir"], tmp_path / "output" / "all")
    (output / "dev_rows.txt").unlink()
    change_record(output, dev_rows=None, settings={"dev_fraction": None})
    (tmp_path / "b").mkdir()
    write_csv(tmp_path / "b" / "all.csv", [[f"{text} song", label] for text, label in ROWS])
    done = run_script("run_classifier.py", **flags, do_train=True, train_file="b/all.csv")
    assert done.code == 1 and (
        "--train_file=b/all.csv: the default output directory, output/all, already contains a training on a "
        f"different file, {trained['train_file']}. Name another directory with --output_dir.") in done.err


def test_rows_that_are_trained_on_are_counted(scripts, trained, tmp_path):
    """The run is refused later, because no batch is large enough."""
    write_csv(tmp_path / "dev.csv", [[text.upper(), label] for text, label in ROWS])
    write_csv(tmp_path / "test.csv", [["song song song", "x"], *ROWS[:3]])
    flags = dict(output_dir=tmp_path / "new", do_train=True, do_predict=True, train_batch_size=999)
    refused = again(scripts, trained, tmp_path, dev_file="dev.csv", test_file="test.csv", **flags)
    refused.assert_refused("make no batch")
    for part, count, line in (("dev, dev.csv", "60 of 60", 2), ("test, test.csv", "3 of 4", 3)):
        assert refused.err.count(f"{part}: {count} examples have the same texts as examples in --train_file="
                                 f"{tmp_path}/all.csv. (Letter case") == 1
        assert f"The first of these examples is in line {line}." in refused.err
