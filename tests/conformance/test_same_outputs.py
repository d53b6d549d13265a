"""`tests/same_outputs.py`: equal files are equal, each kind of difference is found, and a case runs."""

import json
import pathlib
import subprocess
import sys

import comparisons
import numpy as np
import pytest
import tiny

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = {"task": "MRPC", "started": "2026-01-01", "settings": {"seed": 1}, "environment": {"git": None}}


def write(directory, weight=1.0, **changes):
    """Writes an output directory. `changes` are other contents of its files, by the name before the dot."""
    contents = {"eval_results.txt": "eval_accuracy = 0.5\n", "run.json": json.dumps(RECORD),
                "metrics.jsonl": '{"step": 1, "loss": 0.5, "peak_memory_gb": 0.1}\n',
                "report.html": "<p>2026-01-01 10:00</p>\n<p>0.5</p>\n", "train.tf_record": "abc",
                "refusal.txt": "exit code 1\n--train_file\nline 7"}
    contents.update({name: changes.pop(name.partition(".")[0]) for name in contents
                     if name.partition(".")[0] in changes})
    for name, text in contents.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    tiny.write_tensorflow(directory / "model.ckpt-1", {"weight": np.float32(weight)})
    (directory / "checkpoint").unlink()  # contains the path of the directory
    return directory


def test_each_difference_is_found_except_times_memory_and_code(tmp_path):
    old = write(tmp_path / "old")
    later = {**RECORD, "started": "2026-02-02", "environment": {"git": {"commit": "1"}}}
    assert not list(comparisons.compare(old, write(
        tmp_path / "later", run=json.dumps(later), report="<p>2026-02-02 11:11</p>\n<p>0.5</p>\n",
        metrics='{"step": 1, "loss": 0.5, "peak_memory_gb": 0.2}\n')))
    new = write(tmp_path / "new", np.nextafter(np.float32(1), np.float32(2)), run=json.dumps(
        {**RECORD, "settings": {"seed": 2}, "more": 1}), report="<p>2026-01-01 10:00</p>\n<p>0.6</p>\n",
                metrics='{"step": 1, "loss": 0.7, "peak_memory_gb": 0.1}\n', train="abd",
                refusal="exit code 1\n--train_file\nline 8")
    (new / "eval_results.txt").unlink()
    starts = [
        "eval_results.txt: only the old code writes this file", "metrics.jsonl: line 1.loss: 0.5 and 0.7",
        "model.ckpt-1.index: the tensor weight differs", "refusal.txt: line 3: ", "report.html: line 2: ",
        "run.json: more: only the new code writes this field", "run.json: settings.seed: 1 and 2",
        "train.tf_record: the bytes differ"]
    for line, start in zip(comparisons.compare(old, new), starts, strict=True):
        assert line.startswith(start)


@pytest.mark.slow(reason="two processes that load TensorFlow, and a commit of this repository")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is not a checkout of the repository")
def test_the_newest_commit_and_the_working_tree_have_the_same_vocabulary():
    done = subprocess.run([sys.executable, ROOT / "tests" / "same_outputs.py", "HEAD", "vocabulary"],
                          capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0 and "vocabulary: SAME" in done.stdout, done.stdout + done.stderr
