"""The HTTP interface of a predictor on loopback: answers, limits, wrong requests, clients that misbehave."""

import base64
import concurrent.futures
import hashlib
import json
import re
import threading
import time

from http_clients import JSON, Held, running, wait_until
from model_directories import TAGS, linear, write
import pytest
import tiny

from bertlib import serving

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

ASK = {"text_a": "the cat sees a dog .", "text_b": "the dog eats"}
TOKEN = "a-secret-of-many-letters"


@pytest.fixture(scope="module")
def predictor(tiny_model, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("http") / "pairs", tiny_model, "classification", linear(3),
                 ["no", "maybe", "yes"])
    with serving.load(str(path)) as predictor:
        yield predictor


@pytest.fixture(scope="module")
def server(predictor):
    """A server with short limits."""
    with running(predictor, seconds=2.0) as server:
        yield server


# --- Answers ---------------------------------------------------------------------------------------------


def test_one_input_has_one_answer_and_a_list_has_a_list(server, predictor):
    alone = {"text_a": "a cat"}
    assert server.ask(ASK) == (200, predictor(**ASK))
    status, found = server.ask([alone, ASK, {"text_a": "a dog"}])
    assert status == 200 and [answer["label"] for answer in found] == [
        predictor(**question)["label"] for question in (alone, ASK, {"text_a": "a dog"})]
    assert server.ask([ASK]) == (200, [predictor(**ASK)])


def test_concurrent_requests_get_their_own_answers_in_shared_batches(predictor):
    texts = [" ".join(tiny.WORDS[start:start + length]) for start in range(5) for length in range(1, 6)]
    held = Held(predictor, is_open=False)
    with running(held) as server, concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
        futures = [pool.submit(server.ask, {"text_a": text}) for text in texts]
        wait_until(lambda: held.batches)
        time.sleep(0.3)
        held.go.set()
        for text, future in zip(texts, futures):
            status, found = future.result()
            assert status == 200
            assert found["probabilities"] == pytest.approx(predictor(text)["probabilities"], abs=2e-6)
    assert sum(held.batches) == len(texts) and max(held.batches) <= 8 and len(held.batches) < len(texts) / 2


def test_a_tagger(tiny_model, tmp_path):
    path = write(tmp_path / "model", tiny_model, "tagging", linear(5), TAGS)
    with serving.load(str(path)) as predictor, running(predictor) as server:
        for question in ({"text": "the cat 🙂 sees the dog"}, {"text": ["the", "cat"]}):
            assert server.ask(question) == (200, predictor(**question))
        schema = json.loads(server.request("GET", "/openapi.json")[2])["paths"]["/predict"]["post"]
        example = schema["requestBody"]["content"]["application/json"]["example"]
        assert server.ask(example)[0] == 200


def test_an_answer_that_is_not_finite_is_an_error(predictor):
    class Diverged(Held):
        def answer(self, prepared):
            return [{"score": float("nan")} for _ in prepared]

    with running(Diverged(predictor)) as server:
        status, found = server.ask(ASK)
    assert status == 500 and "not finite" in found["detail"]


# --- Wrong requests --------------------------------------------------------------------------------------


BODIES = {
    "NaN": (b'{"text_a": NaN}', 400, "NaN"), "no JSON": (b"text", 400, "not valid JSON"),
    "infinite": (b'{"text_a": 1e999}', 400, "not valid JSON"),
    "deep": (b"[" * 5000 + b"]" * 5000, 400, "not valid JSON"),
    "Latin-1": ('{"text_a": "é"}'.encode("latin-1"), 400, "not UTF-8: wrong byte at position 12"),
    "half of a pair": (b'{"text_a": "\\ud800"}', 400, "surrogate"),
    "no object": (b'"text"', 422, "must be a JSON object with text_a and text_b, not"),
    "no input": (b"[]", 422, "list is empty"), "no field": (b"{}", 422, "the field text_a is missing"),
    "another field": (b'{"text_a": "a", "text": "b"}', 422, "unknown field 'text'"),
    "a number as text": (b'{"text_a": 7}', 422, "text_a is 7, but it must be a text"),
    "the second": (b'[{"text_a": "a"}, {"text_a": "a", "text_b": ""}]', 422, "input 2: text_b is empty"),
    "too many": (json.dumps([ASK] * 21).encode(), 413, "at most 20"),
    "too large": (b" " * 10_001, 413, "more than 10,000 bytes")}


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_has_a_clear_answer(name, server):
    body, status, words = BODIES[name]
    found, _, text = server.request("POST", "/predict", body, JSON)
    assert (found, list(json.loads(text))) == (status, ["detail"]) and words in json.loads(text)["detail"]


@pytest.mark.parametrize("headers, status, words", [
    ({"Content-Type": "text/plain"}, 415, "Content-Type"),
    ({"Content-Type": "application/json; charset=latin-1"}, 415, "UTF-8"),
    ({**JSON, "Content-Encoding": "gzip"}, 415, "without compression"),
    ({**JSON, "Host": "evil.example"}, 421, "evil.example"),
    ({**JSON, "Host": "localhost:1@evil.example"}, 421, "localhost"),
    ({**JSON, "Origin": "http://evil.example"}, 403, "evil.example"),
    ({**JSON, "Origin": "http://127.0.0.1:1"}, 403, "pages")])
def test_wrong_headers(headers, status, words, server):
    found, _, text = server.request("POST", "/predict", json.dumps(ASK), headers)
    assert found == status and words.lower() in json.loads(text)["detail"].lower()


@pytest.mark.parametrize("headers", [
    {"Content-Type": "application/json; charset=UTF-8"}, {"Host": "LOCALHOST:80"}, {"Host": "[::1]:8000"},
    {"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}])
def test_headers_of_this_machine(headers, server):
    assert server.request("POST", "/predict", json.dumps(ASK), {**JSON, **headers})[0] == 200


@pytest.mark.parametrize("head", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n"])
def test_what_is_no_http(head, server):
    with server.connect() as client:
        client.sendall(head)
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert server.ask(ASK)[0] == 200


def test_a_request_with_two_lengths_ends_its_connection(server, predictor):
    body = json.dumps(ASK).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with server.connect() as client:
        client.sendall(HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks +
                       b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = answer_of(client)
    assert found.startswith(b"HTTP/1.1 200 ") and found.count(b"HTTP/1.1") == 1
    assert b"connection: close" in found and predictor(**ASK)["label"].encode() in found


# --- Clients that misbehave ------------------------------------------------------------------------------


def answer_of(client):
    """Returns the bytes that a client gets until the server closes the connection."""
    found = b""
    while part := client.recv(10_000):
        found += part
    return found


HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("is_chunked, connection", [(False, "keep-alive"), (True, "close")])
def test_100_megabytes_are_refused_also_if_the_client_sends_all_before_it_reads(is_chunked, connection,
                                                                                server):
    def chunks():
        for _ in range(1600):
            yield b" " * 2**16

    length = {} if is_chunked else {"Content-Length": str(1600 * 2**16)}
    status, _, text = server.request("POST", "/predict", chunks(), {
        **JSON, **length, "Connection": connection})
    assert status == 413 and b"10,000 bytes" in text


@pytest.mark.parametrize("sent, answer", [
    (b"POST /pre", b""),
    (HEAD + b"Content-Length: 100\r\n\r\n" + b'{"text_a"', b"HTTP/1.1 408 ")])
def test_a_client_that_stops_sending_is_cut_off(sent, answer, predictor):
    with running(predictor, seconds=0.5) as server, server.connect() as client:
        start = time.monotonic()
        client.sendall(sent)
        try:
            found = answer_of(client)
        except ConnectionResetError:
            found = b""
        assert found.startswith(answer) and (answer or not found)
        assert 0.4 < time.monotonic() - start < 15


def test_what_is_no_http_after_an_answer_has_begun(server, caplog):
    with server.connect() as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % 20_000 + b" " * 20_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")
        client.sendall(b"\r\nnot a size\r\n")
        while client.recv(1000):
            pass
    assert not [record for record in caplog.records if record.exc_info]


def test_inputs_of_a_client_that_has_left_are_not_computed(predictor):
    held = Held(predictor, is_open=False)
    with running(held) as server:
        clients = [server.connect() for _ in range(3)]
        body = json.dumps([ASK] * 4).encode()
        for client in clients:
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: held.batches)  # the first request is being computed
        time.sleep(0.3)
        for client in clients:
            client.close()
        time.sleep(0.3)
        held.go.set()
        assert server.ask(ASK)[0] == 200
    assert held.batches == [4, 1]


def test_a_client_that_does_not_read_its_answer_is_cut_off(predictor):
    class Long(Held):
        def answer(self, prepared):
            return [{"label": "x" * 20_000_000} for _ in prepared]

    with running(Long(predictor), seconds=0.5) as server, server.connect() as client:
        body = json.dumps(ASK).encode()
        client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(8)  # more than the time for the request and for the answer
        assert len(answer_of(client)) < 20_000_000


# --- Limits ----------------------------------------------------------------------------------------------


def test_a_full_queue_and_too_many_requests_are_answered_at_once(predictor):
    held = Held(predictor, is_open=False)
    with running(held, max_queue=20, requests=3) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(server.ask, [ASK] * 10)]
        wait_until(lambda: held.batches)
        waiting.append(pool.submit(server.ask, [ASK] * 8))
        time.sleep(0.3)
        status, headers, text = server.request("POST", "/predict", json.dumps([ASK] * 3), JSON)
        assert status == 503 and headers["retry-after"] == "1" and b"Too many texts" in text
        waiting.append(pool.submit(server.ask, ASK))
        time.sleep(0.3)
        status, found = server.ask(ASK)
        assert status == 503 and "Too many requests" in found["detail"]
        held.go.set()
        assert [future.result()[0] for future in waiting] == [200, 200, 200]


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
    with running(predictor, token=TOKEN) as server:
        for headers in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"},
                        {"Authorization": "Bearer "}, {"Authorization": "Bearer é".encode()},
                        {"Authorization": f"Basic {TOKEN}"}):
            status, found = server.ask(ASK, **headers)
            assert status == 401 and TOKEN not in found["detail"]
        # The token authorizes the client, so any name of this machine is accepted in the header Host.
        found = server.ask(ASK, Authorization=f"Bearer {TOKEN}", Host="this.machine.example")
        assert found == (200, predictor(**ASK))
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


def test_requests_under_way_are_answered_at_the_end(predictor):
    held = Held(predictor, is_open=False)
    with running(held) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(server.request, "POST", "/predict", json.dumps(ASK), JSON) for _ in range(6)]
        wait_until(lambda: held.batches)
        time.sleep(0.3)
        server.stop.set()
        time.sleep(1.5)
        with pytest.raises(ConnectionRefusedError):
            server.connect()
        held.go.set()
        found = [future.result() for future in waiting]
    assert [status for status, _, _ in found] == [200] * 6
    assert {headers["connection"] for _, headers, _ in found} == {"close"}


def test_idle_connections_do_not_delay_the_end(predictor):
    threads = threading.active_count()  # other tests may have left threads of TensorFlow
    with running(predictor) as server:
        idle, used = server.connect(), server.connect()
        used.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert used.recv(1000).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
    assert time.monotonic() - start < 10
    assert threading.active_count() <= threads + 2 and idle.recv(1) == b""
