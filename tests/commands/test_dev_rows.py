"""run_classifier.py --dev_fraction: the first run in a directory chooses the development set.

Later runs in this directory use the same development set, whatever their flags are.
"""

from helpers import read_json, write_json
import model_directories
from outputs import contents, table
import pytest
from rows import ROWS

ROW = "one text"
TRAIN = dict(dev_file=None, test_file=None, dev_fraction=0.25, do_eval=False, do_predict=False)
EVALUATE = dict(TRAIN, dev_fraction=None, do_train=False, do_eval=True, results_dir="results")


@pytest.fixture
def copy(row, workspaces, tmp_path):
    """A copy of a training with --dev_fraction=0.25."""
    return workspaces(row, **TRAIN).copy(tmp_path / "copy")


def test_an_evaluation_takes_the_same_rows_without_seed_and_fraction_wherever_they_are(copy):
    """The training file is in another order, has a new row with the text of a development row, and the label
    of a development row was corrected."""
    path = copy.directory / "data" / "train.csv"
    header, *rows = path.read_text().splitlines()
    lines = [line.split("\t")[0] for line in (copy.output / "dev_rows.txt").read_text().splitlines()[2:]]
    chosen = [rows[int(line) - 2] for line in lines]
    wrong = next(row for row in chosen if row.endswith(",pets"))
    right = wrong.replace(",pets", ',"wild, big"')
    twin = next(row for row in chosen if row != wrong).replace("cat", "CAT")
    path.write_text("\n".join([header, *rows[8:], twin, *rows[:8], ""]).replace(wrong, right))
    before = contents(copy.output)
    done = copy.train(**EVALUATE)
    done.assert_success("--dev_fraction not given: using 0.25 (as in the training)")
    assert done.err.count("has 17 rows, but it had only 16 rows when the training in") == 1
    found = table(copy.directory / "results" / "eval_predictions.csv")
    assert sorted(row["text"] for row in found) == sorted(row.split('"')[1] for row in chosen)
    assert {row["label"] for row in found if row["text"] == wrong.split('"')[1]} == {"wild, big"}
    assert contents(copy.output) == before


def forget_dev_rows(output):
    record = read_json(output / "run.json")
    record["settings"]["dev_fraction"] = record["dev_rows"] = None
    write_json(output / "run.json", record)


@pytest.mark.parametrize("damage, flags, expected", [
    (lambda output: None, dict(dev_fraction=0.3), "--dev_fraction=0.3, but according to run.json in output "
     "the model was trained with --dev_fraction=0.25"),
    (forget_dev_rows, dict(dev_fraction=0.25), "was trained on all rows of its training file"),
    (lambda output: (output / "dev_rows.txt").write_text("# \nline\tdigest\n2\tab\n"), {},
     "output/dev_rows.txt is missing, or was changed after the training wrote it")])
def test_what_contradicts_the_training_is_refused_before_anything_is_written(damage, flags, expected, copy):
    damage(copy.output)
    before = contents(copy.directory)
    copy.train(**{**EVALUATE, **flags}).assert_refused(expected)
    assert contents(copy.directory) == before


def test_flags_that_change_the_labels_are_named(copy):
    refused = copy.train(**TRAIN, num_train_epochs=3, label_map="spellings.csv", encoding="latin-1")
    refused.assert_refused(
        "The labels have changed", "(only in that training: pets; only in this run: animals). The cause may "
        "be these flags: --label_map={'pets': 'animals'} (in the training: nothing), --encoding=latin-1 (in "
        "the training: utf-8). A training can continue only with the same labels. For the new labels, train "
        "in another --output_dir.")


@pytest.mark.parametrize("flags", [
    dict(), dict(dev_file="data/dev.csv"),
    dict(dev_file="data/dev.csv", do_train=None, do_eval=None, do_predict=None)], ids=str)  # default phases
def test_a_training_that_goes_on_leaves_the_development_rows_out(flags, copy):
    done = copy.train(**{**TRAIN, "dev_fraction": None, **flags}, num_train_epochs=3)
    done.assert_success("Lengths of train: 0 of 12 examples")
    assert read_json(copy.output / "run.json")[
        "train_data"]["examples"] == 12
    assert bool(flags) == (
        "The training continues without the rows in dev_rows.txt, also with --dev_file." in done.err)


# --- Files of the same name, and of the same rows --------------------------------------------------------


def test_two_training_files_of_one_name_do_not_train_into_one_directory(run_script, tiny_model, tmp_path):
    (tmp_path / "output").mkdir()
    output = model_directories.write_classifier(tmp_path / "output" / "all", tiny_model, ["x", "y"],
                                                task="own data")
    write_json(output / "run.json", {**read_json(output / "run.json"), "files": {"train_file": "/a/all.csv"}})
    (tmp_path / "all.csv").write_text("text,label\n" + "the cat,x\na dog,y\n" * 8)
    done = run_script("run_classifier.py", **tiny_model.flags, do_train=True, train_file="all.csv")
    done.assert_refused(
        "--train_file=all.csv: the default output directory, output/all, already contains a training on a "
        "different file, /a/all.csv. Name another directory with --output_dir.")


def test_rows_that_are_trained_on_are_counted(untrained):
    """The run is refused later, because no batch is large enough."""
    data = untrained.directory / "data"
    rows = (data / "train.csv").read_text().splitlines()
    (data / "dev.csv").write_text("\n".join([rows[0], *(row.replace("cat", "CAT") for row in rows[1:])]))
    (data / "test.csv").write_text("text\nsong song song\n" + "".join(
        f'"{row.split(chr(34))[1]}"\n' for row in rows[1:4]))
    other = rows[1].replace("cat", "Cat").rpartition(",")[0] + ",odd"
    copies = [row.replace("cat", "CAT") for row in rows[4:8]]
    lines = rows[8].replace(" ", "\n", 1)
    (data / "train.csv").write_text("\n".join([*rows[:8], lines, *rows[9:], other, *copies]))
    refused = untrained.train(train_batch_size=999)
    refused.assert_refused("make no batch")
    assert ("data/train.csv: examples with the same texts as an earlier example, but another label: 1. The "
            "first lines: 2 and 19 (spreadsheet row 18). ") in refused.err
    assert ("data/train.csv: examples with the same texts and label as an earlier example: 4. The first "
            "lines: 5 and 20 (spreadsheet row 19), 6 and 21 (spreadsheet row 20), 7 and 22 (") in refused.err
    for part, count, line in (("dev, data/dev.csv", "16 of 16", 2), ("test, data/test.csv", "3 of 4", 3)):
        assert refused.err.count(f"{part}: {count} examples have the same texts as examples in --train_file="
                                 "data/train.csv. (Letter case") == 1, refused.err
        assert f"The first of these examples is in line {line}." in refused.err


@pytest.mark.parametrize("flags, part", [
    (dict(do_predict=True, test_file="data/again.csv"), "test"),
    (dict(do_train=True, do_eval=True, train_file="data/dev.csv", dev_file="data/again.csv",
          init_checkpoint="output", output_dir="second", train_batch_size=999), "dev")])
def test_examples_of_an_earlier_training_are_counted(flags, part, copy):
    """4 of the 16 rows are its development set. The last run is refused later, because no batch is large
    enough."""
    data = copy.directory / "data"
    (data / "again.csv").write_bytes((data / "train.csv").read_bytes())
    done = copy.train(**{**EVALUATE, "do_eval": False, "train_file": None, **flags})
    assert f"{part}, data/again.csv: 12 of 16 examples have the same texts as examples in " in done.err
    assert "data/train.csv, the training file of output. (Letter case" in done.err


@pytest.mark.parametrize("name, flag, path", [
    ("tagging, columns", "dev_file", "data/train.conll"), ("SQuAD 1.1", "predict_file", "data/train.json")])
def test_a_training_file_that_is_evaluated_is_named(name, flag, path, workspaces, tmp_path):
    copy = workspaces(ROWS[name]).copy(tmp_path / "copy")
    done = copy.train(do_train=False, do_eval=True, do_predict=False, results_dir="results", **{flag: path})
    done.assert_success("The development data are the training data of output, so the metrics will say")
