"""Connects replicas (processes that train, evaluate or predict together), and passes messages between them.

This module does not import TensorFlow.

Replica 0 has a connection to every other replica. The replicas use these connections to wait for each other
at the start (`join`), to exchange small values (`Group.all_gather`), and to detect failures. A thread sends a
heartbeat every second, even while the main thread is busy. When one replica fails, all replicas end, and
their messages contain the reason. Gradients are exchanged over other connections; see `collectives`.

`replica_launcher` starts the processes. The environment variable BERT_REPLICA describes a replica by a JSON
object:

    index, count              index of this replica, number of all replicas
    local_index, local_count  index of this replica on this machine, number of replicas on this machine
    host                      host name by which other machines reach this machine
    coordinator               [host, port] at which replica 0 listens; if all replicas are on one machine,
                              the path of its Unix socket
    listener                  descriptor of the socket that listens at `coordinator`; replica 0 only
    key                       secret key that only the replicas of a run know; hexadecimal
    timeout                   if a replica becomes silent, all replicas end within this number of seconds
    launcher                  process ID of the launcher
    log                       file for stdout and stderr; None to use those of the launcher
    attempt                   number of earlier starts of the run

The connections are authenticated by the key, but they are not encrypted. So the network must be trusted.
TensorFlow's connections also require a trusted network. Messages are plain data, see `value_encoding`.
"""

import collections
import contextlib
import json
import logging as stdlib_logging
import os
import secrets
import shutil
import socket
import threading
import time

from absl import logging

from bertlib.system import child_processes, files, replica_meeting, terminal, value_encoding
from bertlib.system.child_processes import Outcome
from bertlib.system.replica_meeting import ReplicaError

VARIABLE = "BERT_REPLICA"

# Fractions of the timeout. `_SILENCE`: a replica that sends no message for this time counts as lost.
# `_GRACE`: a replica must end within this time after it has learned of a failure. `_LAST_WORDS`: a replica
# must end within this time after it has reported its own error.
_SILENCE, _GRACE, _LAST_WORDS = 0.7, 0.15, 0.5
# Seconds within which a new file must become visible on other machines. Network file systems can be slow.
_SEEING_SECONDS = 30

# Errors of the operating system that would occur again if the run were restarted.
_REFUSALS = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# Error classes whose messages are hard to understand without the name of the class.
_OF_CODE = ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError

_group = None


def kind_of(error):
    """Returns the field `outcome` of the `Outcome` of a process that ends with an error.

    It is "failed" after a failure of another replica, after a lack of memory, and after most errors of the
    operating system: the run may succeed if it is started again. It is "refused" after all other errors.
    """
    passes = isinstance(error, (ReplicaError, MemoryError)) or (
        isinstance(error, OSError) and not isinstance(error, _REFUSALS))
    return "failed" if passes else "refused"


def is_replica(environment=os.environ):
    """Returns whether a launcher started this process as a replica."""
    return bool(environment.get(VARIABLE))


def current():
    """Returns the `Group` that this process has joined, or None."""
    return _group


def is_first():
    """Returns whether this process writes the files of the run: it is replica 0, or has joined no group."""
    return _group is None or _group.is_first


def join(environment=os.environ):
    """Connects to the other replicas of the run that BERT_REPLICA describes; returns the `Group`.

    Raises:
      ReplicaError: a replica did not connect in time, or replica 0 refused this replica.
    """
    global _group
    _group = Group(json.loads(environment[VARIABLE]))
    _group.meet()
    return _group


class _Peer:
    """A connection with another replica.

    Attributes:
      index: index of the other replica.
      connection: the multiprocessing.connection.Connection.
      name: name of the other replica in messages.
      inbox: values that were received and not read yet.
      heard: time of the last message, in seconds of the monotonic clock.
      has_left: whether the other replica has announced its end.
    """

    def __init__(self, index, connection, name):
        self.index, self.connection, self.name = index, connection, name
        self.inbox, self.heard, self.has_left = collections.deque(), time.monotonic(), False
        self._sending = threading.Lock()

    def send(self, message):
        """Sends an encoded message. Waits while another thread is sending a message."""
        with self._sending:
            self.connection.send_bytes(message)

    def beat(self):
        """Sends a heartbeat, unless another message is being sent."""
        if self._sending.acquire(blocking=False):
            try:
                self.connection.send_bytes(_message("beat"))
            finally:
                self._sending.release()


def _message(kind, value=None):
    return value_encoding.encode((kind, value))


class Group:
    """The replicas of a run, and the connections of this replica with the other replicas.

    Attributes:
      index, count, local_index, local_count, attempt: see the fields of BERT_REPLICA in the module's
        docstring.
      addresses: "host:port" of each replica's TensorFlow server. This replica's port is reserved until
        `release_port`.
      failure: the `ReplicaError` with which the group ends, or None. After `report_error`, the `ReplicaError`
        describes the failure of this replica.
    """

    def __init__(self, spec):
        """Stores `spec`, the dict in BERT_REPLICA that describes this replica."""
        self.index, self.count = spec["index"], spec["count"]
        self.local_index, self.local_count = spec["local_index"], spec["local_count"]
        self.attempt = spec.get("attempt", 0)
        self.addresses, self.failure = [], None
        self._spec, self._timeout = spec, spec["timeout"]
        self._peers, self._names = {}, {}
        self._condition = threading.Condition()
        self._has_left = threading.Event()
        self._port = None

    @property
    def is_first(self):
        """Returns whether this is replica 0, the only replica that writes files."""
        return self.index == 0

    def name(self, index):
        """Returns a text that identifies a replica in messages."""
        return self._names.get(index, f"replica {index}")

    # --- Meeting

    def meet(self):
        """Connects to the other replicas; see `join`."""
        host = self._spec["host"]
        self._port = replica_meeting.free_port(host)
        hello = {"index": self.index, "count": self.count, "process": os.getpid(),
                 "machine": socket.gethostname(),
                 "address": replica_meeting.address_text(host, self._port.getsockname()[1])}
        if self.is_first:
            hellos, connections = replica_meeting.receive(self._spec, hello, self._check_launcher)
        else:
            hellos, first = replica_meeting.visit(self._spec, hello, self._check_launcher)
            connections = {0: first}
        self.addresses = [hellos[index]["address"] for index in range(self.count)]
        self._names = {index: f"replica {index} (process {other['process']} on {other['machine']})"
                       for index, other in hellos.items()}
        self._peers = {index: _Peer(index, connection, self.name(index))
                       for index, connection in connections.items()}
        for peer in self._peers.values():
            replica_meeting.limit(peer.connection, receiving=0, sending=self._timeout * _SILENCE)
            threading.Thread(target=self._read, args=(peer,), name="replica", daemon=True).start()
        threading.Thread(target=self._watch, name="replicas", daemon=True).start()
        os.register_at_fork(after_in_child=self._close)

    def release_port(self):
        """Closes the socket that reserves the port of this replica's server. The server can then use the
        port."""
        self._port.close()

    # --- Lockstep

    def all_gather(self, value):
        """Returns a list with the value of each replica. All replicas must call this method.

        Args:
          value: a value for `value_encoding.encode`.

        Raises:
          ReplicaError: another replica failed.
          TypeError: the value cannot be exchanged.
        """
        try:
            if self.is_first:
                values = [value, *(self._take(self._peers[index]) for index in range(1, self.count))]
                message = _message("data", values)
                for peer in self._peers.values():
                    peer.send(message)
                return values
            self._peers[0].send(_message("data", value))
            return self._take(self._peers[0])
        except (OSError, ValueError) as error:  # the connection is closed or blocked
            raise self.find_cause(error) from error

    def barrier(self):
        """Waits until all replicas have called this method."""
        self.all_gather(None)

    def broadcast(self, value=None):
        """Returns the value of replica 0. All replicas must call this method."""
        return self.all_gather(value if self.is_first else None)[0]

    def check_equal(self, values, remedy):
        """Checks that all replicas have the same values. All replicas must call this method.

        Args:
          values: {name: str or number}.
          remedy: a sentence for the error message that says what to do.

        Raises:
          ValueError: the values differ. The message names the differences.
        """
        values_of_replicas = self.all_gather(values)
        first = values_of_replicas[0]
        differences = [
            f"{name} is {first.get(name)} in replica 0 and {other.get(name)} in {self.name(index)}"
            for index, other in enumerate(values_of_replicas) for name in sorted({*first, *other})
            if other.get(name) != first.get(name)]
        if differences:
            raise ValueError(f"The replicas have different values: {'; '.join(differences)}. {remedy}")

    def replicas_not_seeing(self, directory):
        """Replica 0 writes a file into a directory. Returns the indices of the replicas that cannot find this
        file.

        All replicas must call this method. The list is empty if all of them share the directory.
        """
        token = os.path.join(directory, f".seen-{self.broadcast(secrets.token_hex(8))}")
        if self.is_first:
            files.write_text(token, "")
        self.barrier()
        end, is_seen = time.monotonic() + min(_SEEING_SECONDS, self._timeout), False
        # On a network file system, other machines may see a new file only after some seconds.
        while not is_seen and time.monotonic() < end:
            is_seen = files.exists(token)
            time.sleep(0 if is_seen else 0.2)
        all_seen = self.all_gather(is_seen)
        if self.is_first:
            files.remove(token)
        return [index for index, sees in enumerate(all_seen) if not sees]

    def _take(self, peer):
        """Waits for the next value from a peer; returns this value."""
        with self._condition:
            while not peer.inbox:
                if self.failure:
                    raise self.failure
                if peer.has_left:
                    break
                self._condition.wait(1)
            else:
                return peer.inbox.popleft()
        self._fail(f"{peer.name} has ended before the other replicas.", peer.index)
        raise self.failure

    # --- Failure

    def find_cause(self, error):
        """Returns a `ReplicaError` that names the cause of an error.

        Call this method if an operation with another replica fails. The message about the cause may arrive
        later than the error, so the method waits for this message. If no such message arrives, the returned
        `ReplicaError` quotes the error.
        """
        end, ended_peers = time.monotonic() + self._timeout * _SILENCE, []
        with self._condition:
            while not self.failure and not self._has_left.is_set() and time.monotonic() < end:
                ended_peers = [peer for peer in self._peers.values() if peer.has_left]
                if ended_peers:
                    break
                self._condition.wait(0.2)
        if ended_peers:
            self._fail(f"{ended_peers[0].name} has ended before the other replicas.", ended_peers[0].index)
        self._fail(f"The connection with other replicas broke: {message_of(error)}", None)
        return self.failure

    def report_error(self, error):
        """Reports to the other replicas that this replica ends with an error.

        Call this method before this process cleans up. The cleanup may take a long time, and the other
        replicas would wait for this replica. If this process does not call `leave` within half of the
        timeout, a thread ends the process.
        """
        outcome = Outcome(kind_of(error), 1, message_of(error), replica=self.index)
        if not self._has_left.is_set():
            self._fail(f"{self.name(self.index)}: {outcome.message}", self.index, _LAST_WORDS, outcome)

    def leave(self, outcome=None):
        """Announces the end of this process to the other replicas, and reports its outcome.

        Args:
          outcome: the `child_processes.Outcome` of the process; None if there was no error. If its field
            `replica` is None, this replica counts as the cause only if no failure of another replica is
            known.
        """
        about = self.failure.about if self.failure else self.index
        if outcome is not None:
            about = about if outcome.replica is None else outcome.replica
            child_processes.report(outcome._replace(replica=about))
        if self._has_left.is_set():
            return
        self._has_left.set()
        # If `about` is None, the known failure names no replica. The other replicas may not know about such a
        # failure, so this replica reports it to them.
        if outcome is not None and about in (self.index, None):
            self._send_to_all("failed", (f"{self.name(self.index)}: {outcome.line}", self.index))
        else:
            self._send_to_all("left")

    def _send_to_all(self, kind, value=None, except_for=None):
        """Sends a message to all other replicas, except for the replica with the index `except_for`. Ignores
        errors of the connections."""
        message = _message(kind, value)
        for peer in list(self._peers.values()):
            if peer.index != except_for:
                with contextlib.suppress(OSError, ValueError):
                    peer.send(message)

    def _read(self, peer):
        """Receives the messages of a peer. Runs in a thread."""
        try:
            while True:
                kind, value = value_encoding.decode(peer.connection.recv_bytes())
                peer.heard = time.monotonic()
                if kind == "failed":
                    return self._fail(*value)
                with self._condition:
                    if kind == "data":
                        peer.inbox.append(value)
                    elif kind == "left":
                        peer.has_left = True
                    self._condition.notify_all()
        except ValueError as error:
            self._fail(f"{peer.name} sent a message that this version of the program cannot read: "
                       f"{error}.", peer.index)
        except (EOFError, OSError, TypeError):  # TypeError: the connection was closed during the call
            if not peer.has_left and not self._has_left.is_set():
                self._fail(f"{peer.name} has ended or lost its connection without a message.", peer.index)

    def _watch(self):
        """Sends heartbeats, and checks the heartbeats of the other replicas. Runs in a thread."""
        silence = self._timeout * _SILENCE
        last_turn = time.monotonic()
        while not self._has_left.wait(min(1.0, silence / 10)):
            now, before = time.monotonic(), last_turn
            last_turn = now
            for peer in list(self._peers.values()):
                with contextlib.suppress(OSError):
                    peer.beat()
                # If this process itself was stopped (for example by SIGSTOP), messages of the other replicas
                # arrived during the stop, but have not been read yet. So the time since the last message that
                # was read does not show whether a replica is silent.
                awake = now - before < silence / 2
                if awake and not peer.has_left and now - peer.heard > silence:
                    self._fail(f"{peer.name} sent no message for {now - peer.heard:.0f} s "
                               f"(--replica_timeout={self._timeout:g}), so this replica is stopped or cannot "
                               "be reached.",
                               peer.index)
            if not self.failure and self._launcher_is_gone():
                self._fail("the process that started this replica has ended.", None)

    def _launcher_is_gone(self):
        return self._spec.get("launcher") and os.getppid() != self._spec["launcher"]

    def _check_launcher(self):
        if self._launcher_is_gone():
            raise ReplicaError("The process that started this replica has ended.")

    def _fail(self, message, about, patience=_GRACE, outcome=None):
        """Stores a failure. Does nothing if an earlier failure is already stored.

        Replica 0 and the replica that failed also report the failure to the other replicas. If this process
        does not call `leave` within `patience`, a fraction of the timeout, `_end` ends the process with the
        given outcome.
        """
        with self._condition:
            if self.failure:
                return
            self.failure = ReplicaError(message, about)
            self._condition.notify_all()
        if self.is_first or about == self.index:
            self._send_to_all("failed", (message, about), except_for=about)
        outcome = outcome or Outcome("failed", 1, message, replica=about)
        threading.Thread(target=self._end, args=(self._timeout * patience, outcome), name="end",
                         daemon=True).start()

    def _end(self, seconds, outcome):
        """Ends the process if the main thread does not end within `seconds`. Runs in a thread.

        This is necessary because the main thread may wait forever for a collective op.
        """
        if not self._has_left.wait(seconds):
            child_processes.report(outcome)
            logging.error("%s", outcome.message)
            stdlib_logging.shutdown()
            os._exit(1)

    def _close(self):
        """Closes inherited connections in a forked child process. If the child kept them open, the other
        replicas would not notice the end of the parent process."""
        global _group
        _group = None
        self._has_left.set()
        for peer in self._peers.values():
            peer.connection.close()

    # --- Log

    def keep_log(self, directory):
        """Moves this replica's log to <directory>/replicas/<index>.log. A link at the old path leads the
        launcher to the log. Does nothing in replica 0, which has no separate log."""
        if not self._spec.get("log"):
            return
        folder = os.path.join(directory, "replicas")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self.index}.log")
        with open(path, "ab") as log:
            with open(self._spec["log"], "rb") as old_log:
                shutil.copyfileobj(old_log, log)
            log.flush()
            for number in (1, 2):
                os.dup2(log.fileno(), number)
        with contextlib.suppress(OSError):
            os.remove(self._spec["log"])
            os.symlink(os.path.abspath(path), self._spec["log"])
        self._spec["log"] = None


def message_of(error):
    """Returns the message of an error as one line."""
    name = f"{type(error).__name__}: " if isinstance(error, _OF_CODE) else ""
    return f"{name}{terminal.first_line(error)}".rstrip(".") + "."
