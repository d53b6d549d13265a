"""--layer_decay, --reinit_layers, --freeze_layers, --freeze_embeddings: resumed runs, run.json and errors."""

import types

from helpers import error_of, tensors_of
import numpy as np
from outputs import record
import pytest
from rows import ROWS

from bertlib.runs.settings import Settings
from bertlib.tasks import starting_weights

TWO_LAYERS = dict(bert_config_file="model/bert_config.json", do_eval=False, do_predict=False)


@pytest.fixture(scope="module")
def reinitialized(workspaces):
    """The workspace of a training with random weights in the top layer."""
    return workspaces(ROWS["pairs"], **TWO_LAYERS, reinit_layers=1, freeze_embeddings=True)


def at_step_3(work, directory):
    """Returns a copy of a workspace as if its training had been killed after step 3."""
    copy = work.copy(directory)
    (copy.output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    return copy


def test_layers_that_were_frozen_are_not_trained_later(reinitialized, tmp_path):
    at_step_3(reinitialized, tmp_path / "copy").train(**TWO_LAYERS).assert_refused(
        "were trained with another value of --optimizer, --freeze_layers or --freeze_emb")


def test_the_top_layer_and_the_pooler_start_at_random(reinitialized, tiny_model):
    before, after = tensors_of(reinitialized.output / "model.ckpt-0"), tensors_of(reinitialized.output)
    # The embeddings are frozen: they keep the starting weights, and have no state of the optimizer.
    for name in tiny_model.weights:
        is_frozen = name.startswith("bert/embeddings/")
        assert np.array_equal(after[name], before[name]) == is_frozen or name.endswith("key/bias")
        assert (f"{name}/adam_m" in after) != is_frozen
    random = {name for name, values in tiny_model.weights.items() if not np.array_equal(before[name], values)}
    assert random == {name for name in tiny_model.weights if "/layer_1/" in name or "/pooler/" in name}
    log = reinitialized.finished.err
    assert ("--reinit_layers=1: 18 variables start from random weights. These are the variables of the "
            "pooler and of all layers from layer 1 on.") in log
    assert "Starting weights: 21 of 41 variables" in log


def test_a_resumed_training_keeps_its_layers_and_more_layers_can_be_frozen(reinitialized, tmp_path):
    copy = at_step_3(reinitialized, tmp_path / "copy")
    done = copy.train(**TWO_LAYERS, reinit_layers=1, freeze_layers=1)
    done.assert_success("freeze_layers: 0 -> 1", "freeze_embeddings: true -> false")
    assert "Starting weights" not in done.err
    assert "bert/encoder/layer_0/output/dense/kernel/adam_m" not in tensors_of(copy.output)
    assert record(copy.output)["settings"]["freeze_layers"] == 1


def test_a_run_without_training_loads_the_trained_layers(reinitialized, tmp_path):
    done = reinitialized.copy(tmp_path / "copy").run(
        "run_classifier.py", do_eval=True, init_checkpoint="output", output_dir="eval", data_dir="data")
    done.assert_success("random: none", "--reinit_layers=1")  # from run.json


# --- Errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, message", [
    (dict(freeze_layers=2), "--freeze_layers=2: the model has 2 layers, and at least one layer must be "
     "trained. Pass a number from 0 to 1."),
    (dict(reinit_layers=3), "--reinit_layers=3: the model has only 2 layers. Pass a number from 0 to 2."),
    (dict(freeze_layers=1, reinit_layers=2), "--freeze_layers=1 and --reinit_layers=2: the model has 2 "
     "layers, so a layer with random weights would never be trained. Pass --reinit_layers=1 or less"),
    (dict(reinit_layers=1, init_checkpoint=None), "--reinit_layers=1: there is nothing to re-initialize")])
def test_layers_that_cannot_be_are_refused(changes, message, tmp_path):
    settings = Settings({
        "do_train": True, "freeze_layers": 0, "reinit_layers": 0, "init_checkpoint": "model",
        "output_dir": str(tmp_path), **changes})
    config = types.SimpleNamespace(num_hidden_layers=2)
    assert message in error_of(starting_weights.check_layers, settings, config)


@pytest.mark.parametrize("frozen", [dict(freeze_layers=1), dict(freeze_embeddings=True), {}])
def test_frozen_random_weights_are_a_warning(frozen, tmp_path, caplog):
    settings = Settings({
        "do_train": True, "freeze_layers": 0, "freeze_embeddings": False, "reinit_layers": 0,
        "init_checkpoint": None, "output_dir": str(tmp_path), **frozen})
    found = starting_weights.choose(types.SimpleNamespace(
        settings=settings, config=types.SimpleNamespace(num_hidden_layers=2), head_shapes=dict))
    assert found is None
    assert ("so they keep their random values" in caplog.text) == bool(frozen)
