"""benchmarks/stability.py: which runs have failed."""

import sys

import pytest
from scripts import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import stability  # noqa: E402

METRIC = "eval_accuracy"


def runs_of(*values):
    """Runs with these values; None for a run that diverged, and 0.5 for a degenerate one."""
    return [{"data": "MRPC", "setting": "published", "seed": seed, "failed": value in (None, 0.5),
             **({} if value is None else {METRIC: value})} for seed, value in enumerate(values)]


def write_sweep(directory, rows):
    directory.mkdir()
    columns = ["run", "seed", METRIC, "status", "message"]
    lines = [columns, *([number, *row] for number, row in enumerate(rows, 1))]
    (directory / "sweep.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return str(directory)


def test_failed_runs_are_those_that_diverged_or_are_degenerate(tmp_path):
    rows = [(1, 0.5, "finished", "Degenerate: the model predicts the same class for all examples."),
            (0, 0.8, "finished", ""), (2, "", "diverged", "The loss of step 3 is nan.")]
    directory = write_sweep(tmp_path / "sweep", rows)
    assert stability.read_runs(directory, "MRPC", "published", range(3)) == runs_of(0.8, 0.5, None)
    assert stability.read_runs(directory, "MRPC", "published", [0]) == runs_of(0.8)
    for seeds, broken in ((4, rows), (1, [(0, "", "failed", "error: no such file")])):
        directory = write_sweep(tmp_path / f"sweep{seeds}", broken)
        with pytest.raises(SystemExit, match=f"the run with seed {seeds - 1} has not finished"):
            stability.read_runs(directory, "MRPC", "published", range(seeds))
