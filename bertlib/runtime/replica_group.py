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
"""

import collections
import contextlib
import json
import logging as stdlib_logging
import multiprocessing
from multiprocessing import connection as mp_connection
import os
import pickle
import secrets
import shutil
import socket
import statistics
import struct
import threading
import time

from absl import logging

from bertlib.runtime import files

VARIABLE = "BERT_REPLICA"

# Parts of the timeout: silence after which a replica is given up, time for the others to end, and for one
# that has told them of its own error.
_SILENCE, _GRACE, _LAST_WORDS = 0.7, 0.15, 0.5
# Replicas may start at different times: so many timeouts.
_START = 5
_HANDSHAKE_SECONDS = 10
# A network file system may show a new file that late.
_SEEING_SECONDS = 30
# A replica is slow that takes so many times the others' time to compute, over that many seconds.
_SLOW, _SLOW_SECONDS = 3.0, 60.0

# Errors of the system that are there again at another try.
_REFUSALS = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)

_group = None


class ReplicaError(RuntimeError):
    """Another replica failed, so that this one ends. `about` is its index, or None."""

    def __init__(self, message, about=None):
        super().__init__(message)
        self.about = about


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
    this process writes nothing from then on; see `files.write_nothing`.

    Raises:
      ReplicaError: they did not all come, or one is there that does not belong to the run.
    """
    global _group
    _group = Group(json.loads(environment[VARIABLE]))
    if not _group.is_first:
        files.write_nothing()
    _group.meet()
    return _group


class _Peer:
    """The connection with another replica."""

    def __init__(self, index, connection, name):
        self.index, self.connection, self.name = index, connection, name
        self.inbox, self.heard, self.left = collections.deque(), time.monotonic(), False
        self._sending = threading.Lock()

    def send(self, message):
        """Sends a message, pickled; waits while another is sent."""
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
    return pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)


_BEAT = _message("beat")


class Group:
    """The replicas of a run, as one of them sees them.

    Attributes:
      index, count, local_index, local_count: see the module.
      addresses: "host:port" of each replica's TensorFlow server; a port that is kept free until
        `release_port`.
      gpu: which of the GPUs that this process sees it is to use; None for all.
      attempt: how often the run was started before.
      horovod: whether a script divides the work itself, by `horovod.tensorflow`.
      failure: the `ReplicaError` that the group ends with, or None; it is about the replica itself after
        `tell`.
    """

    def __init__(self, spec):
        """Takes what BERT_REPLICA says."""
        self.index, self.count = spec["index"], spec["count"]
        self.local_index, self.local_count = spec["local_index"], spec["local_count"]
        self.attempt = spec.get("attempt", 0)
        self.gpu = spec.get("gpu")
        self.horovod = False
        self.addresses, self.failure = [], None
        self._spec, self._timeout = spec, spec["timeout"]
        self._peers, self._names = {}, {}
        self._changed = threading.Condition()
        self._left = threading.Event()
        self._port, self._refused = None, ""

    @property
    def is_first(self):
        """Whether this is replica 0, which alone writes."""
        return self.index == 0

    def name(self, index):
        """Says in words which replica that is."""
        return self._names.get(index, f"replica {index}")

    # --- Meeting

    def meet(self):
        """Connects with the others; see `join`."""
        self._port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._port.bind(("", 0))
        hello = {"index": self.index, "count": self.count, "process": os.getpid(),
                 "host": self._spec["host"], "machine": socket.gethostname(),
                 "address": f"{self._spec['host']}:{self._port.getsockname()[1]}"}
        met = self._receive_all(hello) if self.is_first else self._visit(hello)
        self.addresses = [met[index]["address"] for index in range(self.count)]
        self._names = {index: f"replica {index} (process {found['process']} on {found['machine']})"
                       for index, found in met.items()}
        for peer in self._peers.values():
            peer.name = self.name(peer.index)
            _limit(peer.connection, receiving=0, sending=self._timeout * _SILENCE)
            threading.Thread(target=self._read, args=(peer,), name="replica", daemon=True).start()
        threading.Thread(target=self._watch, name="replicas", daemon=True).start()
        os.register_at_fork(after_in_child=self._close)

    def _receive_all(self, hello):
        """Replica 0: waits for the others; returns {index: what they said}."""
        listener = socket.socket(fileno=self._spec["listener"])
        listener.set_inheritable(False)
        met = {0: hello}
        start = said = time.monotonic()
        while len(met) < self.count:
            listener.settimeout(1)
            with contextlib.suppress(TimeoutError):
                found, _ = listener.accept()
                found.settimeout(None)
                self._greet(found, met)
            missing = ", ".join(str(index) for index in range(self.count) if index not in met)
            now = time.monotonic()
            if missing and now - start > _START * self._timeout:
                raise ReplicaError(
                    f"Of {self.count} replicas, {missing} did not come within {now - start:.0f} s "
                    f"(--replica_timeout={self._timeout:g}, times {_START}). Is the same command running on "
                    f"each machine, and can these reach {':'.join(map(str, self._spec['coordinator']))}?"
                    f"{self._refused}")
            self._check_launcher()
            if missing and now - said > 10:
                logging.info("Waiting for replica %s of %d.", missing, self.count)
                said = now
        welcome = _message("welcome", met)
        for peer in self._peers.values():
            peer.send(welcome)
        return met

    def _greet(self, found, met):
        """Takes one connection, if it is a replica's of this run."""
        connection = _wrapped(found)
        try:
            key = bytes.fromhex(self._spec["key"])
            mp_connection.deliver_challenge(connection, key)
            mp_connection.answer_challenge(connection, key)
            hello = connection.recv()
            wrong = self._refusal(hello, met)
            if wrong:
                connection.send_bytes(_message("refused", wrong))
                logging.warning("Refused a replica: %s", wrong)
                connection.close()
                self._refused = f" Refused was another: {wrong}"
                return
        except (OSError, EOFError, multiprocessing.AuthenticationError):
            connection.close()  # a stranger, or one that ended meanwhile
            return
        met[hello["index"]] = hello
        self._peers[hello["index"]] = _Peer(hello["index"], connection, f"replica {hello['index']}")

    def _refusal(self, hello, met):
        """Says why a replica does not belong to this run; None if it does."""
        index, place = hello["index"], f"process {hello['process']} on {hello['machine']}"
        if hello["count"] != self.count:
            return (f"{place} counts {hello['count']} replicas, replica 0 counts {self.count}. Pass the same "
                    "--num_replicas on each machine.")
        if not 0 < index < self.count or index in met:
            return (f"{place} is replica {index} like one that is there already. Another run uses the same "
                    "address: end it, or give this one another port.")
        return None

    def _visit(self, hello):
        """Another replica: meets replica 0; returns {index: what it said}."""
        address = tuple(self._spec["coordinator"])
        end, reason = time.monotonic() + _START * self._timeout, "no answer"
        while time.monotonic() < end:
            self._check_launcher()
            try:
                found = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
            except OSError as error:  # replica 0 is not there yet
                reason = str(error)
                time.sleep(0.2)
                continue
            found.settimeout(None)
            connection = _wrapped(found)
            try:
                key = bytes.fromhex(self._spec["key"])
                mp_connection.answer_challenge(connection, key)
                mp_connection.deliver_challenge(connection, key)
                connection.send(hello)
                _limit(connection, receiving=end - time.monotonic() + 1, sending=_HANDSHAKE_SECONDS)
                kind, value = connection.recv()
            except multiprocessing.AuthenticationError:
                reason = "another run, or another program, listens there"
            except (OSError, EOFError) as error:  # it ended, and another may begin
                reason = str(error) or "the connection was closed"
            else:
                if kind == "refused":
                    raise ReplicaError(value)
                self._peers[0] = _Peer(0, connection, "replica 0")
                return value
            connection.close()
            time.sleep(0.5)
        raise ReplicaError(f"Replica 0 cannot be reached at {address[0]}:{address[1]} ({reason}). Is the "
                           "same command running there, and is the port open?")

    def release_port(self):
        """Gives the port of this replica's server free, for the server to take it."""
        self._port.close()

    # --- Lockstep

    def all_gather(self, value):
        """Exchanges a value that can be pickled; all replicas have to call it. Returns a list with that of
        each replica.

        Raises:
          ReplicaError: another replica failed.
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
            raise self.explained(error) from error

    def barrier(self):
        """Waits until all replicas have come here."""
        self.all_gather(None)

    def any(self, flag):
        """Whether the flag is true in any replica."""
        return any(self.all_gather(bool(flag)))

    def from_first(self, value=None):
        """Returns the value of replica 0."""
        return self.all_gather(value if self.is_first else None)[0]

    def agree(self, values, remedy):
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

    def unseen(self, directory):
        """Returns the replicas that do not see what replica 0 writes into a directory: list of indices."""
        token = os.path.join(directory, f".seen-{self.from_first(secrets.token_hex(8))}")
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

    def explained(self, error):
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
        self._fail(f"The connection with other replicas broke: {words(error)}", None)
        return self.failure

    def tell(self, error):
        """Tells the others at once that this replica ends with an error of its own: they wait for it, and it
        may take long to clean up. The process is ended if it has not taken leave after half the timeout."""
        message = words(error)
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
                kind, value = pickle.loads(peer.connection.recv_bytes())
                peer.heard = time.monotonic()
                if kind == "failed":
                    return self._fail(*value)
                with self._changed:
                    if kind == "data":
                        peer.inbox.append(value)
                    elif kind == "left":
                        peer.left = True
                    self._changed.notify_all()
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


def _wrapped(found):
    """A connection of a socket; each of its operations takes a handshake's time at most."""
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = mp_connection.Connection(found.detach())
    _limit(connection, _HANDSHAKE_SECONDS, _HANDSHAKE_SECONDS)
    return connection


def _limit(connection, receiving, sending):
    """Sets seconds that operations of a connection may take; 0 for any time."""
    found = socket.socket(fileno=os.dup(connection.fileno()))
    for option, seconds in ((socket.SO_RCVTIMEO, receiving), (socket.SO_SNDTIMEO, sending)):
        found.setsockopt(socket.SOL_SOCKET, option,
                         struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    found.close()


def words(error):
    """Returns what an error says, in a line; TensorFlow's of an op begin with where the graph has it."""
    text = getattr(error, "message", None) or str(error)
    if text.startswith("Graph execution error"):
        text = text.rpartition("\nNode: ")[2].partition("\n")[2] or text
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
