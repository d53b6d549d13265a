"""--init_checkpoint=hf:…: each command reads models from the cache of Hugging Face, without network."""

import contextlib
import hashlib
import http.server
import json
import shutil
import threading

import pytest
import tiny

from bertlib.runs import record_fields, run_record

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def home(tiny_model, tmp_path_factory):
    """A directory for HF_HOME. It contains the tiny model as org/tiny, in the layout of Hugging Face."""
    home = tmp_path_factory.mktemp("hf_home")
    model = home / "hub" / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    (model / "blobs").mkdir()
    snapshot = model / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for path in tiny_model.hugging_face.iterdir():
        shutil.copy(path, model / "blobs" / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    return home


@pytest.fixture
def run(scripts, home, tmp_path):
    def run(command, **flags):
        return scripts.run(command, *tiny.flags(**flags), cwd=tmp_path, HF_HOME=str(home), HF_HUB_OFFLINE="1")
    return run


def test_training_and_conversion(run, home, tmp_path):
    data = tiny.write_task(tmp_path / "data", "mrpc", train=8, dev=4)
    done = run("run_classifier.py", task_name="MRPC", data_dir=data, max_seq_length=tiny.SEQ_LENGTH,
               train_batch_size=4, num_train_epochs=1, do_train=True, init_checkpoint="hf:org/tiny",
               output_dir="output")
    done.assert_success()
    snapshot = home / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    assert f"--init_checkpoint=hf:org/tiny: using revision {COMMIT} in {snapshot}." in done.err
    record = record_fields.read_record(str(tmp_path / "output"))["init_checkpoint"]
    assert record == {"path": str(snapshot), "fingerprint": run_record.hash_checkpoint(str(snapshot)),
                      "repository": "org/tiny", "revision": COMMIT}
    assert (tmp_path / "output" / "vocab.txt").exists()
    # The fingerprint is that of the weights that are read, also beside a checkpoint of TensorFlow.
    (snapshot / "bert_model.ckpt.index").write_bytes(b"other")
    assert run_record.hash_checkpoint(str(snapshot)) == record["fingerprint"]
    done = run("convert_checkpoint.py", input="hf:org/tiny", output="converted")
    assert done.code == 0 and (tmp_path / "converted" / "bert_model.ckpt.index").exists(), done.err


@contextlib.contextmanager
def serve(files):
    """A context manager that runs a fake Hub with one repository, org/tiny. It supports only downloads.

    Yields (its address, list of the paths that were requested).
    """
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            headers, body, code = {}, b"", 404
            if self.path.startswith("/api/models/org/tiny/"):
                siblings = [{"rfilename": name} for name in files]
                body, code = json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode(), 200
                if "/tree/" in self.path:
                    body = json.dumps([{"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
                                       for name, content in files.items()]).encode()
            elif self.path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
                body, code = files[self.path.split("/")[-1]], 200
                headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
            self.send_response(code)
            for name, value in {**headers, "Content-Length": len(body)}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_a_download_with_the_real_library(scripts, tiny_model, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sees a bird\n")
    files = {path.name: path.read_bytes() for path in tiny_model.hugging_face.iterdir()}

    def extract(address, output):
        return scripts.run("extract_features.py", *tiny.flags(
            input_file="text.txt", max_seq_length=tiny.SEQ_LENGTH, layers=-1, output_file=output,
            init_checkpoint="hf:org/tiny"), cwd=tmp_path, HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=address,
            HF_HUB_OFFLINE="0", HF_HUB_DISABLE_TELEMETRY="1", NO_PROXY="127.0.0.1")

    with serve({**files, "pytorch_model.bin": b"pickle", "README.md": b"text"}) as (address, asked):
        done = extract(address, "a.jsonl")
        done.assert_success()
        assert f"using revision {COMMIT} in {tmp_path}/home/hub/models--org--tiny/" in done.err
        assert not [path for path in asked if path.endswith((".bin", ".md"))]
    # From now on, the files in the cache are enough.
    done = extract(address, "b.jsonl")
    assert done.code == 0 and (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize("command, flag, name, advice", [
    ("run_squad.py", "init_checkpoint", "bert-base-uncased", "The path bert-base-uncased does not exist. To "
     "use the model of this name from the Hugging Face Hub, pass --init_checkpoint=hf:bert-base-uncased."),
    ("convert_checkpoint.py", "input", "google-bert/bert-base-uncased", "does not exist. To use the model of "
     "this name from the Hugging Face Hub, pass --input=hf:google-bert/bert-base-uncased."),
    ("run_ner.py", "init_checkpoint", "uncased_L-12_H-768_A-12/bert_model.ckpt",
     "`python download.py --model=uncased_L-12_H-768_A-12` downloads the published model. Then "
     "pass --init_checkpoint=checkpoints/uncased_L-12_H-768_A-12/bert_model.ckpt.")])
def test_names_that_are_no_paths(run, command, flag, name, advice):
    done = run(command, **{flag: name}, **({"output": "out"} if flag == "input" else {}))
    assert done.code == 1 and advice in done.err.splitlines()[-1], done.err
    assert f"--{flag}={name}: There is no checkpoint {name}" in done.err
