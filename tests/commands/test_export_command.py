"""export.py and --do_export as a user runs them: from an output directory to a SavedModel, and errors."""

import json
import os

import model_directories
import pytest
import tensorflow.compat.v1 as tf

from bertlib.runs import trained_model
from bertlib.tasks import data_splits

ROW = "one text"


def signatures_of(path):
    """Returns the names of the signatures of the only version in a directory."""
    version, = path.iterdir()
    assert version.name.isdecimal()
    with tf.Session(graph=tf.Graph()) as here:
        return set(tf.saved_model.loader.load(here, ["serve"], str(version)).signature_def)


def test_a_training_exports_what_it_trained(copy):
    done = copy.train(do_eval=False, do_predict=False, do_export=True)  # its last step is done
    done.assert_success("exported: output/export/")
    assert signatures_of(copy.output / "export") == {"serving_default", "ids", "examples"}


def test_an_export_that_is_not_possible_is_refused_before_the_training(untrained):
    (untrained.directory / "taken").mkdir()
    (untrained.directory / "taken" / "export").touch()
    untrained.train(do_export=True, output_dir="taken").assert_refused("taken/export is not a directory")
    assert os.listdir(untrained.directory / "taken") == ["export"]


# --- export.py -------------------------------------------------------------------------------------------


@pytest.fixture
def model_dir(tiny_model, tmp_path):
    return model_directories.write_classifier(tmp_path / "model", tiny_model)


def test_a_directory_is_exported_into_itself(run_script, model_dir):
    """An export for vectors must not be the newest version of the trained task."""
    done = run_script("export.py", "--model_dir=model", "--task=vectors")
    assert done.code == 0 and not done.out, done.err
    assert len(list((model_dir / "export_vectors").iterdir())) == 1 and not (model_dir / "export").exists()


@pytest.mark.parametrize(("flags", "message"), [
    ({}, "--model_dir is required: Output directory of a training."),
    (dict(model_dir="model", output_dir="model/vocab.txt"), "model/vocab.txt: model/vocab.txt is not a "
     "directory. Use another directory."),
    (dict(model_dir="model", compare_file="model/vocab.txt"), "--compare_file needs --text, or "
     "--format=onnx or --format=tflite. Pass --text, or --format=onnx or --format=tflite, or leave "
     "--compare_file out."),
    (dict(model_dir="model", text=True, compare_file="none"), "--compare_file=none: there is no such file.")])
def test_bad_input_is_named_and_nothing_written(flags, message, run_script, model_dir, tmp_path):
    (model_dir / "export").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = run_script("export.py", **flags)
    assert done.code == 1 and done.err.splitlines()[-1] == f"export.py: error: {message}"
    assert sorted(tmp_path.rglob("*")) == before


QUESTION = {"id": "1", "question": "here ?", "context": "the cat sees a dog",
            "answers": [{"text": "dog", "answer_start": 15}]}


def test_the_development_set_is_found_again(tmp_path):
    """tests/tasks/test_reader_properties.py reads the sets of other tasks."""
    path = tmp_path / "data.json"
    path.write_text(json.dumps(QUESTION))
    record = {"task_type": "questions", "files": {"predict_file": str(path)}, "settings": {}}
    model = trained_model.TrainedModel("out", None, None, None, None, record)
    assert data_splits.read_dev_set(model) == [(("here ?", "the cat sees a dog"), None)]
    path.unlink()
    with pytest.raises(FileNotFoundError, match="data.json does not exist any more"):
        data_splits.read_dev_set(model)
    with pytest.raises(ValueError, match="out does not name the file of the development set"):
        data_splits.read_dev_set(model._replace(record={**record, "files": {}}))
    with pytest.raises(ValueError, match="set of multiple choice cannot be read again"):
        data_splits.read_dev_set(model._replace(record={**record, "task_type": "multiple_choice"}))
