"""export.py and --do_export as a user runs them: from an output directory to a SavedModel, and errors."""

import json
import random
import subprocess
import sys

import model_directories
import numpy as np
import pytest
import scripts as runs
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import record_files
from bertlib.output_directory import model_directory
from bertlib.runs import model_config
from bertlib.runs.classification import training_texts
from bertlib.tasks.pretraining import pretraining_data


def signatures_of(path):
    """Returns the names of the signatures of the only version in a directory."""
    version, = path.iterdir()
    assert version.name.isdecimal()
    with tf.Session(graph=tf.Graph()) as here:
        return set(tf.saved_model.loader.load(here, ["serve"], str(version)).signature_def)


def write_csv(path, count=24):
    chance = random.Random(5)
    rows = [f"{'cat' if index % 2 else 'dog'} {tiny.sentence(chance)},{('yes', 'no')[index % 2]}\n"
            for index in range(count)]
    path.write_text("text,label\n" + "".join(rows))
    return path


def write_words(path):
    path.write_text("\n".join("the O\ncat B-ANIMAL\nsees O\na O\ndog B-ANIMAL\n" for _ in range(12)))
    return path


def write_questions(path):
    row = {"question": "here ?", "context": "the cat sees a dog", "answers": [{"text": "dog",
                                                                               "answer_start": 15}]}
    path.write_text("".join(json.dumps({"id": str(index), **row}) + "\n" for index in range(12)))
    return path


def write_masked(path):
    ids = [2, 5, 6, 4, 3] + [0] * 15
    row = dict(input_ids=ids, input_mask=[1] * 5 + [0] * 15, segment_ids=[0] * 20, next_sentence_labels=[0],
               masked_lm_positions=[3, 0], masked_lm_ids=[7, 0], masked_lm_weights=[1.0, 0.0])
    record_files.write_records(str(path), pretraining_data.feature_fields(20, 2), [row] * 12)
    return path


# {command: (function that writes its data, its flags)}.
TRAININGS = {
    "run_classifier.py": (write_csv, {}),
    "run_ner.py": (write_words, {}),
    "run_squad.py": (write_questions, dict(max_query_length=8)),
    "run_pretraining.py": (write_masked, dict(num_train_steps=3, num_warmup_steps=0,
                                              max_predictions_per_seq=2))}


@pytest.fixture
def train(scripts, tiny_model, tmp_path):
    """A function that runs a training command with --do_export on tiny data. It returns `scripts.Finished`.
    """
    def run(command, **changes):
        write, flags = TRAININGS[command]
        data = "input_file" if command == "run_pretraining.py" else "train_file"
        given = {**tiny_model.flags, "bert_config_file": tiny_model.shallow, "do_train": True,
                 data: write(tmp_path / ("data.csv" if command == "run_classifier.py" else "data.jsonl")),
                 "do_export": True, "train_batch_size": 8, "output_dir": "out", **flags, **changes}
        given = {name: value for name, value in given.items() if value is not None}
        return scripts.run(command, *tiny.flags(**given), cwd=tmp_path)
    return run


def check_trained(command, train, directory):
    done = train(command)
    assert done.code == 0, done.err
    assert signatures_of(directory / "out" / "export") == {"serving_default", "ids", "examples"}
    assert "exported: out/export/" in done.err


@pytest.mark.slow(reason="a training; exports of finished directories are shown below")
def test_a_training_exports_what_it_trained(train, scripts, tmp_path):
    check_trained("run_classifier.py", train, tmp_path)
    # The command exports again, without training and into another directory.
    done = train("run_classifier.py", do_train=False, do_eval=True, dev_file="data.csv",
                 results_dir="results")
    assert done.code == 0, done.err
    assert signatures_of(tmp_path / "results" / "export") == {"serving_default", "ids", "examples"}
    assert len(list((tmp_path / "out" / "export").iterdir())) == 1


@pytest.mark.soak(reason="a training of each command; one of them is shown above")
@pytest.mark.parametrize("command", list(TRAININGS)[1:])
def test_each_training_command_exports_what_it_trained(command, train, tmp_path):
    check_trained(command, train, tmp_path)


@pytest.mark.parametrize(("command", "changes", "message"), [
    ("run_classifier.py", dict(output_dir="taken"),
     "taken/export: taken/export is not a directory. Name another directory."),
    ("run_classifier.py", dict(do_train=False, do_predict=True, test_file="data.csv",
                               label_file="labels.txt"), "out: there is no such directory."),
    ("run_pretraining.py", dict(vocab_file=None, init_checkpoint=None),
     "--do_export: an export needs the vocabulary of the model. Pass --vocab_file or "
     "--spm_model_file.")])
def test_what_cannot_be_exported_is_refused_before_anything_is_written(command, changes, message, train,
                                                                      tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "export").touch()
    (tmp_path / "labels.txt").write_text("yes\nno\n")
    done = train(command, **changes)
    assert done.code == 1 and done.err.splitlines()[-1] == f"{command}: error: {message}"
    assert not (tmp_path / "out").exists()
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["export"]


# --- export.py -------------------------------------------------------------------------------------------


@pytest.fixture
def model_dir(tiny_model, tmp_path):
    return model_directories.write(tmp_path / "model", tiny_model, "classification",
                                   model_directories.linear(2), ["no", "yes"])


def test_a_directory_is_exported_into_itself(scripts, model_dir, tmp_path):
    done = scripts.run("export.py", "--model_dir=model", cwd=tmp_path)
    assert done.code == 0 and not done.out, done.err
    assert signatures_of(model_dir / "export") == {"serving_default", "ids", "examples"}
    # A model that was trained for labels can also be exported for vectors. The new version must not be the
    # newest version of the trained task.
    done = scripts.run("export.py", "--model_dir=model", "--task=vectors", cwd=tmp_path)
    assert done.code == 0 and len(list((model_dir / "export_vectors").iterdir())) == 1
    assert len(list((model_dir / "export").iterdir())) == 1


@pytest.mark.parametrize(("flags", "message"), [
    ({}, "--model_dir is required. Pass the output directory of a training."),
    (dict(model_dir="none"), "--model_dir=none: there is no such directory. Pass the output directory of a "
     "training."),
    (dict(model_dir="model/export"), "model/export has no checkpoint, so it is not the output "
     "directory of a training with this version. Pass another directory, or continue the training in this "
     "directory: the training writes missing files."),
    (dict(model_dir="model", task="tagging"), "task tagging: the model in model was trained for "
     "classification. Its tasks are classification and vectors."),
    (dict(model_dir="model", output_dir="model/vocab.txt"), "model/vocab.txt: model/vocab.txt is not a "
     "directory. Name another directory."),
    (dict(model_dir="model", compare_file="model/vocab.txt"), "--compare_file has no effect on a "
     "SavedModel that has no ops for text. Pass --text, or --format=onnx or --format=tflite, or leave "
     "--compare_file out."),
    (dict(model_dir="model", quantize="int8"), "--quantize needs --format=onnx or --format=tflite. Pass "
     "--format, or leave --quantize out."),
    (dict(model_dir="model", format="onnx", text=True), "--text is only for --format=saved_model, because "
     "onnx has no ops for text. Leave one of the two flags out."),
    (dict(model_dir="model", format="tflite", task="vectors"), "--format=tflite is for the tasks "
     "classification, multilabel, regression, but the task of this export is vectors. Export with "
     "--format=saved_model."),
    (dict(model_dir="model", text=True, compare_file="none"), "--compare_file=none: there is no such file.")])
def test_bad_input_is_named_and_nothing_written(flags, message, scripts, model_dir, tmp_path):
    (model_dir / "export").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = scripts.run("export.py", *tiny.flags(**flags), cwd=tmp_path)
    assert done.code == 1 and done.err.splitlines()[-1] == f"export.py: error: {message}"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.soak(reason="a training, the package tensorflow-text and an interpreter of its own")
def test_text_is_compared_with_the_training_data(train, scripts, tmp_path):
    assert train("run_classifier.py", do_export=False, protect_special_tokens=True).code == 0
    done = scripts.run("export.py", "--model_dir=out", "--text", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "The tokens of the graph differ from the tokens of the tokenizer in 0 of 24 texts." in done.err
    version, = (tmp_path / "out" / "export_text").iterdir()
    assert (version / "assets.extra" / "vocab.txt").exists()
    (tmp_path / "others.txt").write_text("a [MASK]\na dog\n")
    done = scripts.run("export.py", "--model_dir=out", "--text", "--compare_file=others.txt", cwd=tmp_path)
    assert ("WARNING: The tokens of the graph differ from the tokens of the tokenizer in 1 of 2 texts."
            in done.err)
    assert "\n  'a [MASK]'\n" in done.err
    (tmp_path / "data.csv").unlink()
    done = scripts.run("export.py", "--model_dir=out", "--text", cwd=tmp_path)
    assert done.code == 0 and "data.csv does not exist any more. Name a file of texts with" in done.err


@pytest.mark.parametrize(("kind", "write", "name", "texts"), [
    ("tagging", write_words, "data.conll", ["the cat sees a dog"] * 12),
    ("questions", write_questions, "data.json", ["here ?", "the cat sees a dog"] * 12)])
def test_the_texts_of_a_training_are_found_again(kind, write, name, texts, tmp_path):
    record = {"files": {"train_file": str(write(tmp_path / name))}, "settings": {}}
    model = model_directory.ModelDirectory("out", kind, None, None, None, None, record)
    assert list(training_texts.read_training_texts(model)) == texts
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} does not exist any more"):
        training_texts.read_training_texts(model)
    with pytest.raises(ValueError, match="out does not name the file of the training data"):
        training_texts.read_training_texts(model._replace(record={"files": {}}))


# Asks a SavedModel for the answer to each line of a file. The interpreter uses only TensorFlow, not this
# project.
ASK = """
import json, sys, tensorflow as tf, tensorflow_text
function = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
rows = [line.rstrip("\\n").split("\\t") for line in open(sys.argv[2], encoding="utf-8")]
found = function(text_a=tf.constant([a for a, _ in rows]), text_b=tf.constant([b for _, b in rows]))
print(json.dumps([found["label"].numpy().astype(str).tolist(), found["probabilities"].numpy().tolist()]))
"""


@pytest.mark.soak(reason="a whole recipe: the installed model, trained, and the package tensorflow-text")
@pytest.mark.skipif(model_config.find_installed_model() is None, reason="there is no installed model")
def test_the_installed_model_from_training_to_answers(scripts, tmp_path):
    done = scripts.run("run_classifier.py", *tiny.flags(
        task_name="MRPC", max_seq_length=64, train_batch_size=8, num_train_epochs=0.5, do_train=True,
        output_dir="out"), cwd=tmp_path)
    assert done.code == 0, done.err
    lines = (runs.ROOT / "samples" / "MRPC" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:201]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(line.split("\t")[3:5]) + "\n" for line in lines))
    done = scripts.run("predict.py", "--model_dir=out", "--input_file=pairs.tsv", "--text_column=1,2",
                       cwd=tmp_path)
    assert done.code == 0, done.err
    expected = [json.loads(line) for line in done.out.splitlines()]
    assert scripts.run("export.py", "--model_dir=out", "--text", cwd=tmp_path).code == 0
    version, = (tmp_path / "out" / "export_text").iterdir()
    done = subprocess.run([sys.executable, "-c", ASK, str(version), "pairs.tsv"], cwd=tmp_path,
                          capture_output=True, encoding="utf-8", check=True)
    labels, probabilities = json.loads(done.stdout)
    assert len(expected) == 200 and labels == [answer["label"] for answer in expected]
    np.testing.assert_allclose(probabilities, [list(answer["probabilities"].values()) for answer in expected],
                               atol=1e-5)
