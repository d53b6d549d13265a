"""Commands that train with two replicas end in the weights of two micro-batches on one, bit for bit."""

import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_run_ner import write_conll
from test_run_pretraining import FIELDS, LENGTH, PREDICTIONS, rows
from test_run_squad import LENGTHS, write_squad
import tiny

from bertlib.runtime import record_files

pytestmark = pytest.mark.slow(reason="starts a launcher with two fresh interpreters, and a run without")


def classifier(directory, **changes):
    return "run_classifier.py", dict(task_name="mrpc", do_eval=True, num_train_epochs=1,
                                     data_dir=tiny.write_task(directory, "mrpc", train=24, dev=7), **changes)


def pretraining(directory):
    path = directory / "text.tfrecord"
    record_files.write_records(str(path), FIELDS, rows(0, 20))
    return "run_pretraining.py", dict(input_file=path, max_seq_length=LENGTH, num_train_steps=3,
                                      max_predictions_per_seq=PREDICTIONS)


def squad(directory):
    return "run_squad.py", dict(LENGTHS, num_train_epochs=2, do_eval=True, **{
        name: write_squad(directory / f"{name}.json", random.Random(5), 12, version_2=False)
        for name in ("train_file", "predict_file")})


def ner(directory):
    for name in ("train", "dev"):
        write_conll(directory / f"{name}.txt", 24)
    return "run_ner.py", dict(data_dir=directory, do_eval=True, num_train_epochs=1, crf=True)


def trained(scripts, model, here, output, command, **changes):
    """Trains; returns {name: array} of the last checkpoint, and {file: content} of the results."""
    script, flags = command
    own = {name: value for name, value in model.flags.items()
           if name in ("vocab_file", "init_checkpoint") and script != "run_pretraining.py"}
    flags = {**own, "max_seq_length": tiny.SEQ_LENGTH, "bert_config_file": model.shallow, "do_train": True,
             "train_batch_size": 8, "learning_rate": 0.01, **flags, "output_dir": output, **changes}
    done = scripts.run(script, *tiny.flags(**flags), cwd=here)
    assert done.code == 0, done.err
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(output)))
    results = {path.name: path.read_text() for path in output.iterdir()
               if path.suffix in (".txt", ".json", ".conll") and path.name != "run.json"}
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}, results


@pytest.mark.parametrize("build, changes", [
    (classifier, dict(optimizer="lamb")),
    (classifier, dict(optimizer="adafactor")),
    (classifier, dict(precision="fp16")),
    (classifier, dict(tokens_per_micro_batch=80)),
    (pretraining, {}), (squad, {}), (ner, {})], ids=lambda value: getattr(value, "__name__", None) or "".join(
        f"{name}={content}" for name, content in value.items()))
def test_two_replicas_are_two_micro_batches(build, changes, scripts, tiny_model, tmp_path):
    command = build(tmp_path / "data" if (tmp_path / "data").mkdir() is None else None)
    (weights, results), (others, other_results) = (
        trained(scripts, tiny_model, tmp_path, tmp_path / name, command, **changes, **split)
        for name, split in (("replicas", dict(num_replicas=2)),
                            ("alone", dict(gradient_accumulation_steps=2))))
    assert weights["global_step"] == 3 and weights.keys() == others.keys()
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)
    assert results == other_results
