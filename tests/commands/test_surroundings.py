"""Disks that cannot be written, and clusters: a command prints one message and leaves no half-written file.
"""

import json
import os

import pytest

from bertlib.runs import checks
from bertlib.runs.settings import Settings

CLUSTER = json.dumps({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}})


def test_a_cluster_with_parameter_servers_is_refused_before_anything_is_written(scripts, tmp_path):
    done = scripts.run("run_squad.py", cwd=tmp_path, TF_CONFIG=CLUSTER)
    assert done.code == 1 and not list(tmp_path.iterdir())
    message = "run_squad.py: error: The environment variable TF_CONFIG cannot be used: it names parameter"
    assert done.err.splitlines()[-1].startswith(message)


def test_an_output_dir_without_permission_is_refused(tmp_path, monkeypatch):
    settings = Settings({"output_dir": str(tmp_path / "a" / "b"), "results_dir": None, "do_train": False})
    checks.check_output_dir(settings)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    with pytest.raises(PermissionError, match=f"=.*/a/b: nothing can be written in {tmp_path}:"):
        checks.check_output_dir(settings)
    assert asked == [str(tmp_path)]
