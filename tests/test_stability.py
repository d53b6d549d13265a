"""benchmarks/stability.py: statistics of runs over seeds, the table of the page, and a run of the command."""

import argparse
import json
import subprocess
import sys

import numpy as np
import pytest
from scripts import ROOT, environment
import tiny

sys.path.append(str(ROOT / "benchmarks"))
import stability  # noqa: E402

METRIC = "eval_accuracy"


def runs_of(*values, setting="published"):
    """Runs with these values; None for a run that diverged, and 0.5 for a degenerate one."""
    return [{"data": "MRPC", "setting": setting, "seed": seed, "failed": value in (None, 0.5),
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


def test_the_statistics_are_those_of_the_values_and_their_pairs():
    scipy_stats = pytest.importorskip("scipy.stats")
    before, after = runs_of(0.7, 0.5, 0.72, 0.8), runs_of(None, 0.75, 0.74, 0.79, setting="other")
    found = stability.summarize(before, None, METRIC)
    values = [0.7, 0.5, 0.72, 0.8]
    assert found["runs"] == 4 and found["failed_share"] == 0.25 and "difference" not in found
    low, high = scipy_stats.t.interval(0.95, 3, np.mean(values), scipy_stats.sem(values))
    np.testing.assert_allclose([found["mean"], found["low"], found["high"]], [np.mean(values), low, high])

    found = stability.summarize(after, before, METRIC)
    test = scipy_stats.ttest_rel([0.75, 0.74, 0.79], [0.5, 0.72, 0.8])
    assert found["failed_share"] == 0.25
    np.testing.assert_allclose([found["mean"], found["difference"], found["p_value"]],
                               [0.76, 0.26 / 3, test.pvalue])
    np.testing.assert_allclose([found["difference_low"], found["difference_high"]],
                               list(test.confidence_interval()))
    # Too little data for some statistics: all values are equal, or there is only one value, or none.
    same = stability.summarize(runs_of(0.6, 0.6), runs_of(0.5, 0.5), METRIC)
    assert same["low"] == same["high"] == 0.6 and "p_value" not in same
    assert set(stability.summarize(runs_of(0.6), runs_of(0.6), METRIC)) == {"runs", "failed_share", "mean"}
    assert set(stability.summarize(runs_of(None), None, METRIC)) == {"runs", "failed_share"}


# Replaces the interpreter with torch: it logs its arguments, and prints the scores of a seed.
_PEER = """#!/bin/bash
echo "$@" >> {log}
case "$2" in
  *'"seed": 0'*) echo '{{"accuracy": 0.7, "confusion_matrix": [[4, 1], [2, 3]]}}' ;;
  *'"seed": 1'*) echo '{{"accuracy": 0.5, "confusion_matrix": [[5, 0], [5, 0]]}}' ;;
  *'"seed": 2'*) echo '{{"accuracy": NaN, "confusion_matrix": [[4, 1], [2, 3]]}}' ;;
  *) exit 3 ;;
esac
"""


def test_the_peer_trains_only_missing_seeds(tmp_path):
    tiny.write_task(tmp_path / "MRPC", "mrpc", train=64)
    peer, log = tmp_path / "peer", tmp_path / "log"
    peer.write_text(_PEER.format(log=log))
    peer.chmod(0o700)

    def trained(seeds):
        return stability.train_peer(argparse.Namespace(
            glue_dir=str(tmp_path), work_dir=str(tmp_path / "work"), peer_python=str(peer),
            peer_precision="fp32"), "MRPC", range(seeds))

    first, all_of_them = trained(1), trained(3)
    expected = runs_of(0.7, 0.5, None, setting="hugging_face")
    assert first == expected[:1] and all_of_them == expected
    settings = [json.loads(line.partition(" ")[2]) for line in log.read_text().splitlines()]
    assert [setting["seed"] for setting in settings] == [0, 1, 2]
    assert {(setting["task"], setting["total_steps"], setting["batch_size"], setting["learning_rate"],
             setting["precision"]) for setting in settings} == {("MRPC", 6, 32, 5e-5, "fp32")}
    with pytest.raises(SystemExit) as error:
        trained(4)
    assert error.value.code == 3 and trained(3) == expected


@pytest.mark.slow(reason="two trainings in fresh interpreters, and the sweeps around them")
def test_the_command_keeps_finished_runs(tiny_model, tmp_path):
    pytest.importorskip("scipy.stats")
    tiny.write_task(tmp_path / "glue" / "MRPC", "mrpc", train=40, dev=10)
    flags = tiny.flags(glue_dir=tmp_path / "glue", work_dir=tmp_path / "work", seeds=1, data="MRPC",
                       settings="freeze_embeddings", max_steps=1, **tiny_model.flags)
    command = [sys.executable, ROOT / "benchmarks" / "stability.py", *flags]

    def finished():
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, encoding="utf-8")

    first, again = finished(), finished()
    assert first.returncode == 0, first.stderr
    lines = [line for line in first.stdout.splitlines() if line.startswith("MRPC, ")]
    assert [line.split(": ")[0] for line in lines] == ["MRPC, published", "MRPC, freeze_embeddings"]
    assert again.returncode == 0 and again.stdout == first.stdout
    assert again.stderr.count("1 run: 1 already ended, 0 to go") == 2
    record = tmp_path / "work" / "MRPC" / "freeze_embeddings" / "runs" / "seed=0" / "run.json"
    settings = json.loads(record.read_text())["settings"]
    assert settings["freeze_embeddings"] is True and settings["precision"] == "bf16"
