"""The class `Task` has its methods in the order in which `driver.run` uses them."""

import ast
import inspect

from bertlib.tasks import driver, task


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
