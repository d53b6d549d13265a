"""Starts the runs of a sweep as child processes and waits until they have ended. At most a fixed number of
children run at the same time.

The children end when this process ends, even if this process was killed.
"""

import collections
import contextlib
import fcntl
import os
import time
from typing import NamedTuple

from absl import logging

from bertlib.system import child_processes, gpu_libraries, stopping, workers

_POLL_SECONDS = 0.1


class Slot(NamedTuple):
    """The GPU or the CPU cores that a child process uses.

    Attributes:
      gpu: value of CUDA_VISIBLE_DEVICES; None to leave this variable unchanged.
      cores: set of the numbers of CPU cores; None for all cores.
    """

    gpu: str | None = None
    cores: frozenset | None = None


def divide_machine(jobs):
    """Returns a list of `jobs` `Slot`s. Each slot has a separate GPU. On a machine without GPUs, each slot
    has separate CPU cores (only on Linux). A single job gets the whole machine.

    Raises:
      ValueError: the machine has fewer GPUs or cores than `jobs`.
    """
    if jobs == 1:
        return [Slot()]
    gpus = [] if gpu_libraries.missing_libraries() else gpu_libraries.visible_gpus()
    if gpus:
        if jobs > len(gpus):
            raise ValueError(f"--jobs={jobs}: each job needs a GPU, but this machine has {len(gpus)}. Pass "
                             f"--jobs={len(gpus)}.")
        return [Slot(gpu=gpu) for gpu in gpus[:jobs]]
    count = workers.available_cores()
    if jobs > count:
        raise ValueError(f"--jobs={jobs}: each job needs a CPU core, but this process may use only {count}. "
                         f"Pass --jobs={count}.")
    if not hasattr(os, "sched_getaffinity"):  # outside of Linux, the jobs share the cores
        return [Slot()] * jobs
    cores = sorted(os.sched_getaffinity(0))
    return [Slot(cores=frozenset(cores[len(cores) * index // jobs:len(cores) * (index + 1) // jobs]))
            for index in range(jobs)]


@contextlib.contextmanager
def no_other_children(path):
    """Returns a context manager that yields the descriptor of a locked file. At its start, the context
    manager waits until the children of a killed sweep have ended. These children first save a checkpoint.

    The new children inherit the descriptor. So the kernel releases the lock only when this process and all of
    its children have ended.

    Args:
      path: the lock file. It is removed at the end.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.info("Waiting for runs of an earlier sweep in this directory to end.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            logging.warning("The file system has no locks. Make sure that no run of an earlier sweep is "
                            "alive.")
        yield descriptor
        os.remove(path)
    finally:
        os.close(descriptor)


def run_all(keys, start, slots, descriptor):
    """Runs a child process for each key. For each child that has ended, yields its key, its
    `child_processes.Child`, and the position in the log where its output begins. Before this position, the
    log contains the output of earlier processes.

    If the caller stops the iteration, or this process gets Ctrl-C or SIGTERM, the children get SIGTERM. A
    child then saves its last complete step, so this function waits until all children have ended. The whole
    iteration must happen in one thread; see `child_processes.Child`.

    Args:
      keys: list of objects of any type, one for each child process.
      start: function that takes a key and returns (list of str: the command, path of the log). It is called
        directly before the child starts.
      slots: list of `Slot`, see `divide_machine`.
      descriptor: of the locked file, which the children inherit.

    Raises:
      stopping.Stopped: this process got SIGTERM or SIGHUP.
    """
    waiting, free, running = collections.deque(keys), collections.deque(slots), {}
    with stopping.request.being_awaited():
        try:
            while waiting or running:
                while waiting and free:
                    key, slot = waiting.popleft(), free.popleft()
                    command, log = start(key)
                    child, log_start = _start(command, log, slot, descriptor)
                    running[child] = key, slot, log_start
                ended = [child for child in running if not child.runs()]
                for child in ended:
                    key, slot, log_start = running.pop(child)
                    free.append(slot)
                    yield key, child, log_start
                stopping.request.check()
                if not ended:
                    time.sleep(_POLL_SECONDS)
        finally:
            child_processes.end(running)


def _start(command, log, slot, descriptor):
    """Starts a child process. Returns the `Child`, and the position in the log where its output begins.

    A child process inherits the CPU cores of the thread that starts it, so this function changes the cores of
    the thread for a moment."""
    environment = dict(os.environ)
    if slot.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = slot.gpu
    before = os.sched_getaffinity(0) if slot.cores else None
    if slot.cores:
        os.sched_setaffinity(0, slot.cores)
    try:
        with open(log, "ab") as output:
            log_start = output.tell()
            return child_processes.Child(command, environment, stdout=output, stderr=output,
                                         pass_fds=[descriptor]), log_start
    finally:
        if before:
            os.sched_setaffinity(0, before)
