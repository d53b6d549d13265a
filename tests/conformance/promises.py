"""Behaviours that every command promises, each on the rows of `rows.ROWS`.

The test of a promise has the decorator `of`, and its docstring is the promise. A cell of the table (a promise
on a row) is tested by the fast tests, by the slow tests, by the soak tests, or not at all, for a reason.
`test_promises.py` prints the table.
"""

from typing import Any, NamedTuple

import pytest
from rows import ROWS

ALL = tuple(ROWS)
_SLOW = "SQuAD 2.0", "tagging, columns", "pre-training"  # one row of each further way to train
_MARKS = {"fast": (), "slow": pytest.mark.slow(reason="the fast tests keep this promise on another row"),
          "soak": pytest.mark.soak(reason="faster tests keep this promise on other rows")}
# {name of a row: why promises about the lines of its data do not apply to it}.
NO_ROWS = {"pre-training": "its input is TFRecords, not rows"}
NO_FILE = {"task module": "the user's own module reads the data"}
SQUAD = "SQuAD 1.1", "SQuAD 2.0"
NOT_ANSWERED = {"pre-training": "its records have no texts that predict.py could read",
                "hub module": "predict.py reads no directories of hub modules, and says so"}


class Promise(NamedTuple):
    """A behaviour.

    Attributes:
      test: the function that tests the promise.
      fast: names of the rows whose cells the fast tests contain.
      without: {name of a row: the reason why the promise does not apply to it}.
    """
    test: Any
    fast: tuple
    without: dict

    def tier(self, row):
        """Returns "fast", "slow", "soak" or None for the name of a row."""
        if row in self.without:
            return None
        return "fast" if row in self.fast else "slow" if row in _SLOW else "soak"


PROMISES = []  # filled when the test modules are imported


def of(fast=("pairs",), without=None):
    """Returns the decorator of the test of a promise: it gives the test the argument `row`, a `Row`."""
    def decorate(test):
        promise = Promise(test, fast, without or {})
        PROMISES.append(promise)
        return pytest.mark.parametrize("row", [
            pytest.param(ROWS[row], id=row, marks=_MARKS[tier])
            for row in ROWS if (tier := promise.tier(row))])(test)
    return decorate
