"""Fingerprints of the code that a process runs."""

import importlib
import shutil
import sys
import types

from helpers import settings_of
import pytest

from bertlib.runs import record_content
from bertlib.system import fingerprints
import modeling

DESCRIPTION = record_content.Description("run_it.py", "a task", "classification", modeling.BertConfig(9),
                                         True)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A loaded module of a fork. Only a few other modules are loaded."""
    (tmp_path / "module_of_a_fork.py").write_text("RATE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = "bertlib", "bertlib.system.fingerprints", "json", "modeling", "module_of_a_fork", "pytest"
    loaded = {name: importlib.import_module(name) for name in names}
    del sys.modules["module_of_a_fork"]
    monkeypatch.setattr(sys, "modules", loaded)


def test_the_script_and_its_modules_are_fingerprinted_by_their_content(module, tmp_path, monkeypatch):
    script = tmp_path / "run_it.py"
    script.write_text("import module_of_a_fork\n")
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__file__=str(script)))
    before = fingerprints.hash_scripts()
    assert set(before) == {"run_it.py", "module_of_a_fork", "modeling"}
    script.write_text("import module_of_a_fork  # changed\n")
    after = fingerprints.hash_scripts()
    assert {name for name in after if after[name] != before.get(name)} == {"run_it.py"}


def test_the_package_is_fingerprinted_with_files_that_are_not_loaded(tmp_path, monkeypatch):
    copy = tmp_path / "bertlib"
    shutil.copytree(fingerprints._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "build"))
    monkeypatch.setattr(fingerprints, "_PACKAGE", copy)
    before = fingerprints.hash_package()
    (copy / "graph" / "cpp" / "further.cc").write_text("int x;\n")
    further = fingerprints.hash_package()
    (copy / "graph" / "cpp" / "further.cc").rename(copy / "graph" / "cpp" / "another.cc")
    assert len({before, further, fingerprints.hash_package()}) == 3


def test_the_record_has_the_number_of_all_replicas_and_not_of_those_of_one_machine(monkeypatch):
    monkeypatch.setattr(record_content.replica_group, "current", lambda: types.SimpleNamespace(count=6))
    found = record_content.create_record(settings_of(num_replicas=2), DESCRIPTION)
    assert found["settings"]["num_replicas"] == 6


def test_the_record_knows_the_script(tmp_path, monkeypatch):
    def code(path):
        monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__file__=str(path)))
        return record_content.create_record(settings_of(), DESCRIPTION)["code"]

    script, console = tmp_path / "run_it.py", tmp_path / "bert-run-it"
    script.write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n")
    console.write_text("")
    before, of_console = code(script), code(console)
    script.write_text("RATE = 1\n")
    assert len({before, code(script), of_console}) == 3 and code(tmp_path / "missing.py") == of_console


def test_replicas_compare_their_flags_modules_and_data(monkeypatch):
    compared = {}
    monkeypatch.setattr(fingerprints, "hash_scripts", lambda: {"a module": "1"})
    group = types.SimpleNamespace(all_gather=lambda value: [value, ["a module"]],
                                  check_equal=lambda values, remedy: compared.update(values))
    record_content.check_replicas_agree(group, settings_of(learning_rate=0.1), {"the data": {"examples": 2}})
    assert compared["--learning_rate"] == "0.1" and compared["the code of a module"] == "1"
    assert compared["the data"] == '{"examples": 2}' and "the code" in compared
