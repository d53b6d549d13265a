"""Runs the HTTP interface of a predictor on uvicorn. This module opens the socket, and closes the connections
of slow clients. When the server has to end, it first answers the requests that have already arrived.

This module needs the packages of requirements-serve.txt.
"""

import asyncio
import errno
import ipaddress
import math
import socket
import threading

import h11
import uvicorn
from uvicorn.protocols.http import h11_impl

from bertlib.serving import http_app

# A connection without a request is closed after this number of seconds.
_IDLE_SECONDS = 5
# After the time limit of a request, the server has this number of seconds to send the answer.
_SEND_SECONDS = 5
# When the server has to end, it first waits for this number of seconds. During this time, each answer asks
# the client to close its connection. Then the server closes idle connections. Without the wait, a request
# that a client has just sent would get no answer.
_CLOSING_SECONDS = 0.5


def is_loopback(host):
    """Returns whether `listen` would resolve a host to a loopback address. Only programs on this machine can
    reach such an address."""
    return ipaddress.ip_address(_resolve(host)[1].partition("%")[0]).is_loopback


def _resolve(host):
    """Returns the address family and the address of a host.

    Raises:
      ValueError: the host is empty or unknown.
    """
    if not host:
        raise ValueError("--host is empty. Pass an address of this machine, such as 127.0.0.1.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"--host={host}: {reason}. Pass an address of this machine, such as 127.0.0.1."
                         ) from None
    return family, address[0]


def listen(host, port):
    """Returns a socket that listens at a port.

    Args:
      host: str, name or address of this machine.
      port: int; 0 for any unused port.

    Raises:
      ValueError: the host is unknown.
      OSError: the port cannot be used.
    """
    family, address = _resolve(host)
    # With IPPROTO_TCP, asyncio sets TCP_NODELAY. Without TCP_NODELAY, each answer takes 40 ms longer, because
    # its second packet waits until the client has acknowledged the first packet.
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        server.listen(socket.SOMAXCONN)
    except OSError as error:
        server.close()
        messages = {
            errno.EADDRINUSE: f"--port={port}: another program uses this port. End that program, or pass "
            "another port. --port=0 takes an unused port.",
            errno.EACCES: f"--port={port}: this user may not use the port. Pass a port of at least 1024.",
            errno.EADDRNOTAVAIL: f"--host={host} is not an address of this machine. Pass an address of this "
            "machine, such as 127.0.0.1."}
        raise OSError(messages.get(error.errno, f"--host={host} --port={port}: {error.strerror}.")) from None
    return server


def url_of(server):
    """Returns the URL at which a browser reaches a listening socket."""
    address, port = server.getsockname()[:2]
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"


class _Protocol(h11_impl.H11Protocol):
    """One connection. The connection is closed if its client sends the head of a request too slowly, or does
    not read the answer in time. `http_app` limits two other times: for receiving the body of a request, and
    for computing the answer."""

    request_seconds = None  # set by `serve`

    def connection_made(self, transport):
        super().connection_made(transport)
        self._timer = None
        self._restart_timer(self.request_seconds)

    def send_400_response(self, msg):
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # the answer to this request has already begun
            self.transport.close()

    def handle_events(self):
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:  # the head of a request is complete
            self._restart_timer(self.request_seconds + http_app.DISCARD_SECONDS + _SEND_SECONDS)

    def on_response_complete(self):
        self._restart_timer(self.request_seconds + _SEND_SECONDS)
        super().on_response_complete()

    def connection_lost(self, exc):
        self._timer.cancel()
        super().connection_lost(exc)

    def _restart_timer(self, seconds):
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


class _Server(uvicorn.Server):
    async def shutdown(self, sockets=None):
        self.config.app.is_ending = True
        await asyncio.sleep(_CLOSING_SECONDS)
        await super().shutdown(sockets)


def serve(gate, server, limits, is_stopped):
    """Answers requests until `is_stopped` is true or Ctrl-C is pressed. Then completes the requests that have
    already arrived.

    Args:
      gate: a `http_app.Gate`.
      server: a listening socket. It is closed at the end.
      limits: a `http_app.Limits`. If more connections are open than twice the largest number of
        requests, requests are answered with 503.
      is_stopped: function without arguments, which returns a bool.

    Raises:
      RuntimeError: the server ended because of an error.
    """
    protocol = type("Protocol", (_Protocol,), {"request_seconds": limits.seconds})
    config = uvicorn.Config(
        gate, http=protocol, ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="error",
        access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS, limit_concurrency=2 * limits.requests + 1,
        backlog=socket.SOMAXCONN,
        timeout_graceful_shutdown=math.ceil(limits.seconds) + http_app.DISCARD_SECONDS + _SEND_SECONDS)
    runner = _Server(config)
    # uvicorn runs in a separate thread. In the main thread, it would replace this program's signal handlers.
    thread = threading.Thread(target=runner.run, args=([server],), name="HTTP", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not is_stopped():
            thread.join(0.1)
        if not thread.is_alive():
            raise RuntimeError("the HTTP server has ended because of an error. The log says why.")
    finally:
        runner.should_exit = True
        thread.join()
