"""Replicas connect, exchange values and learn about failures. Each replica is a thread with its own group."""

import concurrent.futures
from multiprocessing import connection as mp_connection
import os
import pickle
import re
import socket
import time

import pytest

from bertlib.system import replica_meeting, value_encoding
from bertlib.system.child_processes import Outcome
from bertlib.system.replica_group import Group, ReplicaError


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
        """Calls function(group) for all groups at the same time. Returns their results or exceptions."""
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
            group.leave(Outcome("failed", 1, "the test is over") if group.failure else None)


def test_replicas_exchange_values_in_order(meeting):
    def work(group):
        return [group.all_gather((group.index, number)) for number in range(20)] + [
            group.broadcast(f"of {group.index}")]

    expected = [[(index, number) for index in range(3)] for number in range(20)] + ["of 0"]
    assert meeting(3).run(work) == [expected] * 3


def test_what_differs_is_named_on_all(meeting):
    found = meeting(3).run(lambda group: group.check_equal({"--seed": 7,
                                                            "--learning_rate": [1, 2, 2][group.index]},
                                                     "Start all alike."))
    assert all(str(error).startswith("The replicas have different values: --learning_rate is 1 in replica 0 "
                                     "and 2 in replica 1 "
                                     f"(process {os.getpid()} on ") for error in found)
    assert all(str(error).endswith("Start all alike.") and "seed" not in str(error) for error in found)


def test_a_directory_that_one_does_not_see_is_found(meeting, tmp_path):
    for name in ("shared", "other"):
        (tmp_path / name).mkdir()
    found = meeting(3, timeout=1).run(
        lambda group: group.replicas_not_seeing(str(tmp_path / ("other" if group.index == 1 else "shared"))))
    assert found == [[1]] * 3 and not os.listdir(tmp_path / "shared")


def reports(error):
    def fail(group):
        group.report_error(error)
        # An error that follows from this failure is not reported as a new failure.
        assert group.find_cause(OSError("the connection was closed")).about == group.index
    return fail


def breaks(group):
    socket.socket(fileno=os.dup(group._peers[0].connection.fileno())).shutdown(socket.SHUT_RDWR)


class Runs:
    """An object that creates a file if pickle loads its bytes."""

    def __reduce__(self):
        return open, ("pickled", "w")


@pytest.mark.parametrize("index, fail, words", [
    (1, lambda group: group.leave(Outcome("refused", 1, "no such file")), "error: no such file$"),
    (1, lambda group: group.leave(), "has ended before the other replicas.$"),
    (1, breaks, "lost its connection without a message"),
    (1, lambda group: group._peers[0].send(pickle.dumps(("data", Runs()))),
     "sent a message that this version of the program"),
    (0, reports(ValueError("no room\nat all")), ": no room.$"),
    (1, reports(KeyError("room")), ": KeyError: 'room'.$"),
    # The form of the errors of TensorFlow's ops.
    (1, reports(ValueError("Graph execution error:\n\nDetected at node 'a' defined at\nNode: 'a'\nno room\n"
                           "\t [[a]]")), ": no room.$")],
    ids=["error", "end", "connection", "pickle", "report of 0", "report", "TensorFlow"])
@pytest.mark.parametrize("waiting", [0, 2])
def test_a_failure_of_one_ends_all_with_its_words(meeting, index, fail, words, waiting, tmp_path,
                                                  monkeypatch):
    """One of the other replicas waits for a value. In the other one, an operation breaks."""
    monkeypatch.chdir(tmp_path)

    def work(group):
        if group.index == index:
            return fail(group)
        return group.barrier() if group.index == waiting else group.find_cause(OSError("Socket closed"))

    found = meeting(3).run(work)
    for error in found[:index] + found[index + 1:]:
        assert isinstance(error, ReplicaError) and error.about == index
        assert re.match(rf"replica {index} \(process .*{words}", str(error))
    assert not os.listdir(tmp_path)  # nothing was unpickled


def test_who_counts_otherwise_is_named_on_both_sides(meeting):
    run = meeting(2, timeout=0.2)
    first, second = run.run(lambda group: group.barrier(), [run.group(0), run.group(1, count=3)])
    assert ("belongs to a run of 3 replicas, but replica 0 to a run of 2. Pass the same "
            "--num_replicas") in str(second)
    assert "Not all 2 replicas connected within" in str(first) and str(first).endswith(str(second))


def test_another_run_is_refused(meeting):
    run = meeting(3)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        both = [pool.submit(run.group(index).meet) for index in (0, 1)]
        with pytest.raises(ReplicaError, match=r"cannot be reached .* \(another run, or another program, "
                           r"listens there\)"):
            run.group(2, key="bad0", timeout=0.3).meet()
        run.group(2).meet()  # the run goes on
        for one in both:
            one.result()


def test_of_two_replicas_with_one_number_one_is_refused(meeting):
    run = meeting(3)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        first = pool.submit(run.group(0).meet)
        alike = [pool.submit(run.group(1).meet) for _ in range(2)]
        refused, left = concurrent.futures.wait(alike, return_when="FIRST_COMPLETED")
        assert re.search(r"says that it is replica 1, but this number is already in use\. "
                         r"Another run probably uses the same address",
                         str(refused.pop().exception()))
        run.group(2).meet()
        for one in (first, *left):
            one.result()


# --- Unknown and silent connections, replicas that end before all have connected -------------------------


def test_strangers_and_silent_connections_hold_up_no_start(meeting):
    run = meeting(2)
    silent = [socket.create_connection(tuple(run.address)) for _ in range(100)]
    silent[0].sendall(b"GET / HTTP/1.0\r\n\r\n")
    begun = time.monotonic()
    assert run.run(lambda group: group.all_gather(group.index)) == [[0, 1]] * 2
    assert time.monotonic() - begun < replica_meeting._HANDSHAKE_SECONDS
    for connection in silent:
        connection.close()


def introduced(run, index):
    """Returns a connection that has introduced itself as a replica. A test closes it, as if its process had
    ended."""
    connection = mp_connection.Client(tuple(run.address), authkey=bytes.fromhex("c0ffee"))
    connection.send_bytes(value_encoding.encode({
        "index": index, "count": run.count, "process": 12345, "machine": "lost", "address": "lost:1"}))
    return connection


def test_a_replica_that_ends_while_others_are_awaited_is_replaced(meeting):
    run = meeting(3)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        groups = [run.group(0)]
        first = pool.submit(groups[0].meet)
        introduced(run, 1).close()
        groups += [run.group(1), run.group(2)]
        for one in [first, *(pool.submit(group.meet) for group in groups[1:])]:
            one.result()
    assert "lost" not in groups[0].name(1) and str(os.getpid()) in groups[2].name(1)


def test_a_replica_that_ended_while_others_are_awaited_counts_as_missing(meeting):
    run = meeting(3, timeout=0.4)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        chief = pool.submit(run.group(0).meet)
        introduced(run, 1).close()
        other = pool.submit(run.group(2).meet)
        assert "Not all 3 replicas connected within" in str(chief.exception())
        assert isinstance(other.exception(), ReplicaError)


# --- Where replica 0 listens -----------------------------------------------------------------------------


@pytest.mark.parametrize("host, address", [("127.0.0.1", "127.0.0.1"), ("127.0.0.3", "127.0.0.3"),
                                           ("localhost", "127.0.0.1")])
def test_replica_0_listens_at_its_own_address_only(host, address):
    with replica_meeting.listener(host, 0) as found:
        assert found.getsockname()[0] == address
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.9", found.getsockname()[1]), 5)


@pytest.mark.parametrize("resolved", ["192.0.2.1", "127.0.1.1", None])
def test_replica_0_listens_everywhere_where_its_address_is_of_another_machine(resolved, monkeypatch, caplog):
    """This happens behind a router that forwards the port, or with Debian's /etc/hosts. It is logged."""
    def resolve(host, port, **options):
        if resolved is None:
            raise socket.gaierror("Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (resolved, port))]

    monkeypatch.setattr(replica_meeting.socket, "getaddrinfo", resolve)
    with replica_meeting.listener("chief", 0) as found:
        assert found.getsockname()[0] == "0.0.0.0"
    message, = caplog.messages
    assert message.startswith("chief is not an address of this machine. ")
