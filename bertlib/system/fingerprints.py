"""Computes the fingerprints by which data, vocabularies, weights and code are compared.

There is one form for each kind of content. Fingerprints are stored: in run.json, in manifests of records, in
caches and exports. So a change of a form needs a new format of these files.
"""

import hashlib

from bertlib.system import files

# `hash_files` reads at most about `_SAMPLED_BYTES` bytes in total. Each file has an equal share of this
# number. From a file that is larger than its share, `hash_files` reads only evenly distributed blocks of
# `_BLOCK` bytes.
_SAMPLED_BYTES, _BLOCK = 2**26, 2**16


def _digest():
    return hashlib.blake2b(digest_size=16)


def hash_bytes(content):
    """Returns the fingerprint of the whole content of a small file."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def hash_tokens(tokens):
    """Returns the fingerprint of a vocabulary, an iterable of its tokens in the order of their ids."""
    return hash_bytes("\n".join(tokens).encode(errors="surrogatepass"))


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
            last = size - _BLOCK
            for index in range(blocks):
                reader.seek(last if index == blocks - 1 else int(index * (last / (blocks - 1))))
                digest.update(reader.read(_BLOCK))
    return {"files": len(paths), "bytes": sum(sizes), "fingerprint": digest.hexdigest()}
