"""Divides the items of a list or stream among the replicas. Each replica gets the results of all items."""

import itertools


def map_on_replicas(group, function, items):
    """Yields function(item) for each item, in the order of the items.

    The replicas share the work, and each replica gets all results.

    Args:
      group: the `replica_group.Group`; None to compute everything in this process.
      function: function with one argument, which is an item of the list.
      items: list, the same on all replicas.
    """
    if group is None:
        yield from map(function, items)
        return
    for start in range(0, len(items), group.count):
        own_item = items[start + group.index:start + group.index + 1]
        yield from group.all_gather(function(own_item[0]) if own_item else None)[:len(items) - start]


def map_in_batches(group, function, items, length, batch_size):
    """Returns the list of the results of the items, in the order of the items. The items are sorted by length
    and cut into batches, so that the items of a batch have similar lengths. The replicas share the batches,
    see `map_on_replicas`.

    Args:
      group: the `replica_group.Group`; None to compute everything in this process.
      function: function that takes the items of a batch, sorted by length. Returns the list of their results.
      items: list, the same on all replicas.
      length: function that takes an item and returns its length.
      batch_size: int.
    """
    order = sorted(range(len(items)), key=lambda place: length(items[place]))
    batches = [order[start:start + batch_size] for start in range(0, len(order), batch_size)]
    result_lists = map_on_replicas(
        group, lambda places: function([items[place] for place in places]), batches)
    results = [None] * len(items)
    for places, batch_results in zip(batches, result_lists):
        for place, result in zip(places, batch_results):
            results[place] = result
    return results


def broadcast_items(group, items):
    """Yields the items of replica 0 on all replicas.

    Args:
      group: the `replica_group.Group`; None to yield the items of this process.
      items: iterable; only replica 0 iterates over it.
    """
    if group is None:
        yield from items
        return
    iterator = iter(items)
    while True:
        # Each item is sent in a list, so that an item may be None. An empty list marks the end.
        item = group.broadcast(list(itertools.islice(iterator, 1)) if group.is_first else None)
        if not item:
            return
        yield item[0]
