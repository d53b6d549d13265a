"""Replicas: processes that train, evaluate or predict together, and what they tell each other. Loads no
TensorFlow.

Replica 0 is connected with each of the others. By these connections replicas meet (`join`), exchange small
values in lockstep (`Group.all_gather`), and notice when one is gone: a thread sends a sign of life every
second, whatever the main thread does. When one replica fails, all end, each with the reason. Gradients travel
otherwise: see `collectives`.

`replica_launcher` starts the processes; the environment variable BERT_REPLICA tells each what it is:

    index, count              of this replica, and of all
    local_index, local_count  the same on this machine
    host                      by which other machines reach this one
    coordinator               [host, port] where replica 0 is met
    listener                  descriptor of the socket that listens there; replica 0 only
    key                       what all replicas of a run, and nobody else, know; hexadecimal
    gpu                       which of the GPUs that it sees it is to use; None for all
    timeout                   seconds in which all have ended after one fell silent
    launcher                  process number of the launcher
    status                    file for the error that the process ends with; see `Group.leave`
    log                       file that stdout and stderr go to; None if it is the launcher's
    attempt                   how often the run was started before

Connections are authenticated by the key, and not encrypted: networks have to be trusted, as for TensorFlow's.
Messages are plain data, see `value_encoding`.
"""

import collections
import contextlib
import json
import logging as stdlib_logging
import os
import secrets
import shutil
import socket
import statistics
import threading
import time

from absl import logging

from bertlib.replicas import replica_meeting, value_encoding
from bertlib.replicas.replica_meeting import ReplicaError
from bertlib.system import files

VARIABLE = "BERT_REPLICA"

# Parts of the timeout: silence after which a replica is given up, time for the others to end, and for one
# that has told them of its own error.
_SILENCE, _GRACE, _LAST_WORDS = 0.7, 0.15, 0.5
# A network file system may show a new file that late.
_SEEING_SECONDS = 30
# A replica is slow that takes so many times the others' time to compute, over that many seconds.
_SLOW, _SLOW_SECONDS = 3.0, 60.0

# Errors of the system that are there again at another try.
_REFUSALS = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# Errors that say little without their kind.
_OF_CODE = ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError

_group = None


def may_pass(error):
    """Whether what a process ends with may be gone at another try: another replica's failure, too little
    memory, most errors of the system."""
    return isinstance(error, (ReplicaError, MemoryError)) or (
        isinstance(error, OSError) and not isinstance(error, _REFUSALS))


def is_replica(environment=os.environ):
    """Whether a launcher started this process as a replica."""
    return bool(environment.get(VARIABLE))


def current():
    """Returns the `Group` that this process has joined, or None."""
    return _group


def join(environment=os.environ):
    """Meets the other replicas of the run that BERT_REPLICA describes; returns the `Group`. But for replica 0
    this process writes nothing from then on; see `files.disable_writing`.

    Raises:
      ReplicaError: they did not all come, or one is there that does not belong to the run.
    """
    global _group
    _group = Group(json.loads(environment[VARIABLE]))
    if not _group.is_first:
        files.disable_writing()
    _group.meet()
    return _group


class _Peer:
    """The connection with another replica."""

    def __init__(self, index, connection, name):
        self.index, self.connection, self.name = index, connection, name
        self.inbox, self.heard, self.left = collections.deque(), time.monotonic(), False
        self._sending = threading.Lock()

    def send(self, message):
        """Sends an encoded message; waits while another is sent."""
        with self._sending:
            self.connection.send_bytes(message)

    def beat(self):
        """Sends a sign of life, unless something else is being sent."""
        if self._sending.acquire(blocking=False):
            try:
                self.connection.send_bytes(_BEAT)
            finally:
                self._sending.release()


def _message(kind, value=None):
    return value_encoding.encode((kind, value))


_BEAT = _message("beat")


class Group:
    """The replicas of a run, as one of them sees them.

    Attributes:
      index, count, local_index, local_count: see the module.
      addresses: "host:port" of each replica's TensorFlow server; a port that is kept free until
        `release_port`.
      gpu: which of the GPUs that this process sees it is to use; None for all.
      attempt: how often the run was started before.
      failure: the `ReplicaError` that the group ends with, or None; it is about the replica itself after
        `report_error`.
    """

    def __init__(self, spec):
        """Takes what BERT_REPLICA says."""
        self.index, self.count = spec["index"], spec["count"]
        self.local_index, self.local_count = spec["local_index"], spec["local_count"]
        self.attempt = spec.get("attempt", 0)
        self.gpu = spec.get("gpu")
        self.addresses, self.failure = [], None
        self._spec, self._timeout = spec, spec["timeout"]
        self._peers, self._names = {}, {}
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._port = None

    @property
    def is_first(self):
        """Whether this is replica 0, which alone writes."""
        return self.index == 0

    def name(self, index):
        """Returns a text that identifies a replica in messages."""
        return self._names.get(index, f"replica {index}")

    # --- Meeting

    def meet(self):
        """Connects with the others; see `join`."""
        host = self._spec["host"]
        self._port = replica_meeting.free_port(host)
        hello = {"index": self.index, "count": self.count, "process": os.getpid(),
                 "machine": socket.gethostname(),
                 "address": replica_meeting.address_text(host, self._port.getsockname()[1])}
        if self.is_first:
            met, connections = replica_meeting.receive(self._spec, hello, self._check_launcher)
        else:
            met, first = replica_meeting.visit(self._spec, hello, self._check_launcher)
            connections = {0: first}
        self.addresses = [met[index]["address"] for index in range(self.count)]
        self._names = {index: f"replica {index} (process {found['process']} on {found['machine']})"
                       for index, found in met.items()}
        self._peers = {index: _Peer(index, connection, self.name(index))
                       for index, connection in connections.items()}
        for peer in self._peers.values():
            replica_meeting.limit(peer.connection, receiving=0, sending=self._timeout * _SILENCE)
            threading.Thread(target=self._read, args=(peer,), name="replica", daemon=True).start()
        threading.Thread(target=self._watch, name="replicas", daemon=True).start()
        os.register_at_fork(after_in_child=self._close)

    def release_port(self):
        """Gives the port of this replica's server free, for the server to take it."""
        self._port.close()

    # --- Lockstep

    def all_gather(self, value):
        """Returns a list with the value of each replica. All replicas have to call this.

        The value is one that `value_encoding.encode` takes.

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
        except (OSError, ValueError) as error:  # a connection that is closed, or blocked
            raise self.find_cause(error) from error

    def barrier(self):
        """Waits until all replicas have called this."""
        self.all_gather(None)

    def any(self, flag):
        """Whether the flag is true in any replica."""
        return any(self.all_gather(bool(flag)))

    def broadcast(self, value=None):
        """Returns the value of replica 0."""
        return self.all_gather(value if self.is_first else None)[0]

    def check_equal(self, values, remedy):
        """Checks that replicas have the same values.

        Args:
          values: {name: str or number}.
          remedy: sentence that says what to do if they have not.

        Raises:
          ValueError: they have not; names what differs.
        """
        found = self.all_gather(values)
        differences = [
            f"{name} is {found[0].get(name)} in replica 0 and {other.get(name)} in {self.name(index)}"
            for index, other in enumerate(found) for name in sorted({*found[0], *other})
            if other.get(name) != found[0].get(name)]
        if differences:
            raise ValueError(f"Replicas differ: {'; '.join(differences)}. {remedy}")

    def replicas_not_seeing(self, directory):
        """Returns the replicas that do not see what replica 0 writes into a directory: list of indices."""
        token = os.path.join(directory, f".seen-{self.broadcast(secrets.token_hex(8))}")
        if self.is_first:
            files.write_text(token, "")
        self.barrier()
        end, seen = time.monotonic() + min(_SEEING_SECONDS, self._timeout), False
        while not seen and time.monotonic() < end:  # network file systems show new files late
            seen = files.exists(token)
            time.sleep(0 if seen else 0.2)
        found = self.all_gather(seen)
        if self.is_first:
            files.remove(token)
        return [index for index, sees in enumerate(found) if not sees]

    def _take(self, peer):
        """Waits for what a peer sends next."""
        with self._changed:
            while not peer.inbox:
                if self.failure:
                    raise self.failure
                if peer.left:
                    break
                self._changed.wait(1)
            else:
                return peer.inbox.popleft()
        self._fail(f"{peer.name} has ended before the others.", peer.index)
        raise self.failure

    # --- Failure

    def find_cause(self, error):
        """Returns the failure of another replica that made an operation with it fail, after some time to
        learn of it; a `ReplicaError` about the error if there is none."""
        end, left = time.monotonic() + self._timeout * _SILENCE, []
        with self._changed:
            while not self.failure and not self._left.is_set() and time.monotonic() < end:
                left = [peer for peer in self._peers.values() if peer.left]
                if left:
                    break
                self._changed.wait(0.2)
        if left:
            self._fail(f"{left[0].name} has ended before the others.", left[0].index)
        self._fail(f"The connection with other replicas broke: {message_of(error)}", None)
        return self.failure

    def report_error(self, error):
        """Reports to the others at once that this replica ends with an error of its own.

        They wait for this replica, and it may take long to clean up. The process is ended if it has not
        called `leave` after half the timeout.
        """
        message = message_of(error)
        text = f"{self.name(self.index)}: {message}"
        with self._changed:
            if self.failure or self._left.is_set():
                return
            self.failure = ReplicaError(text, self.index)
            self._changed.notify_all()
        said = _message("failed", (text, self.index))
        for peer in list(self._peers.values()):
            with contextlib.suppress(OSError, ValueError):
                peer.send(said)
        threading.Thread(target=self._end, args=(self._timeout * _LAST_WORDS, f"error: {message}", True),
                         name="end", daemon=True).start()

    def leave(self, message=None, code=1, own=False):
        """Takes leave of the others at the process's end.

        Args:
          message: the error that it ends with; None if there is none.
          code: its exit code.
          own: whether the error is this replica's own even if another one has failed, too.
        """
        if self._left.is_set():
            return
        own = message is not None and (own or not self.failure or self.failure.about == self.index)
        # Of a failure that is about none, the others may not know.
        tells = own or message is not None and self.failure.about is None
        if message is not None:
            self._write_status(message, code, own)
        self._left.set()
        said = _message("failed", (f"{self.name(self.index)}: {message}", self.index)) if tells else _message(
            "left")
        for peer in list(self._peers.values()):
            with contextlib.suppress(OSError, ValueError):
                peer.send(said)

    def _write_status(self, message, code, own):
        if not self._spec.get("status"):
            return
        about = self.index if own else self.failure.about
        with contextlib.suppress(OSError), open(self._spec["status"], "w", encoding="utf-8") as writer:
            json.dump({"message": message, "code": code, "own": own, "about": about}, writer)

    def _read(self, peer):
        """A thread: takes what a peer sends."""
        try:
            while True:
                kind, value = value_encoding.decode(peer.connection.recv_bytes())
                peer.heard = time.monotonic()
                if kind == "failed":
                    return self._fail(*value)
                with self._changed:
                    if kind == "data":
                        peer.inbox.append(value)
                    elif kind == "left":
                        peer.left = True
                    self._changed.notify_all()
        except ValueError as error:
            self._fail(f"{peer.name} sent something that is no message of this version: {error}.", peer.index)
        except (EOFError, OSError, TypeError):  # a TypeError of a connection that is closed meanwhile
            if not peer.left and not self._left.is_set():
                self._fail(f"{peer.name} has ended, or was cut off, without a word.", peer.index)

    def _watch(self):
        """A thread: gives signs of life, and looks for those of the others."""
        silence = self._timeout * _SILENCE
        seen = time.monotonic()
        while not self._left.wait(min(1.0, silence / 10)):
            now, before = time.monotonic(), seen
            seen = now
            for peer in list(self._peers.values()):
                with contextlib.suppress(OSError):
                    peer.beat()
                # After a stop of this process itself, what the others sent meanwhile is to be read first.
                awake = now - before < silence / 2
                if awake and not peer.left and now - peer.heard > silence:
                    self._fail(f"{peer.name} gave no sign of life for {now - peer.heard:.0f} s "
                               f"(--replica_timeout={self._timeout:g}): it is stopped, or cannot be reached.",
                               peer.index)
            if not self.failure and self._launcher_is_gone():
                self._fail("the process that started this replica has ended.", None)

    def _launcher_is_gone(self):
        return self._spec.get("launcher") and os.getppid() != self._spec["launcher"]

    def _check_launcher(self):
        if self._launcher_is_gone():
            raise ReplicaError("The process that started this replica has ended.")

    def _fail(self, message, about):
        """Notes the first failure, and passes it on."""
        with self._changed:
            if self.failure:
                return
            self.failure = ReplicaError(message, about)
            self._changed.notify_all()
        if self.is_first:
            for peer in list(self._peers.values()):
                if peer.index != about:
                    with contextlib.suppress(OSError, ValueError):
                        peer.send(_message("failed", (message, about)))
        threading.Thread(target=self._end, args=(self._timeout * _GRACE, message, False), name="end",
                         daemon=True).start()

    def _end(self, seconds, message, own):
        """A thread: ends the process if the main thread does not; it may wait for a collective for ever."""
        if not self._left.wait(seconds):
            self._write_status(message, 1, own)
            logging.error("%s", message)
            stdlib_logging.shutdown()
            os._exit(1)

    def _close(self):
        """In a forked child: closes what it inherited, so that the others see this process's end."""
        global _group
        _group = None
        self._left.set()
        for peer in self._peers.values():
            peer.connection.close()

    # --- Log

    def keep_log(self, directory):
        """Moves this replica's log to <directory>/replicas/<index>.log; replica 0 has none of its own."""
        if not self._spec.get("log"):
            return
        folder = os.path.join(directory, "replicas")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self.index}.log")
        with open(path, "ab") as log:
            with open(self._spec["log"], "rb") as before:
                shutil.copyfileobj(before, log)
            log.flush()
            for number in (1, 2):
                os.dup2(log.fileno(), number)
        with contextlib.suppress(OSError):
            os.remove(self._spec["log"])
        self._spec["log"] = None


def message_of(error):
    """Returns what an error says, in a line; TensorFlow's of an op begin with where the graph has it."""
    text = getattr(error, "message", None) or str(error)
    if text.startswith("Graph execution error"):
        text = text.rpartition("\nNode: ")[2].partition("\n")[2] or text
    if isinstance(error, _OF_CODE):
        text = f"{type(error).__name__}: {text}"
    return text.partition("\n")[0].rstrip(".") + "."


class Pace:
    """Finds replicas that are far slower than the others, whatever the reason."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._begin()

    def _begin(self):
        self._since, self._steps = self._clock(), []

    def slow(self, seconds):
        """Takes how long each replica computed in a step; returns, once a minute, [(index, how many times the
        others' time it took)] of slow ones."""
        self._steps.append(seconds)
        if self._clock() - self._since < _SLOW_SECONDS:
            return []
        totals = [sum(column) for column in zip(*self._steps)]
        self._begin()
        found = []
        for index, total in enumerate(totals):
            others = statistics.median(totals[:index] + totals[index + 1:])
            if total > _SLOW * others > 0:
                found.append((index, total / others))
        return found
