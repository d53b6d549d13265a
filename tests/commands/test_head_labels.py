"""A checkpoint may contain a head. It is used only if its labels can be brought into the task's order."""

import shutil

from helpers import error_of, read_json, write_json
import model_directories
import numpy as np
import pytest
from safetensors import numpy as safetensors
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs.settings import Settings
from bertlib.tasks import head_labels
from bertlib.tasks.classification import choice_target, classification_target
from bertlib.tasks.tagging import tagging_target

LABELS, TAGS = tiny.LABELS["mnli"], ["B-X", "I-X", "O"]
HEAD = {"output_weights": np.arange(48, dtype=np.float32).reshape(3, 16) / 48 - 0.5,
        "output_bias": np.arange(3, dtype=np.float32)}
CRF = {"crf/transitions": np.arange(9, dtype=np.float32).reshape(3, 3)}
SQUAD = {"cls/squad/output_weights": np.zeros((2, 16), np.float32),
         "cls/squad/output_bias": np.zeros(2, np.float32)}
WANTED = {"classification": classification_target.SingleLabel(LABELS), "tagging": tagging_target.Tags(TAGS),
          "CRF": tagging_target.Tags(TAGS, True), "regression": classification_target.Score(),
          "multiple choice": choice_target.Endings()}


@pytest.fixture
def model(tiny_model, tmp_path):
    """A Hugging Face model with a classifier of three labels."""
    shutil.copytree(tiny_model.hugging_face, tmp_path / "model")
    write_head(tmp_path / "model", tiny_model, HEAD)
    return tmp_path / "model"


def write_head(directory, tiny_model, head):
    arrays = {**tiny.hugging_face(tiny_model.weights), "classifier.weight": head["output_weights"],
              "classifier.bias": head["output_bias"]}
    safetensors.save_file(arrays, directory / "model.safetensors")


def configure(directory, **changes):
    write_json(directory / "config.json", {**read_json(directory / "config.json"), **changes})


def by_id(*names):
    return {str(index): name for index, name in enumerate(names)}


@pytest.fixture
def train(tiny_model, tmp_path):
    """A function that writes the directory of a training: its checkpoint, with a head, and its record."""
    def write(arrays, **record):
        tiny.write_training(tmp_path / "trained", tiny_model.weights, **{**dict.fromkeys(HEAD), **arrays})
        write_json(tmp_path / "trained" / "run.json", model_directories.record(**record))
        return tmp_path / "trained"
    return write


def start(path, wanted="classification", do_train=False):
    """Returns the head with which a task starts, {name: array}."""
    given = Settings({"init_checkpoint": str(path), "output_dir": "no/such", "do_train": do_train})
    found = checkpoint_formats.open_checkpoint(head_labels.match_head(given, WANTED[wanted]))
    assert "bert/pooler/dense/bias" in found.shapes
    return {name: found.read(name) for name in found.shapes if not name.startswith("bert/")
            and "adam" not in name and name != "global_step"}


def assert_other_head(path, what, wanted, caplog):
    """Checks that a training starts with a random head and says why, and that an evaluation is refused."""
    caplog.set_level("INFO", logger="absl")
    assert not set(start(path, wanted, do_train=True)) & {*HEAD, *CRF}
    line, = (entry.getMessage() for entry in caplog.records if "from random weights" in entry.getMessage())
    assert what in line[0].lower() + line[1:] and line.endswith(", and the encoder starts from this "
                                                                "checkpoint.")
    said = error_of(start, path, wanted)
    assert what in said and "Train first" in said


# --- Labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names, rows", [
    (["ENTAILMENT", "Neutral", "CONTRADICTION"], [2, 0, 1]), (["LABEL_0", "LABEL_1", "LABEL_2"], [0, 1, 2])])
def test_the_head_is_put_into_the_tasks_order_by_name(model, names, rows):
    configure(model, id2label=by_id(*names))
    found = start(model)
    for name, values in HEAD.items():
        np.testing.assert_array_equal(found[name], values[rows])


@pytest.mark.parametrize("names", [["neutral", "neutral", "contradiction"],
                                   ["LABEL_2", "LABEL_1", "LABEL_0"]])
def test_a_head_with_other_labels_starts_at_random_or_is_refused(model, names, caplog):
    configure(model, id2label=by_id(*names))
    assert_other_head(model, f"the head in --init_checkpoint={model} has the labels {', '.join(names)} "
                      f"({model}/config.json), but the task has the labels contradiction, entailment, "
                      "neutral", "classification", caplog)


@pytest.mark.parametrize("names", [["a", "b", "c"], {"0": "a", "2": "b"}, {"zero": "a"}])
def test_names_that_are_not_one_for_each_id(model, names):
    configure(model, id2label=names)
    with pytest.raises(ValueError,
                       match='config.json: "id2label" must be an object with a name for each id'):
        start(model)


def test_names_beside_a_converted_checkpoint_and_beside_a_training(tiny_model, tmp_path):
    write_json(tmp_path / "bert_config.json", {**tiny.CONFIG, "id2label": by_id(*reversed(LABELS))})
    for name, order in (("bert_model.ckpt", [2, 1, 0]), ("model.ckpt-3", [0, 1, 2])):
        path = tiny.write_tensorflow(tmp_path / name, {**tiny_model.weights, **HEAD})
        np.testing.assert_array_equal(start(path)["output_bias"], order)


def test_a_number_of_labels_without_names_is_compared(train, caplog):
    path = train({name: values[:2] for name, values in HEAD.items()})
    (path / "run.json").unlink()  # the original code writes no such file
    caplog.set_level("INFO", logger="absl")
    assert not start(path, do_train=True)
    assert "of labels: it has 2 labels, but the task has 3. The head starts" in caplog.text
    (path / "labels.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=f"has the labels a, b .{path}/labels.txt., but the task has"):
        start(path)


# --- Heads of other kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("head, record, wanted, what", [
    (HEAD, dict(task_type="tagging", labels=LABELS), "classification",
     "is the head of a tagger ({path}/run.json), but the task needs the head of a classifier"),
    (SQUAD, dict(task_type="questions"), "tagging",
     "is the head of question answering, but the task needs the head of a tagger"),
    (HEAD, dict(task_type="tagging", labels=[*TAGS[:2], "B-Y"]), "tagging", "the head in ")])
def test_another_head_starts_anew_or_is_refused(train, caplog, head, record, wanted, what):
    path = train(head, **record)
    assert_other_head(path, what.format(path=path), wanted, caplog)


def test_the_head_of_hugging_faces_multiple_choice_is_no_regression(model, tiny_model, caplog):
    one = {name: values[:1] for name, values in HEAD.items()}
    write_head(model, tiny_model, one)
    configure(model, architectures=["BertForMultipleChoice"])
    assert_other_head(model, "is the head of multiple choice, but the task needs the head of a regression",
                      "regression", caplog)
    found = start(model, "multiple choice")
    assert found["cls/multiple_choice/output_weights"].tobytes() == one["output_weights"].tobytes()
    assert not set(found) & set(HEAD)


def test_a_taggers_transitions_follow_the_order_of_its_tags(train):
    found = start(train({**HEAD, **CRF}, task_type="tagging", labels=["O", "B-X", "I-X"]), "CRF")
    order = [1, 2, 0]
    for name, values in HEAD.items():
        np.testing.assert_array_equal(found[name], values[order])
    np.testing.assert_array_equal(found["crf/transitions"], CRF["crf/transitions"][np.ix_(order, order)])


@pytest.mark.parametrize("has_crf", [True, False])
def test_a_crf_is_no_other_head_for_a_training(train, has_crf):
    path = train({**HEAD, **(CRF if has_crf else {})}, task_type="tagging", labels=TAGS)
    wanted = "tagging" if has_crf else "CRF"
    np.testing.assert_array_equal(start(path, wanted, do_train=True)["output_bias"], [0, 1, 2])
    with pytest.raises(ValueError, match=f"Pass --crf={str(has_crf).lower()}"):
        start(path, wanted)
