"""Clients of `serve.py`: plain requests, raw bytes, and a server in this process or in another one."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import threading

import helpers
from scripts import environment

from bertlib.serving import request_batches

JSON = {"Content-Type": "application/json"}
LIMITS = dict(body_bytes=10_000, texts=20, seconds=20.0, requests=50)


class Held:
    """A predictor whose batches wait until `go` is set. `batches` is the number of windows of each batch."""

    def __init__(self, predictor, is_open=True):
        self._predictor, self.batches, self.go = predictor, [], threading.Event()
        self.task, self.fields, self.required = predictor.task, predictor.fields, predictor.required
        self.prepare, self.answers = predictor.prepare, predictor.answers
        self.answer_of = predictor.answer_of
        self.checkpoint = predictor.checkpoint
        if is_open:
            self.go.set()

    def compute(self, windows):
        self.batches.append(len(windows))
        assert self.go.wait(60)
        return self._predictor.compute(windows)


class Server:
    """A server in a thread of this process. The event `stop` ends it."""

    def __init__(self, port, stop):
        self.port, self.stop = port, stop

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def request(self, method, path, body=None, headers=None):
        """Sends a request on a new connection. Returns (status, headers, bytes) of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def ask(self, question, **headers):
        """Returns (status, value) of the answer to an input or a list of inputs."""
        status, _, text = self.request("POST", "/predict", json.dumps(question), {**JSON, **headers})
        return status, json.loads(text)


@contextlib.contextmanager
def running(predictor, token=None, batch_size=8, max_wait=0.0, max_queue=40, **limits):
    """A context manager that runs a `Server`. For the arguments, see `request_batches` and `http_app`."""
    # Imported here, because only the tests of this server need FastAPI.
    from bertlib.serving import http_app, http_server, server_socket
    limits = http_app.Limits(**{**LIMITS, **limits})
    stop, listener = threading.Event(), server_socket.listen("127.0.0.1", 0)
    server = Server(listener.getsockname()[1], stop)
    with request_batches.RequestBatches(predictor, batch_size, max_wait, max_queue, limits.texts) as batches:
        app = http_app.create_app(predictor, batches, limits, token and token.split(","))
        thread = threading.Thread(target=http_server.serve, args=(app, listener, limits, stop.is_set))
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            thread.join()


class Process:
    """`serve.py` in a separate process. `command` starts it in a directory, at an unused port."""

    def __init__(self, directory, command, cwd=None):
        self._log = directory / "log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen([*command, "--port=0"], cwd=cwd or directory, env=environment(),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        helpers.wait_until(lambda: "Page: " in self.log or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.log
        self.port = int(re.search(r"Page: http://127\.0\.0\.1:(\d+)/", self.log)[1])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()

    @property
    def log(self):
        return self._log.read_text()

    def ask(self, question, **headers):
        """Returns (status, value) of the answer to a question."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/predict", json.dumps(question), {**JSON, **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
