"""The HTTP interface of a predictor: a FastAPI application. `http_server` runs this application.

This module needs the packages of requirements-serve.txt.
"""

import asyncio
import base64
import collections
import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import time
from typing import Annotated, Any, NamedTuple

from absl import logging
import fastapi
from fastapi import HTTPException, responses, security
import starlette.requests

from bertlib.data import columns, tables
from bertlib.serving import request_batches

_PAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pages")
# The server logs errors at most once in this number of seconds.
_LOG_SECONDS = 60
# If a request is refused, the rest of its body is read for at most this number of seconds.
DISCARD_SECONDS = 5
# All requests have at most this number of times the bytes of the largest body. Above this limit, only
# requests of at most `_SMALL_BYTES` are accepted.
_LARGE_BODIES, _SMALL_BYTES = 32, 2 ** 16
_RETRY = {"Retry-After": "1"}  # header of the status 503: after this number of seconds, try again
# The errors of /predict, as they appear in the OpenAPI description of the interface.
_ERRORS = {
    400: "The body is not UTF-8 or is not valid JSON.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    408: "The body of the request did not arrive in time.",
    413: "The body is too large, or the request has too many texts.",
    415: "The Content-Type or Content-Encoding is not supported.", 421: "The name in Host is not allowed.",
    422: "An input has a wrong field or an unusable text.", 500: "The model computed no valid answer.",
    503: "Too many texts or connections wait. Send the request again later.",
    504: "The answer was not ready in time."}


class Limits(NamedTuple):
    """Limits of requests.

    Attributes:
      body_bytes: largest number of bytes of a body.
      texts: largest number of inputs in a request.
      seconds: largest number of seconds from the arrival of the request to the answer.
      requests: largest number of requests that the server handles at the same time. The pages and /health
        are answered also if more requests are under way.
    """

    body_bytes: int
    texts: int
    seconds: float
    requests: int


# --- Checks of a connection ------------------------------------------------------------------------------


class Gate:
    """An ASGI application that passes requests to an inner ASGI application. The gate refuses requests that
    come from pages of other sites, and requests to /predict above the limit of concurrent requests. Some
    clients send the whole body before they read the answer. So if a request is refused, the gate reads the
    rest of its body, and such a client still gets the answer.

    Attributes:
      is_ending: whether each answer asks the client to close the connection.
      connections: collection of all open connections. If it has more than twice as many connections as
        concurrent requests are allowed, /predict is refused, and each answer closes its connection.
    """

    def __init__(self, app, limits, any_host, errors):
        """Creates the application.

        Args:
          app: the inner ASGI application.
          limits: a `Limits`.
          any_host: bool, whether the header Host may contain any name. If false, it must contain localhost or
            a loopback address. This is a protection against DNS rebinding: if a page of another site reaches
            this server through a DNS name of that site, the header Host contains that name, and the request
            is refused.
          errors: a Counter, to which the gate adds its answers with an error, {HTTP status: number}.
        """
        self._app, self._limits, self._any_host = app, limits, any_host
        self._under_way = 0
        self._errors = errors
        self._next_log = 0  # time at which the next error is logged, in seconds of the event loop's clock
        self.is_ending, self.connections = False, ()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        state = {"more_body": True}
        is_full = len(self.connections) > 2 * self._limits.requests

        async def counting_receive():
            message = await receive()
            state["more_body"] = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def careful_send(message):
            if message["type"] == "http.response.start":
                self._count(message["status"])
                is_last = is_ambiguous or is_full or self.is_ending
                message["headers"] = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff"),
                                      *([(b"connection", b"close")] if is_last else ())]
            elif not message.get("more_body") and state["more_body"]:
                await send({**message, "more_body": True})
                await _discard(counting_receive, state)
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        headers = starlette.requests.Headers(scope=scope)
        # With both headers, this server and a proxy may disagree about the end of the body (RFC 9112, 6.1).
        is_ambiguous = {"content-length", "transfer-encoding"} <= set(headers)
        refusal = self._refusal(headers, scope["path"], is_full)
        app = responses.JSONResponse({"detail": refusal[1]}, refusal[0], _RETRY if refusal[0] == 503 else None
                                     ) if refusal else self._app
        self._under_way += 1
        try:
            await app(scope, counting_receive, careful_send)
        finally:
            self._under_way -= 1

    def _count(self, status):
        """Counts an answer if its HTTP status means an error. The log contains numbers only, no text of a
        request."""
        if status >= 400:
            self._errors[status] += 1
            now = asyncio.get_running_loop().time()
            if now >= self._next_log:
                self._next_log = now + _LOG_SECONDS
                self.log_errors()

    def log_errors(self):
        """Logs the numbers of answers with an error, if there are any."""
        if self._errors:
            logging.warning("Answers with an error since the start: %s.", ", ".join(
                f"status {code}: {count:,}" for code, count in sorted(self._errors.items())))

    def _refusal(self, headers, path, is_full):
        """Returns (status, message) if a request is refused, otherwise None."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._any_host and not _is_loopback_name(host):
            return 421, (f"The server answers only to localhost and loopback addresses, not to {host!r:.80}. "
                         "Use http://localhost, or start serve.py with --token.")
        if origin is not None and origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}:
            return 403, f"Pages of {origin!r:.80} may not use this server."
        if path == "/predict" and (is_full or self._under_way >= self._limits.requests):
            return 503, "Too many requests are under way. Send the request again later."
        return None


def _is_loopback_name(host):
    """Returns whether the value of a header Host is localhost or a loopback address, with or without port."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:\d*)?", host)
    name = match[1].strip("[]").lower() if match else ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _discard(receive, state):
    """Reads the rest of a body, but for at most `DISCARD_SECONDS`. For the arguments, see `Gate.__call__`."""
    async def read():
        while state["more_body"]:
            await receive()

    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(read(), DISCARD_SECONDS)


# --- Requests and answers --------------------------------------------------------------------------------


def _reserve(sizes, request, number, limits):
    """Sets the number of bytes of a request in `sizes`, the dict of all requests.

    Raises:
      HTTPException: the requests have too many bytes.
    """
    sizes[request] = number
    if number > _SMALL_BYTES and sum(sizes.values()) > _LARGE_BODIES * limits.body_bytes:
        del sizes[request]
        raise HTTPException(503, "Too many long texts are under way. Send the request again later.", _RETRY)


async def _read_body(request, limits, sizes):
    """Returns the body of a request as a text. For `sizes`, see `_reserve`.

    Raises:
      HTTPException: the type, size or encoding of the body is wrong, the body is not complete, or the
        requests have too many bytes.
    """
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != "application/json" or charset not in ("", "charset=utf-8", "charset=utf8"):
        raise HTTPException(415, "Send JSON in UTF-8 with the header Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "Send the body without compression (no Content-Encoding).")
    too_large = HTTPException(413, f"The body has more than {limits.body_bytes:,} bytes. Send fewer "
                              "or shorter texts in a request.")
    declared = int(request.headers.get("content-length", 0))
    if declared > limits.body_bytes:
        raise too_large
    _reserve(sizes, request, declared, limits)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.body_bytes:
                raise too_large
            _reserve(sizes, request, max(declared, len(body)), limits)
    except starlette.requests.ClientDisconnect:
        raise HTTPException(400, "The body is not complete.") from None
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"The body is not UTF-8: wrong byte at position {error.start}.") from None


def parse_inputs(text, predictor, max_texts):
    """Parses and checks the body of a request.

    Args:
      text: str, the body: a JSON object, or a list of JSON objects.
      predictor: a `serving.Predictor`.
      max_texts: int, largest number of inputs.

    Returns:
      a pair: the inputs as a list of dicts {name of a field: value}, and a bool that says whether the body is
      a list.

    Raises:
      HTTPException: the body is not JSON or has too many inputs, or an input has an unknown field.
    """
    try:
        value = tables.parse_json(text)
        is_broken = tables.has_half_surrogate(text, value)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not valid JSON: {error}.") from None
    if is_broken:
        raise HTTPException(400, "The body contains half of a surrogate pair (\\ud800 to \\udfff).")
    inputs = value if isinstance(value, list) else [value]
    if not inputs:
        raise HTTPException(422, "The list is empty. Send at least one input.")
    if len(inputs) > max_texts:
        raise HTTPException(413, f"The list has {len(inputs):,} inputs, but a request may have "
                            f"at most {max_texts:,}. Send several requests.")
    fields = predictor.fields
    for number, item in enumerate(inputs, 1):
        which = f"input {number}: " * (len(inputs) > 1)
        if not isinstance(item, dict):
            raise HTTPException(422, f"{which}an input must be a JSON object with "
                                f"{columns.join_names(fields)}, not {json.dumps(item)[:40]}.")
        try:
            predictor.answers.texts_in_order((), dict.fromkeys(item, ""))  # an unknown field may be null
        except TypeError as error:
            raise HTTPException(422, f"{which}{error}") from None
    return inputs, isinstance(value, list)


async def _answer(request, batches, inputs, seconds):
    """Returns the answers to inputs. `RequestBatches` clears the list `inputs`, so its texts use no memory.

    Raises:
      HTTPException: there is no answer, or the client has closed the connection.
    """
    try:
        submitted = batches.submit(inputs, seconds)
    except request_batches.QueueFull as error:
        raise HTTPException(503, "Too many texts wait for an answer. Send the request again later.",
                            {"Retry-After": str(error.args[0])}) from None
    future = asyncio.wrap_future(submitted)
    gone = asyncio.ensure_future(request.receive())  # this future is done when the client disconnects
    try:
        await asyncio.wait([future, gone], timeout=max(seconds, 0), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise HTTPException(*(
                (400, "The connection is closed.") if gone.done() else
                (504, "The answer was not ready in time. Send fewer or shorter texts, or send the request "
                 "again later.")))
        return future.result()
    except request_batches.BadInput as error:
        raise HTTPException(413 if isinstance(error, request_batches.TooLong) else 422, str(error)) from None
    except HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 (`RequestBatches` has logged the error)
        is_known = isinstance(error, ValueError)
        raise HTTPException(500, str(error) if is_known else "The model failed. The log of the "
                            "server says why.") from None
    finally:
        gone.cancel()
        # If `future` were cancelled, asyncio would cancel `submitted` only later. A batch could then still
        # contain the inputs, although the client already has the answer 504.
        submitted.cancel()


# --- The application -------------------------------------------------------------------------------------


def create_app(predictor, batches, limits, tokens):
    """Returns the application, a `Gate`.

    Args:
      predictor: a `serving.Predictor`. The application reads only its attributes; `batches` predicts with it.
      batches: the `request_batches.RequestBatches` that answers the inputs.
      limits: a `Limits`.
      tokens: list of str. Each request to /predict must have one of these tokens. None for no token.
    """
    app = fastapi.FastAPI(
        title=f"BERT: {predictor.task}", version="1", docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Answers inputs with a trained model. An input is, for example, a text to "
        f"classify. The body of a request has at most {limits.body_bytes:,} bytes and "
        f"{limits.texts:,} inputs.")
    bearer = security.HTTPBearer(auto_error=False)
    errors, counts, start = collections.Counter(), collections.Counter(), time.monotonic()
    sizes = {}  # of the requests under way, see `_reserve`
    # --model_dir may be a link, which can name another model later.
    folder, checkpoint = os.path.split(os.path.realpath(predictor.checkpoint))

    async def require_token(header: Annotated[Any, fastapi.Depends(bearer)]):
        given = (header.credentials if header else "").encode()
        if not any(hmac.compare_digest(given, token.encode()) for token in tokens):
            raise HTTPException(401, "The token is missing or wrong. Send the header Authorization: "
                                "Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})

    @app.post("/predict", summary="Answer one input or a list of inputs",
              dependencies=[fastapi.Depends(require_token)] if tokens else [],
              openapi_extra={"requestBody": _request_schema(predictor)},
              responses={200: {"description": "The answer, or the list of answers in the same order.",
                               "content": {"application/json": {"schema": {}}}},
                         **{code: {"description": text} for code, text in _ERRORS.items()
                            if tokens or code != 401}})
    async def predict(request: fastapi.Request):
        end = asyncio.get_running_loop().time() + limits.seconds
        try:
            inputs, is_list = parse_inputs(  # no variable contains the body, which may be large
                await asyncio.wait_for(_read_body(request, limits, sizes), limits.seconds), predictor,
                limits.texts)
            _reserve(sizes, request, request_batches.size_of(inputs), limits)
            answers = await _answer(request, batches, inputs, end - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            raise HTTPException(408, "The body of the request did not arrive in time.") from None
        finally:
            sizes.pop(request, None)
        counts["answers"] += 1
        return responses.Response(json.dumps(answers if is_list else answers[0], ensure_ascii=False),
                                  media_type="application/json", headers={"Cache-Control": "no-store"})

    @app.head("/health", include_in_schema=False)
    @app.get("/health", summary="Say whether the server works, and which fields an input has",
             responses={503: {"description": "The server does not work. Start it again."}})
    async def health():
        if not batches.is_alive:
            raise HTTPException(503, "The thread of the model has ended. Start the server again.")
        return {"status": "ok", "model": os.path.basename(folder), "checkpoint": checkpoint,
                "seconds": int(time.monotonic() - start), "answers": counts["answers"], "errors": errors,
                "queue": batches.num_waiting, "task": predictor.task, "fields": predictor.fields,
                "required": predictor.required, "needs_token": tokens is not None}

    _add_page(app, "/", "try.html")
    _add_page(app, "/docs", "docs.html")
    return Gate(app, limits, tokens is not None, errors)


def _request_schema(predictor):
    """Returns the OpenAPI description of the body of a request to /predict."""
    answers, text = predictor.answers, {"type": "string", "minLength": 1}
    if answers.takes_words:
        text = {"anyOf": [text, {"type": "array", "items": text, "minItems": 1}]}
    item = {"type": "object", "properties": dict.fromkeys((*predictor.fields, *answers.word_keys), text),
            "additionalProperties": False}
    # The keys of `word_keys` are other names of the only field.
    item |= ({"minProperties": 1, "maxProperties": 1} if answers.word_keys else
             {"required": list(predictor.fields[:predictor.required])})
    schema = {"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]}
    example = answers.sample or {name: f"The text for {name}." for name in predictor.fields}
    return {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}


def _add_page(app, path, name):
    """Adds a page from the folder `pages` to the application. The header Content-Security-Policy tells the
    browser to run only the script in the page, and to let this script connect only to this server."""
    with open(os.path.join(_PAGES, name), encoding="utf-8") as reader:
        text = reader.read()
    hashes = {}
    for tag in ("script", "style"):
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
        hashes[tag] = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; "
              "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
              "frame-ancestors 'none'")

    @app.get(path, include_in_schema=False)
    async def page():
        return responses.HTMLResponse(text, headers={"Content-Security-Policy": policy,
                                                     "Cache-Control": "no-cache"})
