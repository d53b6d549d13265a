"""A command without training uses the values of flags in run.json, or refuses other values.

The class of a flag decides which of these happens.
"""

import json
import random

from helpers import ROOT
import model_directories
import numpy as np
import pytest
import tiny

from bertlib.flag_table.entries import CLASSES

TRAINING_COMMANDS = ("run_classifier", "run_classifier_with_tfhub", "run_squad", "run_pretraining", "run_ner",
                     "run_swag")

# Prints {name: class} of the flags of a command. A flag without a class has null.
_CLASSES = """
import json, runpy, sys
from absl import app
from bertlib.command_line import common_flags
app.run = lambda main: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
common_flags.FLAGS(["command"])
settings = common_flags.read_settings()
print(json.dumps({entry.name: entry.affects for entry in settings.entries()}))
"""


@pytest.fixture(scope="module")
def classes_of(scripts, tmp_path_factory):
    """A function that returns the classes of a command's flags, {name: class}."""
    probe = tmp_path_factory.mktemp("classes") / "probe.py"
    probe.write_text(_CLASSES)

    def ask(command):
        return json.loads(scripts.run(probe, f"{ROOT}/{command}.py", cwd=probe.parent).out)

    return ask


# --- Classes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", TRAINING_COMMANDS)
def test_each_flag_of_a_training_has_a_class(classes_of, command):
    found = classes_of(command)
    assert len(found) > 30
    assert not [name for name, kind in found.items() if kind not in CLASSES]
    assert found["max_seq_length"] == "input" and found["learning_rate"] == "weights"
    assert found["recompute"] == "speed" and found["traceback"] == "machine"


# --- Tags ------------------------------------------------------------------------------------------------

# The columns are an index, a word and its tag.
_COLUMNS = "1 the O\n2 cat B-ANIMAL\n3 eats O\n\n1 a O\n2 dog B-ANIMAL\n"


def tagger(directory, model, **settings):
    labels = model_directories.TAGS
    return model_directories.write(directory, model, "tagging", model_directories.linear(len(labels)), labels,
                                   task="ner", **settings)


@pytest.mark.slow(reason="a whole run")
def test_a_tagger_reads_the_columns_of_its_training(scripts, tiny_model, tmp_path):
    (tmp_path / "test.conll").write_text(_COLUMNS)
    output = tagger(tmp_path / "output", tiny_model, token_column=2, tag_column=3)

    def predict(name, **flags):
        done = scripts.run("run_ner.py", *tiny.flags(
            do_predict=True, test_file="test.conll", output_dir=output, results_dir=tmp_path / name, **flags),
                           cwd=tmp_path)
        assert done.code == 0, done.err
        return done, (tmp_path / name / "test_predictions.conll").read_text()

    done, taken = predict("taken")
    assert f"from the training ({output}/run.json): --token_column=2, --tag_column=3, " in done.err
    assert "5 words, IOB2: 2 ANIMAL." in done.err  # the tags are read, too
    assert taken == predict("told", token_column=2, tag_column=3)[1]
    # For a file with other columns, the flags override the columns of the training.
    done, _ = predict("other", token_column=1)
    assert "Flags with other values than in the training" in done.err
    assert "--token_column=1 (in the training: 2)" in done.err


@pytest.mark.parametrize("flags, said", [
    (dict(crf=True), "--crf=true (in the training: false)"),
    (dict(learning_rate=0.5), "--learning_rate=0.5 (in the training: 0.001)")])
def test_another_task_or_other_weights_are_refused(scripts, tiny_model, tmp_path, flags, said):
    (tmp_path / "test.conll").write_text(_COLUMNS)
    output = tagger(tmp_path / "output", tiny_model, crf=False, learning_rate=1e-3)
    where = dict(output_dir=tmp_path / "new", init_checkpoint=output, test_file="test.conll")
    refused = scripts.run("run_ner.py", *tiny.flags(do_predict=True, **where, **flags), cwd=tmp_path)
    assert refused.code == 1 and not (tmp_path / "new").exists()
    assert ("error: These flags contradict the training of the weights, which "
            f"{output}/run.json describes: {said}. ") in refused.err


# --- Several labels --------------------------------------------------------------------------------------


@pytest.mark.slow(reason="a whole run; test_predictor.py has the threshold")
def test_labels_are_predicted_by_the_threshold_of_the_training(scripts, tiny_model, tmp_path):
    labels = ["animals", "people", "things"]
    output = model_directories.write(
        tmp_path / "output", tiny_model, "multilabel", model_directories.linear(3), labels, task="own data",
        threshold=0.3, text_column="text")
    texts = [tiny.sentence(random.Random(seed)) for seed in range(12)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def predicted(name, **flags):
        done = scripts.run("run_classifier.py", *tiny.flags(
            test_file="test.jsonl", output_dir=output, results_dir=tmp_path / name, **flags), cwd=tmp_path)
        assert done.code == 0, done.err
        rows = np.loadtxt(tmp_path / name / "test_results.tsv")
        lines = (tmp_path / name / "test_predictions.tsv").read_text().splitlines()[1:]
        return rows, [line.split("\t")[1] for line in lines]

    def above(threshold, rows):
        return [",".join(label for label, value in zip(labels, row) if value >= threshold) for row in rows]

    rows, found = predicted("taken")
    assert found == above(0.3, rows) != above(0.5, rows)
    rows, found = predicted("given", threshold=0.6)
    assert found == above(0.6, rows) != above(0.3, rows)


# --- Questions -------------------------------------------------------------------------------------------


@pytest.mark.slow(reason="two whole runs; test_record_fields.py has the predictor's answers")
def test_answers_are_made_as_in_the_training_unless_flags_say_otherwise(scripts, tiny_model, tmp_path):
    head = {"cls/squad/output_weights": (2, tiny.CONFIG["hidden_size"]), "cls/squad/output_bias": (2,)}
    output = model_directories.write(
        tmp_path / "output", tiny_model, "questions", head, task="SQuAD 2.0", max_query_length=6,
        doc_stride=4, n_best_size=9, max_answer_length=7, version_2_with_negative=True)
    (tmp_path / "dev.jsonl").write_text(json.dumps(
        {"id": "1", "question": "the cat", "context": "the old cat sees a new dog and the bird"}) + "\n")

    def run(name, **flags):
        done = scripts.run("run_squad.py", *tiny.flags(
            do_predict=True, predict_file="dev.jsonl", output_dir=output, results_dir=tmp_path / name,
            **flags), cwd=tmp_path)
        path = tmp_path / name / "nbest_predictions.json"
        return done, json.loads(path.read_text())["1"] if done.code == 0 else None

    done, taken = run("taken")
    assert "(there " not in done.err and any(not found["text"] for found in taken), done.err  # version 2.0
    done, told = run("told", n_best_size=9, max_answer_length=7, version_2_with_negative=True)
    assert told == taken and "(there " not in done.err
    done, given = run("given", n_best_size=2)
    assert len(given) < len(taken) and "--n_best_size=2 (in the training: 9)." in done.err
    refused, _ = run("refused", version_2_with_negative=False)
    assert "--version_2_with_negative=false (in the training: true)" in refused.err
