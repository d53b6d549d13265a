"""The HTTP interface of a predictor on loopback: answers, limits, wrong requests, clients that misbehave."""

import base64
import concurrent.futures
import copy
import hashlib
import itertools
import json
import os
import re
import time

from helpers import wait_until
from http_clients import JSON, Held, running
from model_directories import TAGS, linear, write
import pytest

from bertlib import serving
from bertlib.tasks import answers

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

ASK = {"text_a": "the cat sees a dog .", "text_b": "the dog eats"}
TOKEN = "a-secret-of-many-letters"
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def predictor(classifier_dir):
    with serving.load(str(classifier_dir)) as predictor:
        yield predictor


@pytest.fixture(scope="module")
def server(predictor):
    """A server with short limits."""
    with running(predictor, seconds=2.0) as server:
        yield server


def whole(question):
    """Returns the bytes of a request."""
    body = json.dumps(question).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def answer_of(client):
    """Returns the bytes that a client gets until the server closes the connection."""
    found = b""
    try:
        while part := client.recv(10_000):
            found += part
    except ConnectionResetError:
        pass
    return found


def assert_refused(server, question, words):
    """Asserts that a request gets the status 503. Returns the headers of the answer."""
    status, headers, text = server.request("POST", "/predict", json.dumps(question), JSON)
    assert status == 503 and int(headers["retry-after"]) >= 1 and words in text
    return headers


def health(server):
    return json.loads(server.request("GET", "/health")[2])


# --- Answers ---------------------------------------------------------------------------------------------


def test_one_input_has_one_answer_and_a_list_has_a_list(server, predictor):
    questions = [{"text_a": "a cat"}, ASK, {"text_a": "a dog"}]
    assert server.ask(ASK) == (200, predictor(**ASK)) and server.ask([ASK]) == (200, [predictor(**ASK)])
    status, found = server.ask(questions)
    assert status == 200 and [answer["label"] for answer in found] == [
        predictor(**question)["label"] for question in questions]


def test_a_tagger(tiny_model, tmp_path):
    path = write(tmp_path / "model", tiny_model, "tagging", linear(5), TAGS)
    with serving.load(str(path)) as predictor, running(predictor) as server:
        for question in ({"text": "the cat 🙂 sees the dog"}, {"tokens": ["the", "cat"]}):
            assert server.ask(question) == (200, predictor(*question.values()))
        assert server.ask({"text": "a", "tokens": ["a"]})[0] == 422
        schema = json.loads(server.request("GET", "/openapi.json")[2])["paths"]["/predict"]["post"]
        example = schema["requestBody"]["content"]["application/json"]["example"]
        assert server.ask(example)[0] == 200


def test_an_answer_that_is_not_finite_is_an_error(predictor):
    diverged = Held(predictor)
    diverged.compute = lambda windows: [{name: array * float("nan") for name, array in outputs.items()}
                                        for outputs in predictor.compute(windows)]
    with running(diverged) as server:
        status, found = server.ask(ASK)
    assert status == 500 and "not finite" in found["detail"]


# --- Wrong requests --------------------------------------------------------------------------------------


def test_a_wrong_body_has_a_clear_answer(server):
    for body, status, words in (
            (b'{"text_a": NaN}', 400, "NaN"), (b'{"text_a": 1e999}', 400, "not valid JSON"),
            (b"[" * 5000 + b"]" * 5000, 400, "not valid JSON"),
            ('{"text_a": "é"}'.encode("latin-1"), 400, "not UTF-8: wrong byte at position 12"),
            (b'{"text_a": "\\ud800"}', 400, "surrogate"),
            (b'"text"', 422, "must be a JSON object with text_a and text_b, not"),
            (b"[]", 422, "list is empty"), (b"{}", 422, "text_a is missing"),
            (b'{"text_a": "a", "text": "b"}', 422, "unknown field 'text'"),
            (b'{"text_a": "a", "x": null}', 422, "unknown field 'x'"),
            (b'{"text_a": 7}', 422, "text_a is 7, but it must be a text"),
            (b'[{"text_a": "a"}, {"text_a": "a", "text_b": ""}]', 422, "input 2: text_b is empty"),
            (json.dumps([ASK] * 21).encode(), 413, "at most 20"),
            (b" " * 10_001, 413, "more than 10,000 bytes")):
        found, _, text = server.request("POST", "/predict", body, JSON)
        (name, message), = json.loads(text).items()
        assert (found, name) == (status, "detail") and words in message


@pytest.mark.parametrize("headers, status, words", [
    ({"Content-Type": "text/plain"}, 415, "Content-Type"),
    ({"Content-Type": "application/json; charset=latin-1"}, 415, "UTF-8"),
    ({"Content-Encoding": "gzip"}, 415, "without compression"),
    ({"Host": "evil.example"}, 421, "evil.example"), ({"Host": "localhost:1@evil.example"}, 421, "localhost"),
    ({"Origin": "http://evil.example"}, 403, "evil.example"),
    ({"Origin": "http://127.0.0.1:1"}, 403, "Pages"),
    # Headers of this machine.
    ({"Content-Type": "application/json; charset=UTF-8", "Host": "LOCALHOST:80"}, 200, ""),
    ({"Host": "[::1]:8000"}, 200, ""), ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}, 200, "")])
def test_headers(headers, status, words, server):
    found, answer = server.ask(ASK, **headers)
    assert found == status and words in answer.get("detail", "")


@pytest.mark.parametrize("head", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n"])
def test_what_is_no_http(head, server):
    with server.connect() as client:
        client.sendall(head)
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert server.ask(ASK)[0] == 200


def test_a_request_with_two_lengths_ends_its_connection(server, predictor):
    body = json.dumps(ASK).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with server.connect() as client:
        client.sendall(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + HEALTH)
        found = answer_of(client)
    assert found.startswith(b"HTTP/1.1 200 ") and found.count(b"HTTP/1.1") == 1
    assert b"connection: close" in found and predictor(**ASK)["label"].encode() in found


# --- Clients that misbehave ------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [
    {"Connection": "close"}, {"Connection": "keep-alive", "Content-Length": str(400 * 2**16)}])
def test_a_large_body_is_refused_also_if_the_client_sends_all_before_it_reads(headers, server):
    chunks = (b" " * 2**16 for _ in range(400))
    status, _, text = server.request("POST", "/predict", chunks, {**JSON, **headers})
    assert status == 413 and b"10,000 bytes" in text


def test_a_client_that_stops_sending_or_does_not_read_its_answer_is_cut_off(predictor):
    long = Held(predictor)
    long.answer_of = lambda outputs, details: {"label": "x" * 20_000_000}
    requests = b"POST /pre", HEAD + b'Content-Length: 100\r\n\r\n{"text_a"', whole(ASK)
    with running(long, seconds=0.5) as server:
        clients = [server.connect() for _ in requests]
        start = time.monotonic()
        for client, request in zip(clients, requests):
            client.sendall(request)
        head, body = map(answer_of, clients[:2])
        assert head == b"" and body.startswith(b"HTTP/1.1 408 ") and 0.4 < time.monotonic() - start < 15
        time.sleep(7.5)  # more than the time for the request and for the answer
        assert len(answer_of(clients[2])) < 20_000_000


def test_what_is_no_http_after_an_answer_has_begun(server, caplog):
    with server.connect() as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % 20_000 + b" " * 20_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
        client.sendall(b"\r\nnot a size\r\n")
        answer_of(client)
    assert not [record for record in caplog.records if record.exc_info]


def test_inputs_of_a_client_that_has_left_are_not_computed(predictor):
    held = Held(predictor, is_open=False)
    with running(held) as server:
        clients = [server.connect() for _ in range(3)]
        for client in clients:
            client.sendall(whole([ASK] * 4))
            wait_until(lambda: held.batches)  # the first request is being computed
        time.sleep(0.3)
        for client in clients:
            client.close()
        time.sleep(0.3)
        held.go.set()
        assert server.ask(ASK)[0] == 200
    assert held.batches == [4, 1]


# --- Limits ----------------------------------------------------------------------------------------------


def test_a_full_queue_and_too_many_requests_are_answered_at_once(predictor):
    held = Held(predictor, is_open=False)
    with running(held, max_queue=20, requests=3) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(server.ask, [ASK] * 10)]
        wait_until(lambda: held.batches)
        waiting.append(pool.submit(server.ask, [ASK] * 8))
        time.sleep(0.3)
        assert_refused(server, [ASK] * 3, b"Too many texts")
        waiting.append(pool.submit(server.ask, ASK))
        time.sleep(0.3)
        assert_refused(server, ASK, b"Too many requests")
        for path in ("/", "/health", "/docs", "/openapi.json"):  # these need no model, so they are answered
            assert server.request("GET", path)[0] == 200
        held.go.set()
        assert [future.result()[0] for future in waiting] == [200, 200, 200]
        clients = [server.connect() for _ in range(12)]  # more than twice the limit of requests
        wait_until(lambda: server.ask(ASK)[0] == 503)
        assert assert_refused(server, ASK, b"Too many requests")["connection"] == "close"
        found = health(server)
        assert found["errors"]["503"] > 3 and (found["answers"], found["queue"]) == (3, 0)
        for client in clients:
            client.close()
        wait_until(lambda: server.ask(ASK)[0] == 200)


def test_long_texts_that_wait_have_a_limited_size_and_are_answered_as_a_whole(predictor):
    """With the emoji, each of these texts has 352,000 bytes, and all texts have at most 3,200,000 bytes."""
    held, long = Held(predictor, is_open=False), {"text_a": "🙂" + " the cat" * 11_000}
    with running(held, body_bytes=100_000) as server, concurrent.futures.ThreadPoolExecutor(30) as pool:
        body = json.dumps(long)
        requests = [pool.submit(server.request, "POST", "/predict", body, JSON) for _ in range(29)]
        wait_until(lambda: sum(request.done() for request in requests) >= 20)
        short = pool.submit(server.ask, ASK)
        wait_until(lambda: short.running() and held.batches)
        held.go.set()
        assert short.result()[0] == 200 and server.ask(long) == (200, predictor(**long))
        found = [request.result() for request in requests]
    assert {headers.get("retry-after") for status, headers, _ in found if status == 503} == {"1"}
    labels = [json.loads(text)["label"] for status, _, text in found if status == 200]
    assert labels == [predictor(**long)["label"]] * len(labels) and 3 <= len(labels) <= 9


def test_tokens_that_the_model_does_not_read_change_no_window(predictor):
    whole = answers.create(predictor.answers.model)
    whole.limited_tokenizer = whole.model.tokenizer
    for sizes in itertools.product(range(1, 40, 3), range(0, 40, 3)):
        texts = ["the cat " * size for size in sizes if size]
        assert predictor.answers.preprocess(*texts) == whole.preprocess(*texts)
    assert predictor.answers.num_truncated > 0


def test_a_request_that_would_be_late_is_refused_at_once(predictor):
    slow = Held(predictor)
    slow.compute = lambda windows: time.sleep(0.5 * len(windows)) or predictor.compute(windows)
    with running(slow, seconds=8.0) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        assert server.ask(ASK)[0] == 200  # 0.5 seconds for each text
        waiting = pool.submit(server.ask, ASK)
        time.sleep(0.1)
        assert_refused(server, [ASK] * 20, b"Too many texts")
        assert waiting.result()[0] == 200


def test_errors_are_counted_without_the_texts_and_health_names_the_target_of_a_link(predictor, tmp_path,
                                                                                    caplog):
    """Behind a link, the model of the start is named, also when the link has another target."""
    linked = copy.copy(predictor)
    folder, name = os.path.split(os.path.abspath(predictor.checkpoint))
    (tmp_path / "link").symlink_to(folder)
    linked.checkpoint = str(tmp_path / "link" / name)
    with running(linked) as server, caplog.at_level("WARNING"):
        (tmp_path / "link").unlink()
        for _ in range(3):
            assert server.ask({"text_a": "a secret", "wrong": "a secret"})[0] == 422
        found = health(server)
        assert server.request("HEAD", "/health")[0] == 200
    assert (found["model"], found["checkpoint"], found["errors"]) == ("model", name, {"422": 3})
    assert [record.getMessage() for record in caplog.records] == [
        "Answers with an error since the start: status 422: 1."]  # at most one line in a minute


def test_an_answer_that_is_late_is_504_and_leaves_the_queue(predictor):
    held = Held(predictor, is_open=False)
    with running(held, seconds=0.5, max_queue=20) as server:
        for _ in range(3):  # more texts than the queue holds
            assert server.ask([ASK] * 9)[0] == 504
        held.go.set()
        wait_until(lambda: server.ask(ASK)[0] == 200)
    assert held.batches[0] == 8 and sum(held.batches) < 12


# --- Token, pages and the end ----------------------------------------------------------------------------


def test_a_token_is_needed_for_answers_only(predictor):
    with running(predictor, token=f"{TOKEN},{TOKEN[::-1]}") as server:
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer é".encode()},
                        {"Authorization": f"Basic {TOKEN}"},
                        {"Authorization": f"Bearer {TOKEN},{TOKEN[::-1]}"}):
            status, found = server.ask(ASK, **headers)
            assert status == 401 and TOKEN not in found["detail"]
        # The token authorizes the client, so any name of this machine is accepted in the header Host.
        found = server.ask(ASK, Authorization=f"Bearer {TOKEN}", Host="this.machine.example")
        assert found == (200, predictor(**ASK)) == server.ask(ASK, Authorization=f"Bearer {TOKEN[::-1]}")
        assert server.ask(ASK, Authorization=f"Bearer {TOKEN}", Origin="http://evil.example")[0] == 403
        for path in ("/", "/docs", "/openapi.json", "/health"):
            assert server.request("GET", path)[0] == 200
        description = json.loads(server.request("GET", "/openapi.json")[2])
        assert description["paths"]["/predict"]["post"]["security"]
        assert "401" in description["paths"]["/predict"]["post"]["responses"]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_nothing_from_elsewhere(path, server):
    status, headers, text = server.request("GET", path)
    text, policy = text.decode(), headers["content-security-policy"]
    assert status == 200 and "://" not in text and "innerHTML" not in text
    assert not re.findall(r'(?:src|href)="(?!data:,"|docs"|\./"|openapi\.json")', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy
    for part in re.findall(r"<(?:script|style)>(.*?)</", text, re.DOTALL):
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy


def test_at_the_end_requests_under_way_are_answered_and_idle_connections_closed(predictor):
    held = Held(predictor, is_open=False)
    with running(held) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        idle, used = server.connect(), server.connect()
        used.sendall(HEALTH)
        assert used.recv(1000).startswith(b"HTTP/1.1 200")
        waiting = [pool.submit(server.request, "POST", "/predict", json.dumps(ASK), JSON) for _ in range(6)]
        wait_until(lambda: held.batches)
        time.sleep(0.3)
        server.stop.set()
        time.sleep(1.5)
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        held.go.set()
        found = [future.result() for future in waiting]
        start = time.monotonic()
    assert time.monotonic() - start < 5 and idle.recv(1) == b""
    assert {(status, headers["connection"]) for status, headers, _ in found} == {(200, "close")}
