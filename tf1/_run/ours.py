"""Lists this project's modules in the root folder. If a fork has a module with the same name, the fork's
module is used."""

import importlib.abc
import importlib.machinery
import os
import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PUBLISHED = """
    create_pretraining_data extract_features modeling optimization run_classifier run_classifier_with_tfhub
    run_pretraining run_squad tokenization
"""
# These commands exist as modules only in a checkout, not in the installed package.
_IN_CHECKOUT = """
    build_vocab compare_results convert_checkpoint download export glue_submission plan_memory predict
    reproduce run_ner run_swag serve sweep
"""
PUBLISHED = set(_PUBLISHED.split())
MODULES = PUBLISHED.union(_IN_CHECKOUT.split() if (_ROOT / "pyproject.toml").is_file() else ())


def is_ours(path):
    """Returns whether a file is a module of this project. The root folder may also contain a fork's files, so
    a file in this folder is a module of this project only if its name is in `MODULES`."""
    path = pathlib.Path(path).resolve()
    return (path.parent == _ROOT and path.stem in MODULES
            or any(_ROOT / room in path.parents for room in ("bertlib", "tf1")))


def find_spec(name, path=None, target=None):
    """Finds a module in the way Python does, with one exception: a module of this project is used only if
    no other folder of `sys.path` contains a module with the same name.

    For example, a fork may append the folder of its `modeling.py` to `sys.path`, after this project's folder.
    Python alone would then import this project's module. This function finds the fork's module.

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
    """Finds modules with the names in `MODULES`."""

    def find_spec(self, name, path=None, target=None):
        return find_spec(name, path, target) if name in MODULES else None
