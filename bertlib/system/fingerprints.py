"""Computes the fingerprints by which data, vocabularies, weights and code are compared.

There is one form for each kind of content. Fingerprints are stored: in run.json, in manifests of records, in
caches and exports. So a change of a form needs a new format of these files.
"""

import contextlib
import functools
import hashlib
import json
import pathlib
import site
import sys
import sysconfig

from bertlib.system import files

# `hash_files` reads at most about `_SAMPLED_BYTES` bytes in total. Each file has an equal share of this
# number. From a file that is larger than its share, `hash_files` reads only evenly distributed blocks of
# `_BLOCK` bytes.
_SAMPLED_BYTES, _BLOCK = 2**26, 2**16
_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


# Returns a new digest, for content that is hashed in parts: `update` adds a part, and `hexdigest` returns the
# fingerprint.
new_digest = functools.partial(hashlib.blake2b, digest_size=16)


def hash_bytes(content):
    """Returns the fingerprint of the whole content of a small file."""
    return new_digest(content).hexdigest()


def hash_values(*values):
    """Returns the digest of strings, in hex. The strings may contain lone surrogates."""
    return hash_bytes(json.dumps(values).encode())


def hash_tokens(tokens):
    """Returns the fingerprint of a vocabulary, an iterable of its tokens in the order of their ids."""
    return hash_bytes("\n".join(tokens).encode(errors="surrogatepass"))


def hash_texts(texts):
    """Returns the fingerprint of an iterable of texts. An element may also be None."""
    digest = new_digest()
    for text in texts:
        digest.update(repr(text).encode() + b"\n")
    return digest.hexdigest()


def hash_file(path):
    """Returns the fingerprint of a file of any size; see `hash_files`."""
    return hash_files([path])["fingerprint"]


def hash_files(paths):
    """Returns a dict with the number of the files, their total size in bytes, and their fingerprint.

    The fingerprint depends on the order of the files. For a large file, the fingerprint depends only on the
    size and on evenly distributed blocks of the content.

    Args:
      paths: list of paths.
    """
    digest, sizes = new_digest(), [files.size(path) for path in paths]
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


# --- Code ------------------------------------------------------------------------------------------------


def hash_package():
    """Returns a str, the fingerprint of all code files of `bertlib`, including modules that are not
    imported."""
    paths = sorted(path for pattern in ("*.py", "*.cc", "*.h") for path in _PACKAGE.rglob(pattern))
    return hash_bytes("".join(f"{path.relative_to(_PACKAGE)} {hash_bytes(path.read_bytes())}\n"
                              for path in paths).encode())


def hash_scripts():
    """Returns {name: fingerprint} of the running script and of the modules that it has imported.

    Installed packages, the standard library and `bertlib` are left out. The name of the script is its file
    name.
    """
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    installed = [pathlib.Path(path).resolve() for path in folders]
    fingerprints = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        path = pathlib.Path(path).resolve()
        if name == "__main__" or not any(map(path.is_relative_to, [_PACKAGE, *installed])):
            with contextlib.suppress(OSError):  # the file of a module may be removed after its import
                fingerprints[path.name if name == "__main__" else name] = hash_bytes(path.read_bytes())
    return fingerprints


def check_same_code(group):
    """Checks that all replicas run the same script and have imported equal modules.

    A module is compared only if all replicas have imported it. For example, modules that only replica 0 needs
    are not compared.

    Args:
      group: the `replica_group.Group`; all replicas must call this function.

    Raises:
      ValueError: the code differs. The message names the files.
    """
    hashes = hash_scripts()
    common = set.intersection(*(set(names) for names in group.all_gather(sorted(hashes))))
    group.check_equal({f"the code of {name}": hashes[name] for name in sorted(common)},
                      "Start the same script, with the same modules, on each machine.")


def draw(examples, number, digest):
    """Returns at most `number` of the examples, those with the lowest digests, in the order of the list. The
    choice depends only on their content. `digest` is a function that returns the digest of an example."""
    digests = list(map(digest, examples))
    places = set(sorted(range(len(examples)), key=digests.__getitem__)[:number])
    return [example for index, example in enumerate(examples) if index in places]
