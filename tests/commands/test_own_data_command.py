"""run_classifier.py on a user's own CSV, TSV and JSON Lines files, as a user runs it."""

import csv
import gzip
import json
import random
import re
import shutil

import numpy as np
import pytest
from safetensors import numpy as safetensors
from sklearn import metrics as sklearn_metrics
import tensorflow.compat.v1 as tf
import tiny

# {kind of news: words that occur in it}.
NEWS = {"sport": "cat dog bird", "trade": "house paper bread", "world": "river song train"}
TOPICS = {"animals": "cat dog bird fish", "people": "man child", "things": "house paper bread stone"}


def news(size, seed):
    """Returns `size` pieces of news as (title, text, kind)."""
    chance = random.Random(seed)
    found = []
    for _ in range(size):
        kind = chance.choice(sorted(NEWS))
        words = NEWS[kind].split()
        title = f"{chance.choice(words)} {chance.choice(words)}"
        found.append((title, f'{tiny.sentence(chance)} "today", {chance.choice(words)}\nagain', kind))
    return found


def write_csv(path, rows, header):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def topics(size, seed):
    """Returns `size` objects for JSON Lines: a sentence and its topics."""
    chance = random.Random(seed)
    texts = [tiny.sentence(chance) for _ in range(size)]
    return [{"text": text, "labels": [name for name, words in TOPICS.items() if set(text.split())
                                      & set(words.split())]} for text in texts]


def write_lines(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def results_of(path):
    return {name: json.loads(value.replace("nan", "NaN")) for name, value in (
        line.split(" = ") for line in path.read_text().splitlines())}


def predictions_in(path):
    """Returns the column of predictions. Checks the header and the indices."""
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["index", "prediction"]
    assert [row[0] for row in rows] == [str(index) for index in range(len(rows))]
    return [row[1] for row in rows]


def last_message(finished):
    assert finished.code == 0, finished.err
    return finished.err.splitlines()[-1].split(" ", 1)[1]


def record_in(directory):
    return json.loads((directory / "run.json").read_text())


# --- Classification --------------------------------------------------------------------------------------

KINDS = sorted(NEWS)


@pytest.fixture(scope="module")
def classified(scripts, tiny_model, tmp_path_factory):
    """A run of all phases on CSV files, and its flags.

    Its head gives different answers for different examples.
    """
    here = tmp_path_factory.mktemp("news")
    header = ["title", "text", "kind"]
    for part, size in (("train", 24), ("dev", 15)):
        write_csv(here / f"{part}.csv", news(size, part), header)
    write_csv(here / "test.csv", [row[:2] for row in news(9, "test")], header[:2])
    (here / "output" / "train").mkdir(parents=True)
    for ending in ("txt", "json"):
        (here / "output" / "train" / f"test_eval_results.{ending}").write_text("of another file")
    head = np.random.RandomState(1).standard_normal((3, tiny.CONFIG["hidden_size"])).astype(np.float32)
    tiny.write_tensorflow(here / "trained.ckpt", {**tiny_model.weights, "output_weights": 3 * head,
                                                  "output_bias": np.zeros(3, np.float32)})
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow,
                 init_checkpoint=here / "trained.ckpt", train_file="train.csv",
                 dev_file="dev.csv", test_file="test.csv", text_column="title,text", label_column="kind",
                 train_batch_size=8, num_train_epochs=1)
    return scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here), flags, here


def test_files_are_enough_to_train_evaluate_and_predict(classified):
    finished, _, here = classified
    output = here / "output" / "train"
    found = results_of(output / "eval_results.txt")
    assert last_message(finished) == (
        f"Own data dev: accuracy {found['eval_accuracy']:.3f}, macro F1 of 3 labels {found['eval_f1']:.3f}")
    counts = {kind: sum(row[2] == kind for row in news(24, "train")) for kind in KINDS}
    assert f"train, train.csv: 24 examples: {', '.join(f'{kind} {n}' for kind, n in counts.items())}." in (
        finished.err)
    assert "test, test.csv: 9 examples, without labels." in finished.err
    assert re.search(r"Example dev-2, label \w+ \(id \d\): \[CLS\]", finished.err)
    assert re.search(r"Example test-2: \[CLS\]", finished.err)  # the log must not show its placeholder label
    matrix = found["eval_confusion_matrix"]
    assert np.sum(matrix, axis=1).tolist() == [sum(row[2] == kind for row in news(15, "dev"))
                                               for kind in KINDS]
    assert {"eval_accuracy", "eval_f1", "eval_matthews"} <= set(found)
    rows = np.loadtxt(output / "test_results.tsv")
    predicted = predictions_in(output / "test_predictions.tsv")
    assert predicted == [KINDS[row.argmax()] for row in rows] and len(predicted) == 9
    assert len(set(predicted)) > 1
    assert not list(output.glob("test_eval_results.*"))  # the test file has no labels
    report = (output / "eval_report.html").read_text()
    assert "Report for a browser: output/train/eval_report.html." in finished.err
    assert "<h1>Own data: dev.csv</h1>" in report and record_in(output)["train_data"]["fingerprint"] in report
    wrong = 15 - np.trace(matrix)
    assert f"15 examples: {15 - wrong} right (" in report and report.count("<article") == wrong
    assert f'<data value="{found["eval_f1"]!r}">' in report


def test_a_full_disk_costs_only_the_report(classified, scripts, tmp_path):
    _, _, here = classified
    (tmp_path / "eval_report.html").symlink_to("/dev/full")
    done = scripts.run("run_classifier.py", *tiny.flags(
        do_eval=True, dev_file="dev.csv", output_dir="output/train", results_dir=tmp_path), cwd=here)
    assert done.code == 0, done.err
    assert (f"WARNING: The report {tmp_path}/eval_report.html could not be written. All other results are "
            "complete, so the exit code is 0. The reason: ") in done.err
    assert "No space left on device" in done.err
    for name in ("eval_results.txt", "eval_results.json", "eval_predictions.csv"):
        assert (tmp_path / name).read_bytes() == (here / "output" / "train" / name).read_bytes()


def test_the_record_says_what_was_read(classified):
    record = record_in(classified[2] / "output" / "train")
    assert record["task"] == "own data" and record["task_type"] == "classification"
    assert record["labels"] == KINDS and record["train_data"]["examples"] == 24
    assert record["settings"]["text_column"] == "title,text" and record["settings"]["label_column"] == "kind"
    assert record["files"]["train_file"] == str(classified[2] / "train.csv")
    assert not {"task_type", "label_file"} & set(record["settings"])


def test_texts_of_more_than_a_line_and_pairs_are_fed_whole(classified):
    path = str(classified[2] / "output" / "train" / "predict.tf_record")
    records = [tf.train.Example.FromString(record).features.feature
               for record in tf.python_io.tf_record_iterator(path)]
    for features, (title, text, _) in zip(records, news(9, "test"), strict=True):
        ids = [index for index in features["input_ids"].int64_list.value if index]
        words = re.sub(r'([",.])', r" \1 ", f"[CLS] {title} [SEP] {text} [SEP]").split()
        expected = [tiny.VOCABULARY.index(word) if word in tiny.VOCABULARY else 1 for word in words]
        assert ids == expected or len(ids) == tiny.SEQ_LENGTH
        assert sum(features["segment_ids"].int64_list.value) == len(ids) - len(title.split()) - 2


@pytest.mark.slow(reason="two runs; test_predict.py answers from an output directory")
def test_a_training_is_all_that_a_prediction_needs(scripts, classified, tmp_path):
    """The columns, the labels and their order come from the training. The file has another format."""
    finished, flags, here = classified
    output = here / "output" / "train"
    write_lines(tmp_path / "new.jsonl.gz", [{"text": text, "title": title, "kind": kind}
                                            for title, text, kind in news(9, "test")])
    model = {name: flags[name] for name in ("vocab_file", "bert_config_file", "max_seq_length")}
    done = scripts.run("run_classifier.py", *tiny.flags(
        **model, test_file=tmp_path / "new.jsonl.gz", output_dir=output, results_dir=tmp_path / "results"),
                       cwd=tmp_path)
    assert last_message(done).startswith("Own data test: accuracy ")
    assert re.search(r"have their values from the training .*: --text_column=title,text, ", done.err)
    assert "--do_predict not given: using True" in done.err and "--do_train not" not in done.err
    for name in ("test_results.tsv", "test_predictions.tsv"):
        assert (tmp_path / "results" / name).read_bytes() == (output / name).read_bytes()
    found = results_of(tmp_path / "results" / "test_eval_results.txt")
    labels = [row[2] for row in news(9, "test")]
    predicted = predictions_in(output / "test_predictions.tsv")
    np.testing.assert_allclose(found["eval_f1"], sklearn_metrics.f1_score(
        labels, predicted, labels=KINDS, average="macro", zero_division=0), rtol=1e-6)


@pytest.mark.parametrize("changes, expected", [
    (dict(label_file="labels.txt"), ["labels: [\"sport\", \"trade\", \"world\"] -> [\"world\", "]),
    (dict(task_type="multilabel"), ["task_type: classification -> multilabel"]),
    (dict(task_name="mrpc", data_dir="mrpc"), ["do not fit this run", "output_weights"])])
def test_what_another_training_left_is_not_gone_on_with(changes, expected, scripts, classified, tmp_path):
    _, flags, here = classified
    (tmp_path / "labels.txt").write_text("world\ntrade\nsport\n")
    tiny.write_task(tmp_path / "mrpc", "mrpc", train=8)
    before = sorted((here / "output" / "train").iterdir())
    own = {name: here / flags[name] if name.endswith("_file") else flags[name]
           for name in ("train_file", "text_column", "label_column")} if "task_name" not in changes else {}
    model = {name: flags[name] for name in ("vocab_file", "bert_config_file", "init_checkpoint",
                                            "max_seq_length", "train_batch_size")}
    finished = scripts.run("run_classifier.py", *tiny.flags(
        **model, **own, **changes, do_train=True, output_dir=here / "output" / "train"), cwd=tmp_path)
    assert finished.code == 1 and all(part in finished.err for part in expected), finished.err
    assert sorted((here / "output" / "train").iterdir()) == before


# --- Several labels --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(scripts, tiny_model, tmp_path_factory):
    """A run of all phases on JSON Lines with several labels, and its flags.

    A part of the training file is used for the evaluation. The test file has labels.
    """
    here = tmp_path_factory.mktemp("topics")
    write_lines(here / "all.jsonl", topics(40, "train"))
    write_lines(here / "test.jsonl", topics(20, "test"))
    head = np.random.RandomState(1).standard_normal((3, tiny.CONFIG["hidden_size"])).astype(np.float32)
    tiny.write_tensorflow(here / "trained.ckpt", {**tiny_model.weights, "output_weights": 3 * head,
                                                  "output_bias": np.zeros(3, np.float32)})
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow,
                 init_checkpoint=here / "trained.ckpt", train_file=here / "all.jsonl",
                 test_file=here / "test.jsonl", task_type="multilabel", dev_fraction=0.25, threshold=0.4,
                 label_separator="|", output_dir=here / "output", train_batch_size=6, num_train_epochs=1,
                 learning_rate=0.001)
    return scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=here), flags


@pytest.mark.slow(reason="a whole run; test_multilabel.py has the metrics, test_predictor.py the threshold")
def test_several_labels_are_predicted_above_the_threshold(several):
    finished, flags = several
    assert finished.code == 0, finished.err
    rows = np.loadtxt(flags["output_dir"] / "test_results.tsv")
    assert rows.shape == (20, 3) and len({tuple(row) for row in rows >= 0.4}) > 1
    assert predictions_in(flags["output_dir"] / "test_predictions.tsv") == [
        "|".join(name for name, probability in zip(sorted(TOPICS), row) if probability >= 0.4)
        for row in rows]
    assert record_in(flags["output_dir"])["settings"]["threshold"] == 0.4


@pytest.mark.slow(reason="a whole run; test_multilabel.py has the metrics, test_predictor.py the threshold")
def test_their_metrics_are_those_of_the_probabilities(several):
    finished, flags = several
    probabilities = np.loadtxt(flags["output_dir"] / "test_results.tsv")
    labels = np.array([[name in row["labels"] for name in sorted(TOPICS)] for row in topics(20, "test")])
    found = results_of(flags["output_dir"] / "test_eval_results.txt")
    expected = {f"eval_f1_{average}": sklearn_metrics.f1_score(labels, probabilities >= 0.4, average=average)
                for average in ("micro", "macro")}
    areas = sklearn_metrics.roc_auc_score(labels, probabilities, average=None)
    expected.update({f"eval_auc_{name}": area for name, area in zip(sorted(TOPICS), areas)})
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
    dev = results_of(flags["output_dir"] / "eval_results.txt")
    assert last_message(finished) == "Own data " + "; ".join(
        f"{part}: micro F1 {values['eval_f1_micro']:.3f}, macro F1 of 3 labels {values['eval_f1_macro']:.3f}"
        for part, values in (("dev", dev), ("test", found)))


@pytest.mark.slow(reason="a whole run; test_multilabel.py has the metrics, test_predictor.py the threshold")
def test_what_is_taken_out_is_not_trained_on(several):
    finished, flags = several
    assert record_in(flags["output_dir"])["train_data"]["examples"] == 30
    assert "Training on 30 examples: --num_train_epochs=1 means 5 steps with a batch size" in finished.err
    assert "Evaluating on 10 examples." in finished.err
    records = {name: set(tf.python_io.tf_record_iterator(str(flags["output_dir"] / f"{name}.tf_record")))
               for name in ("train", "eval")}
    assert len(records["train"]) == 30 and len(records["eval"]) == 10
    assert not records["train"] & records["eval"]


@pytest.mark.slow(reason="a whole run; test_dev_rows.py evaluates the stored part")
def test_the_same_part_is_evaluated_again_without_training(scripts, several, tmp_path):
    flags = {name: value for name, value in several[1].items() if name not in (
        "test_file", "task_type", "label_separator", "init_checkpoint")}
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags, do_eval=True, results_dir=tmp_path),
                           cwd=tmp_path)
    assert finished.code == 0, finished.err
    assert results_of(tmp_path / "eval_results.txt") == results_of(flags["output_dir"] / "eval_results.txt")


# --- Scores ----------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="a whole run; test_glue_tasks.py trains on scores, test_own_data.py numbers columns")
def test_scores_by_number_of_their_column(scripts, tiny_model, tmp_path):
    chance = random.Random(3)
    scores = [chance.uniform(-3, 3) for _ in range(20)]
    (tmp_path / "scores.tsv").write_text("".join(
        f"{score!r}\t{tiny.sentence(chance)}\n" for score in scores))
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, train_file="scores.tsv",
                 text_column=2, label_column=1, task_type="regression", dev_fraction=0.2, train_batch_size=8,
                 num_train_epochs=1)
    finished = scripts.run("run_classifier.py", *tiny.flags(**flags), cwd=tmp_path)
    found = results_of(tmp_path / "output" / "scores" / "eval_results.txt")
    assert last_message(finished) == (f"Own data dev: Pearson {found['eval_pearson']:.3f}, Spearman "
                                      f"{found['eval_spearman']:.3f}")
    record = record_in(tmp_path / "output" / "scores")
    assert record["task_type"] == "regression" and record["labels"] is None
    assert "dev, scores.tsv: 4 examples, scores from " in finished.err


# --- Errors ----------------------------------------------------------------------------------------------

ROWS = [["a cat", "x"], ["a dog", "y"], ["a bird", "x"]]
GOOD = dict(train_file="train.csv", dev_file="dev.csv", test_file="test.csv")


@pytest.mark.parametrize("files, flags, expected", [
    ({"train.csv": [["a cat", "x"], ["a dog", "x"]]}, {}, "train.csv: all 2 examples have the same label, x"),
    ({"dev.csv": [["a cat", "x"], ["a\ndog", "z"]]}, {}, "dev.csv:3: the label 'z' is not one of x, y (the "
     "labels in --train_file=train.csv)"),
    ({"test.csv": [["a cat", "z"]]}, {}, "test.csv:2: the label 'z' is not one of x, y"),
    ({}, dict(label_file="labels.txt"), "train.csv:3: the label 'y' is not one of x, w (the labels in "
     "--label_file=labels.txt)"),
    ({"train.csv": [["a cat", "1"], ["a dog", "much"]]}, dict(task_type="regression"),
     "train.csv:3: the score 'much' is not a finite number"),
    ({"train.csv": [["a cat", "1"], ["a dog", "1"]]}, dict(task_type="regression"),
     "train.csv: all 2 examples have the same label, 1.0"),
    ({"dev.csv": [["a cat", "x"], [" ", "y"]]}, {}, "dev.csv:3: the text is empty"),
    ({}, dict(text_column="body"), "train.csv:1: there is no column 'body' (--text_column); the "
     "columns are text, label"),
    ({}, dict(dev_file="none.csv"), "--dev_file=none.csv: there is no such file."),
    ({}, dict(train_file="/tmp"), "--train_file=/tmp is a directory; name the file"),
    ({}, dict(label_file="none.txt"), "--label_file=none.txt: there is no such file."),
    ({}, dict(text_column=""), "--text_column=: the name of a column is empty"),
    ({}, dict(task_name="mrpc"), "--train_file is for your own data, but --task_name=mrpc"),
    ({}, dict(data_dir="."), "--data_dir=. is for the known tasks"),
    ({}, dict(xnli_language="de"), "--xnli_language=de: this flag is only for the task XNLI"),
    ({}, dict(dev_fraction=0.3), "--dev_file and --dev_fraction exclude each other"),
    ({}, dict(train_file=None, do_train=True), "--train_file is required with --do_train=true"),
    ({}, dict(dev_file=None, do_eval=True), "--dev_file or --dev_fraction is required with --do_eval=true"),
    ({}, dict(test_file=None, do_predict=True), "--test_file is required with --do_predict=true"),
    ({}, dict(train_file=None, dev_file=None, dev_fraction=0.3), "--dev_fraction takes examples out of the "
     "training file"),
    ({}, dict(train_file=None, dev_file=None, test_file=None, text_column="text"), "--train_file, --dev_file "
     "or --test_file is required"),
    ({}, dict(train_file=None, output_dir="new"), "The labels are unknown: --output_dir=new contains no "
                                                  "training "
     "with labels."),
    ({}, dict(threshold=0.3), "--threshold is for --task_type=multilabel, but this run has "
                              "--task_type=classification"),
    ({}, dict(threshold=1.5), "must be a number between 0 and 1"),
    ({}, dict(dev_fraction="nan"), "must be a number above 0 and at most 0.5"),
    ({}, dict(label_file="labels.txt", task_type="regression"), "--label_file: a regression predicts "
                                                                "numbers"),
    ({}, dict(text_column="a,b,c"), "--text_column=a,b,c names 3 columns"),
    ({}, dict(label_column="a,b"), "--label_column=a,b names several columns, but this run has "
                                   "--task_type=classification"),
    ({}, dict(header="false"), "--header=false: without a header row, columns have no names"),
    ({}, dict(train_batch_size=32), "3 training examples and --num_train_epochs=3.0 make no batch"),
    ({}, dict(output_dir=".", test_file="test_results.tsv", text_column=1, label_column=2, header="true"),
     "--output_dir=. would overwrite ./test_results.tsv (the same file as test_results.tsv), which "
     "--test_file reads")])
def test_bad_input_is_refused_in_one_message_before_anything_is_written(
        files, flags, expected, scripts, tiny_model, tmp_path):
    for name in ("train.csv", "dev.csv", "test.csv"):
        write_csv(tmp_path / name, files.get(name, ROWS), ["text", "label"])
    (tmp_path / "labels.txt").write_text("x\nw\n")
    (tmp_path / "test_results.tsv").write_text("text\tlabel\na cat\tx\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    given = {**tiny_model.flags, "train_batch_size": 2, **GOOD, **flags}
    finished = scripts.run("run_classifier.py", *tiny.flags(
        **{name: value for name, value in given.items() if value is not None}), cwd=tmp_path)
    assert finished.code == 1 and expected in finished.err and "Traceback" not in finished.err, finished.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("train_file, dev_file, expected", [
    ("train.csv", "train.jsonl", "train.jsonl:1: --text_column gives the column 2 by its number, but the "
     "columns of these rows have only names. Pass --text_column with names; the columns are 1, 2."),
    ("train.jsonl", "train.csv", "train.csv:1: there is no column '2' (--text_column); the columns are no, a "
     "cat")])
def test_numbers_and_names_of_columns_are_not_mixed(train_file, dev_file, expected, scripts, tiny_model,
                                                    tmp_path):
    rows = [("no", "a cat"), ("yes", "a dog")] * 2
    write_csv(tmp_path / "train.csv", rows[1:], rows[0])
    write_lines(tmp_path / "train.jsonl", [dict(zip("12", row)) for row in rows])
    finished = scripts.run("run_classifier.py", *tiny.flags(**{
        **tiny_model.flags, "train_file": train_file, "dev_file": dev_file, "text_column": 2,
        "label_column": 1, "output_dir": "out"}), cwd=tmp_path)
    assert finished.code == 1 and expected in finished.err
    assert not (tmp_path / "out").exists()


def test_labels_that_a_model_comes_with_are_those_of_a_prediction(scripts, tiny_model, tmp_path):
    shutil.copytree(tiny_model.hugging_face, tmp_path / "model")
    head = np.ones((2, tiny.CONFIG["hidden_size"] + 1), np.float32)
    safetensors.save_file({**tiny.hugging_face(tiny_model.weights), "classifier.bias": head[:, 0].copy(),
                           "classifier.weight": head[:, 1:].copy()},
                          tmp_path / "model" / "model.safetensors")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "id2label": {"0": "yes", "1": "no"}}))
    write_csv(tmp_path / "test.csv", [["a cat", "yes"], ["a dog", "perhaps"]], ["text", "label"])
    finished = scripts.run("run_classifier.py", *tiny.flags(
        init_checkpoint="model", test_file="test.csv", output_dir="out"), cwd=tmp_path)
    assert finished.code == 1
    assert "test.csv:3: the label 'perhaps' is not one of yes, no (the labels of the model in model)" in (
        finished.err)


def test_what_can_hardly_be_labels_is_said(scripts, tiny_model, tmp_path):
    write_csv(tmp_path / "train.csv", [[f"cat {number}", str(number or "11.0")] for number in range(12)],
              ["text", "label"])
    finished = scripts.run("run_classifier.py", *tiny.flags(
        **tiny_model.flags, train_file="train.csv", num_train_epochs=0.1), cwd=tmp_path)
    assert "there are 12 labels for 12 examples" in finished.err and "--task_type=regression" in finished.err
    assert "train, train.csv: the labels 11 and 11.0 differ only in letter case or spelling" in finished.err
