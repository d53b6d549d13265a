"""Work that replicas share: each replica computes its items, and gets the results of all items."""

from replica_threads import run_replicas

from bertlib.system import shared_work


def test_results_come_in_order_and_each_replica_computes_its_own_items():
    computed = [[], [], []]

    def work(group):
        def square(item):
            computed[group.index].append(item)
            return item * item
        return list(shared_work.map_on_replicas(group, square, list(range(7))))

    assert run_replicas(3, work) == [[0, 1, 4, 9, 16, 25, 36]] * 3 and computed == [[0, 3, 6], [1, 4], [2, 5]]
    assert list(shared_work.map_on_replicas(None, lambda item: item * item, [2, 3])) == [4, 9]
