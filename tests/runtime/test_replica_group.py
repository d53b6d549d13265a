"""How replicas meet, exchange values and learn of a failure. Each is a thread with a group of its own."""

import concurrent.futures
import os
import socket
import time

import pytest

from bertlib.runtime.replica_group import Group, Pace, ReplicaError


class Meeting:
    """Makes the groups of a run whose replicas are threads of this process."""

    def __init__(self, count, timeout=20.0):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = list(self.listener.getsockname())
        self.count, self.timeout = count, timeout
        self.groups = []

    def group(self, index, **changes):
        spec = dict(index=index, count=self.count, local_index=index, local_count=self.count,
                    host="127.0.0.1", coordinator=self.address,
                    listener=self.listener.detach() if index == 0 else None, key="c0ffee",
                    timeout=self.timeout, launcher=None, status=None, log=None)
        found = Group({**spec, **changes})
        self.groups.append(found)
        return found

    def run(self, function, groups=None):
        """Calls function(group) for all at the same time; returns what they give or raise."""
        def one(group):
            try:
                group.meet()
                return function(group)
            except (ReplicaError, ValueError) as error:
                return error
        groups = groups or [self.group(index) for index in range(self.count)]
        with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
            return list(pool.map(one, groups))


@pytest.fixture
def meeting():
    made = []

    def make(*args, **options):
        made.append(Meeting(*args, **options))
        return made[-1]
    yield make
    for one in made:
        for group in one.groups:
            group.leave("the test is over" if group.failure else None)


def test_replicas_exchange_values_in_order(meeting):
    def work(group):
        return [group.all_gather((group.index, number)) for number in range(20)] + [
            group.any(group.index == 2), group.any(False), group.from_first(f"of {group.index}")]

    expected = [[(index, number) for index in range(3)] for number in range(20)] + [True, False, "of 0"]
    assert meeting(3).run(work) == [expected] * 3


def test_large_values_arrive_whole(meeting):
    assert meeting(2).run(lambda group: [len(value) for value in group.all_gather(
        bytes(20_000_000 + group.index))]) == [[20_000_000, 20_000_001]] * 2


def test_what_differs_is_named_on_all(meeting):
    found = meeting(3).run(lambda group: group.agree({"--seed": 7, "--learning_rate": [1, 1, 2][group.index]},
                                                     "Start all alike."))
    assert all(str(error).startswith("Replicas differ: --learning_rate is 1 in replica 0 and 2 in replica 2 "
                                     f"(process {os.getpid()} on ") for error in found)
    assert all(str(error).endswith("Start all alike.") and "seed" not in str(error) for error in found)


def test_a_directory_that_one_does_not_see_is_found(meeting, tmp_path):
    for name in ("shared", "other"):
        (tmp_path / name).mkdir()
    found = meeting(3, timeout=1).run(
        lambda group: group.unseen(str(tmp_path / ("other" if group.index == 1 else "shared"))))
    assert found == [[1]] * 3 and not os.listdir(tmp_path / "shared")


def test_an_error_of_one_ends_all_with_its_words(meeting):
    def work(group):
        if group.index == 1:
            group.leave("error: no such file")
            return
        group.barrier()

    first, _, last = meeting(3).run(work)
    for error in (first, last):
        assert isinstance(error, ReplicaError) and error.about == 1
        assert str(error).startswith("replica 1 (process ") and str(error).endswith("error: no such file")


def test_one_that_ends_before_the_others_is_an_error(meeting):
    def work(group):
        if group.index == 1:
            return group.leave()
        return group.barrier()

    first, _ = meeting(2).run(work)
    assert isinstance(first, ReplicaError) and "has ended before the others" in str(first)


def test_a_connection_that_breaks_is_an_error(meeting):
    def work(group):
        if group.index == 1:
            socket.socket(fileno=os.dup(group._peers[0].connection.fileno())).shutdown(socket.SHUT_RDWR)
        group.barrier()

    first, second = meeting(2).run(work)
    assert isinstance(first, ReplicaError) and isinstance(second, ReplicaError)
    assert "replica 1 (process " in str(first) and "without a word" in str(first)


def test_of_replicas_that_do_not_come_the_numbers_are_named(meeting):
    run = meeting(3, timeout=0.2)
    first, second = run.run(lambda group: group.barrier(), [run.group(0), run.group(2)])
    assert "Of 3 replicas, 1 did not come" in str(first)
    assert isinstance(second, ReplicaError)


def test_who_counts_otherwise_is_named_on_both_sides(meeting):
    run = meeting(2, timeout=0.2)
    first, second = run.run(lambda group: group.barrier(), [run.group(0), run.group(1, count=3)])
    assert "counts 3 replicas, replica 0 counts 2. Pass the same --num_replicas" in str(second)
    assert "Of 2 replicas, 1 did not come" in str(first) and str(first).endswith(str(second))


@pytest.mark.parametrize("index, told, words", [
    (0, ValueError("no room\nat all"), ": no room."), (1, KeyError("room"), ": KeyError: 'room'.")])
def test_an_error_that_is_told_ends_what_others_wait_for(meeting, index, told, words):
    def work(group):
        if group.index != index:
            return group.barrier()
        group.tell(told)
        # What else breaks there is no further failure.
        return group.explained(OSError("the connection was closed"))

    for error in meeting(2).run(work):
        assert isinstance(error, ReplicaError) and error.about == index
        assert str(error).startswith(f"replica {index} (process ") and str(error).endswith(words)


def test_an_operation_that_breaks_when_another_has_left_is_about_that_one(meeting):
    def work(group):
        return group.leave() if group.index else group.explained(OSError("Socket closed"))

    found, _ = meeting(2).run(work)
    assert found.about == 1 and str(found).endswith("has ended before the others.")


def test_nobody_at_the_address_is_an_error(meeting):
    run = meeting(2, timeout=0.2)
    run.listener.close()
    run.address = ["127.0.0.1", 9]
    found, = run.run(lambda group: group.barrier(), [run.group(1)])
    assert "Replica 0 cannot be reached at 127.0.0.1:9" in str(found)


@pytest.mark.parametrize("changes, words", [
    (dict(), r"is replica 1 like one that is there already\. Another run uses the same address"),
    (dict(count=4), r"counts 4 replicas, replica 0 counts 3\. Pass the same --num_replicas"),
    (dict(index=5), r"is replica 5 like one"),
    (dict(key="bad0"), r"cannot be reached .* \(another run, or another program, listens there\)")])
def test_a_replica_of_another_run_is_refused(changes, words, meeting):
    run = meeting(3, timeout=20)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        both = [pool.submit(run.group(index).meet) for index in (0, 1)]
        while 1 not in run.groups[0]._peers:
            time.sleep(0.01)
        changes = {"timeout": 0.3, **changes} if "key" in changes else changes
        with pytest.raises(ReplicaError, match=words):
            run.group(**{"index": 1, **changes}).meet()
        run.group(2).meet()  # the run goes on
        for one in both:
            one.result()


def test_a_stranger_is_not_let_in(meeting):
    run = meeting(2)
    groups = [run.group(0), run.group(1)]
    stranger = socket.create_connection(tuple(run.address))
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert run.run(lambda group: group.all_gather(group.index), groups) == [[0, 1]] * 2
    stranger.close()


def test_pace_says_nothing_of_small_differences():
    now = [0.0]
    pace = Pace(lambda: now[0])
    for _ in range(100):
        now[0] += 1.0
        assert pace.slow([1.0, 2.5, 1.2]) == []
