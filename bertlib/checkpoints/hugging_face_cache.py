"""Finds models of the Hugging Face Hub in the local cache, and downloads models that the cache lacks.

This project and Hugging Face's programs share this cache. For each repository, the cache contains a
directory:

    models--google-bert--bert-base-uncased/refs/main                   the commit to which "main" refers
    models--google-bert--bert-base-uncased/snapshots/<commit>/         the files of this commit

No network connection is needed for a model in the cache. Only a download needs the package huggingface_hub.
"""

import os
import re

from absl import logging

PREFIX = "hf:"
_NAME = re.compile(r"([\w.-]+(?:/[\w.-]+)?)(?:@([\w./-]+))?", re.ASCII)
_SNAPSHOT = re.compile(r"/models--([^/]+)/snapshots/([0-9a-f]{40})(/|$)")
# A name without an organization, such as bert-base-uncased, is an old name of a model of this organization.
_FIRST_ORGANIZATION = "google-bert/"
_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
# Names of the files that nearly every repository of a BERT model contains. If the cache lacks one of these
# files, `find_snapshot` looks for the file in the repository on the Hub.
_EXPECTED = (_CONFIG, _WEIGHTS, "vocab.txt", "tokenizer_config.json")
# Names of the files that are downloaded. Pickle files are never downloaded.
_FILES = (*_EXPECTED, "tokenizer.json", "special_tokens_map.json", "added_tokens.json")


class _UnusableError(ValueError):
    """The error for a repository without a model that this project can read."""


def find_snapshot(name):
    """Returns the local directory of a model's files. Downloads the files that the cache lacks.

    Args:
      name: "hf:", the name of a repository, and optionally "@" with a branch, a tag or a commit; for example
        "hf:google-bert/bert-base-uncased@main".

    Raises:
      ValueError: the name is malformed, or the repository has no weights in the format safetensors.
      OSError: the model is not in the cache and cannot be downloaded.
      ImportError: the model is not in the cache, and huggingface_hub is not installed.
    """
    match = _NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None or ".." in name:
        raise ValueError(f"this is not the name of a model. Write {PREFIX}ORGANIZATION/MODEL or "
                         f"{PREFIX}ORGANIZATION/MODEL@REVISION, for example "
                         f"{PREFIX}google-bert/bert-base-uncased.")
    repository, revision = match.group(1), match.group(2) or "main"
    snapshots = filter(None, (_cached_snapshot(alias, revision) for alias in _aliases(repository)))
    cached = min(snapshots, key=lambda snapshot: len(_missing_files(snapshot)), default=None)
    missing = _missing_files(cached)
    if not missing:
        return cached
    try:
        if cached:  # the missing files must be from the same commit as the cached files
            repository, revision = describe_snapshot(cached).values()
        return _download(repository, revision)
    except (OSError, ImportError) as error:
        if cached is None or {_CONFIG, _WEIGHTS} & set(missing):
            raise
        logging.warning("%s has no %s, and the search for missing files failed. The model is used without "
                        "them. Reason: %s", cached, " and no ".join(missing), error)
        return cached


def describe_snapshot(path):
    """Returns {"repository": name, "revision": commit} for a path in a snapshot of the cache; {} for other
    paths."""
    match = _SNAPSHOT.search(os.path.abspath(path))
    return {"repository": match.group(1).replace("--", "/", 1), "revision": match.group(2)} if match else {}


def cache_directory():
    """Returns the directory of the cache. The environment variables that set this directory are the same as
    in the package huggingface_hub."""
    directory = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not directory:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        directory = os.path.join(os.environ.get("HF_HOME") or os.path.join(caches, "huggingface"), "hub")
    return os.path.expanduser(os.path.expandvars(directory))


def _aliases(repository):
    """Returns the names under which a repository may be stored in the cache. A model of the organization
    google-bert may have two names, such as "google-bert/bert-base-uncased" and "bert-base-uncased"."""
    if "/" not in repository:
        return [repository, _FIRST_ORGANIZATION + repository]
    return [repository, repository.removeprefix(_FIRST_ORGANIZATION)]


def _cached_snapshot(repository, revision):
    """Returns the directory of a snapshot in the cache; None if the cache lacks this snapshot."""
    directory = os.path.join(cache_directory(), "models--" + repository.replace("/", "--"))
    reference = os.path.join(directory, "refs", revision)
    commit = revision
    if os.path.isfile(reference):
        with open(reference, encoding="utf-8", errors="replace") as reader:
            commit = reader.read().strip()
    is_commit = re.fullmatch("[0-9a-f]{40}", commit)
    snapshot = os.path.join(directory, "snapshots", commit)
    return snapshot if is_commit and os.path.isdir(snapshot) else None


def _missing_files(snapshot):
    """Returns the names in `_EXPECTED` that a snapshot lacks. If `snapshot` is None, returns all names.

    A file also counts as missing if its symbolic link has no target. An interrupted download can leave such a
    link.
    """
    return [name for name in _EXPECTED
            if snapshot is None or not os.path.exists(os.path.join(snapshot, name))]


def _download(repository, revision):
    """Downloads a model into the cache; returns the directory of the snapshot."""
    cache = cache_directory()
    place = f"Hugging Face's cache {cache} does not contain all files of this model"
    if _is_true("HF_HUB_OFFLINE") or _is_true("TRANSFORMERS_OFFLINE"):
        raise FileNotFoundError(f"{place}, and the environment variable HF_HUB_OFFLINE or "
                                "TRANSFORMERS_OFFLINE forbids downloads. Unset the variable, or set HF_HOME "
                                "to the directory of another cache.")
    try:
        # Imported here, because the package is optional.
        import huggingface_hub
        from huggingface_hub import constants, errors
    except ImportError as error:
        raise ImportError(f"{place}, and the package huggingface_hub, which downloads models, is not "
                          "installed. Run `pip install huggingface_hub`, or install this package with its "
                          "extra [hub]. Or pass the directory of a model that you have.") from error
    address = f"{constants.ENDPOINT}/{repository}"
    try:
        published = {file.rfilename for file in huggingface_hub.model_info(
            repository, revision=revision).siblings or ()}
        _check_published(repository, published)
        logging.info("Downloading missing files of %s, revision %s, into %s.", address, revision, cache)
        paths = [huggingface_hub.hf_hub_download(repository, name, revision=revision, cache_dir=cache)
                 for name in _FILES if name in published]
    except errors.GatedRepoError as error:
        raise PermissionError(f"the repository {repository} is gated. Accept its conditions on {address}, "
                              "log in with `hf auth login`, and run this command again.") from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(f"there is no public repository {repository}. Compare the name with "
                                f"{address}. If the repository is private, log in with `hf auth login`."
                                ) from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(f"the repository {repository} has no revision {revision}. {address} lists "
                                "the branches, tags and commits.") from error
    except _UnusableError:
        raise
    except Exception as error:  # the library also raises the errors of its HTTP client
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise OSError(f"{place}, and the download from {address} failed: {reason}. Check the network and the "
                      "disk, and run this command again.") from error
    return os.path.dirname(paths[0])


def _check_published(repository, published):
    """Raises an _UnusableError if the names of a repository's files show that it has no usable model."""
    if _CONFIG not in published:
        raise _UnusableError(f"the repository {repository} has no {_CONFIG}, so it contains no model of "
                             "Hugging Face's library transformers. Use another repository.")
    if _WEIGHTS not in published:
        raise _UnusableError(f"the repository {repository} has no {_WEIGHTS}. Pickle files such as "
                             "pytorch_model.bin are not read, because opening such a file can run any code. "
                             "Use another repository, or save the model as safetensors: "
                             "model.save_pretrained(directory, safe_serialization=True).")


def _is_true(variable):
    return os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE")
