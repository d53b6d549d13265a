"""run_classifier.py on a file with bad lines, another encoding, and pipes between the columns.

Also tests a training on a part of the examples.
"""

import csv

import pytest
import tensorflow.compat.v1 as tf
import tiny

WORDS = ["cat", "dog", "bird", "fish", "man", "child", "house"]
ROWS = [[f"{WORDS[number % 7]} {WORDS[number // 7 % 7]} café", "xy"[number % 2]] for number in range(48)]
BAD = {5: "|x", 17: "cat|x|more", 20: "", 30: "dog|"}  # {number of the lines before a bad line: bad line}


def write(path, rows, bad):
    lines = ["text|label"]
    for row in rows:
        lines += [bad[len(lines)]] if len(lines) in bad else []
        lines.append("|".join(row))
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("cp1252"))


def count(path):
    return sum(1 for _ in tf.python_io.tf_record_iterator(str(path)))


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """The directory, the log and the flags of a training."""
    here = tmp_path_factory.mktemp("skip")
    write(here / "all.csv", ROWS, BAD)
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, train_file="all.csv",
                 output_dir="output", train_batch_size=8, num_train_epochs=1)
    done = scripts.run("run_classifier.py", *tiny.flags(
        **flags, delimiter="pipe", encoding="cp1252", skip_bad_lines=True,
        dev_fraction=0.25, max_train_examples=24), cwd=here)
    done.assert_success()
    return here, done.err, flags


def test_bad_lines_are_left_out_counted_and_listed(trained):
    here, log, _ = trained
    assert ("all.csv: 4 bad lines are left out, because --skip_bad_lines=true: empty text 1, wrong width 1, "
            "blank line 1, missing label 1. The first bad line is line 6.") in log
    assert "output/skipped_lines.csv lists the 4 lines that were left out." in log
    with open(here / "output" / "skipped_lines.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], row["line"], row["kind"], row["text"]) for row in rows] == [
        ("all.csv", str(before + 1), kind, text) for (before, text), kind in zip(
            BAD.items(), ["empty text", "wrong width", "blank line", "missing label"])]


def test_an_evaluation_lists_its_bad_lines(scripts, trained):
    here, _, _ = trained
    (here / "bad.csv").write_text("text|label\n" + "".join(f"{text}|{label}\n" for text, label in ROWS[:4])
                                  + "man|z\n")
    scripts.run("run_classifier.py", *tiny.flags(
        output_dir="output", dev_file="bad.csv", do_eval=True, results_dir="results"),
        cwd=here).assert_success()
    found = (here / "results" / "skipped_lines.csv").read_text()
    assert found.count("\n") == 2 and "\nbad.csv,6,unknown label," in found
