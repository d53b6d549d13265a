"""Disks that cannot be written, and clusters: a command prints one message and leaves no half-written file.
"""

import os

import pytest

from bertlib.runs import checks
from bertlib.runs.settings import Settings


def test_an_output_dir_without_permission_is_refused(tmp_path, monkeypatch):
    settings = Settings({"output_dir": str(tmp_path / "a" / "b"), "results_dir": None, "do_train": False})
    checks.check_output_dir(settings)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    with pytest.raises(PermissionError, match=f"=.*/a/b: nothing can be written in {tmp_path}:"):
        checks.check_output_dir(settings)
    assert asked == [str(tmp_path)]
