"""Work that replicas share: each replica computes its items, and gets the results of all items."""

import types

from bertlib.system import shared_work


def test_results_come_in_order_and_each_replica_computes_its_own_items():
    computed, rounds = [], []

    def square(item):
        computed.append(item)
        return item * item

    def all_gather(own):  # the values of replicas 0 and 2 of three, which replica 1 receives
        start = len(rounds) * 3
        rounds.append(own)
        others = [item * item if item < 7 else None for item in range(start, start + 3)]
        return [others[0], own, others[2]]

    group = types.SimpleNamespace(index=1, count=3, all_gather=all_gather)
    found = list(shared_work.map_on_replicas(group, square, list(range(7))))
    assert found == [0, 1, 4, 9, 16, 25, 36] and computed == [1, 4] and rounds == [1, 16, None]
    assert list(shared_work.map_on_replicas(None, square, [2, 3])) == [4, 9]
