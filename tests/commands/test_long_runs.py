"""At its end, a long run uses no more resources of the machine than after its first steps."""

import os
import pathlib
import re
import time

import pytest


def replicas_of(launcher):
    """Returns the process numbers of the replicas that a launcher started. Its other child, which holds the
    network namespace, has one thread."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [pid for pid in children if count_threads(pid) > 1]


def count_threads(pid):
    return int(re.search(r"^Threads:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(),
                         re.MULTILINE).group(1))


def wait_for_step(run, step):
    while not re.search(rf" step {step}/", log := run.read("stderr")):
        assert os.path.exists(f"/proc/{run.pid}"), log
        time.sleep(0.05)


@pytest.mark.slow(reason="two replicas, 160 steps")
def test_replicas_start_no_threads_from_step_to_step(untrained):
    run = untrained.start(untrained.row.script, **untrained.row.training_flags(
        do_eval=False, do_predict=False, num_train_epochs=40, save_checkpoints_steps=1000, num_replicas=2))
    found = []
    for step in (30, 150):
        wait_for_step(run, step)
        found.append([count_threads(pid) for pid in replicas_of(run.pid)])
    assert run.wait().code == 0
    first, last = found
    assert len(first) == len(last) == 2
    # A few more threads start when TensorFlow first uses its thread pools.
    assert all(later <= earlier + 20 for earlier, later in zip(first, last)), found
