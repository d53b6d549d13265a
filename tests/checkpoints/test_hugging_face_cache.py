"""Names of models on the Hugging Face Hub: the cache that is read, the files that are fetched, the errors."""

import types

import huggingface_hub
from huggingface_hub import constants
import pytest

from bertlib.checkpoints import hugging_face_cache

COMMITS = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
FILES = "config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    # The library reads the environment variables at its import.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def put(cache, repository="org/tiny", commit=COMMITS[0], names=FILES, reference="main"):
    """Puts a snapshot into the cache, and returns its directory."""
    model = cache / ("models--" + repository.replace("/", "--"))
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    for name in names:
        (snapshot / name).write_text(name)
    (model / "refs" / reference).parent.mkdir(parents=True, exist_ok=True)
    (model / "refs" / reference).write_text(commit)
    return str(snapshot)


@pytest.fixture
def hub(monkeypatch, cache):
    """A fake Hub with the repository org/tiny, which has the files `names`. It raises `error` if this is set.
    """
    state = types.SimpleNamespace(names=set(FILES), error=None)

    def snapshot_download(repository, revision, local_files_only=False, allow_patterns=None):
        if local_files_only:
            return read_cache(repository, revision=revision, local_files_only=True)
        if state.error:
            raise state.error
        names = state.names.intersection(allow_patterns)
        return put(cache, repository, revision if revision in COMMITS else COMMITS[1], names, revision)

    read_cache = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return state


def test_a_model_in_the_cache_is_found_without_network(cache, hub):
    hub.error = AssertionError("no request is needed")
    snapshot = put(cache)
    assert hugging_face_cache.find_snapshot("hf:org/tiny") == snapshot
    assert hugging_face_cache.find_snapshot(f"hf:org/tiny@{COMMITS[0]}") == snapshot
    other = put(cache, commit=COMMITS[1], reference="refs/pr/1")
    assert hugging_face_cache.find_snapshot("hf:org/tiny@refs/pr/1") == other
    assert hugging_face_cache.describe_snapshot(f"{other}/model.safetensors") == {
        "repository": "org/tiny", "revision": COMMITS[1]}
    assert hugging_face_cache.describe_snapshot(cache) == {}


def test_weights_in_the_cache_are_enough_without_network(cache, hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    snapshot = put(cache, names=FILES[:3])
    assert hugging_face_cache.find_snapshot("hf:org/tiny") == snapshot
    put(cache, "org/part", names=["config.json"])
    for name in ("hf:org/part", "hf:org/none", f"hf:org/tiny@{COMMITS[1]}"):
        with pytest.raises(FileNotFoundError, match="does not contain all files of this model, and the "
                                                    "environment variable HF_HUB_OFFLINE or"):
            hugging_face_cache.find_snapshot(name)


@pytest.mark.parametrize("error, reason", [
    (ConnectionError("no route\nto it"), "no route to it"), (RuntimeError(), "RuntimeError")])
def test_errors_of_the_hub(hub, error, reason):
    hub.error = error
    with pytest.raises(OSError, match=f"failed: {reason}. If the repository is private or gated, accept"):
        hugging_face_cache.find_snapshot("hf:org/none")


@pytest.mark.parametrize("lacking, message", [("model.safetensors", "has no model.safetensors. Pickle files"),
                                              ("config.json", "has no config.json, so it contains no model")])
def test_repositories_without_a_usable_model(hub, lacking, message):
    hub.names.remove(lacking)
    with pytest.raises(ValueError, match=message):
        hugging_face_cache.find_snapshot("hf:org/tiny")
