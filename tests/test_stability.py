"""benchmarks/stability.py: which runs have failed."""

import sys

import pytest
from scripts import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import stability  # noqa: E402


def write_sweep(directory, *rows):
    directory.mkdir()
    lines = [f"{number},{row}\n" for number, row in enumerate(rows, 1)]
    (directory / "sweep.csv").write_text("run,seed,eval_accuracy,status,message\n" + "".join(lines))
    return str(directory)


def test_failed_runs_are_those_that_diverged_or_are_degenerate(tmp_path):
    directory = write_sweep(
        tmp_path / "sweep", "1,0.5,finished,Degenerate: the model predicts the same class for all examples.",
        "0,0.8,finished,", "2,,diverged,The loss of step 3 is nan.")
    runs = stability.read_runs(directory, "MRPC", "published", range(3))
    assert [(run["seed"], run.get("eval_accuracy"), run["failed"]) for run in runs] == [
        (0, 0.8, False), (1, 0.5, True), (2, None, True)]
    failed = write_sweep(tmp_path / "failed", "0,,failed,error: no such file")
    for sweep, seeds in ((directory, 4), (failed, 1)):
        with pytest.raises(SystemExit, match=f"the run with seed {seeds - 1} has not finished"):
            stability.read_runs(sweep, "MRPC", "published", range(seeds))
