"""--init_checkpoint=hf:…: each command reads models from the cache of Hugging Face, without network."""

import json
import shutil

from file_server import Server
import pytest
import tiny

from bertlib.runs import record_content, record_format

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


def test_a_training_records_the_revision(run, home, tmp_path):
    data = tiny.write_task(tmp_path / "data", "mrpc", train=8, dev=4)
    done = run("run_classifier.py", task_name="MRPC", data_dir=data, max_seq_length=tiny.SEQ_LENGTH,
               train_batch_size=4, num_train_epochs=1, do_train=True, init_checkpoint="hf:org/tiny",
               output_dir="output")
    snapshot = home / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    done.assert_success(f"--init_checkpoint=hf:org/tiny: using revision {COMMIT} in {snapshot}.")
    record = record_format.read_record(str(tmp_path / "output"))["init_checkpoint"]
    assert record == {"path": str(snapshot), "fingerprint": record_content.hash_checkpoint(str(snapshot)),
                      "repository": "org/tiny", "revision": COMMIT}
    assert (tmp_path / "output" / "vocab.txt").exists()
    # The fingerprint is that of the weights that are read, also beside a checkpoint of TensorFlow.
    (snapshot / "bert_model.ckpt.index").write_bytes(b"other")
    assert record_content.hash_checkpoint(str(snapshot)) == record["fingerprint"]


def test_a_download_with_the_real_library(scripts, tiny_model, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sees a bird\n")
    files = {path.name: path.read_bytes() for path in tiny_model.hugging_face.iterdir()}
    files.update({"pytorch_model.bin": b"pickle", "README.md": b"text"})
    described = {"id": "org/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
    tree = [{"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
            for name, content in files.items()]
    served = {f"/org/tiny/resolve/{COMMIT}/{name}": content for name, content in files.items()}
    for place, value in (("revision/main", described), (f"tree/{COMMIT}", tree)):
        served[f"/api/models/org/tiny/{place}"] = json.dumps(value).encode()

    def extract(address, output):
        return scripts.run("extract_features.py", *tiny.flags(
            input_file="text.txt", max_seq_length=tiny.SEQ_LENGTH, layers=-1, output_file=output,
            init_checkpoint="hf:org/tiny"), cwd=tmp_path, HF_HOME=str(tmp_path / "home"), HF_ENDPOINT=address,
            HF_HUB_OFFLINE="0", HF_HUB_DISABLE_TELEMETRY="1", NO_PROXY="127.0.0.1")

    with Server(served) as server:
        server.headers["X-Repo-Commit"] = COMMIT
        done = extract(server.address, "a.jsonl")
        done.assert_success(f"using revision {COMMIT} in {tmp_path}/home/hub/models--org--tiny/")
        assert not [path for path, _ in server.requests if path.endswith((".bin", ".md"))]
    # From now on, the files in the cache are enough.
    done = extract(server.address, "b.jsonl")
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
    done.assert_refused(advice, f"--{flag}={name}: There is no checkpoint {name}")
