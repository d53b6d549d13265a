"""Connects the replicas of a run: replica 0 listens at the address of the run, and the other replicas connect
to it.

This module does not import TensorFlow.

Replica 0 and the connecting replica prove to each other that they know the key of the run, without sending
the key. Then the connecting replica sends its description, which is called the *hello*, and waits for the
answer of replica 0. The answer contains the descriptions of all replicas, or the reason why replica 0 refuses
the connecting replica. The hello is a dict with the keys "index", "count", "process" (number of the process),
"machine" (its name) and "address" (of the replica's TensorFlow server).

Replica 0 runs each handshake in a separate thread, with a limit of a few seconds. A silent connection
therefore does not block other connections. If a replica ends while replica 0 still waits for other replicas,
replica 0 removes the ended replica from its list, and a new replica can replace the ended replica.
"""

import contextlib
import multiprocessing
from multiprocessing import connection as mp_connection
import os
import queue
import socket
import struct
import threading
import time

from absl import logging

from bertlib.system import value_encoding

# How long replicas wait for each other at their start, as a multiple of the timeout.
START_TIMEOUTS = 5
# Largest number of seconds that a handshake waits for a message.
_HANDSHAKE_SECONDS = 10
_POLL_SECONDS = 0.05
# Errors of a handshake with a program that is no replica of this run. In Python 3.11 and older,
# `answer_challenge` raises an AssertionError.
_STRANGER = multiprocessing.AuthenticationError, AssertionError


class ReplicaError(RuntimeError):
    """Another replica failed, so this replica must end. `about`: the index of the failed replica, or None."""

    def __init__(self, message, about=None):
        super().__init__(message)
        self.about = about


# --- Replica 0 -------------------------------------------------------------------------------------------


def receive(spec, hello, check):
    """Waits, as replica 0, for the connections of the other replicas.

    Args:
      spec: the content of BERT_REPLICA, a dict; see `replica_group`.
      hello: description of replica 0.
      check: function that is called repeatedly during the wait, and may raise an error.

    Returns:
      ({index of a replica: its hello}, {index: connection}).

    Raises:
      ReplicaError: not all replicas connected in time.
    """
    hellos, connections, arrivals, refusal = {0: hello}, {}, queue.SimpleQueue(), ""
    start = logged = time.monotonic()
    # The launcher still has the same socket open, and uses it for a restart.
    with socket.socket(fileno=spec["listener"]) as listening:
        listening.set_inheritable(False)
        listening.settimeout(0)
        while len(hellos) < spec["count"]:
            _accept(listening, bytes.fromhex(spec["key"]), arrivals)
            with contextlib.suppress(queue.Empty):
                connection, other_hello = arrivals.get(timeout=_POLL_SECONDS)
                _remove_ended(hellos, connections)
                reason = _refusal(other_hello, hellos, spec["count"])
                if reason:
                    logging.warning("Refused a replica: %s", reason)
                    refusal = f" Another replica was refused: {reason}"
                    _send(connection, ("refused", reason))
                    connection.close()
                else:
                    hellos[other_hello["index"]], connections[other_hello["index"]] = other_hello, connection
            check()
            _remove_ended(hellos, connections)
            missing_indices = ", ".join(str(index) for index in range(spec["count"]) if index not in hellos)
            now = time.monotonic()
            if missing_indices and now - start > START_TIMEOUTS * spec["timeout"]:
                raise ReplicaError(
                    f"Not all {spec['count']} replicas connected within {now - start:.0f} s. Missing: "
                    f"{missing_indices}. (The limit is {START_TIMEOUTS} times "
                    f"--replica_timeout={spec['timeout']:g}.) Check that the same command runs on each "
                    f"machine, and that each machine can reach {_place(spec)}.{refusal}")
            if missing_indices and now - logged > 10:
                logging.info("Waiting for replica %s of %d.", missing_indices, spec["count"])
                logged = now
    # If a replica ends from now on, `replica_group` notices its end.
    for connection in connections.values():
        _send(connection, ("welcome", hellos))
    return hellos, connections


def _accept(listening, key, arrivals):
    """Accepts all waiting connections, and starts the handshake of each connection in a thread."""
    with contextlib.suppress(OSError):  # no connection waits, or the waiting connection was closed
        while True:
            endpoint, _ = listening.accept()
            threading.Thread(target=_greet, args=(_connection(endpoint), key, arrivals), name="greet",
                             daemon=True).start()


def _greet(connection, key, arrivals):
    """Makes the handshake of a connection, and receives the hello. Adds (connection, hello) to the queue
    `arrivals`."""
    try:
        mp_connection.deliver_challenge(connection, key)
        mp_connection.answer_challenge(connection, key)
        arrivals.put((connection, value_encoding.decode(connection.recv_bytes())))
    except (OSError, EOFError, ValueError, *_STRANGER):
        connection.close()  # the other process is no replica of this run, or it has ended


def _refusal(hello, hellos, count):
    """Returns the reason why a replica does not belong to this run; None if the replica belongs to this
    run."""
    index, place = hello["index"], f"process {hello['process']} on {hello['machine']}"
    if hello["count"] != count:
        return (f"{place} belongs to a run of {hello['count']} replicas, but replica 0 to a run of {count}. "
                "Pass the same --num_replicas on each machine.")
    if index in hellos:
        return (f"{place} says that it is replica {index}, but this number is already in use. "
                "Another run probably uses the same address: end that run, or name another port for this "
                "run.")
    return None


def _remove_ended(hellos, connections):
    """Removes the connected replicas that have ended, so that new replicas can replace them."""
    for index, connection in list(connections.items()):
        # A connected replica sends nothing while it waits. So data to read means the end of its process.
        if connection.poll():
            connection.close()
            hello = hellos.pop(index)
            del connections[index]
            logging.warning("Replica %d (process %d on %s) ended before all replicas were connected. Waiting "
                            "for a new replica with this number.", index, hello["process"], hello["machine"])


def _send(connection, message):
    """Sends a message, and ignores errors. If an accepted replica has ended, `replica_group` notices this
    later. The end of a refused replica does not matter."""
    with contextlib.suppress(OSError):
        connection.send_bytes(value_encoding.encode(message))


# --- Another replica -------------------------------------------------------------------------------------


def visit(spec, hello, check):
    """Connects this replica, which is not replica 0, to replica 0.

    Args:
      spec: the content of BERT_REPLICA, a dict.
      check: function that is called repeatedly during the wait, and may raise an error.
      hello: description of this replica.

    Returns:
      ({index of a replica: its hello}, connection with replica 0).

    Raises:
      ReplicaError: replica 0 cannot be reached in time, or refuses this replica.
    """
    key = bytes.fromhex(spec["key"])
    end, reason = time.monotonic() + START_TIMEOUTS * spec["timeout"], "no answer"
    while (left := end - time.monotonic()) > 0:
        check()
        try:
            connection = _connection(_connect(spec["coordinator"], min(_HANDSHAKE_SECONDS, left)))
            mp_connection.answer_challenge(connection, key)
            mp_connection.deliver_challenge(connection, key)
            connection.send_bytes(value_encoding.encode(hello))
            # Replica 0 answers when all replicas are connected. The time limit of replica 0 ends at about the
            # same time as the limit of this replica. So this replica waits one second longer, to receive an
            # answer that replica 0 sends just before its limit.
            while not connection.poll(1):
                check()
                if time.monotonic() > end + 1:
                    raise OSError("no answer")
            kind, value = value_encoding.decode(connection.recv_bytes())
        except _STRANGER:
            reason = "another run, or another program, listens there"
        except (OSError, EOFError, ValueError) as error:
            # Replica 0 does not listen yet; or it has ended, and may be restarted.
            reason = str(error) or "the connection was closed"
        else:
            if kind == "refused":
                raise ReplicaError(value)
            return value, connection
        time.sleep(0.3)
    raise ReplicaError(f"Replica 0 cannot be reached at {_place(spec)} ({reason}). Check that the same "
                       "command runs on that machine and that the port is open.")


# --- Connections and addresses ---------------------------------------------------------------------------


def _connect(coordinator, timeout):
    """Returns a socket that is connected to `coordinator`: [host, port], or the path of a Unix socket."""
    if not isinstance(coordinator, str):
        return socket.create_connection(tuple(coordinator), timeout)
    endpoint = socket.socket(socket.AF_UNIX)
    endpoint.connect(coordinator)
    return endpoint


def _connection(endpoint):
    """Returns a multiprocessing.connection.Connection in place of a connected socket. Its operations wait at
    most `_HANDSHAKE_SECONDS`."""
    endpoint.settimeout(None)
    if endpoint.family != socket.AF_UNIX:
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = mp_connection.Connection(endpoint.detach())
    limit(connection, _HANDSHAKE_SECONDS, _HANDSHAKE_SECONDS)
    return connection


def _place(spec):
    coordinator = spec["coordinator"]
    return coordinator if isinstance(coordinator, str) else address_text(*coordinator)


def address_text(host, port):
    """Returns "host:port", the form that TensorFlow needs. An IPv6 address is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listener(host, port):
    """Returns a socket that listens at the address of `host`, and at no other address of this machine.

    If `host` does not name an address of this machine, the socket listens at all addresses of this machine.

    Args:
      host: a name or address of this machine by which other machines reach it.
      port: number of the port.

    Raises:
      OSError: another process listens at this port.
    """
    family, address = _own_address(host)
    if address is None:
        logging.warning("%s is not an address of this machine. Replica 0 listens at port %d of all addresses "
                        "of this machine. To use only one address, name this address in "
                        "TF_CONFIG.", host, port)
    # Also uses the port of a run that ended less than a minute ago, but not if another process listens there.
    return socket.create_server((address or "", port), family=family, backlog=128)


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
    holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    holder.bind(("", 0))
    return holder


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
