"""download.py with a local web server."""

import os
import signal
import time

from file_server import Server, zip_of
import pytest

MODEL = {"uncased_L-2_H-128_A-2/bert_config.json": b'{"vocab_size": 5}',
         **{f"uncased_L-2_H-128_A-2/{name}": name.encode() for name in (
             "vocab.txt", "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")}}
SQUAD = b'{"data": [{"title": "t", "paragraphs": [{"context": "c", "qas": [{"id": "1"}]}]}]}'
TABLE = b"index\tsentence1\tsentence2\n"
TRAIN, DEV = (f"/SQuAD-explorer/dataset/{part}-v1.1.json" for part in ("train", "dev"))
FILES = {
    "/bert_models/2020_02_20/uncased_L-2_H-128_A-2.zip": zip_of(MODEL),
    "/glue/data/RTE.zip": zip_of({f"RTE/{name}.tsv": TABLE for name in ("train", "dev", "test")}),
    TRAIN: SQUAD, DEV: SQUAD}


@pytest.fixture
def run(scripts, tmp_path):
    return lambda *flags: scripts.run("download.py", *flags, cwd=tmp_path, no_proxy="*")


def test_checkpoints_and_data_are_fetched_and_then_there(run, tmp_path):
    flags = ["--model=uncased_L-2_H-128_A-2", "--data=rte,squad1.1"]
    with Server(FILES) as server:
        server.cuts = [100]
        done = run(*flags, f"--base_url={server.address}")
        done.assert_success("The connection was interrupted after 100 of")
        again = run(*flags, f"--base_url={server.address}")
        assert len(server.requests) == 5  # two of them are for the zip that broke off
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        *(f"checkpoints/{name}" for name in MODEL), *(f"data/glue/RTE/{name}.tsv" for name in
                                                      ("train", "dev", "test")),
        "data/squad/train-v1.1.json", "data/squad/dev-v1.1.json"}
    assert f"export BERT_BASE_DIR={tmp_path}/checkpoints/uncased_L-2_H-128_A-2\n" in done.err
    assert f"export GLUE_DIR={tmp_path}/data/glue\n" in done.err
    assert f"export SQUAD_DIR={tmp_path}/data/squad\n" in done.err
    assert again.code == 0 and all(f"{name}: already there." in again.err
                                   for name in ("uncased_L-2_H-128_A-2", "RTE", "squad1.1"))


def test_a_command_that_was_ended_goes_on(scripts, run, tmp_path):
    size = 3 * 2**20
    large = SQUAD.ljust(size)
    with Server({"/SQuAD-explorer/dataset/train-v2.0.json": large,
                 "/SQuAD-explorer/dataset/dev-v2.0.json": SQUAD}) as server:
        server.pause = size // 2
        flags = ["--data=squad2.0", f"--base_url={server.address}"]
        running = scripts.start("download.py", *flags, cwd=tmp_path, no_proxy="*")
        partial = tmp_path / "data" / "squad" / "train-v2.0.json.partial"
        while not partial.exists() or partial.stat().st_size < 2**20:
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGTERM)
        done = running.wait()
        assert done.code == 143 and "terminated. Run the same command again to continue." in done.err
        server.pause = None
        run(*flags).assert_success()
        assert server.requests[1][1]["Range"] == f"bytes={2**20}-"
    assert partial.with_suffix("").read_bytes() == large


@pytest.mark.parametrize(("flags", "says"), [
    ([], "Name checkpoints with --model, or data sets with --data. To see the known names"),
    (["--data=MRCP"], "--data: 'MRCP' is not known; did you mean MRPC? To see the known names"),
    (["--data=RTE", "--base_url=mirror.example"], "--base_url=mirror.example: it must be http:// or "
                                                  "https://"),
    (["--data=RTE", "--output_dir=gs://bucket/data"], "--output_dir=gs://bucket/data must be a local"),
    (["--data=RTE", "--base_url=http://127.0.0.1:9"], "RTE.zip: the server does not answer"),
    (["--data=RTE", "--output_dir=file"], "file/data: Not a directory")])
def test_what_cannot_be_is_one_line(run, tmp_path, flags, says):
    (tmp_path / "file").touch()
    done = run(*flags)
    assert done.code == 1 and says in done.err.splitlines()[-1], done.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "file"]


def test_list_prints_names_and_addresses(run):
    done = run("--list")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    base = "https://storage.googleapis.com/bert_models/2018_11_23"
    assert ["multi_cased_L-12_H-768_A-12", f"{base}/multi_cased_L-12_H-768_A-12.zip"] in lines
    assert ["QNLI", "https://dl.fbaipublicfiles.com/glue/data/QNLIv2.zip"] in lines
