"""Shares files of features between runs, so that runs with equal inputs convert their texts only once.

The cache is a directory. Each entry is a folder that contains a TFRecord file and a JSON file. The name of
the entry is a fingerprint of everything on which the features depend. An entry is either complete or absent.
A run gets its TFRecord file as a hard link to the TFRecord file of the entry. If hard links are impossible,
for example between two file systems, the run gets a copy of the file.
"""

import contextlib
import itertools
import os
import pickle
import shutil
import sys
import time

from absl import logging

from bertlib.system import files, fingerprints, locks, stopping

_RECORDS, _FACTS = "features.tf_record", "facts.json"
_POLL_SECONDS = 0.2


def write(path, cache, inputs, examples, convert):
    """Writes a file of features. If the cache contains the file, `path` becomes a link to it. Otherwise, the
    function makes the file and adds it to the cache.

    If another process is making the same entry, this function waits. In the following cases, the function
    does not use the cache, and calls `convert(path)`: the path is remote or not a regular file; or an
    input cannot be pickled.

    Args:
      path: the TFRecord file to write.
      cache: directory of the cache; None or "" for no cache.
      inputs: list of objects on which the features depend, such as the tokenizer. Equal objects must have
        equal pickles.
      examples: list of the examples. The `vars` of an example must contain all of its data.
      convert: function that takes a path. It writes the TFRecord file to this path, and returns a value that
        JSON can represent.

    Returns:
      the value that `convert` returned when the file was made.
    """
    if not cache or files.is_remote(path) or files.is_special(path):
        return convert(path)
    name = _fingerprint(inputs, examples)
    if name is None:
        return convert(path)
    files.make_directories(cache)
    entry = os.path.join(cache, name)
    facts = _read(entry)
    if facts is not None:
        logging.info("%s: the features are from --features_cache=%s.", path, cache)
    while facts is None:
        try:
            with locks.lock_file(entry):
                facts = _read(entry)  # another process may have made the entry during the wait for the lock
                if facts is None:
                    facts = _make(entry, convert)
                    logging.info("%s: the features were added to --features_cache=%s.", path, cache)
        except locks.InUseError:
            stopping.request.check()
            time.sleep(_POLL_SECONDS)
    _link(os.path.join(entry, _RECORDS), path)
    return facts["value"]


def _fingerprint(inputs, examples):
    """Returns the name of an entry of the cache. The name is a fingerprint of the inputs, the examples and
    the code of this process. Returns None if an input cannot be pickled."""
    try:
        pickles = [pickle.dumps(value, protocol=5) for value in inputs]
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    sources = {getattr(sys.modules[type(value).__module__], "__file__", None) for value in inputs} - {None}
    codes = [fingerprints.hash_package(), fingerprints.hash_files(sorted(sources)),
             sorted(fingerprints.hash_scripts().items())]
    texts = ((type(example).__name__, *vars(example).values()) for example in examples)
    return fingerprints.hash_texts(itertools.chain(codes, pickles, texts))


def _describe(records):
    """Returns the size and the fingerprint of a TFRecord file: {"bytes": int, "fingerprint": str}."""
    description = fingerprints.hash_files([records])
    return {name: description[name] for name in ("bytes", "fingerprint")}


def _read(entry):
    """Returns the content of an entry's JSON file as a dict; None if the entry is missing or damaged.

    An entry counts as damaged if its TFRecord file has another size or another fingerprint than the JSON file
    states. The fingerprint of a large file depends only on a part of the file; see `fingerprints`.
    """
    with contextlib.suppress(OSError, ValueError, TypeError):
        facts = files.read_json_object(os.path.join(entry, _FACTS))
        if "value" in facts and _describe(os.path.join(entry, _RECORDS)).items() <= facts.items():
            return facts
    return None


def _make(entry, convert):
    """Makes an entry, and returns the content of its JSON file. An old, damaged entry is replaced. The caller
    must hold the lock of the entry."""
    partial = f"{entry}.partial"  # a killed process may have left this directory
    for path in (partial, entry):
        shutil.rmtree(path, ignore_errors=True)
    files.make_directories(partial)
    try:
        records = os.path.join(partial, _RECORDS)
        value = convert(records)
        facts = {**_describe(records), "value": value}
        files.write_json(os.path.join(partial, _FACTS), facts)
        os.rename(partial, entry)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return facts


def _link(records, path):
    """Makes `path` a hard link to a file, or a copy of the file."""
    # `path` may already be a link to the file. Without this check, the code below would create another link,
    # `partial`, and rename it to `path`. If both names are links to the same file, renaming does nothing. So
    # `partial` would remain in the directory.
    if os.path.exists(path) and os.path.samefile(records, path):
        return
    with files.atomic_replacement(path) as partial:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)  # a killed process may have left this file
        try:
            os.link(records, partial)
        except OSError:
            shutil.copyfile(records, partial)
