"""This project's modules in the root, which a fork may have its own of: those come first."""

import importlib.abc
import importlib.machinery
import os
import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLISHED = {"create_pretraining_data", "extract_features", "modeling", "optimization", "run_classifier",
             "run_classifier_with_tfhub", "run_pretraining", "run_squad", "tokenization"}
# The other commands are files of a checkout; a package installs none of their names beside `bertlib`.
_IN_CHECKOUT = {"build_vocab", "convert_checkpoint", "download", "export", "glue_submission", "plan_memory",
                "predict", "run_ner"}
MODULES = PUBLISHED | (_IN_CHECKOUT if (_ROOT / "pyproject.toml").is_file() else set())


def is_ours(path):
    """Whether a file is one of this project's modules; a fork may stand beside them."""
    path = pathlib.Path(path).resolve()
    return (path.parent == _ROOT and path.stem in MODULES
            or any(_ROOT / room in path.parents for room in ("bertlib", "tf1")))


def find_spec(name, path=None, target=None):
    """Python's search for a module, but that the whole of `sys.path` is looked through before ours is taken.

    A fork may append the folder of its `modeling.py` to `sys.path`, behind this project.

    Args:
      name, path, target: see importlib.abc.MetaPathFinder.find_spec.
    """
    find = importlib.machinery.PathFinder.find_spec
    spec = find(name, path, target)
    if path is not None or name not in MODULES or spec is None or not is_ours(spec.origin or ""):
        return spec
    others = [entry for entry in sys.path if os.path.realpath(entry) != str(_ROOT)]
    return find(name, others, target) or spec


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of these names."""

    def find_spec(self, name, path=None, target=None):
        return find_spec(name, path, target) if name in MODULES else None
