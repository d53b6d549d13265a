"""How the replicas of a run meet: replica 0 listens at the address of the run, and the others connect to it.
Loads no TensorFlow.

Both sides prove that they know the key of the run, without sending it. Then the other replica says who it is,
and waits until replica 0 answers with what all have said, or with the reason why it is refused.

Replica 0 greets each connection in a thread, which gets a few seconds, however slowly bytes arrive: a silent
connection holds up nobody. A replica that ends while others are awaited is forgotten, so that another one can
take its place.
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

# Number of timeouts that replicas wait for each other at their start.
START_TIMEOUTS = 5
_HANDSHAKE_SECONDS = 10
_POLL_SECONDS = 0.05
# Connections that are greeted at the same time. If more come, the oldest is cut: a replica needs
# milliseconds.
_MOST_GREETED = 64
# The kernel sends one probe a second to a waiting replica's machine. After this number without an answer the
# machine is gone.
_PROBES = 10
_GREETING, _NONCE_BYTES, _MOST_HELLO_BYTES = b"BERT replicas 1\n", 32, 2**16
_HELLO = {"index": int, "count": int, "process": int, "machine": str, "address": str}


class ReplicaError(RuntimeError):
    """Another replica failed, so that this one ends. `about` is its index, or None."""

    def __init__(self, message, about=None):
        super().__init__(message)
        self.about = about


class _Visit:
    """A connection of two replicas that are about to meet; at first, the other side may be a stranger."""

    def __init__(self, found, seconds):
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.connection = found, mp_connection.Connection(os.dup(found.fileno()))
        self.end = time.monotonic() + seconds

    def close(self):
        """Closes it."""
        self.socket.close()
        self.connection.close()

    def cut(self):
        """Makes whatever waits for the other side fail."""
        with contextlib.suppress(OSError):  # the other side was faster
            self.socket.shutdown(socket.SHUT_RDWR)

    def prove(self, key, is_first):
        """Proves that this side knows the key, and has the other side prove it.

        Raises:
          OSError, EOFError: the connection broke.
          multiprocessing.AuthenticationError: the other side does not know the key.
        """
        own = secrets.token_bytes(_NONCE_BYTES)
        self.connection.send_bytes(_GREETING + own)
        said = self.connection.recv_bytes(len(_GREETING) + _NONCE_BYTES)
        if not said.startswith(_GREETING) or len(said) != len(_GREETING) + _NONCE_BYTES:
            raise multiprocessing.AuthenticationError
        nonces = own, said[len(_GREETING):]
        proofs = [hmac.new(key, role + b"".join(nonces if is_first else nonces[::-1]), "sha256").digest()
                  for role in (b"replica 0", b"another")]
        if not is_first:  # a stranger gets no proof of replica 0, from which the key might be guessed
            self.connection.send_bytes(proofs[1])
        try:
            said = self.connection.recv_bytes(len(proofs[0]))
        except EOFError:
            raise multiprocessing.AuthenticationError from None
        if not hmac.compare_digest(said, proofs[is_first]):
            raise multiprocessing.AuthenticationError
        if is_first:
            self.connection.send_bytes(proofs[0])

    def watch(self):
        """Has the kernel look for the other side's machine."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", _PROBES)):
            if hasattr(socket, name):
                self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def unwatch(self):
        """Ends that: from then on replicas look for each other, and for how long is a flag."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)

    def is_gone(self):
        """Whether the other side, which has nothing to say, has ended."""
        try:
            self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the kernel found that the other side's machine is gone
        return True


# --- Replica 0 -------------------------------------------------------------------------------------------


def receive(spec, hello, check):
    """Waits for the other replicas, as replica 0.

    Args:
      spec: what BERT_REPLICA says, a dict; see `replica_group`.
      hello: what replica 0 tells the others of itself, {"index", "count", "process", "machine", "address"}.
      check: function that is called again and again meanwhile, and may raise.

    Returns:
      ({index: what that replica said}, {index: connection}).

    Raises:
      ReplicaError: not all came in time.
    """
    reception = _Reception(spec, hello)
    try:
        reception.wait(check)
        return reception.welcome()
    finally:
        reception.close()


class _Reception:
    """Where replica 0 meets the others."""

    def __init__(self, spec, hello):
        self._spec, self._key, self._count = spec, bytes.fromhex(spec["key"]), spec["count"]
        self._met, self._visits, self._refused = {0: hello}, {}, ""
        self._greeted, self._lock, self._closed = [], threading.Lock(), False
        self._arrived = queue.SimpleQueue()
        self._listener = socket.socket(fileno=spec["listener"])
        self._listener.set_inheritable(False)
        self._listener.settimeout(0)

    def wait(self, check):
        """Waits until all are here; see `receive`."""
        start = said = time.monotonic()
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
            if missing and now - said > 10:
                logging.info("Waiting for replica %s of %d.", missing, self._count)
                said = now

    def _in_vain(self, missing, seconds):
        return (f"Of {self._count} replicas, {missing} did not come within {seconds:.0f} s "
                f"(--replica_timeout={self._spec['timeout']:g}, times {START_TIMEOUTS}). Is the same command "
                f"running on each machine, and can these reach {address_text(*self._spec['coordinator'])}?"
                f"{self._refused}")

    def _accept(self):
        """Greets those who connect, each in a thread."""
        for _ in range(_MOST_GREETED):
            try:
                found, _ = self._listener.accept()
            except OSError:  # nobody is there, or it was gone before it was accepted
                return
            visit = _Visit(found, _HANDSHAKE_SECONDS)
            self._greeted = [other for other in self._greeted if other.socket.fileno() >= 0] + [visit]
            if len(self._greeted) > _MOST_GREETED:
                self._greeted[0].end = 0.0
            threading.Thread(target=self._greet, args=(visit,), name="greet", daemon=True).start()

    def _cut_slow(self, now):
        """Ends greetings that take too long; their threads do the rest."""
        for visit in self._greeted:
            if visit.end < now:
                visit.cut()
        self._greeted = [visit for visit in self._greeted if visit.end >= now]

    def _greet(self, visit):
        """A thread: lets a visitor prove that it is a replica, and say which one."""
        try:
            visit.prove(self._key, True)
            hello = value_encoding.decode(visit.connection.recv_bytes(_MOST_HELLO_BYTES))
            if not isinstance(hello, dict) or any(
                    type(hello.get(name)) is not kind for name, kind in _HELLO.items()):
                raise ValueError("it does not say which replica it is")
        except (OSError, EOFError, ValueError, multiprocessing.AuthenticationError):
            visit.close()  # a stranger, or one that ended
            return
        with self._lock:
            if self._closed:
                visit.close()
            else:
                self._arrived.put((visit, hello))

    def _admit(self, visit, hello):
        """Takes a replica in, or refuses it."""
        if visit in self._greeted:
            self._greeted.remove(visit)
        if hello["index"] in self._visits:
            self._look_at(hello["index"])  # one that has ended is replaced
        wrong = self._refusal(hello)
        if wrong:
            logging.warning("Refused a replica: %s", wrong)
            self._refused = f" Refused was another: {wrong}"
            _send(visit, ("refused", wrong))
            visit.close()
            return
        visit.watch()
        self._met[hello["index"]], self._visits[hello["index"]] = hello, visit

    def _refusal(self, hello):
        """Says why a replica does not belong to this run; None if it does."""
        index, place = hello["index"], f"process {hello['process']} on {hello['machine']}"
        if hello["count"] != self._count:
            return (f"{place} counts {hello['count']} replicas, replica 0 counts {self._count}. Pass the "
                    "same --num_replicas on each machine.")
        if not 0 < index < self._count or index in self._met:
            return (f"{place} is replica {index} like one that is there already. Another run uses the same "
                    "address: end it, or give this one another port.")
        return None

    def _look_at(self, index):
        """Forgets a replica that has ended, so that another one can take its place."""
        visit, hello = self._visits[index], self._met[index]
        if visit.is_gone():
            visit.close()
            del self._visits[index], self._met[index]
            logging.warning("Replica %d (process %d on %s) has ended before all had come. Waiting for "
                            "another one in its place.", index, hello["process"], hello["machine"])

    def welcome(self):
        """Tells all who is there; see `receive`. That one has ended since then is noticed later."""
        for visit in self._visits.values():
            _send(visit, ("welcome", self._met))
            visit.unwatch()
            visit.socket.close()  # the connection has a descriptor of its own
        visits, self._visits = self._visits, {}
        return self._met, {index: visit.connection for index, visit in visits.items()}

    def close(self):
        """Ends what is under way; the launcher has the listening socket, too."""
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
    """Sends a message; that the other side is gone is noticed elsewhere."""
    with contextlib.suppress(OSError):
        visit.connection.send_bytes(value_encoding.encode(message))


# --- Another replica -------------------------------------------------------------------------------------


def visit(spec, hello, check):
    """Meets replica 0, as another replica.

    Args:
      spec, check: see `receive`.
      hello: what this replica tells of itself, see `receive`.

    Returns:
      ({index: what that replica said}, the connection with replica 0).

    Raises:
      ReplicaError: replica 0 cannot be reached in time, or refuses this one.
    """
    address = tuple(spec["coordinator"])
    end, reason = time.monotonic() + START_TIMEOUTS * spec["timeout"], "no answer"
    while (left := end - time.monotonic()) > 0:
        check()
        try:
            made = _Visit(socket.create_connection(address, min(_HANDSHAKE_SECONDS, left)),
                          _HANDSHAKE_SECONDS)
        except OSError as error:  # replica 0 is not there yet
            reason = str(error)
            time.sleep(0.2)
            continue
        try:
            kind, value = _introduce(made, spec, hello, end, check)
        except multiprocessing.AuthenticationError:
            reason = "another run, or another program, listens there"
        except (OSError, EOFError, ValueError) as error:  # it ended, and another may begin
            reason = str(error) or "the connection was closed"
        else:
            made.socket.close()
            if kind == "refused":
                made.connection.close()
                raise ReplicaError(value)
            return value, made.connection
        made.close()
        time.sleep(0.5)
    raise ReplicaError(f"Replica 0 cannot be reached at {address_text(*address)} ({reason}). Is the "
                       "same command running there, and is the port open?")


def _introduce(made, spec, hello, end, check):
    """Says who this replica is; returns what replica 0 answers."""
    with _cutting(made, _HANDSHAKE_SECONDS):
        made.prove(bytes.fromhex(spec["key"]), False)
        made.connection.send_bytes(value_encoding.encode(hello))
    # Replica 0 waits for the others first, and gives up at about the same time.
    while not made.connection.poll(1):
        check()
        if time.monotonic() > end + 1:
            raise OSError("no answer")
    with _cutting(made, _HANDSHAKE_SECONDS):
        return value_encoding.decode(made.connection.recv_bytes())


@contextlib.contextmanager
def _cutting(made, seconds):
    """Cuts a connection if the block takes longer than some seconds."""
    timer = threading.Timer(seconds, made.cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# --- Addresses -------------------------------------------------------------------------------------------


def address_text(host, port):
    """Returns "host:port"; an address of IPv6 is in brackets, as TensorFlow needs it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listener(host, port):
    """Returns a socket that listens at an address of this machine, and at no other one.

    Args:
      host: a name or address of this machine, by which other machines reach it.
      port: 0 for one that is free.

    Raises:
      OSError: another process listens there.
    """
    family, own = _own_address(host)
    if own is None:
        logging.warning("%s is no address of a network of this machine. Replica 0 listens at port %d of all "
                        "its addresses. To use only one, name it in TF_CONFIG.", host, port)
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Else the port of a run that has ended is taken for a minute. One that is listened at stays taken.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((own or "", port))
        found.listen(128)
    except OSError:
        found.close()
        raise
    return found


def _own_address(host):
    """Returns (family, address of this machine) of a name or address.

    The address is None if it is another machine's, such as that of a router that forwards the port, or if
    only this machine would reach it.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    # As replicas listened at addresses of IPv4 before, these come first.
    for family, *_, (address, *_) in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        # Debian's /etc/hosts says that the machine's own name is 127.0.1.1, which others do not reach.
        if address.startswith("127.") and host not in ("localhost", address):
            continue
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
            return family, address
    return socket.AF_INET, None


def free_port(host):
    """Returns a socket that keeps a port free until it is closed, for a server that is reached by a name or
    address of this machine."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.bind(("", 0))
    return found


def limit(connection, receiving, sending):
    """Sets seconds that an operation of a connection may wait for the other side; 0 for any time."""
    found = socket.socket(fileno=os.dup(connection.fileno()))
    for option, seconds in ((socket.SO_RCVTIMEO, receiving), (socket.SO_SNDTIMEO, sending)):
        found.setsockopt(socket.SOL_SOCKET, option,
                         struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    found.close()
