"""`Task.trims_padding`: which batches are trimmed with each value of --trim_padding, and without the flag."""

import types

import pytest

from bertlib.tasks.classification.classification_target import SingleLabel
from bertlib.tasks.classification.hub_classification import HubClassification
from bertlib.tasks.pretraining.pretraining_task import Pretraining
from bertlib.tasks.squad.squad_task import QuestionAnswering


def create(task, flag, **attributes):
    created = task(types.SimpleNamespace(trim_padding=flag))
    vars(created).update(attributes)
    return created


def hub(length):
    """Returns a function that creates the task of a hub module with this only length, or with any length."""
    return lambda flag: create(HubClassification, flag, encoder_module=types.SimpleNamespace(length=length),
                               target=SingleLabel(["x", "y"]))


@pytest.mark.parametrize("create_task, in_training, in_evaluation", [
    (hub(None), (True, True, False), (True, True, False)),
    (hub(32), (False, False, False), (False, False, False)),
    (lambda flag: create(QuestionAnswering, flag), (False, True, False), (True, True, False)),
    (lambda flag: create(Pretraining, flag), (True, True, False), (False, False, False))],
    ids=["any length", "one length", "SQuAD", "pre-training"])
def test_without_the_flag_the_head_decides_about_the_training(create_task, in_training, in_evaluation):
    created = [create_task(flag) for flag in (None, True, False)]
    assert tuple(task.trims_padding(is_training=True) for task in created) == in_training
    assert tuple(task.trims_padding(is_training=False) for task in created) == in_evaluation
