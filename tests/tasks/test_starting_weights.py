"""A checkpoint that another model trained is noticed: it has other weights, or untrained ones."""

import types

from helpers import error_of
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs.settings import Settings
from bertlib.tasks import starting_weights
from bertlib.tasks.classification import choice_target, classification_target
from bertlib.tasks.pretraining import pretraining_target
from bertlib.tasks.squad import squad_target
from bertlib.tasks.tagging import tagging_target
import modeling
import optimization

POOLER = ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"]
PUBLISHED_HEAD = ["cls/predictions/transform/dense/kernel", "cls/seq_relationship/output_bias"]
TARGETS = {"classification": classification_target.SingleLabel(["a", "b"]),
           "score": classification_target.Score(),
           "several labels": classification_target.MultiLabel(["a", "b"]), "endings": choice_target.Endings(),
           "SQuAD": squad_target.Spans(), "tags": tagging_target.Tags(["O", "B-X"]),
           "CRF": tagging_target.Tags(["O", "B-X"], True), "pre-training": pretraining_target.MaskedTokens()}
USES_POOLER = ["classification", "score", "several labels", "endings", "pre-training"]
STATE = ["global_step", "beta1_power", "current_loss_scale", "learning_rate", "Variable_7",
         "accumulated/output_weights", "OptimizeLoss/bert/pooler/dense/kernel/Adam_1"]


@pytest.fixture(params=TARGETS)
def target(request):
    return TARGETS[request.param]


def check(target, changes=(), removed=(), optimizer="adamw", freeze_layers=0):
    """Checks the checkpoint of a training of the target, with the tensors `changes` and without those that
    begin with one of `removed`."""
    config = modeling.BertConfig.from_dict(tiny.CONFIG)
    shapes = {**modeling.variable_shapes(config), **target.create_head().shapes(config)}
    slots = optimization.slot_shapes(shapes, optimizer) if optimizer else {}
    found = {name: shape for name, shape in {**shapes, **slots, **dict.fromkeys(changes, (16,))}.items()
             if not name.startswith(tuple(removed))}
    settings = Settings({"freeze_layers": freeze_layers, "freeze_embeddings": False})
    task = types.SimpleNamespace(settings=settings, config=config, create_head=target.create_head)
    starting_weights.check_origin(task, checkpoint_formats.Checkpoint(
        "model.ckpt-3", found, None, dict.fromkeys(found, tf.float32)), shapes)


def slots_of(*names):
    return [f"{name}/" for name in names]


@pytest.mark.parametrize("optimizer", [None, *optimization.OPTIMIZERS])
def test_own_trainings_and_the_state_of_other_programs_are_no_other_model(target, optimizer):
    shadows = ["bert/pooler/dense/kernel/ExponentialMovingAverage"]
    check(target, [*shadows, *(STATE if optimizer else STATE[:4])], optimizer=optimizer)
    check(target, optimizer=optimizer, removed=["bert/encoder/layer_0/output/dense/kernel/",
                                                *slots_of(*POOLER)])  # frozen


@pytest.mark.parametrize("name", ["classification", "tags"])
def test_heads_of_the_pre_training_are_no_other_model(name):
    check(TARGETS[name], PUBLISHED_HEAD, optimizer=None)


@pytest.mark.parametrize("optimizer", [None, "adamw"])
def test_weights_that_the_model_lacks(target, optimizer):
    names = ["our_pooler/weights", "bert/encoder/layer_0/adapter/kernel"]
    slots = [f"{name}/adam_m" for name in names] if optimizer else []
    message = error_of(check, target, [*names, *slots], optimizer=optimizer)
    assert ("model.ckpt-3 belongs to another model, so the answers of this model would be wrong: this model "
            "has no variables for these weights: bert/encoder/layer_0/adapter/kernel, our_pooler/weights. "
            ) in message


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("optimizer", optimization.OPTIMIZERS)
def test_a_pooler_that_was_not_trained(name, optimizer):
    removed = slots_of(*POOLER)
    if name in USES_POOLER:
        assert ("these weights have no slots of an optimizer, so they were not trained: "
                "bert/pooler/dense/bias, bert/pooler/dense/kernel.") in error_of(
                    check, TARGETS[name], removed=removed, optimizer=optimizer)
    else:
        check(TARGETS[name], removed=removed, optimizer=optimizer)
