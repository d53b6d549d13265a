"""Replicas that meet and talk: groups in threads of one process, through real connections."""

import concurrent.futures
import secrets
import socket

import pytest

from bertlib.runtime import replica_group

# In seconds: parts of it are what a group waits for before it ends its process.
TIMEOUT = 1000


class Groups:
    """Groups that have met, and threads to use them in."""

    def __init__(self, counts):
        """Lets replicas meet, each of which counts as many replicas as it is told."""
        listener = socket.create_server(("127.0.0.1", 0))
        key, coordinator = secrets.token_hex(32), list(listener.getsockname())
        self.groups = [replica_group.Group({
            "index": index, "count": count, "local_index": index, "local_count": count, "host": "127.0.0.1",
            "coordinator": coordinator, "listener": None if index else listener.detach(), "key": key,
            "timeout": TIMEOUT}) for index, count in enumerate(counts)]
        self.pool = concurrent.futures.ThreadPoolExecutor(len(counts))

    def each(self, function, *values):
        """Calls a function of each group, and of its value of each list, in threads; returns results and
        errors."""
        futures = [self.pool.submit(function, *arguments) for arguments in zip(self.groups, *values)]
        return [future.exception(60) or future.result() for future in futures]


@pytest.fixture
def meet():
    made = []

    def start(*counts):
        made.append(Groups(counts))
        return made[-1]

    yield start
    for groups in made:
        for group in groups.groups:
            group.leave()


@pytest.fixture
def two(meet):
    groups = meet(2, 2)
    assert groups.each(replica_group.Group.meet) == [None, None]
    return groups


def test_what_each_has_is_known_to_all(meet):
    groups = meet(3, 3, 3)
    assert groups.each(replica_group.Group.meet) == [None] * 3
    assert len({tuple(group.addresses) for group in groups.groups}) == 1
    assert groups.each(replica_group.Group.all_gather, ["a", None, 2]) == [["a", None, 2]] * 3
    assert groups.each(replica_group.Group.any, [False, True, False]) == [True] * 3
    assert groups.each(replica_group.Group.from_first, ["a", "b", "c"]) == ["a"] * 3


def test_a_replica_that_counts_otherwise_is_refused_and_named(meet):
    groups = meet(2, 3)
    first, second = groups.each(replica_group.Group.meet)
    assert type(first) is ValueError and type(second) is replica_group.ReplicaError
    assert "counts 3 replicas, replica 0 counts 2. Pass the same --num_replicas" in str(first)
    assert str(first) == str(second)


def test_what_differs_is_named_to_all(two):
    errors = two.each(replica_group.Group.agree, [{"--rate": 1, "--seed": 5}, {"--rate": 2, "--seed": 5}],
                      ["Do so."] * 2)
    assert [type(error) for error in errors] == [ValueError] * 2
    assert str(errors[0]).startswith("Replicas differ: --rate is 1 in replica 0 and 2 in replica 1 (process ")
    assert str(errors[0]).endswith(". Do so.") and "--seed" not in str(errors[0])


def test_who_does_not_see_a_directory_is_known(two, tmp_path, monkeypatch):
    monkeypatch.setattr(replica_group, "_SEEING_SECONDS", 0.3)
    (tmp_path / "one").mkdir()
    for places, expected in ((["one", "one"], []), (["one", "two"], [1])):
        assert two.each(replica_group.Group.unseen, [str(tmp_path / place) for place in places]) == (
            [expected] * 2)
    assert not list((tmp_path / "one").iterdir())


@pytest.mark.parametrize("index", [0, 1])
def test_an_error_that_is_told_ends_what_others_wait_for(two, index):
    failing, other = two.groups[index], two.groups[1 - index]
    waiting = two.pool.submit(other.all_gather, None)
    failing.tell(ValueError("no room\nat all"))
    error = waiting.exception(60)
    assert type(error) is replica_group.ReplicaError and error.about == index
    assert str(error).startswith(f"replica {index} (process ") and str(error).endswith(": no room.")
    # What else breaks there is no further failure.
    other.leave("failed", own=False)
    assert failing.failure.about == index and type(failing.failure) is replica_group.ReplicaError


def test_an_operation_that_breaks_when_another_has_left_is_about_that_one(two):
    two.groups[1].leave()
    found = two.groups[0].explained(OSError("Socket closed"))
    assert found.about == 1 and str(found).endswith("has ended before the others.")
