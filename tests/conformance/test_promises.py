"""The table of promises is complete: each promise has one test, and each cell a test or a reason."""

import ast
import pathlib

from flag_effects import Effect, effect_of
import promises
from rows import ROWS

from bertlib.runs import entries, registry
from bertlib.tasks import head_labels

HERE = pathlib.Path(__file__).parent


def _tested():
    """Returns the names that the tests pass to `promises.of`."""
    names = []
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names += [call.args[0].value for call in node.decorator_list
                          if isinstance(call, ast.Call) and ast.unparse(call.func) == "promises.of"]
    return names


def test_each_promise_has_exactly_one_test():
    assert sorted(_tested()) == sorted(promises.PROMISES)


def test_each_cell_is_tested_or_has_a_reason():
    for name, promise in promises.PROMISES.items():
        assert set(promise.fast) | set(promise.without) <= set(ROWS), name
        assert {"fast", "slow"} & {promises.tier(promise, row) for row in ROWS}, name
        assert promise.fast == promises.ALL or not set(promise.fast) & set(promise.without), name
        assert all(len(reason.split()) > 3 for reason in promise.without.values()), name
    reasons = sum(len(promise.without) for promise in promises.PROMISES.values())
    assert len(promises.table()) == 1 + len(promises.PROMISES) + 1 + reasons


def test_eight_promises_are_kept_on_all_rows_by_the_fast_tests():
    core = [name for name, promise in promises.PROMISES.items() if promise.fast == promises.ALL]
    assert len(core) >= 8


def test_each_flag_of_the_kind_of_a_model_is_in_a_row():
    """So the promise "prediction" shows that later commands use the recorded value. If the flag changes the
    head, docs/development/packages.md lists the other places."""
    rows = [row for row in ROWS.values() if row.name not in promises.PROMISES["prediction"].without]
    found = {(command, entry) for command in registry.COMMANDS for entry in registry.find_flags(command)
             if entry.affects == entries.TASK and not entry.is_path}
    missing = {entry.name for _, entry in found
               if all(row.flags.get(entry.name, entry.default) == entry.default for row in rows)}
    assert not missing, f"Add these flags to rows in tests/conformance/rows.py: {sorted(missing)}"
    for command, entry in found:
        effect = effect_of(command, entry.name)
        if isinstance(effect, Effect) and effect.where == "weights":
            assert entry.name in head_labels.HeadDescription._fields, (
                f"--{entry.name} changes the head: add it to HeadDescription")
