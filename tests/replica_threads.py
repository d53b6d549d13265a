"""Fake groups of replicas: one replica alone, or several replicas that are threads of this process."""

import concurrent.futures
import functools
import threading


class Replica:
    """A fake `replica_group.Group` of one process: replica `index` of `count`.

    The function `said` returns the values of all replicas.
    """

    def __init__(self, index, count, said=None):
        self.index, self.count, self.said = index, count, said
        self.is_first = index == 0

    def broadcast(self, value):
        return value

    def all_gather(self, value):
        self.own = value
        return self.said(value)

    def name(self, index):
        return f"replica {index}"


def run_replicas(count, function):
    """Calls function(group) in a thread for each replica of a group. Returns the list of results."""
    values, barrier = [None] * count, threading.Barrier(count, timeout=60)

    def all_gather(index, value):
        values[index] = value
        barrier.wait()
        found = list(values)
        barrier.wait()
        return found

    groups = [Replica(index, count) for index in range(count)]
    for group in groups:
        group.all_gather = functools.partial(all_gather, group.index)
        group.broadcast = lambda value, group=group: group.all_gather(value)[0]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(function, groups))
