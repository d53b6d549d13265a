"""Promises about runs that are killed, stopped or hindered."""

import os
import signal
import time

from outputs import contents, different_tensors, losses, record, results
import promises
import pytest
from rows import STEPS
from runs import KILL_MOMENT, assert_same_run, assert_same_training, interrupt
import scripts as commands
import tiny

TRAIN = dict(do_eval=False, do_predict=False)


@promises.of()
def test_killed_between_checkpoints(trained, untrained):
    """A training that is killed before, between and after checkpoints continues to the same bits."""
    # Checkpoints are saved at the steps 0, 3, 6 and 8. test_core.py continues from step 4.
    for moment in (f"step 1/{STEPS}", f"step 8/{STEPS}"):
        killed = interrupt(untrained, moment)
        assert killed.code == -signal.SIGKILL and f"step 1/{STEPS}" in killed.err, killed.err
    done = untrained.train(**TRAIN)
    assert done.code == 0, done.err
    assert_same_training(untrained, trained)


@promises.of()
def test_killed_in_the_evaluation(trained, tmp_path):
    """A run that is killed in its evaluation writes the same results when it is started again."""
    killed = trained.killed_in_evaluation.copy(tmp_path / "killed")
    assert not (killed.output / trained.row.results).exists()
    done = killed.train()
    assert done.code == 0 and "Nothing to train" in done.err, done.err
    assert_same_run(killed, trained)


@promises.of()
def test_terminated(trained, untrained):
    """SIGTERM saves the last whole step; the training continues to the same bits."""
    ended = interrupt(untrained, KILL_MOMENT, "SIGTERM")
    assert ended.code == 128 + signal.SIGTERM and "Traceback" not in ended.err, ended.err
    assert (untrained.output / "model.ckpt-4.index").exists()
    assert record(untrained.output)["finished_step"] is None
    done = untrained.train(**TRAIN)
    assert done.code == 0 and KILL_MOMENT not in done.err, done.err
    assert_same_training(untrained, trained)


@promises.of()
def test_two_at_once(row, trained, untrained):
    """A second run in the same directory is refused and changes nothing."""
    flags = row.training_flags(**TRAIN)
    stopped = untrained.start("tests/conformance/inside.py", KILL_MOMENT, "SIGSTOP",
                              commands.ROOT / row.script, **flags)
    while f"inside.py: {KILL_MOMENT}" not in stopped.read("stderr"):
        time.sleep(0.01)
    before = contents(untrained.output)
    refused = commands.run_fresh(row.script, *tiny.flags(**flags), cwd=untrained.directory)
    assert refused.code == 1 and f"error: output is in use: process {stopped.pid} on " in refused.err
    assert contents(untrained.output) == before
    os.kill(stopped.pid, signal.SIGCONT)
    done = stopped.wait()
    assert done.code == 0, done.err
    assert_same_training(untrained, trained)


@promises.of()
def test_full_disk(trained, untrained):
    """A full disk is named, and the training continues later to the same bits."""
    failed = interrupt(untrained, KILL_MOMENT, "RLIMIT_FSIZE")
    assert failed.code == 1 and "Traceback" not in failed.err, failed.err
    assert "output/" in failed.err.split("error: ", 1)[1], failed.err
    done = untrained.train(**TRAIN)
    assert done.code == 0, done.err
    assert_same_training(untrained, trained)


@promises.of()
def test_no_directory(untrained):
    """An output directory that cannot be written is refused before any work."""
    (untrained.directory / "run.file").write_text("a file")
    before = contents(untrained.directory)
    refused = untrained.train(output_dir="run.file/output")
    assert refused.code == 1 and "Traceback" not in refused.err, refused.err
    assert "run.file" in refused.err.split("error: ", 1)[1], refused.err
    assert contents(untrained.directory) == before

    # A directory with other files can be used. No file in it changes.
    done = untrained.train(output_dir="data", **TRAIN)
    assert done.code == 0, done.err
    after = contents(untrained.directory)
    assert {name: after[name] for name in before} == before


@promises.of()
def test_replicas(row, workspaces):
    """Two replicas compute the bits of two micro-batches."""
    one = workspaces(row, trim_padding=False, gradient_accumulation_steps=2)
    two = workspaces(row, trim_padding=False, num_replicas=2)
    assert different_tensors(one.output, two.output) == []
    assert results(one.output) == results(two.output)
    assert losses(one.output) == pytest.approx(losses(two.output))  # the mean over the replicas
