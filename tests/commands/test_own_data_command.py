"""run_classifier.py on a user's own files, as a user runs it: the log, the report and refused flags.

The promises in tests/conformance have its trainings. The tests of the readers have files that are refused.
"""

import re
import shutil

from helpers import read_json, write_json
import numpy as np
from outputs import contents, scores, table
import pytest
from safetensors import numpy as safetensors
import tiny


def test_files_are_enough_to_train_evaluate_and_predict(trained):
    log, found = trained.finished.err, scores(trained.output, trained.row)
    assert log.splitlines()[-1].endswith(f"Own data dev: accuracy {found['eval_accuracy']:.3f}, F1 of wild, "
                                         f"big {found['eval_f1']:.3f}")
    assert "train, data/train.csv: 16 examples: pets 8, wild, big 8." in log
    results = read_json(trained.output / "eval_results.json")
    share = results["baselines"]["most_frequent_label"]["eval_accuracy"]
    low, high = results["intervals"]["eval_accuracy"]
    assert (f"dev: accuracy {found['eval_accuracy']:.3f} (95 % interval {low:.3f} to {high:.3f}); most "
            f"frequent label {share:.3f}.") in log
    assert "eval_confusion_matrix" in results and "eval_confusion_matrix" not in log
    assert log.count("Baseline: a bag of words is not computed: it would take more than 2 % of") == 1
    assert "test, data/test.csv: 6 examples, without labels." in log
    assert re.search(r"Example test-2: \[CLS\]", log)  # the log must not show its placeholder label
    assert not list(trained.output.glob("test_eval_results.*"))  # the test file has no labels
    assert "Report for a browser: output/eval_report.html." in log
    report = (trained.output / "eval_report.html").read_text()
    assert "<h1>Own data: dev.csv</h1>" in report
    rows = table(trained.output / "eval_predictions.csv")
    wrong = sum(row["label"] != row["prediction"] for row in rows)
    assert f"8 examples: {8 - wrong} right (" in report and report.count("<article") == wrong
    assert f'<data value="{found["eval_f1"]!r}">' in report


def test_a_bag_of_words_answers_the_development_set(copy):
    done = copy.train(baseline=True, do_predict=None)
    done.assert_success("Nothing to train")
    found = read_json(copy.output / "eval_results.json")["baselines"]["bag_of_words"]
    shown = f"bag of words {found['eval_accuracy']:.3f}"
    assert 0 <= found["eval_accuracy"] <= 1 and shown in done.err
    again = copy.train(do_predict=None)  # this short run would leave it out
    assert again.code == 0 and shown in again.err, again.err
    alone = copy.train(baseline=True, do_train=None, do_predict=None)
    assert alone.code == 0 and shown in alone.err, alone.err
    without = copy.train(baseline=True, do_train=None, do_predict=None, train_file=None)
    assert without.code == 0 and "this run has no --train_file." in without.err, without.err
    assert "bag of words 0" not in without.err


def test_an_evaluation_of_a_model_of_own_data_needs_a_file(copy):
    copy.run("run_classifier.py", output_dir="output", do_eval=True).assert_refused(
        "The model in --output_dir=output was trained on your own data. Name a file with --dev_file or")


# --- Errors ----------------------------------------------------------------------------------------------

ROW = "one text"
ONLY_TRAIN = dict(dev_file=None, test_file=None, do_eval=False, do_predict=False)


@pytest.mark.parametrize("flags, expected", [
    (dict(task_name="mrpc"), "--train_file is for your own data, but --task_name=mrpc"),
    (dict(data_dir="."), "--data_dir=. is for the known tasks"),
    (dict(dev_fraction=0.3), "--dev_file and --dev_fraction exclude each other"),
    (dict(train_file=None), "--train_file is required with --do_train=true"),
    (dict(dev_file=None), "--dev_file or --dev_fraction is required with --do_eval=true"),
    (dict(train_file=None, do_train=False, output_dir="new"), "The labels are unknown: --output_dir=new "
     "contains no training with labels."),
    (dict(train_file=None, dev_file=None, test_file=None), "--train_file, --dev_file or --test_file is "
     "required"),
    (dict(label_file="labels.txt", task_type="regression"), "--label_file: a regression predicts numbers"),
    (dict(text_column="a,b,c"), "--text_column=a,b,c names 3 columns"),
    (dict(label_column="a,b"), "--label_column=a,b names several columns, but this run has "
                               "--task_type=classification"),
    (dict(ONLY_TRAIN, delimiter="pipe", train_file="a.tsv"),
     "--delimiter=pipe: the columns of a .tsv file are always separated by tabs"),
    (dict(ONLY_TRAIN, skip_bad_lines=True, train_file="old/skipped_lines.csv", output_dir="old"),
     "would overwrite old/skipped_lines.csv"),
    (dict(max_train_examples=1), "--max_train_examples=1: all drawn examples have the same label"),
    (dict(output_dir=".", test_file="test_results.tsv"), "--output_dir=. would overwrite ./test_results.tsv "
     "(the same file as test_results.tsv), which --test_file reads")], ids=str)
def test_bad_input_is_refused_in_one_message_before_anything_is_written(flags, expected, untrained):
    (untrained.directory / "labels.txt").write_text("x\nw\n")
    (untrained.directory / "test_results.tsv").write_text("text\nthe cat\n")
    (untrained.directory / "a.tsv").write_text("text\tlabel\na cat\tpets\na dog\tx\n")
    (untrained.directory / "old").mkdir()
    (untrained.directory / "old" / "skipped_lines.csv").write_text("text,label\na cat,x\na dog,y\n")
    before = contents(untrained.directory)
    finished = untrained.train(**{"text_column": "text", **flags})
    finished.assert_refused(expected)
    assert contents(untrained.directory) == before


def test_labels_that_a_model_comes_with_are_those_of_a_prediction(run_script, tiny_model, tmp_path):
    shutil.copytree(tiny_model.hugging_face, tmp_path / "model")
    head = np.ones((2, tiny.CONFIG["hidden_size"] + 1), np.float32)
    safetensors.save_file({**tiny.hugging_face(tiny_model.weights), "classifier.bias": head[:, 0].copy(),
                           "classifier.weight": head[:, 1:].copy()},
                          tmp_path / "model" / "model.safetensors")
    config = tmp_path / "model" / "config.json"
    write_json(config, {**read_json(config), "id2label": {"0": "yes", "1": "no"}})
    (tmp_path / "test.csv").write_text("text,label\na cat,yes\na dog,perhaps\n")
    finished = run_script("run_classifier.py", init_checkpoint="model", test_file="test.csv",
                          output_dir="out", max_seq_length=16)
    finished.assert_refused(
        "test.csv:3: the label 'perhaps' is not one of yes, no (the labels of the model in model)")


def test_the_end_of_a_flag_is_answered_with_the_flags_that_have_it(run_script):
    run_script("run_classifier.py", batch_size=8).assert_refused(
        "Unknown command line flag 'batch_size'", "Did you mean: train_batch_size, predict_batch_size, eval_")


def test_a_warning_about_labels_is_written_once(run_script, tiny_model, tmp_path):
    labels = 80 * ["positive", "positive", "good"] + 20 * ["Good"]
    lines = [f"cat {number},{label}\n" for number, label in enumerate(labels)]
    (tmp_path / "train.csv").write_text("text,label\n" + "".join([*lines, "a,postive\n", "b,postive\n"]))
    done = run_script("run_classifier.py", **tiny_model.flags, train_file="train.csv", dev_fraction=0.5,
                      train_batch_size=999)
    done.assert_refused("make no batch")
    assert done.err.count("the labels Good and good differ only in letter case") == 1
    assert done.err.count("the label 'postive' occurs 1 times, and looks like a misspelling") == 1
