"""Answers requests over HTTP with a trained model, through a JSON interface or a web page.

    python serve.py --model_dir=output/mrpc --port=8000

On the page http://localhost:8000/, you can try the model. http://localhost:8000/docs describes the interface.
Only programs on this machine can reach the server, unless you pass --host and --token. docs/howto/server.md
describes requests, answers and limits. The command needs the packages of requirements-serve.txt.
"""

import re

from bertlib.commands import common_flags, predict

from absl import logging

from bertlib import serving
from bertlib.runs import entries
from bertlib.runs.input_paths import require_model
from bertlib.serving import request_batches, server_socket
from bertlib.system import stopping
from bertlib.tasks import shared_flags

_TOKEN_CHARACTERS = 16


ENTRIES = shared_flags.GPUS + predict.PREDICTOR + entries.section("Server", None, [
    entries.Text("host", "127.0.0.1",
                 "Address of this machine at which the server listens. An address that other machines can "
                 "reach requires --token."),
    entries.Integer("port", 8000,
                    "Port of the server. 0: any unused port. The log shows its number.", least=0, most=65535),
    entries.Text("token", None,
                 "Secret that each request to /predict must have in the header Authorization: Bearer TOKEN. "
                 "A secret on the command line is not safe: other users of this machine can read it in the "
                 "list of processes. To avoid this, write --token=TOKEN into a file, and pass "
                 "--flagfile=FILE. Of two secrets with a comma between them, both are accepted."),
]) + entries.section("Limits", None, [
    entries.Number("batch_wait_ms", 2.0,
                   "Waiting time in milliseconds: if a batch is not full, a text waits at most this long for "
                   "more texts. 0: no waiting.", least=0, most=60_000),
    entries.Integer("max_body_kb", 1024,
                    "Largest size of a request in units of 1,024 bytes. The server answers larger requests "
                    "with HTTP status 413.", least=1, most=2 ** 20),
    entries.Integer("max_texts", 256,
                    "Largest number of texts in a request. Each window of a long text counts as one text. "
                    "The server answers larger requests with HTTP status 413.", least=1),
    entries.Integer("max_queue", 1024,
                    "Largest number of texts that wait for an answer. The server answers requests with HTTP "
                    "status 503 while the queue is full, or if they would wait too long.", least=1),
    entries.Integer("max_requests", 256,
                    "Largest number of requests that the server handles at the same time. Further requests "
                    "to /predict are answered with HTTP status 503.", least=1, most=2 ** 16),
    entries.Number("request_timeout", 30.0,
                   "Time limit in seconds, from the arrival of the head of a request to its answer. After "
                   "this time, the answer has HTTP status 408 if the body of the request has not arrived "
                   "completely, otherwise 504.", least=0.1, most=86_400),
])


def _load_server():
    """Returns the modules `http_app` and `http_server`.

    Raises:
      ImportError: FastAPI or uvicorn is not installed.
    """
    try:
        # These modules need FastAPI and uvicorn, which are optional packages. The import is here and not at
        # the top of the file, so that `--help` works without these packages.
        from bertlib.serving import http_app, http_server
    except ImportError as error:
        raise ImportError("The server needs the packages fastapi and uvicorn, which cannot be imported "
                          f"({error}). Install the extra [serve]: pip install -r requirements-serve.txt, or, "
                          "without TensorFlow, requirements-answers.txt") from error
    return http_app, http_server


def check_flags(settings, is_loopback):
    """Checks the flags of the server.

    Args:
      settings: the `Settings`.
      is_loopback: whether only programs on this machine can reach --host.

    Raises:
      ValueError: flags contradict each other, or the token is missing or too short.
    """
    if settings.token is not None and not all(re.fullmatch(
            rf"(?!['\"])[!-~]{{{_TOKEN_CHARACTERS},}}", token) for token in settings.token.split(",")):
        raise ValueError(f"--token needs at least {_TOKEN_CHARACTERS} characters of ASCII, without spaces, "
                         "and without quotes around them, also in a flag file. This command creates a token: "
                         "python -c 'import secrets; print(secrets.token_urlsafe())'.")
    if not is_loopback and settings.token is None:
        raise ValueError(f"--host={settings.host}: other machines can reach this address, so --token is "
                         "required. Pass a secret as --token, or leave --host out.")
    if settings.max_queue < settings.max_texts:
        raise ValueError(f"--max_queue={settings.max_queue} is less than --max_texts={settings.max_texts}: a "
                         "request with this number of texts would never be answered. Pass a larger "
                         "--max_queue.")


def main(_):
    """Loads the model, and answers requests until a signal arrives."""
    settings = common_flags.read_settings("model_dir")
    require_model(settings)
    check_flags(settings, server_socket.is_loopback(settings.host))
    with server_socket.listen(settings.host, settings.port) as server, serving.load(
            settings.model_dir, settings.task, settings.precision, settings.batch_size,
            weights=settings.weights, engine=settings.engine) as predictor:
        # FastAPI is loaded after the model, because a process needs more memory while it loads a model.
        http_app, http_server = _load_server()
        limits = http_app.Limits(1024 * settings.max_body_kb, settings.max_texts, settings.request_timeout,
                                 settings.max_requests)
        predictor(*["[MASK]"] * predictor.required)  # warm-up: a model's first answer takes longer
        with request_batches.RequestBatches(
                predictor, settings.batch_size, settings.batch_wait_ms / 1000, settings.max_queue,
                settings.max_texts) as batches, stopping.request.being_awaited():
            if settings.token is None:
                logging.info("Without --token, each program on this machine gets answers, also a proxy.")
            gate = http_app.create_app(predictor, batches, limits,
                                       settings.token and settings.token.split(","))
            logging.info("Task: %s. Page: %s  Interface: %sdocs  To stop: Ctrl-C.", predictor.task,
                         server_socket.url_of(server), server_socket.url_of(server))
            http_server.serve(gate, server, limits, lambda: stopping.request.is_set)
            gate.log_errors()
    stopping.request.check()
