"""Connects the replicas of a run: replica 0 listens at the address of the run, and the other replicas connect
to it.

This module does not import TensorFlow.

Replica 0 and the connecting replica prove to each other that they know the key of the run, without sending
the key. Then the connecting replica sends its description, which is called the *hello*, and waits for the
answer of replica 0. The answer contains the descriptions of all replicas, or the reason why replica 0 refuses
the connecting replica.

Replica 0 runs each handshake in a separate thread, with a limit of a few seconds. A silent or slow connection
therefore does not block other connections. If a replica ends while replica 0 still waits for other replicas,
replica 0 removes the ended replica from its list, and a new replica can replace the ended replica.
"""

import contextlib
import hmac
import multiprocessing
from multiprocessing import connection as mp_connection
import os
import queue
import secrets
import socket
import struct
import threading
import time

from absl import logging

from bertlib.replicas import value_encoding

# How long replicas wait for each other at their start, as a multiple of the timeout.
START_TIMEOUTS = 5
# Largest number of seconds that a handshake may take.
_HANDSHAKE_SECONDS = 10
_POLL_SECONDS = 0.05
# Largest number of handshakes at the same time. If more connections arrive, the oldest handshake is ended. A
# replica needs only milliseconds for a handshake, so the oldest handshake probably does not belong to a
# replica.
_MOST_GREETED = 64
# The kernel sends one probe a second to the machine of a waiting replica. After this number of probes without
# an answer, the machine counts as lost.
_PROBES = 10
# `_GREETING`: first bytes of a handshake. `_NONCE_BYTES`: length of the random number in a handshake.
# `_MOST_HELLO_BYTES`: largest length of a hello.
_GREETING, _NONCE_BYTES, _MOST_HELLO_BYTES = b"BERT replicas 1\n", 32, 2**16
# A replica describes itself to replica 0 by a dict, the hello. {key of a hello: type of its value}.
_HELLO = {"index": int, "count": int, "process": int, "machine": str, "address": str}


class ReplicaError(RuntimeError):
    """Another replica failed, so this replica must end. `about`: the index of the failed replica, or None."""

    def __init__(self, message, about=None):
        super().__init__(message)
        self.about = about


class _Visit:
    """A connection to a process that is not authenticated yet. This process may be a program that is no
    replica.

    Attributes:
      socket: the socket.
      connection: the multiprocessing.connection.Connection over the same socket.
      end: time at which the handshake must be complete, in seconds of the monotonic clock.
    """

    def __init__(self, connected, seconds):
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.connection = connected, mp_connection.Connection(os.dup(connected.fileno()))
        self.end = time.monotonic() + seconds

    def close(self):
        """Closes the connection."""
        self.socket.close()
        self.connection.close()

    def cut(self):
        """Shuts the connection down. Operations that wait for data from the other process then fail."""
        with contextlib.suppress(OSError):  # the other side has already closed the connection
            self.socket.shutdown(socket.SHUT_RDWR)

    def prove(self, key, is_first):
        """Proves to the other side that this side knows the key, and checks the proof of the other side.

        Args:
          key: bytes.
          is_first: whether this side is replica 0.

        Raises:
          OSError, EOFError: the connection broke.
          multiprocessing.AuthenticationError: the other side does not know the key.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self.connection.send_bytes(_GREETING + nonce)
        greeting = self.connection.recv_bytes(len(_GREETING) + _NONCE_BYTES)
        if not greeting.startswith(_GREETING) or len(greeting) != len(_GREETING) + _NONCE_BYTES:
            raise multiprocessing.AuthenticationError
        nonces = nonce, greeting[len(_GREETING):]
        proofs = [hmac.new(key, role + b"".join(nonces if is_first else nonces[::-1]), "sha256").digest()
                  for role in (b"replica 0", b"another")]
        # Replica 0 sends its proof only after the other process has proved that it knows the key. Otherwise,
        # an unknown program could get the proof of replica 0, and could use it to guess the key.
        if not is_first:
            self.connection.send_bytes(proofs[1])
        try:
            proof = self.connection.recv_bytes(len(proofs[0]))
        except EOFError:
            raise multiprocessing.AuthenticationError from None
        if not hmac.compare_digest(proof, proofs[is_first]):
            raise multiprocessing.AuthenticationError
        if is_first:
            self.connection.send_bytes(proofs[0])

    def watch(self):
        """Turns on TCP keepalive: the kernel regularly checks whether the machine of the other replica still
        answers. So `is_gone` also notices if that machine fails."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", _PROBES)):
            if hasattr(socket, name):
                self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def unwatch(self):
        """Ends the probes of `watch`. They are no longer needed, because the replicas now send heartbeats."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)

    def is_gone(self):
        """Returns at once whether the process at the other end of the connection has ended.

        Call this method only while that process is waiting for a message. A waiting process sends nothing, so
        a socket that can be read means that the process has ended.
        """
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the other machine did not answer the probes that `watch` had started
        return True


# --- Replica 0 -------------------------------------------------------------------------------------------


def receive(spec, hello, check):
    """Waits, as replica 0, for the connections of the other replicas.

    Args:
      spec: the content of BERT_REPLICA, a dict; see `replica_group`.
      hello: description of replica 0, a dict with the keys of `_HELLO`.
      check: function that is called repeatedly during the wait, and may raise an error.

    Returns:
      ({index of a replica: its hello}, {index: connection}).

    Raises:
      ReplicaError: not all replicas connected in time.
    """
    reception = _Reception(spec, hello)
    try:
        reception.wait(check)
        return reception.welcome()
    finally:
        reception.close()


class _Reception:
    """The state of replica 0 while replica 0 waits for the other replicas."""

    def __init__(self, spec, hello):
        self._spec, self._key, self._count = spec, bytes.fromhex(spec["key"]), spec["count"]
        self._met, self._visits, self._refused = {0: hello}, {}, ""
        self._greeted, self._lock, self._closed = [], threading.Lock(), False
        self._arrived = queue.SimpleQueue()
        self._listener = socket.socket(fileno=spec["listener"])
        self._listener.set_inheritable(False)
        self._listener.settimeout(0)

    def wait(self, check):
        """Waits until all replicas are connected. For `check` and the errors, see `receive`."""
        start = logged = time.monotonic()
        while len(self._met) < self._count:
            self._accept()
            for index in list(self._visits):
                self._look_at(index)
            with contextlib.suppress(queue.Empty):
                self._admit(*self._arrived.get(timeout=_POLL_SECONDS))
            now = time.monotonic()
            self._cut_slow(now)
            missing = ", ".join(str(index) for index in range(self._count) if index not in self._met)
            if missing and now - start > START_TIMEOUTS * self._spec["timeout"]:
                raise ReplicaError(self._in_vain(missing, now - start))
            check()
            if missing and now - logged > 10:
                logging.info("Waiting for replica %s of %d.", missing, self._count)
                logged = now

    def _in_vain(self, missing, seconds):
        return (f"Not all {self._count} replicas connected within {seconds:.0f} s. Missing: {missing}. "
                f"(The limit is {START_TIMEOUTS} times --replica_timeout={self._spec['timeout']:g}.) Check "
                "that the same command runs on each machine, and that each machine can reach "
                f"{address_text(*self._spec['coordinator'])}.{self._refused}")

    def _accept(self):
        """Accepts all waiting connections, and starts the handshake of each connection in a thread."""
        for _ in range(_MOST_GREETED):
            try:
                connected, _ = self._listener.accept()
            except OSError:  # no connection waits, or the waiting connection was closed
                return
            visit = _Visit(connected, _HANDSHAKE_SECONDS)
            self._greeted = [other for other in self._greeted if other.socket.fileno() >= 0] + [visit]
            if len(self._greeted) > _MOST_GREETED:
                self._greeted[0].end = 0.0
            threading.Thread(target=self._greet, args=(visit,), name="greet", daemon=True).start()

    def _cut_slow(self, now):
        """Shuts down the connections of handshakes that take too long. The threads of these handshakes then
        close the connections."""
        for visit in self._greeted:
            if visit.end < now:
                visit.cut()
        self._greeted = [visit for visit in self._greeted if visit.end >= now]

    def _greet(self, visit):
        """Makes the handshake of a connection, and receives the hello, which is the first message of a
        replica. This method runs in a separate thread for each connection."""
        try:
            visit.prove(self._key, True)
            hello = value_encoding.decode(visit.connection.recv_bytes(_MOST_HELLO_BYTES))
            if not isinstance(hello, dict) or any(
                    type(hello.get(name)) is not kind for name, kind in _HELLO.items()):
                raise ValueError("the first message does not identify the replica")
        except (OSError, EOFError, ValueError, multiprocessing.AuthenticationError):
            visit.close()  # the other process is no replica of this run, or it has ended
            return
        with self._lock:
            if self._closed:
                visit.close()
            else:
                self._arrived.put((visit, hello))

    def _admit(self, visit, hello):
        """Adds a replica to the connected replicas, or refuses the replica."""
        if visit in self._greeted:
            self._greeted.remove(visit)
        if hello["index"] in self._visits:
            # Remove the connected replica with this index if it has ended. Then the new replica can
            # replace it.
            self._look_at(hello["index"])
        reason = self._refusal(hello)
        if reason:
            logging.warning("Refused a replica: %s", reason)
            self._refused = f" Another replica was refused: {reason}"
            _send(visit, ("refused", reason))
            visit.close()
            return
        visit.watch()
        self._met[hello["index"]], self._visits[hello["index"]] = hello, visit

    def _refusal(self, hello):
        """Returns the reason why a replica does not belong to this run; None if the replica belongs to this
        run."""
        index, place = hello["index"], f"process {hello['process']} on {hello['machine']}"
        if hello["count"] != self._count:
            return (f"{place} belongs to a run of {hello['count']} replicas, but replica 0 to a run of "
                    f"{self._count}. Pass the same --num_replicas on each machine.")
        if not 0 < index < self._count or index in self._met:
            return (f"{place} says that it is replica {index}, but this number is invalid or already "
                    "in use. Another run probably uses the same address: end that run, or name another "
                    "port for this run.")
        return None

    def _look_at(self, index):
        """Removes a connected replica if it has ended, so that a new replica can replace it."""
        visit, hello = self._visits[index], self._met[index]
        if visit.is_gone():
            visit.close()
            del self._visits[index], self._met[index]
            logging.warning("Replica %d (process %d on %s) ended before all replicas were connected. Waiting "
                            "for a new replica with this number.", index, hello["process"], hello["machine"])

    def welcome(self):
        """Sends the descriptions of all replicas (their hellos) to each replica. Returns the result of
        `receive`.

        If a replica ends after this call, `replica_group` notices the end.
        """
        for visit in self._visits.values():
            _send(visit, ("welcome", self._met))
            visit.unwatch()
            visit.socket.close()  # visit.connection stays open, because it has a separate descriptor
        visits, self._visits = self._visits, {}
        return self._met, {index: visit.connection for index, visit in visits.items()}

    def close(self):
        """Closes the connections that `welcome` did not return, and the listening socket of this process. The
        launcher still has the same socket open, and uses it for a restart."""
        with self._lock:
            self._closed = True
            while not self._arrived.empty():
                self._arrived.get()[0].close()
        for visit in self._greeted:
            visit.cut()
        for visit in self._visits.values():
            visit.close()
        self._listener.close()


def _send(visit, message):
    """Sends a message, and ignores errors. If an accepted replica has ended, `replica_group` notices this
    later. The end of a refused replica does not matter."""
    with contextlib.suppress(OSError):
        visit.connection.send_bytes(value_encoding.encode(message))


# --- Another replica -------------------------------------------------------------------------------------


def visit(spec, hello, check):
    """Connects this replica, which is not replica 0, to replica 0.

    Args:
      spec, check: see `receive`.
      hello: description of this replica, see `receive`.

    Returns:
      ({index of a replica: its hello}, connection with replica 0).

    Raises:
      ReplicaError: replica 0 cannot be reached in time, or refuses this replica.
    """
    address = tuple(spec["coordinator"])
    end, reason = time.monotonic() + START_TIMEOUTS * spec["timeout"], "no answer"
    while (left := end - time.monotonic()) > 0:
        check()
        try:
            new_visit = _Visit(socket.create_connection(address, min(_HANDSHAKE_SECONDS, left)),
                               _HANDSHAKE_SECONDS)
        except OSError as error:  # replica 0 does not listen yet
            reason = str(error)
            time.sleep(0.2)
            continue
        try:
            kind, value = _introduce(new_visit, spec, hello, end, check)
        except multiprocessing.AuthenticationError:
            reason = "another run, or another program, listens there"
        except (OSError, EOFError, ValueError) as error:  # replica 0 has ended, and may be restarted
            reason = str(error) or "the connection was closed"
        else:
            new_visit.socket.close()
            if kind == "refused":
                new_visit.connection.close()
                raise ReplicaError(value)
            return value, new_visit.connection
        new_visit.close()
        time.sleep(0.5)
    raise ReplicaError(f"Replica 0 cannot be reached at {address_text(*address)} ({reason}). Check that the "
                       "same command runs on that machine and that the port is open.")


def _introduce(new_visit, spec, hello, end, check):
    """Sends the hello (the description of this replica) to replica 0. Returns the answer of replica 0."""
    with _cutting(new_visit, _HANDSHAKE_SECONDS):
        new_visit.prove(bytes.fromhex(spec["key"]), False)
        new_visit.connection.send_bytes(value_encoding.encode(hello))
    # Replica 0 answers when all replicas are connected. The time limit of replica 0 ends at about the same
    # time as the limit of this replica. So this replica waits one second longer, to receive an answer that
    # replica 0 sends just before its limit.
    while not new_visit.connection.poll(1):
        check()
        if time.monotonic() > end + 1:
            raise OSError("no answer")
    with _cutting(new_visit, _HANDSHAKE_SECONDS):
        return value_encoding.decode(new_visit.connection.recv_bytes())


@contextlib.contextmanager
def _cutting(new_visit, seconds):
    """Returns a context manager. If its block takes longer than `seconds`, the connection of `new_visit` is
    shut down."""
    timer = threading.Timer(seconds, new_visit.cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# --- Addresses -------------------------------------------------------------------------------------------


def address_text(host, port):
    """Returns "host:port", the form that TensorFlow needs. An IPv6 address is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listener(host, port):
    """Returns a socket that listens at the address of `host`, and at no other address of this machine.

    If `host` does not name an address of this machine, the socket listens at all addresses of this machine.

    Args:
      host: a name or address of this machine by which other machines reach it.
      port: number of the port; 0 for any free port.

    Raises:
      OSError: another process listens at this port.
    """
    family, own = _own_address(host)
    if own is None:
        logging.warning("%s is not an address of this machine. Replica 0 listens at port %d of all addresses "
                        "of this machine. To use only one address, name this address in "
                        "TF_CONFIG.", host, port)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Without this option, the port of a run that has ended could not be used for a minute. A port at
        # which another process listens still cannot be used.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((own or "", port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening


def _own_address(host):
    """Returns (family, address of this machine) for a host name or an address.

    The address is None in three cases: the name `host` cannot be resolved; `host` belongs to another machine,
    such as a router that forwards the port; or only this machine can reach the address of `host`.
    """
    try:
        candidates = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        candidates = []
    # IPv4 addresses are tried first, because earlier versions of this program listened only at IPv4
    # addresses.
    for family, *_, (address, *_) in sorted(candidates, key=lambda one: one[0] != socket.AF_INET):
        # In Debian's /etc/hosts, the name of the machine has the address 127.0.1.1, which other machines
        # cannot reach.
        if address.startswith("127.") and host not in ("localhost", address):
            continue
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return family, address
    return socket.AF_INET, None


def free_port(host):
    """Returns a socket that reserves a free port for a server of this machine. The port stays reserved until
    the socket is closed.

    Args:
      host: name or address of this machine by which other machines reach the server.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    reserved.bind(("", 0))
    return reserved


def limit(connection, receiving, sending):
    """Sets how many seconds an operation of a connection may wait for the other side; 0 for no limit.

    Args:
      connection: a multiprocessing.connection.Connection.
      receiving, sending: largest number of seconds for a receiving operation and for a sending operation.
    """
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    for option, seconds in ((socket.SO_RCVTIMEO, receiving), (socket.SO_SNDTIMEO, sending)):
        duplicate.setsockopt(socket.SOL_SOCKET, option,
                             struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    duplicate.close()
