"""Starts the runs of a sweep as child processes and waits until they have ended. At most a fixed number of
children run at the same time.

The children end when this process ends, even if this process was killed.
"""

import collections
import contextlib
import fcntl
import os
import time

from absl import logging

from bertlib.system import child_processes, gpu_libraries, stopping, workers

_POLL_SECONDS = 0.1


def divide_machine(jobs):
    """Returns a list of `jobs` slots. A slot is the part of the machine that a job uses, as a dict of
    environment variables. Each slot has a separate GPU. On a machine without GPUs, each slot has an equal
    share of the CPU cores. A single job gets the whole machine.

    Raises:
      ValueError: the machine has fewer GPUs or cores than `jobs`.
    """
    if jobs == 1:
        return [{}]
    gpus = [] if gpu_libraries.missing_libraries() else gpu_libraries.visible_gpus()
    if gpus:
        if jobs > len(gpus):
            raise ValueError(f"--jobs={jobs}: each job needs a GPU, but this machine has {len(gpus)}. Pass "
                             f"--jobs={len(gpus)}.")
        return [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus[:jobs]]
    count = workers.available_cores()
    if jobs > count:
        raise ValueError(f"--jobs={jobs}: each job needs a CPU core, but this process may use only {count}. "
                         f"Pass --jobs={count}.")
    return [workers.share_of_cores(jobs)] * jobs


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
      slots: list of dicts, see `divide_machine`.
      descriptor: of the locked file, which the children inherit.

    Raises:
      stopping.Stopped: this process got SIGTERM or SIGHUP.
    """
    queue, free, children = collections.deque(keys), collections.deque(slots), {}
    with stopping.request.being_awaited():
        try:
            while queue or children:
                while queue and free:
                    key, slot = queue.popleft(), free.popleft()
                    command, log = start(key)
                    child, log_start = _start(command, log, slot, descriptor)
                    children[child] = key, slot, log_start
                ended_children = [child for child in children if not child.runs()]
                for child in ended_children:
                    key, slot, log_start = children.pop(child)
                    free.append(slot)
                    yield key, child, log_start
                stopping.request.check()
                if not ended_children:
                    time.sleep(_POLL_SECONDS)
        finally:
            child_processes.end(children)


def _start(command, log, slot, descriptor):
    """Starts a child process. Returns the `Child`, and the position in the log where its output begins."""
    with open(log, "ab") as output:
        log_start = output.tell()
        return child_processes.Child(command, {**os.environ, **slot}, stdout=output, stderr=output,
                                     pass_fds=[descriptor]), log_start
