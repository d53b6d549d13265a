"""A checkpoint may contain a classifier. It is used only if its labels can be brought into the task's order.
"""

import shutil

from helpers import read_json, write_json
import model_directories
import numpy as np
import pytest
from safetensors import numpy as safetensors
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import head_labels
from bertlib.runs.settings import Settings

LABELS = tiny.LABELS["mnli"]
HEAD = {"output_weights": np.arange(48, dtype=np.float32).reshape(3, 16) / 48 - 0.5,
        "output_bias": np.arange(3, dtype=np.float32)}


@pytest.fixture
def model(tiny_model, tmp_path):
    """A Hugging Face model with a classifier of three labels."""
    directory = tmp_path / "hugging_face"
    shutil.copytree(tiny_model.hugging_face, directory)
    write_head(directory, tiny_model, HEAD)
    return directory


def write_head(directory, tiny_model, head):
    arrays = {**tiny.hugging_face(tiny_model.weights), "classifier.weight": head["output_weights"],
              "classifier.bias": head["output_bias"]}
    safetensors.save_file(arrays, directory / "model.safetensors")


def name_labels(directory, names, file="config.json"):
    path = directory / file
    write_json(path, {**read_json(path), "id2label": names})


def by_id(*names):
    return {str(index): name for index, name in enumerate(names)}


def starting(path, output, labels=LABELS, do_train=False):
    """Returns the opened checkpoint from which a classifier starts."""
    given = Settings({"init_checkpoint": str(path), "output_dir": str(output), "do_train": do_train})
    wanted = head_labels.Head("classification", labels, len(labels))
    return checkpoint_formats.open_checkpoint(head_labels.starting_checkpoint(given, wanted))


@pytest.mark.parametrize("names, rows", [
    (["ENTAILMENT", "Neutral", "CONTRADICTION"], [2, 0, 1]), (["LABEL_0", "LABEL_1", "LABEL_2"], [0, 1, 2])])
def test_the_head_is_put_into_the_tasks_order_by_name(model, tmp_path, names, rows):
    name_labels(model, by_id(*names))
    found = starting(model, tmp_path / "output")
    for name, values in HEAD.items():
        np.testing.assert_array_equal(found.read(name), values[rows])
    name = "bert/pooler/dense/bias"
    np.testing.assert_array_equal(found.read(name), checkpoint_formats.open_checkpoint(model).read(name))


@pytest.mark.parametrize("names", [["neutral", "neutral", "contradiction"],
                                   ["LABEL_2", "LABEL_1", "LABEL_0"]])
def test_a_head_with_other_labels_starts_at_random_or_is_refused(model, tmp_path, names, caplog):
    name_labels(model, by_id(*names))
    with caplog.at_level("WARNING", logger="absl"):
        found = starting(model, tmp_path / "output", do_train=True)
    assert not set(HEAD) & set(found.shapes) and "bert/pooler/dense/bias" in found.shapes
    message = (f"he classifier in --init_checkpoint={model} has the labels {', '.join(names)} "
               f"({model}/config.json), but the task has the labels contradiction, entailment, neutral")
    assert (f"{message}. The classifier starts from random weights, and the encoder starts from this "
            "checkpoint."
            in caplog.text)
    with pytest.raises(ValueError) as error:
        starting(model, tmp_path / "output")
    assert f"{message}. Train first" in str(error.value)


@pytest.mark.parametrize("names", [["a", "b", "c"], {"0": "a", "2": "b"}, {"zero": "a"}])
def test_names_that_are_not_one_for_each_id(model, tmp_path, names):
    name_labels(model, names)
    with pytest.raises(ValueError,
                       match='config.json: "id2label" must be an object with a name for each id'):
        starting(model, tmp_path / "output")


def test_names_beside_a_converted_checkpoint_and_beside_a_training(tiny_model, tmp_path):
    write_json(tmp_path
     / "bert_config.json", {**tiny.CONFIG, "id2label": by_id(*reversed(LABELS))})
    arrays = {**tiny_model.weights, **HEAD}
    converted = tiny.write_tensorflow(tmp_path / "bert_model.ckpt", arrays)
    trained = tiny.write_tensorflow(tmp_path / "model.ckpt-3", arrays)
    np.testing.assert_array_equal(starting(converted, tmp_path / "output").read("output_bias"), [2, 1, 0])
    np.testing.assert_array_equal(starting(trained, tmp_path / "output").read("output_bias"), [0, 1, 2])


# --- Heads of other kinds --------------------------------------------------------------------------------

TAGS = ["B-X", "I-X", "O"]
CRF = {"crf/transitions": np.arange(9, dtype=np.float32).reshape(3, 3)}
SQUAD = {"cls/squad/output_weights": np.zeros((2, 16), np.float32),
         "cls/squad/output_bias": np.zeros(2, np.float32)}
ONE = {name: values[:1] for name, values in HEAD.items()}
WANTED = {kind: head_labels.Head(kind, labels, len(labels)) for kind, labels in (
    ("classification", LABELS), ("multilabel", LABELS), ("tagging", TAGS))}
WANTED.update({"regression": head_labels.Head("regression", None, 1),
               "CRF": head_labels.Head("tagging", TAGS, 3, True), "questions": head_labels.Head("questions"),
               "multiple choice": head_labels.Head("multiple_choice"),
               "pre-training": head_labels.Head("pre-training")})


def trained(directory, tiny_model, arrays, **record):
    """Writes the directory of a training: its checkpoint, with the arrays of a head, and its record."""
    tiny.write_training(directory, tiny_model.weights, **{**dict.fromkeys(HEAD), **arrays})
    write_json(directory / "run.json", model_directories.record(**record))
    return directory


def started(path, output, wanted, do_train=True):
    """Returns the head with which a task starts, {name: array}."""
    given = Settings({"init_checkpoint": str(path), "output_dir": str(output), "do_train": do_train})
    found = checkpoint_formats.open_checkpoint(head_labels.starting_checkpoint(given, WANTED[wanted]))
    return {name: found.read(name) for name in (*HEAD, *CRF, *SQUAD, "cls/multiple_choice/output_weights")
            if name in found.shapes}


_OTHER_HEADS = [
    (HEAD, dict(task_type="tagging", labels=LABELS), "classification",
     "is the head of a tagger ({path}/run.json), but the task needs the head of a classifier"),
    (SQUAD, dict(task_type="questions"), "tagging",
     "is the head of question answering, but the task needs the head of a tagger"),
    (HEAD, dict(task_type="tagging", labels=[*TAGS[:2], "B-Y"]), "tagging", "the tagger in ")]


@pytest.mark.parametrize("head, record, wanted, what", _OTHER_HEADS)
def test_another_head_starts_anew_and_is_refused_without_a_training(tiny_model, tmp_path, caplog, head,
                                                                    record, wanted, what):
    path = trained(tmp_path / "trained", tiny_model, head, **record)
    with caplog.at_level("INFO", logger="absl"):
        assert not set(started(path, tmp_path / "out", wanted)) & {*HEAD, *CRF}
    line, = (entry.getMessage() for entry in caplog.records if "from random weights" in entry.getMessage())
    assert what.format(path=path) in line[0].lower() + line[1:] and line.endswith(
        ", and the encoder starts from this checkpoint.")
    with pytest.raises(ValueError) as error:
        started(path, tmp_path / "out", wanted, do_train=False)
    assert what.format(path=path) in str(error.value) and "Train first" in str(error.value)


def test_the_head_of_hugging_faces_multiple_choice_is_no_regression(tiny_model, tmp_path, caplog):
    shutil.copytree(tiny_model.hugging_face, tmp_path / "model")
    write_head(tmp_path / "model", tiny_model, ONE)
    config = tmp_path / "model" / "config.json"
    write_json(config, {**read_json(config),
                                  "architectures": ["BertForMultipleChoice"]})
    assert not set(started(tmp_path / "model", tmp_path / "out", "regression")) & set(HEAD)
    assert "is the head of multiple choice, but the task needs the head of a regression" in caplog.text
    found = started(tmp_path / "model", tmp_path / "out", "multiple choice", do_train=False)
    assert found["cls/multiple_choice/output_weights"].tobytes() == ONE["output_weights"].tobytes()
    assert not set(found) & set(HEAD)


def test_a_number_of_labels_without_names_is_compared(tiny_model, tmp_path, caplog):
    path = trained(tmp_path / "trained", tiny_model, {name: values[:2] for name, values in HEAD.items()})
    (path / "run.json").unlink()  # the original code writes no such file
    with caplog.at_level("INFO", logger="absl"):
        assert not started(path, tmp_path / "out", "classification")
    assert "of labels: it has 2 labels, but the task has 3. The classifier starts" in \
        caplog.text
    (path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=f"has the labels a, b .{path}/labels.txt., but the task has"):
        started(path, tmp_path / "out", "classification", do_train=False)


def test_a_taggers_transitions_follow_the_order_of_its_tags(tiny_model, tmp_path):
    path = trained(tmp_path / "trained", tiny_model, {**HEAD, **CRF}, task_type="tagging",
                   labels=["O", "B-X", "I-X"])
    found, order = started(path, tmp_path / "out", "CRF", do_train=False), [1, 2, 0]
    for name, values in HEAD.items():
        np.testing.assert_array_equal(found[name], values[order])
    np.testing.assert_array_equal(found["crf/transitions"], CRF["crf/transitions"][np.ix_(order, order)])


@pytest.mark.parametrize("has_crf", [True, False])
def test_a_crf_is_no_other_head_for_a_training(tiny_model, tmp_path, has_crf):
    path = trained(tmp_path / "trained", tiny_model, {**HEAD, **(CRF if has_crf else {})},
                   task_type="tagging", labels=TAGS)
    wanted = "tagging" if has_crf else "CRF"
    np.testing.assert_array_equal(started(path, tmp_path / "out", wanted)["output_bias"], [0, 1, 2])
    with pytest.raises(ValueError, match=f"Pass --crf={str(has_crf).lower()}"):
        started(path, tmp_path / "out", wanted, do_train=False)


@pytest.mark.parametrize("config, kind", [
    (dict(architectures=["BertForTokenClassification"]), "tagging"), (dict(problem_type="regression"),
                                                                      "regression"),
    (dict(problem_type="multi_label_classification"), "multilabel"), ({}, None)])
def test_the_kind_of_a_hugging_face_head(model, config, kind):
    path = model / "config.json"
    write_json(path, {**read_json(path), "architectures": None, **config,
                                "id2label": by_id("B-X", "I-X", "O")})
    head = head_labels.read_head(checkpoint_formats.open_checkpoint(model))
    assert head == head_labels.Head(kind, ["B-X", "I-X", "O"], 3, False, str(path))
