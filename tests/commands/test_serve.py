"""`serve.py` as a user starts it: errors of one line, the token, and the end by signals."""

import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import time
import types

import http_clients
from model_directories import write_with_best
import pytest
from scripts import ROOT

from bertlib import serving
from bertlib.runs import input_paths

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

ASK = {"text_a": "the cat sees a dog ."}
TOKEN = "a-secret-of-many-letters"


def error_of(done):
    """Returns the message of a run that ended with an error of one line."""
    last = done.err.splitlines()[-1]
    assert done.code == 1 and last.startswith("serve.py: error: ") and "Traceback" not in done.err, done.err
    return last


@pytest.mark.parametrize("flags, words", [
    (["--model_dir=evaluated"], "evaluated has no checkpoint, so it is not the output directory"),
    (["--model_dir={model}", "--host=0.0.0.0"], "--host=0.0.0.0: other machines can reach this address, so "),
    (["--model_dir={model}", "--host=192.0.2.1", f"--token={TOKEN}"], "not an address of this machine"),
    (["--model_dir={model}", "--task=tagging"], "task tagging: the model in "),
    (["--model_dir={model}", "--engine=onnx"], "contains no export"),
    (["--model_dir={model}", "--token=short"], "--token needs at least 16 characters"),
    (["--model_dir={model}", f"--token={TOKEN},"], "--token needs at least 16 characters"),
    (["--model_dir={model}", f'--token="{TOKEN}"'], "without quotes around them"),
    (["--model_dir={model}", "--max_queue=5"], "--max_queue=5 is less than --max_texts=256"),
    (["--model_dir={model}", "--port={used}"], "another program uses this port")])
def test_errors_of_one_line(flags, words, classifier_dir, run_script, tmp_path):
    (tmp_path / "evaluated").mkdir()
    (tmp_path / "evaluated" / "eval_results.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as used:
        values = {"model": classifier_dir, "used": used.getsockname()[1]}
        done = run_script("serve.py", *(flag.format(**values) for flag in flags))
    assert words in error_of(done)


def test_a_model_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    with pytest.raises(PermissionError, match="this user may not read it"):
        input_paths.require_model(types.SimpleNamespace(model_dir=str(tmp_path)))


def test_a_missing_package_is_named_with_its_extra(classifier_dir, scripts, tmp_path):
    (tmp_path / "fastapi.py").write_text("raise ImportError('No module named fastapi')\n")
    done = scripts.run("serve.py", f"--model_dir={classifier_dir}", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert "fastapi and uvicorn" in error_of(done) and "requirements-serve.txt" in error_of(done)
    assert "[serve]" in error_of(done)


# --- Processes -------------------------------------------------------------------------------------------


def serve(directory, model, *flags):
    """Returns a `http_clients.Process` for a model."""
    command = [sys.executable, ROOT / "serve.py", f"--model_dir={model}", *flags]
    return http_clients.Process(directory, command)


@pytest.mark.slow(reason="processes of their own, which load TensorFlow")
def test_the_second_sigterm_and_ctrl_c(classifier_dir, tmp_path):
    with serve(tmp_path, classifier_dir, "--request_timeout=60") as server:
        body = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" \
               b"Content-Length: 9\r\n\r\n{"
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(body)
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(3)  # the request is not complete
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(3) == 143
    with serve(tmp_path, classifier_dir) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130
        assert server.log.endswith("serve.py: interrupted.\n")


@pytest.mark.slow(reason="two processes, which load TensorFlow")
def test_the_flags_of_the_model_and_of_the_limits_have_an_effect(tiny_model, tmp_path):
    model = write_with_best(tmp_path / "model", tiny_model)
    with serving.load(model, weights="last") as predictor:
        last = predictor(ASK["text_a"])["probabilities"]["yes"]
    with serve(tmp_path, model) as server:
        assert server.ask(ASK)[1]["probabilities"]["yes"] == 0.5 != last
    (tmp_path / "secret").write_text(f"--token={TOKEN}\n")
    limits = ["--max_body_kb=1", "--max_requests=1", "--batch_wait_ms=1500"]
    with serve(tmp_path, model, "--weights=last", "--precision=bf16", "--flagfile=secret", *limits) as server:
        def ask(question):
            return server.ask(question, Authorization=f"Bearer {TOKEN}")

        assert server.ask(ASK)[0] == 401
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = list(pool.map(ask, [ASK, ASK]))
        assert time.monotonic() - started > 1.4  # the batch was not full
        assert sorted(status for status, _ in answers) == [200, 503]
        answer = next(value for status, value in answers if status == 200)
        assert 0 < abs(answer["probabilities"]["yes"] - last) < 0.05
        assert ask({"text_a": "the cat " * 200})[0] == 413
