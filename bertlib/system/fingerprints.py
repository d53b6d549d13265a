"""Computes fingerprints of texts and files. The fingerprint of a file depends on the content, not on the
name."""

import hashlib

import numpy as np

from bertlib.system import files

# `hash_files` reads at most about `_SAMPLED_BYTES` bytes in total. Each file has an equal share of this
# number. From a file that is larger than its share, `hash_files` reads only evenly distributed blocks of
# `_BLOCK` bytes.
_SAMPLED_BYTES, _BLOCK = 2**26, 2**16


def _digest():
    return hashlib.blake2b(digest_size=16)


def hash_texts(texts):
    """Returns the fingerprint of an iterable of texts. An element may also be None."""
    digest = _digest()
    for text in texts:
        digest.update(repr(text).encode() + b"\n")
    return digest.hexdigest()


def hash_files(paths):
    """Returns a dict with the number of the files, their total size in bytes, and their fingerprint.

    The fingerprint depends on the order of the files. For a large file, the fingerprint depends only on the
    size and on evenly distributed blocks of the content.

    Args:
      paths: list of paths.
    """
    digest, sizes = _digest(), [files.size(path) for path in paths]
    blocks = max(2, _SAMPLED_BYTES // _BLOCK // max(1, len(paths)))
    for path, size in zip(paths, sizes):
        digest.update(f"{size}\n".encode())
        with files.open_file(path, "rb") as reader:
            if size <= blocks * _BLOCK:
                digest.update(reader.read())
                continue
            for start in np.linspace(0, size - _BLOCK, blocks, dtype=np.int64):
                reader.seek(int(start))
                digest.update(reader.read(_BLOCK))
    return {"files": len(paths), "bytes": sum(sizes), "fingerprint": digest.hexdigest()}
