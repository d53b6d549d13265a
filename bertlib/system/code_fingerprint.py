"""Computes fingerprints of the code of a process. Replicas compare these fingerprints, to check that they run
the same code."""

import contextlib
import pathlib
import site
import sys
import sysconfig

from bertlib.system.fingerprints import hash_bytes

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]


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
    installed = [pathlib.Path(path).resolve() for path in _library_folders()]
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


def check_replicas_agree(group):
    """Checks that all replicas run the same script and have imported equal modules.

    A module is compared only if all replicas have imported it. For example, modules that only replica 0 needs
    are not compared.

    Args:
      group: the `replica_group.Group`; all replicas must call this function.

    Raises:
      ValueError: the code differs. The message names the files.
    """
    own = hash_scripts()
    shared = set.intersection(*(set(names) for names in group.all_gather(sorted(own))))
    group.check_equal({f"the code of {name}": own[name] for name in sorted(shared)},
                      "Start the same script, with the same modules, on each machine.")


def _library_folders():
    """Yields the folders of installed packages and of the standard library."""
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield sysconfig.get_path(name)
    yield from getattr(site, "getsitepackages", list)()
    yield from filter(None, [getattr(site, "USER_SITE", None)])
