"""Fingerprints and digests have the values that were recorded when their forms were chosen.

Fingerprints are stored: with another form, each stored record, manifest and cache would look changed. Digests
choose rows: with another form, development rows would become training rows. test_dev_split.py and
test_randomness.py have the recorded values of the development rows and of the random numbers.
"""

import random

from helpers import ROOT

from bertlib.reports import sweep_grid
from bertlib.system import fingerprints

# {module that uses hashlib: what its digests are}. All other modules call `fingerprints`.
DIGESTS = {
    "bertlib/system/fingerprints.py": "all that is stored and compared",
    "bertlib/graph/randomness.py": "the choice of random numbers",
    "bertlib/reports/sweep_grid.py": "the choice of runs",
    "bertlib/reports/sweep_runs.py": "names of directories",
    "bertlib/api/data_files.py": "names of files", "bertlib/system/files.py": "names of files",
    "bertlib/graph/native.py": "names of compiled libraries", "bertlib/system/cluster.py": "a secret key",
    "bertlib/checkpoints/hub_module.py": "names of TensorFlow Hub", "bertlib/serving/http_app.py": "a header",
    "bertlib/runs/model_config.py": "a published SHA-256"}


def test_nothing_else_hashes():
    found = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.py"), *ROOT.glob("bertlib/**/*.py"))
             if "hashlib" in path.read_text(encoding="utf-8")}
    assert found == set(DIGESTS)


def test_the_drawn_examples_are_the_recorded_ones():
    texts = [f"text {number}" for number in range(12)]
    assert fingerprints.draw(texts, 3, fingerprints.hash_values) == ["text 6", "text 10", "text 11"]


def test_texts_have_their_recorded_fingerprint():
    # --max_train_examples draws sentences and questions by this fingerprint.
    assert fingerprints.hash_texts(["a", None, "b\n", ("x", 1)]) == "5661533a2c2b78e6d12a91a99d2ce36b"


def test_tokens_have_their_recorded_fingerprint():
    assert fingerprints.hash_tokens(["[PAD]", "é", "##\ud800"]) == fingerprints.hash_bytes(
        b"[PAD]\n\xc3\xa9\n##\xed\xa0\x80") == "ba3bd083087973ba651dffc9454b4d33"


def test_large_files_have_their_recorded_fingerprint(tmp_path, monkeypatch):
    path = tmp_path / "large"
    path.write_bytes(random.Random(1).randbytes(1_000_003))
    monkeypatch.setattr(fingerprints, "_SAMPLED_BYTES", 2**18)
    assert fingerprints.hash_files([path]) == {
        "files": 1, "bytes": 1_000_003, "fingerprint": "098cc54e247c723654a25a65534e9acd"}
    assert fingerprints.hash_files([path] * 3)["fingerprint"] == "54eae817845384bd997da63162d06dfc"


def test_the_sample_of_a_sweep_is_the_recorded_one():
    runs = sweep_grid.list_runs({"a": ["1", "2", "3"], "seed": ["0", "1", "2"]}, 3, 7)
    assert [run.name for run in runs] == ["a=1.seed=0", "a=1.seed=2", "a=2.seed=1"]
