"""The class `Task` has its methods in the order in which `driver.run` uses them."""

import ast
import inspect
import re

import pytest

from bertlib.tasks import driver, task
from bertlib.tasks.choice import choice_task
from bertlib.tasks.classification import classification_task, hub_classification
from bertlib.tasks.pretraining import pretraining_task
from bertlib.tasks.squad import squad_task
from bertlib.tasks.tagging import tagging_task


def functions(module):
    """Returns {name: its node} of all functions and methods in a module."""
    return {node.name: node for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.FunctionDef)}


def names_in(function, known):
    """Yields the names that a function of the driver mentions, with those of the functions that it calls."""
    found = [node for node in ast.walk(function) if isinstance(node, (ast.Attribute, ast.Name))]
    for node in sorted(found, key=lambda node: (node.end_lineno, node.end_col_offset)):
        name, of = (node.id, "") if isinstance(node, ast.Name) else (node.attr, ast.unparse(node.value))
        if of in ("task", "self._task"):
            yield name
        elif of in ("", "self", "phases") and name in known:
            yield from names_in(known[name], known)


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


def test_the_sections_of_a_task_are_the_steps_of_a_run():
    lines, sections = inspect.getsource(task.Task).splitlines(), {}
    number = 0
    for line in lines:
        number += line.startswith("    # --- ")
        if number and line.startswith("    def "):
            sections[line.split()[1].partition("(")[0]] = number
    driver_functions = functions(driver)
    used = [name for name in names_in(driver_functions["run"], driver_functions) if name in sections]
    first = list(dict.fromkeys(used))
    assert len(first) > 15 and first[:2] == ["resolve", "load_model"]
    assert [sections[name] for name in first] == sorted(sections[name] for name in first), first
