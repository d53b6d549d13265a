"""The table of promises: each cell has a test or a reason. Flags of the kind of a model are in its rows.

    PYTHONPATH=.:tests python tests/conformance/test_promises.py    # prints the table
"""

from flag_effects import Effect, effect_of
import promises
from rows import ROWS
import test_changes  # noqa: F401  the import of these modules adds their promises
import test_core  # noqa: F401
import test_faults  # noqa: F401
import test_interruptions  # noqa: F401

from bertlib.runs import entries, registry
from bertlib.tasks import head_labels


def test_each_cell_is_tested_or_has_a_reason():
    for test, fast, without in promises.PROMISES:
        assert set(fast) | set(without) <= set(ROWS) and test.__doc__, test
        assert fast == promises.ALL or not set(fast) & set(without), test
        assert all(len(reason.split()) > 3 for reason in without.values()), test
    tiers = [{promise.tier(row) for row in ROWS} for promise in promises.PROMISES]
    assert len(tiers) >= 36 and all({"fast", "slow"} & found for found in tiers)
    # Eight promises are kept on all rows by the fast tests.
    assert sum(promise.fast == promises.ALL for promise in promises.PROMISES) >= 8


def test_each_flag_of_the_kind_of_a_model_is_in_a_row():
    """So the promise `test_prediction` shows that later commands use the recorded value. If the flag changes
    the head, docs/development/packages.md lists the other places."""
    rows = [row for row in ROWS.values() if row.name not in promises.NOT_ANSWERED]
    found = {(command, entry) for command in registry.COMMANDS for entry in registry.find_flags(command)
             if entry.category == entries.TASK and not entry.is_path}
    missing = {entry.name for _, entry in found
               if all(row.flags.get(entry.name, entry.default) == entry.default for row in rows)}
    assert not missing, f"Add these flags to rows in tests/conformance/rows.py: {sorted(missing)}"
    for command, entry in found:
        effect = effect_of(command, entry.name)
        if isinstance(effect, Effect) and effect.where == "weights":
            assert entry.name in head_labels.HeadDescription._fields, (
                f"--{entry.name} changes the head: add it to HeadDescription")


if __name__ == "__main__":
    for promise in promises.PROMISES:
        print(promise.test.__name__, " ".join(promise.test.__doc__.split()), sep=": ")
        for row in ROWS:
            print(f"    {row}: {promise.tier(row) or promise.without[row]}")
