"""Fixtures of the table: the trained workspaces, which all tests of a process share."""

import pytest


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
