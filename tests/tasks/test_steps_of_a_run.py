"""The sections of the tasks have the names of the steps of `driver.run`, in their order."""

import inspect
import re

import pytest

from bertlib.tasks import driver, task
from bertlib.tasks.classification import choice_task, classification_task, hub_classification
from bertlib.tasks.pretraining import pretraining_task
from bertlib.tasks.squad import squad_task
from bertlib.tasks.tagging import tagging_task

TASKS = [classification_task, hub_classification, choice_task, squad_task, tagging_task, pretraining_task]


def sections_of(module):
    """Returns the titles of the sections in the classes of a module."""
    return re.findall(r"^    # --- (.*)", inspect.getsource(module), re.MULTILINE)


@pytest.mark.parametrize("module", [*TASKS, driver], ids=lambda module: module.__name__)
def test_all_tasks_have_the_same_sections(module):
    *titles, _ = sections_of(task)
    assert len(titles) == 4
    if module is driver:
        assert re.findall(r'^    """([\w ]+): ', inspect.getsource(driver), re.MULTILINE) == titles
    else:
        found = sections_of(module)
        assert found == [title for title in titles if title in found] != []
