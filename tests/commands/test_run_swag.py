"""run_swag.py as a user runs it: it reads CSV, and writes scores, tables, exports and answers."""

import csv
import io
import json
import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib import api, serving
from bertlib.commands import predict

NAMES = ["sent1", "sent2", "ending0", "ending1", "ending2", "ending3"]
WEIGHTS = "cls/multiple_choice/output_weights"
LAYER = "bert/encoder/layer_0/output/dense/kernel"


def write(path, count, seed, labels=True):
    """Writes questions whose right ending contains the word "stone"."""
    chance, rows = random.Random(seed), []
    for index in range(count):
        endings = [f"{verb} the {chance.choice(['cat', 'bird', 'fish'])} ."
                   for verb in chance.sample(["sees", "finds", "likes", "moves", "hears"], 4)]
        label = chance.randrange(4)
        endings[label] = "sells stone stone ." + " today again" * (index % 3)
        rows.append([str(index), tiny.sentence(chance), "the man", *endings, *([label] if labels else [])])
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["id", *NAMES, *(["label"] if labels else [])], *rows])
    return path


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(scripts, tiny_model, tmp_path_factory):
    """A training with all phases: (`Finished`, its directory)."""
    here = tmp_path_factory.mktemp("swag")
    (here / "data").mkdir()
    (here / "output").mkdir()
    for ending in ("txt", "json"):
        (here / "output" / f"test_eval_results.{ending}").write_text("of another file")
    # The development questions are those of the training, so that a small model learns them.
    for name, count in {"train": 32, "val": 10, "test": 6}.items():
        write(here / "data" / f"{name}.csv", count, seed=0, labels=name != "test")
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, max_seq_length=32, data_dir="data",
                 do_train=True, do_eval=True, do_predict=True, train_batch_size=8, learning_rate=0.001,
                 num_train_epochs=24, predict_batch_size=4, save_checkpoints_steps=48,
                 eval_each_checkpoint=True, keep_best="eval_accuracy", recompute="layers", do_export=True,
                 features_cache="cache", output_dir="output")
    return scripts.run("run_swag.py", *tiny.flags(**flags), cwd=here), here


def test_scores_tables_and_files(trained):
    done, here = trained
    assert done.code == 0, done.err
    output = here / "output"
    results = json.loads((output / "eval_results.json").read_text())
    rows = table(output / "eval_predictions.csv")
    right = [row["label"] == row["prediction"] for row in rows]
    assert len(rows) == 10 and results["eval_accuracy"] == pytest.approx(np.mean(right))
    assert results["eval_accuracy"] >= 0.5  # chance is 0.25
    assert results["eval_loss"] == pytest.approx(np.mean([float(row["loss"]) for row in rows]), rel=1e-5)
    for row, is_right in zip(rows, right):
        probabilities = [float(row[f"probability_{index}"]) for index in range(4)]
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert int(row["prediction"]) == np.argmax(probabilities)
        assert row["is_right"] == ("true" if is_right else "false")
        assert float(row["loss"]) == pytest.approx(-np.log(probabilities[int(row["label"])]), rel=1e-3)
    assert len(table(output / "test_predictions.csv")) == 6
    assert not list(output.glob("test_eval_results.*"))  # the test file has no labels
    assert b"Wrong answers" in (output / "eval_report.html").read_bytes()
    assert (output / "learning_curve.tsv").exists() and (output / "best" / "best.json").exists()
    record = json.loads((output / "run.json").read_text())
    assert (record["task_type"], record["settings"]["num_choices"]) == ("multiple_choice", 4)
    assert record["finished_step"] == 96
    assert list((here / "cache").iterdir())


def test_later_commands_give_the_same_answers(trained, scripts):
    """The commands use the settings of the training. The exported model scores single sequences."""
    _, here = trained
    before = table(here / "output" / "eval_predictions.csv")
    again = scripts.run("run_swag.py", "--do_eval", "--output_dir=output", "--dev_file=data/val.csv",
                        "--results_dir=again", cwd=here)
    assert again.code == 0 and "--max_seq_length=32" in again.err, again.err
    answered = scripts.run("predict.py", "--model_dir=output", "--input_file=data/val.csv",
                           "--output_file=answers.csv", cwd=here)
    assert answered.code == 0, answered.err
    names = [f"probability_{index}" for index in range(4)]
    for first, second, third in zip(before, table(here / "again" / "eval_predictions.csv"),
                                    table(here / "answers.csv"), strict=True):
        expected = [float(first[name]) for name in names]
        for row in (second, third):
            np.testing.assert_allclose([float(row[name]) for name in names], expected, atol=2e-6)
        if sorted(expected)[-1] - sorted(expected)[-2] > 1e-5:  # not a tie
            assert first["prediction"] == second["prediction"] == third["label"]
        assert third["ending"] == first[f"ending{third['label']}"]


def test_compare_results_compares_only_the_accuracy(trained, scripts):
    """The labels are the numbers of the endings, so metrics of the labels have no meaning. The second table
    has no run.json in its directory."""
    _, here = trained
    rows = table(here / "output" / "eval_predictions.csv")
    for row in rows[:3]:
        row["prediction"] = str((int(row["label"]) + 1) % 4)
    (here / "worse").mkdir(exist_ok=True)
    with open(here / "worse" / "eval_predictions.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    done = scripts.run("compare_results.py", "output", "worse", "--output_format=json", cwd=here)
    assert done.code == 0, done.err
    entry, = json.loads(done.out)["metrics"]
    assert entry["metric"] == "eval_accuracy"
    assert entry["values"][1] == pytest.approx(100 * np.mean([row["label"] == row["prediction"]
                                                              for row in rows]))


def test_another_command_names_the_command_of_the_training(trained, scripts):
    done = scripts.run("run_classifier.py", "--do_eval", "--output_dir=output", cwd=trained[1])
    assert done.code == 1 and "--output_dir=output contains a training by run_swag.py" in done.err, done.err


def test_a_loaded_model_and_its_export(trained, monkeypatch, capsys):
    _, here = trained
    row = table(here / "data" / "val.csv")[0]
    texts = [row[name] for name in NAMES]
    export, = (here / "output" / "export").iterdir()
    with serving.load(str(here / "output")) as predictor:
        assert predictor.fields == tuple(NAMES)
        answer = predictor(*texts)
        assert answer == predictor(**dict(zip(NAMES, texts)))
        fewer = predictor(*texts[:4])
        assert list(fewer["probabilities"]) == ["0", "1"]
        with pytest.raises(ValueError, match="ending1 is missing"):
            predictor(*texts[:3])
        with pytest.raises(TypeError, match="sent1, sent2, ending0"):
            predictor(*texts, "more")
        sequences, _ = predictor.prepare(*texts)
        # predict.py --interactive: blank texts at the end are left out, and all others are named.
        typed = "\n".join([*texts[:4], "", texts[5], *texts[:4], "", "", ""])
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        predict.answer_interactively(predictor)
        printed = capsys.readouterr().out
        assert "ending2 is empty." in printed and f'"ending": "{fewer["ending"]}"' in printed
        assert '"2":' not in printed  # no answer has a third ending
    with api.load(str(here / "output")) as predictor:
        assert predictor(tuple(texts)) == answer and predictor([tuple(texts)]) == [answer]
        for wrong in ("a text", tuple(texts[:3]), (*texts, "more")):
            with pytest.raises(TypeError, match="the model takes 4 to 6 texts: sent1, .* and ending3"):
                predictor(wrong)
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.load(session, ["serve"], str(export))
        signature = loaded.signature_def["serving_default"]
        scores = [session.run(signature.outputs["score"].name,
                              {signature.inputs[name].name: [values] for name, values in sequence.items()})[0]
                  for sequence in sequences]
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(list(answer["probabilities"].values()), weights, atol=2e-6)


def change(here, name, rename=lambda column: column, more=()):
    """Writes the development questions with renamed columns and additional columns.

    The additional columns contain the text "more".
    """
    with open(here / "data" / "val.csv", newline="") as source, open(here / name, "w", newline="") as file:
        header, *rows = csv.reader(source)
        csv.writer(file).writerows([[*map(rename, header), *more], *([*row, *["more"] * len(more)]
                                                                     for row in rows)])


@pytest.mark.parametrize(("changes", "said"), [
    (dict(rename=lambda name: name.replace("ending2", "other")),
     "there is a column 'ending3', but no column 'ending2'"),
    (dict(more=["ending3"]), "2 columns are named 'ending3'")])
def test_no_ending_is_left_out(changes, said, trained, scripts):
    """A gap in the numbers of the endings is an error. The questions are not read with fewer endings."""
    _, here = trained
    change(here, "changed.csv", **changes)
    for command in (["run_swag.py", "--do_predict", "--output_dir=output", "--test_file=changed.csv",
                     "--results_dir=left_out"],
                    ["predict.py", "--model_dir=output", "--input_file=changed.csv",
                     "--output_file=left_out.csv"]):
        done = scripts.run(*command, cwd=here)
        assert done.code == 1 and f"changed.csv:1: {said}" in done.err, done.err
    assert not (here / "left_out").exists() and not (here / "left_out.csv").exists()


def test_more_endings_than_in_the_training(trained, scripts):
    """run_swag.py scores them, with a warning. predict.py cannot, and ends with an error."""
    _, here = trained
    change(here, "more.csv", more=["ending4"])
    done = scripts.run("run_swag.py", "--do_eval", "--output_dir=output", "--dev_file=more.csv",
                       "--results_dir=more", cwd=here)
    assert done.code == 0 and "more.csv: the questions have 5 endings, and those of the training have 4" in (
        done.err), done.err
    assert table(here / "more" / "eval_predictions.csv")[0]["probability_4"]
    done = scripts.run("predict.py", "--model_dir=output", "--input_file=more.csv", cwd=here)
    assert done.code == 1 and "'ending4', but only 4 endings can be read" in done.err, done.err
    (here / "more.txt").write_text(" ||| ".join(["the cat"] * 7) + "\n")
    done = scripts.run("predict.py", "--model_dir=output", "--input_file=more.txt", cwd=here)
    assert done.code == 1 and "more.txt:1: the line has more than the 6 texts" in done.err, done.err


def test_a_model_that_does_not_distinguish_the_endings(tiny_model, trained, scripts):
    """A training with a learning rate near 0 keeps the random weights of the head, and here also of a layer.
    Most questions are too long."""
    _, here = trained
    done = scripts.run("run_swag.py", *tiny.flags(**dict(
        tiny_model.flags, bert_config_file=tiny_model.shallow, max_seq_length=12, data_dir="data",
        do_train=True, do_eval=True, train_batch_size=32, num_train_epochs=1, learning_rate=1e-9,
        reinit_layers=1, output_dir="untrained")), cwd=here)
    assert done.code == 0 and "the endings have almost equal probabilities" in done.err, done.err
    assert "almost equal" not in trained[0].err
    assert "--reinit_layers=1: 18 variables start from random weights." in done.err
    weights = {directory: tf.train.load_variable(str(here / directory / "model.ckpt-0"), LAYER)
               for directory in ("output", "untrained")}
    assert np.array_equal(weights["output"], tiny_model.weights[LAYER])
    assert not np.allclose(weights["untrained"], tiny_model.weights[LAYER], atol=1e-3)
    assert "val.csv: 10 of 10 questions (100.0%) are longer than --max_seq_length=12; the longest" in done.err
    assert "val.csv: 0 of 10 questions (0.0%) are longer than --max_seq_length=32; " in trained[0].err


@pytest.mark.slow(reason="three trainings of eight steps")
def test_micro_batches_change_nothing(scripts, tiny_model, trained):
    """At fixed length, all sequences of a question are in one micro-batch, with the same dropout masks."""
    _, here = trained
    flags = dict(tiny_model.flags, bert_config_file=tiny_model.shallow, max_seq_length=32,
                 train_file="data/train.csv", do_train=True, train_batch_size=8, num_train_epochs=2,
                 learning_rate=1e-3)
    runs = {"whole": dict(trim_padding=False), "split": dict(trim_padding=False,
                                                             gradient_accumulation_steps=4),
            "tokens": dict(tokens_per_micro_batch=4 * 32 * 3, precision="bf16")}
    vectors = {}
    for name, changes in runs.items():
        done = scripts.run("run_swag.py", *tiny.flags(**flags, **changes, output_dir=name), cwd=here)
        assert done.code == 0, done.err
        vectors[name] = tf.train.load_variable(str(here / name / "model.ckpt-8"), WEIGHTS)
    np.testing.assert_allclose(vectors["split"], vectors["whole"], atol=1e-5)
    # If micro-batches are trimmed, their dropout masks change.
    assert 0 < np.abs(vectors["tokens"] - vectors["whole"]).max() < 0.1


@pytest.mark.parametrize(("flags", "said"), [
    (["--data_dir=nothing"], "--data_dir=nothing: there is no such directory."),
    (["--data_dir=.", "--do_train"], "contains none of the files train.csv"),
    (["--do_eval", "--dev_file=bad.csv"], "bad.csv:3: the label is '7', but it should be the number"),
    (["--do_train", "--train_file=data/train.csv", "--tokens_per_micro_batch=64"],
     "--tokens_per_micro_batch=64 is below --max_seq_length=32 × 4 sequences"),
    (["--do_train", "--train_file=data/train.csv", "--bert_config_file=one_segment.json"],
     "cannot distinguish a second text from the first text, but each input is a sentence and an ending")])
def test_bad_input_is_an_error_before_anything_is_written(flags, said, trained, scripts, tiny_model):
    _, here = trained
    lines = (here / "data" / "val.csv").read_text().splitlines()[:3]
    (here / "bad.csv").write_text("\n".join([*lines[:2], lines[2].rpartition(",")[0] + ",7", ""]))
    (here / "one_segment.json").write_text(json.dumps({**tiny.CONFIG, "type_vocab_size": 1}))
    model = tiny.flags(**dict(tiny_model.flags, bert_config_file=tiny_model.shallow, max_seq_length=32))
    done = scripts.run("run_swag.py", *model, *flags, "--output_dir=nowhere", cwd=here)
    assert done.code == 1 and said in done.err.splitlines()[-1], done.err
    assert not (here / "nowhere").exists()
