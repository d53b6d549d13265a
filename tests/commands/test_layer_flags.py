"""--layer_decay, --reinit_layers, --freeze_layers, --freeze_embeddings: resumed runs, run.json and errors."""

import json
import shutil
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from test_replicas_train import classifier, ner, pretraining, squad, trained
import tiny

from bertlib.runs import checks
import optimization

FREEZE = dict(freeze_layers=1, layer_decay=0.5, adam_bias_correction=True, precision="bf16",
              gradient_accumulation_steps=2, recompute="layers")


class Training:
    """Trains a classifier with two layers for four steps, and saves each step."""

    def __init__(self, scripts, model, directory):
        self.scripts, self.model, self.directory = scripts, model, directory
        self.data = tiny.write_task(directory / "data", "mrpc", train=8, dev=3)

    def run(self, output, **changes):
        flags = {**self.model.flags, "task_name": "MRPC", "data_dir": self.data, "do_train": True,
                 "train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 0.01,
                 "save_checkpoints_steps": 1, "output_dir": output, **changes}
        given = {name: value for name, value in flags.items() if value is not None}
        return self.scripts.run("run_classifier.py", *tiny.flags(**given), cwd=self.directory)

    def finished(self, output, **changes):
        done = self.run(output, **changes)
        assert done.code == 0, done.err
        return done


@pytest.fixture(scope="module")
def training(scripts, tiny_model, tmp_path_factory):
    return Training(scripts, tiny_model, tmp_path_factory.mktemp("layers"))


@pytest.fixture(scope="module")
def frozen(training):
    """(output directory, log) of a training with a frozen layer."""
    output = training.directory / "frozen"
    return output, training.finished(output, **FREEZE, do_eval=True, eval_every_steps=2).err


@pytest.fixture(scope="module")
def reinitialized(training):
    """(output directory, log) of a training with random weights in the top layer."""
    output = training.directory / "reinitialized"
    return output, training.finished(output, reinit_layers=1, freeze_embeddings=True).err


def tensors_of(output, step):
    reader = tf.train.load_checkpoint(str(output / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def copy(output, directory, step):
    """Copies the output of a training as if it had been killed after a step."""
    copied = directory / "output"
    shutil.copytree(output, copied)
    (copied / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return copied


# --- Frozen layers ---------------------------------------------------------------------------------------


def test_frozen_layers_keep_the_starting_weights_and_have_no_state(frozen, training):
    output, log = frozen
    before, after = tensors_of(output, 0), tensors_of(output, 4)
    for name, values in training.model.weights.items():
        is_frozen = optimization.is_frozen(name, 1)
        assert np.array_equal(before[name], values)
        assert np.array_equal(after[name], values) == is_frozen or name.endswith("key/bias")
        assert (f"{name}/adam_m" in after) != is_frozen
    assert ("The embeddings and all layers below layer 1 are frozen: 21 of the 39 variables of the encoder, "
            "60.9% of its weights.") in log
    assert ("--layer_decay=0.5: the learning rate is 0.01 for the pooler and the head, 0.005 for the top "
            "layer, 0.0025 for the lowest layer, and 0.00125 for the embeddings.") in log
    settings = json.loads((output / "run.json").read_text())["settings"]
    assert [settings[name] for name in ("freeze_layers", "freeze_embeddings", "layer_decay",
                                        "reinit_layers")] == [1, False, 0.5, 0]
    assert (output / "learning_curve.tsv").exists()


def test_a_killed_training_with_frozen_layers_ends_in_the_same_weights(frozen, training, tmp_path):
    output = copy(frozen[0], tmp_path, step=2)
    shutil.rmtree(output / "best", ignore_errors=True)
    done = training.finished(output, **FREEZE)
    assert "step 2 to step 4" in done.err
    assert_equal(tensors_of(output, 4), tensors_of(frozen[0], 4))


def test_layers_that_were_frozen_are_not_trained_later(frozen, training, tmp_path):
    output = copy(frozen[0], tmp_path, step=2)
    refused = training.run(output, **{**FREEZE, "freeze_layers": 0})
    assert refused.code == 1
    assert (f"{output}/model.ckpt-2 was trained with --freeze_layers=1, so it has no state of the optimizer "
            "for the frozen layers, which this run would train. Pass --freeze_layers=1, or use another "
            f"--output_dir and pass --init_checkpoint={output}/model.ckpt-2 to start from the same weights."
            ) in refused.err


# --- Re-initialized layers -------------------------------------------------------------------------------


def test_the_top_layer_and_the_pooler_start_at_random(reinitialized, training):
    output, log = reinitialized
    before = tensors_of(output, 0)
    random = {name for name, values in training.model.weights.items()
              if not np.array_equal(before[name], values)}
    expected = {name for name in training.model.weights if "/layer_1/" in name or "/pooler/" in name}
    assert random == expected
    kernels = np.concatenate([before[name].ravel() for name in random if name.endswith("/kernel")])
    assert 0.015 < kernels.std() < 0.02 and abs(kernels).max() <= 0.04  # cut at two standard deviations
    for name in random - {name for name in random if name.endswith("/kernel")}:
        np.testing.assert_array_equal(before[name], np.full_like(before[name], name.endswith("gamma")))
    assert ("--reinit_layers=1: 18 variables start from random weights. These are the variables of the "
            "pooler and of all layers from layer 1 on.") in log
    assert "Starting weights: 21 of 41 variables" in log and "bert/encoder/layer_1/output/dense/kernel" in log


def test_a_resumed_training_keeps_its_layers_and_more_layers_can_be_frozen(reinitialized, training, tmp_path):
    output = copy(reinitialized[0], tmp_path, step=2)
    done = training.finished(output, reinit_layers=1, freeze_embeddings=True)
    assert f"--reinit_layers=1 has an effect at step 0 only. The training in {output} has started" in done.err
    assert "Starting weights" not in done.err
    assert_equal(tensors_of(output, 4), tensors_of(reinitialized[0], 4))

    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    changed = training.finished(output, reinit_layers=2, freeze_layers=0, freeze_embeddings=True,
                                layer_decay=0.9)
    assert "reinit_layers: 1 -> 2" in changed.err and "layer_decay: 1.0 -> 0.9" in changed.err
    more = output.parent / "more"
    more.mkdir()
    output = copy(reinitialized[0], more, step=2)
    changed = training.finished(output, reinit_layers=1, freeze_layers=1)
    assert "freeze_layers: 0 -> 1" in changed.err and "freeze_embeddings: true -> false" in changed.err
    assert "bert/encoder/layer_0/output/dense/kernel/adam_m" not in tensors_of(output, 4)


@pytest.mark.slow(reason="two more trainings; test_checkpoints.py has the seeds of random weights")
def test_the_random_weights_depend_on_the_seed(reinitialized, training, tmp_path):
    name = "bert/encoder/layer_1/output/dense/kernel"
    first = tensors_of(reinitialized[0], 0)[name]
    for seed, is_same in ((12345, True), (7, False)):
        training.finished(tmp_path / str(seed), reinit_layers=1, seed=seed, max_steps=1)
        assert np.array_equal(tensors_of(tmp_path / str(seed), 0)[name], first) == is_same


def test_a_run_without_training_loads_the_trained_layers(reinitialized, training, tmp_path):
    start = reinitialized[0] / "model.ckpt-4"
    done = training.finished(tmp_path / "eval", do_train=None, do_eval=True, init_checkpoint=start)
    assert "random: none" in done.err and "--reinit_layers=1" in done.err  # from run.json


# --- All commands ----------------------------------------------------------------------------------------


@pytest.mark.slow(reason="a training of each command, one of them with two replicas and fresh interpreters")
@pytest.mark.parametrize("build, changes", [
    (classifier, dict(precision="fp16")), (ner, dict(optimizer="lamb")), (squad, {}),
    (pretraining, dict(init_checkpoint=True))], ids=lambda value: getattr(value, "__name__", ""))
def test_each_command_has_the_flags_also_with_replicas(build, changes, scripts, tiny_model, tmp_path):
    (tmp_path / "data").mkdir()
    command = build(tmp_path / "data")
    changes = {name: tiny_model.checkpoint if value is True else value for name, value in changes.items()}
    flags = dict(changes, bert_config_file=tiny_model.config, freeze_layers=1, reinit_layers=1,
                 layer_decay=0.9)
    (replicas, _), (alone, _) = (
        trained(scripts, tiny_model, tmp_path, tmp_path / name, command, **flags, **split)
        for name, split in (("replicas", dict(num_replicas=2)),
                            ("alone", dict(gradient_accumulation_steps=2))))
    assert_equal(replicas, alone)
    for name, values in tiny_model.weights.items():
        is_frozen = optimization.is_frozen(name, 1)
        assert np.array_equal(alone[name], values) == is_frozen, name
        has_state = any(slot.startswith(f"{name}/") for slot in alone)
        assert has_state != is_frozen or "/pooler/" in name


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, message", [
    (dict(freeze_layers=2), "--freeze_layers=2: the model has 2 layers, and at least one layer must be "
     "trained. Pass a number from 0 to 1."),
    (dict(reinit_layers=3), "--reinit_layers=3: the model has only 2 layers. Pass a number from 0 to 2."),
    (dict(freeze_layers=1, reinit_layers=2), "--freeze_layers=1 and --reinit_layers=2: the model has 2 "
     "layers, so a layer with random weights would never be trained. Pass --reinit_layers=1 or less"),
    (dict(reinit_layers=1, init_checkpoint=None), "--reinit_layers=1: there is nothing to re-initialize")])
def test_layers_that_cannot_be_are_refused(changes, message, tmp_path):
    settings = types.SimpleNamespace(**{
        "do_train": True, "freeze_layers": 0, "reinit_layers": 0, "init_checkpoint": "model",
        "output_dir": str(tmp_path), **changes})
    config = types.SimpleNamespace(num_hidden_layers=2)
    with pytest.raises(ValueError) as error:
        checks.check_layers(settings, config)
    assert message in str(error.value)
    settings.do_train = False
    checks.check_layers(settings, config)


@pytest.mark.parametrize("frozen", [dict(freeze_layers=1), dict(freeze_embeddings=True), {}])
def test_frozen_random_weights_are_a_warning(frozen, tmp_path, caplog):
    settings = types.SimpleNamespace(**{
        "do_train": True, "freeze_layers": 0, "freeze_embeddings": False, "reinit_layers": 0,
        "init_checkpoint": None, "output_dir": str(tmp_path), **frozen})
    checks.check_starting_weights(settings, types.SimpleNamespace(num_hidden_layers=2), {}, None)
    assert ("so they keep their random values" in caplog.text) == bool(frozen)


@pytest.mark.parametrize("changes, message", [
    (dict(layer_decay=1.1), "--layer_decay=1.1: must be a number above 0 and at most 1"),
    (dict(layer_decay="nan"), "--layer_decay=nan: must be a number above 0 and at most 1"),
    (dict(freeze_layers=2), "--freeze_layers=2: the model has 2 layers"),
    (dict(freeze_layers=-1), "--freeze_layers=-1: ")], ids=str)
def test_wrong_flags_write_nothing(training, tmp_path, changes, message):
    refused = training.run(tmp_path / "output", **changes)
    assert refused.code == 1 and message in refused.err, refused.err
    assert not (tmp_path / "output").exists()
