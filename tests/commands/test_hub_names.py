"""--init_checkpoint=hf:…: each command takes models from Hugging Face's cache, without network."""

import json
import shutil

import pytest
import tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def home(tiny_model, tmp_path_factory):
    """HF_HOME with the tiny model as org/tiny, in the layout of Hugging Face's programs."""
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
    given = dict(task_name="MRPC", data_dir=data, max_seq_length=tiny.SEQ_LENGTH, train_batch_size=4,
                 num_train_epochs=1, do_train=True)
    done = run("run_classifier.py", **given, init_checkpoint="hf:org/tiny", output_dir="output")
    assert done.code == 0, done.err
    snapshot = home / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    assert f"--init_checkpoint=hf:org/tiny: using revision {COMMIT} in {snapshot}." in done.err
    record = json.loads((tmp_path / "output" / "run.json").read_text())["init_checkpoint"]
    assert record.pop("fingerprint") and record == {"path": str(snapshot), "repository": "org/tiny",
                                                    "revision": COMMIT}
    assert (tmp_path / "output" / "vocab.txt").exists()
    # The directory trains the same weights, and the record of the training is valid.
    done = run("run_classifier.py", **given, init_checkpoint=snapshot, output_dir="other")
    assert done.code == 0, done.err
    last = "model.ckpt-2.data-00000-of-00001"
    assert (tmp_path / "output" / last).read_bytes() == (tmp_path / "other" / last).read_bytes()
    done = run("run_classifier.py", **{**given, "do_train": False}, do_eval=True, output_dir="output")
    assert done.code == 0, done.err
    done = run("convert_checkpoint.py", input="hf:org/tiny", output="converted")
    assert done.code == 0 and (tmp_path / "converted" / "bert_model.ckpt.index").exists(), done.err


def test_vectors(run, home, tmp_path):
    (tmp_path / "text.txt").write_text("the cat sees a bird\n")
    given = dict(input_file="text.txt", max_seq_length=tiny.SEQ_LENGTH, layers=-1)
    done = run("extract_features.py", **given, output_file="a.jsonl",
               init_checkpoint=f"hf:org/tiny@{COMMIT}")
    assert done.code == 0, done.err
    done = run("extract_features.py", **given, output_file="b.jsonl",
               init_checkpoint=home / "hub" / "models--org--tiny" / "snapshots" / COMMIT)
    assert done.code == 0 and (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize("command, flags", [("run_squad.py", {}), ("run_pretraining.py", {"input_file": "x"}),
                                            ("run_ner.py", {}), ("extract_features.py", {"input_file": "x"}),
                                            ("run_classifier.py", {"task_name": "MRPC"})])
def test_names_that_are_not_in_the_cache(run, tmp_path, command, flags):
    (tmp_path / "x").write_text("x\n")
    done = run(command, **flags, init_checkpoint="hf:org/none")
    assert done.code == 1 and done.err.splitlines()[-1].startswith(
        f"{command}: error: --init_checkpoint=hf:org/none: Hugging Face's cache "), done.err
    assert "Unset the variable" in done.err and not (tmp_path / "output").exists()


@pytest.mark.parametrize("command, flag, name, advice", [
    ("run_squad.py", "init_checkpoint", "bert-base-uncased", "bert-base-uncased is no path. To use the model "
     "of this name from the Hugging Face Hub, pass --init_checkpoint=hf:bert-base-uncased."),
    ("convert_checkpoint.py", "input", "google-bert/bert-base-uncased", "is no path. To use the model of "
     "this name from the Hugging Face Hub, pass --input=hf:google-bert/bert-base-uncased."),
    ("run_ner.py", "init_checkpoint", "uncased_L-12_H-768_A-12/bert_model.ckpt",
     "`python download.py --model=uncased_L-12_H-768_A-12` downloads the published model. Then "
     "pass --init_checkpoint=checkpoints/uncased_L-12_H-768_A-12/bert_model.ckpt.")])
def test_names_that_are_no_paths(run, command, flag, name, advice):
    done = run(command, **{flag: name}, **({"output": "out"} if flag == "input" else {}))
    assert done.code == 1 and advice in done.err.splitlines()[-1], done.err
    assert f"--{flag}={name}: There is no checkpoint {name}" in done.err
