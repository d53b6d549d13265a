"""Runs the HTTP interface of a predictor on uvicorn. This module closes the connections of slow clients. When
the server has to end, it first answers the requests that have already arrived.

This module needs the packages of requirements-serve.txt.
"""

import asyncio
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
# At most this number of bytes is read from a connection at a time. asyncio's default is four times as large.
_READ_BYTES = 2 ** 16


class _Protocol(h11_impl.H11Protocol):
    """One connection. The connection is closed if its client sends the head of a request too slowly, or does
    not read the answer in time. `http_app` limits two other times: for receiving the body of a request, and
    for computing the answer."""

    request_seconds = None  # set by `serve`

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.max_size = _READ_BYTES
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
      limits: a `http_app.Limits`.
      is_stopped: function without arguments, which returns a bool.

    Raises:
      RuntimeError: the server ended because of an error.
    """
    protocol = type("Protocol", (_Protocol,), {"request_seconds": limits.seconds})
    config = uvicorn.Config(
        gate, http=protocol, ws="none", loop="asyncio", lifespan="off", log_config=None, log_level="error",
        access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS, backlog=socket.SOMAXCONN,
        timeout_graceful_shutdown=math.ceil(limits.seconds) + http_app.DISCARD_SECONDS + _SEND_SECONDS)
    runner = _Server(config)
    gate.connections = runner.server_state.connections
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
