"""Fixtures of the table: the trained workspaces, which all tests of a process share."""

import pytest
from rows import Workspace


@pytest.fixture(scope="session")
def workspaces(scripts, tiny_model, tmp_path_factory):
    """A function (row, untrained, changes) that returns a `Workspace`. Tests must not change its files.

    With `untrained`, the workspace contains only the data. Otherwise it is trained. `changes` are changed
    flags of the training, and each combination is trained once. The attribute `finished` is the
    `scripts.Finished` of the training.
    """
    prepared, trained = {}, {}

    def get(row, untrained=False, **changes):
        key = row.name, repr(sorted(changes.items()))
        if row.name not in prepared:
            prepared[row.name] = Workspace.create(row, scripts, tmp_path_factory.mktemp("row") / "work",
                                                  tiny_model)
        if untrained:
            return prepared[row.name]
        if key not in trained:
            found = prepared[row.name].copy(tmp_path_factory.mktemp("trained") / "work")
            found.finished = found.train(**changes)
            assert found.finished.code == 0, found.finished.err
            trained[key] = found
        return trained[key]
    return get


@pytest.fixture
def trained(row, workspaces):
    """The trained workspace of the row. Tests must not change it."""
    return workspaces(row)


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of the trained workspace."""
    return trained.copy(tmp_path / "copy")


@pytest.fixture
def untrained(row, workspaces, tmp_path):
    """A workspace with the data of the row, before its training."""
    return workspaces(row, untrained=True).copy(tmp_path / "untrained")
