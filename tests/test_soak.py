"""benchmarks/soak.py reports a program that leaks, and does not report a program without a leak."""

import importlib.util

import pytest
from scripts import ROOT


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Writes the log of a training, and leaks something in each step.
PROGRAM = """
import pathlib, sys, threading, time
kept = []
for step in range(1, 161):
    print(f"step {step}/160", flush=True)
    LEAK
    time.sleep(0.01)
"""
LEAKS = {"threads": "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
         "open files": "kept.append(open(sys.argv[0]))",
         "memory": "kept.append(b'x' * 2**20)",
         "temporary files": "pathlib.Path(f'{step}.tmp').touch()"}


@pytest.mark.parametrize("leaks", [{}, LEAKS], ids=["none", "all"])
def test_what_leaks_is_named(soak, leaks, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "_SECONDS", 0.02)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("LEAK", "; ".join(leaks.values())))
    part = soak.Part(str(program), {"do_train": True}, 160)
    store = soak.results.Recorder(None, {})
    assert soak.check("part", part, tmp_path / "run", store) != bool(leaks)
    grows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("GROWS")]
    assert len(grows) == len(leaks) and all(any(leak in line for line in grows) for leak in leaks)


def test_a_program_that_fails_is_not_flat(soak, tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('no disk')")
    store = soak.results.Recorder(None, {})
    assert not soak.check("part", soak.Part(str(program), {}, 1), tmp_path / "run", store)
    assert "no disk" in capsys.readouterr().out
