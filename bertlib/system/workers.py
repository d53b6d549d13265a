"""Applies a function to many items in several processes, and yields the results in the items' order."""

import collections
import contextlib
import itertools
import multiprocessing.connection
import os
import pickle
import sys
import traceback

from bertlib.system import child_processes


def ordered_map(function, items, num_workers, chunk_size=1024):
    """Yields function(item) for each item, in the order of the items. The results do not depend on the number
    of processes.

    Workers are new interpreters. A forked process would inherit the locks of TensorFlow's threads, and could
    wait forever for one of them. A worker imports the module of the function, but not the running script. If
    the function raises an exception for an item, this generator raises the exception instead of yielding the
    item's result. The workers end when this process ends, also if this process was killed.

    Args:
      function: a picklable object. It must be a function at the top level of an importable module, or a
        callable instance of a class at the top level of such a module.
      items: iterable of picklable items.
      num_workers: number of processes; 0 for one process per core. With 1, the function runs in this process.
        It also runs in this process if `items` has a length, and all items fit into one chunk.
      chunk_size: number of items that are sent to a worker at a time.

    Raises:
      ChildProcessError: a worker was killed.
    """
    num_workers = num_workers or available_cores()
    with contextlib.suppress(TypeError):
        num_workers = min(num_workers, -(-len(items) // chunk_size))
    if num_workers > 1:
        yield from _map_in_processes(function, items, num_workers, chunk_size)
    else:
        yield from map(function, items)


def _map_in_processes(function, items, num_workers, chunk_size):
    """Yields function(item) for each item, computed in worker processes; see `ordered_map`."""
    rest = iter(items)
    chunks = iter(lambda: list(itertools.islice(rest, chunk_size)), [])
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_Worker()) for _ in range(num_workers)]
        busy_workers = collections.deque()  # the workers that have a chunk, in the order of the chunks
        for worker, chunk in zip(workers, chunks):
            worker.send(function)
            worker.send(chunk)
            busy_workers.append(worker)
        while busy_workers:
            worker = busy_workers.popleft()
            results, error, trace = worker.receive()
            # The worker gets its next chunk before the caller uses the results, so that it is not idle.
            for chunk in itertools.islice(chunks, 1):
                worker.send(chunk)
                busy_workers.append(worker)
            yield from results
            if error is not None:
                raise error from RuntimeError(f"in a worker process:\n{trace}")


def available_cores():
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of_cores(num_processes):
    """Returns {name: value}, the environment variables of a process that uses its share of the CPU cores.
    Variables that are already set are left out.

    Args:
      num_processes: number of processes that share the cores.
    """
    threads = max(1, available_cores() // num_processes)
    counts = {"TF_NUM_INTRAOP_THREADS": threads, "OMP_NUM_THREADS": threads,
              # At least two threads are needed. A single thread would always run the op that became ready
              # last, and the backward pass keeps making new ops ready. So sums over replicas would wait until
              # the end of the backward pass.
              "TF_NUM_INTEROP_THREADS": max(2, threads)}
    return {name: str(count) for name, count in counts.items() if name not in os.environ}


class _Worker:
    """A worker process that runs `serve`. As a context manager, it kills the process at the end of the `with`
    block."""

    def __init__(self):
        self._connection, worker_end = multiprocessing.connection.Pipe()
        with worker_end:
            # Ctrl-C reaches only this process, and this process then kills its workers.
            self._child = child_processes.Child(
                [sys.executable, "-c", f"import sys; sys.path[:] = {list(map(str, sys.path))}; from "
                 f"bertlib.system import workers; workers.serve({worker_end.fileno()})"],
                ends_with_caller=False, pass_fds=[worker_end.fileno()])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._connection.close()
        self._child.kill()

    def send(self, value):
        """Sends the function, and then the chunks of items."""
        with self._translate_errors():
            self._connection.send(value)

    def receive(self):
        """Returns a triple: the results of a chunk before the first exception, the exception or None, and the
        traceback of the exception as text."""
        with self._translate_errors():
            return self._connection.recv()

    @contextlib.contextmanager
    def _translate_errors(self):
        try:
            yield
        except (EOFError, ConnectionError):
            end = child_processes.describe_end(self._child.process.wait())
            raise ChildProcessError(
                f"A worker process {end}. If memory ran out, use fewer workers.") from None


def serve(descriptor):
    """Runs in a worker process. Computes and sends the results of each received chunk, until the connection
    is closed or the process at the other end has ended.

    Args:
      descriptor: file descriptor of the connection.
    """
    connection, function = multiprocessing.connection.Connection(descriptor), None
    with contextlib.suppress(EOFError, ConnectionError):
        start = connection.recv_bytes()
        while True:
            results, failure, trace = [], None, ""
            message = connection.recv_bytes()
            try:
                function = pickle.loads(start) if function is None else function
                for item in pickle.loads(message):
                    results.append(function(item))
            except Exception as error:
                failure, trace = _portable(error), traceback.format_exc()
            connection.send((results, failure, trace))


def _portable(error):
    """Returns an exception unchanged if it can be pickled, otherwise a RuntimeError with its message."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
