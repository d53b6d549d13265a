"""Disks that cannot be written, and clusters: a command prints one message and leaves no half-written file.
"""

import json
import os

import pytest
import tiny

from bertlib.runs import checks
from bertlib.runs.settings import Settings

CLUSTER = json.dumps({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}})


@pytest.mark.parametrize("script", ["run_squad.py", "extract_features.py"])
def test_a_cluster_with_parameter_servers_is_refused_before_anything_is_written(script, scripts, tmp_path):
    done = scripts.run(script, cwd=tmp_path, TF_CONFIG=CLUSTER)
    assert done.code == 1 and not list(tmp_path.iterdir())
    message = f"{script}: error: The environment variable TF_CONFIG cannot be used: it names parameter"
    assert done.err.splitlines()[-1].startswith(message)


def assert_disk_is_named(done, script, path):
    assert done.code == 1, done
    message = f"{script}: error: {path} could not be written: the disk is full: "
    assert done.err.splitlines()[-1].startswith(message)
    assert "Traceback" not in done.err and "memory" not in done.err


@pytest.mark.parametrize("kind", ["jsonl", "npz"])
def test_vectors_on_a_full_disk(kind, scripts, tiny_model, tmp_path):
    (tmp_path / "text").write_text("the cat sees a bird\n")
    os.symlink("/dev/full", tmp_path / "vectors.partial")
    flags = dict(tiny_model.flags, input_file=tmp_path / "text", output_file=tmp_path / "vectors", layers=-1,
                 output_format=kind)
    done = scripts.run("extract_features.py", *tiny.flags(**flags), cwd=tmp_path)
    assert_disk_is_named(done, "extract_features.py", tmp_path / "vectors")
    assert os.listdir(tmp_path) == ["text"]


def test_pretraining_data_on_a_full_disk(scripts, tiny_model, tmp_path):
    (tmp_path / "text").write_text("the cat sees a bird\nthe dog eats\n\nan old man\na new house\n")
    os.symlink("/dev/full", tmp_path / "records.partial.block")
    flags = dict(vocab_file=tiny_model.vocab, input_file=tmp_path / "text", output_file=tmp_path / "records",
                 max_seq_length=16)
    done = scripts.run("create_pretraining_data.py", *tiny.flags(**flags), cwd=tmp_path)
    assert_disk_is_named(done, "create_pretraining_data.py", tmp_path / "records")
    again = scripts.run("create_pretraining_data.py", *tiny.flags(**flags), cwd=tmp_path)
    assert again.code == 0 and (tmp_path / "records").stat().st_size, again.err


def test_a_vocabulary_on_a_full_disk(scripts, tmp_path):
    (tmp_path / "text").write_text("the cat sees a bird\n" * 3)
    os.symlink("/dev/full", tmp_path / "vocab.txt.partial")
    done = scripts.run("build_vocab.py", f"--input_file={tmp_path}/text",
                       f"--output_file={tmp_path}/vocab.txt", cwd=tmp_path)
    assert_disk_is_named(done, "build_vocab.py", tmp_path / "vocab.txt")
    assert os.listdir(tmp_path) == ["text"]


def test_an_output_dir_without_permission_is_refused(tmp_path, monkeypatch):
    settings = Settings({"output_dir": str(tmp_path / "a" / "b"), "results_dir": None, "do_train": False})
    checks.check_output_dir(settings)
    asked = []
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append(path))
    with pytest.raises(PermissionError, match=f"=.*/a/b: nothing can be written in {tmp_path}:"):
        checks.check_output_dir(settings)
    assert asked == [str(tmp_path)]
