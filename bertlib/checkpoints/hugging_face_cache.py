"""Finds models of the Hugging Face Hub in the local cache, and downloads models that the cache lacks.

The package huggingface_hub manages this cache, so this project and Hugging Face's programs share it. No
network connection is needed for a model in the cache.
"""

import os
import re

from absl import logging

PREFIX = "hf:"
_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)(?:@([\w./-]+))?", re.ASCII)
_SNAPSHOT = re.compile(r"/models--([^/]+)/snapshots/([0-9a-f]{40})(/|$)")
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
# Names of the files that nearly every repository of a BERT model contains. If the cache lacks one of these
# files, `find_snapshot` looks for the file in the repository on the Hub.
_EXPECTED = (_CONFIG, _WEIGHTS, "vocab.txt", "tokenizer_config.json")
# Names of the files that are downloaded. Pickle files are never downloaded.
_FILES = [*_EXPECTED, "tokenizer.json", "special_tokens_map.json", "added_tokens.json"]


def find_snapshot(name):
    """Returns the local directory of a model's files. Downloads the model if the cache lacks files of it.

    Args:
      name: "hf:", the name of a repository, and optionally "@" with a branch, a tag or a commit; for example
        "hf:google-bert/bert-base-uncased@main".

    Raises:
      ValueError: the name is malformed, or the model has no weights in the format safetensors.
      OSError: the model is not in the cache and cannot be downloaded.
    """
    match = _NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None or ".." in name:
        raise ValueError(f"this is not the name of a model. Write {PREFIX}ORGANIZATION/MODEL or "
                         f"{PREFIX}ORGANIZATION/MODEL@REVISION, for example "
                         f"{PREFIX}google-bert/bert-base-uncased.")
    # Imported here, because programs that only answer do not need this package.
    import huggingface_hub

    repository, revision = match.group(1), match.group(2) or "main"
    try:
        snapshot = huggingface_hub.snapshot_download(repository, revision=revision, local_files_only=True)
    except FileNotFoundError as error:
        # The cache may contain the list of the repository's files, but not all of these files.
        snapshot = getattr(error, "snapshot_path", None)
    # An interrupted download can leave a symbolic link without a target, which also counts as missing.
    missing_files = [name for name in _EXPECTED
                     if not (snapshot and os.path.exists(os.path.join(snapshot, name)))]
    if not missing_files:
        return snapshot
    try:
        return _download(repository, revision)
    except OSError as error:
        if {_CONFIG, _WEIGHTS} & set(missing_files):
            raise
        logging.warning("%s has no %s, and the search for missing files failed. The model is used without "
                        "them. Reason: %s", snapshot, " and no ".join(missing_files), error)
        return snapshot


def describe_snapshot(path):
    """Returns {"repository": name, "revision": commit} for a path in a snapshot of the cache; {} for other
    paths."""
    match = _SNAPSHOT.search(os.path.abspath(path))
    return {"repository": match.group(1).replace("--", "/", 1), "revision": match.group(2)} if match else {}


def _download(repository, revision):
    """Downloads the missing files of a model into the cache; returns the directory of the snapshot."""
    # Imported here, because the import of `constants` takes 0.4 CPU seconds.
    import huggingface_hub
    from huggingface_hub import constants

    place = f"Hugging Face's cache {constants.HF_HUB_CACHE} does not contain all files of this model"
    address = f"{constants.ENDPOINT}/{repository}"
    if constants.HF_HUB_OFFLINE:
        raise FileNotFoundError(f"{place}, and the environment variable HF_HUB_OFFLINE or "
                                "TRANSFORMERS_OFFLINE forbids downloads. Unset the variable, or set HF_HOME "
                                "to the directory of another cache.")
    logging.info("Downloading missing files of %s, revision %s, into %s.", address, revision,
                 constants.HF_HUB_CACHE)
    try:
        snapshot = huggingface_hub.snapshot_download(repository, revision=revision, allow_patterns=_FILES)
    except Exception as error:  # the library also raises the errors of its HTTP client
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise OSError(f"{place}, and the download from {address} failed: {reason}. If the repository is "
                      "private or gated, accept its conditions on this page, and log in with `hf auth "
                      "login`. Otherwise check the name, the network and the disk, and run this command "
                      "again.") from error
    names = os.listdir(snapshot)
    if _CONFIG not in names:
        raise ValueError(f"the repository {repository} has no {_CONFIG}, so it contains no model of Hugging "
                         "Face's library transformers. Use another repository.")
    if _WEIGHTS not in names:
        raise ValueError(f"the repository {repository} has no {_WEIGHTS}. Pickle files such as "
                         "pytorch_model.bin are not read, because opening such a file can run any code. "
                         "Use another repository, or save the model as safetensors: "
                         "model.save_pretrained(directory, safe_serialization=True).")
    return snapshot
