"""Checks that modules and names exist in TensorFlow, NumPy, other packages, or the program itself."""

import collections
import functools
import importlib
import os
import pathlib
import re
import sys
import types
import warnings

import tf1
from tf1._run import modules as program_modules

_DEFINITION = re.compile(r"^\s*def (\w+)", re.MULTILINE)
_FROM_PACKAGE = re.compile(r"^\s*from \.*([\w.]+) import ([^#\n]+)", re.MULTILINE)
_IMPORT_PART = re.compile(r"^\s*import (\w+(?:\.\w+)+)", re.MULTILINE)


@functools.cache
def _imported(name):
    """Imports a module; returns (module, None), or (None, the error)."""
    try:
        return importlib.import_module(name), None
    except Exception as error:  # a module can raise any exception while it is imported
        return None, error


def _module_of_tf(name):
    """Returns the module that `import tensorflow.<name>` gives to a program, or None. An import by the
    checker would bind the module as an attribute of the package above it."""
    try:
        return program_modules.find(f"tf1.{name}")
    except ImportError:
        return None


@functools.cache
def missing(name):
    """Looks up a dotted name of `tf` (the module `tf1`), or of another module that the checker imports.

    The function checks the attributes of modules. It does not check the attributes of other objects, such as
    classes.

    Returns:
      (the name up to and including the first part that does not exist, the error message), or None if all
      parts exist.
    """
    root, *parts = name.split(".")
    value = tf1 if root == "tf" else _imported(root)[0]
    for index, part in enumerate(parts, 1):
        if not isinstance(value, types.ModuleType):
            return None
        so_far = ".".join(parts[:index])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(value, part)
        except Exception as error:  # a lazily loaded module can raise any exception
            value = _module_of_tf(so_far) if root == "tf" else _imported(f"{root}.{so_far}")[0]
            if value is None:
                return f"{root}.{so_far}", " ".join(str(error).split())
    return None


@functools.cache
def _spec(name):
    """Finds a module without running it or the packages above it. Returns its spec; None if there is none."""
    package = name.rpartition(".")[0]
    above = package and _spec(package)
    if package and (above is None or above.submodule_search_locations is None):
        return None
    path = above.submodule_search_locations if package else None
    try:
        return next(filter(None, (finder.find_spec(name, path) for finder in sys.meta_path)), None)
    except (ImportError, ValueError):
        return None


def is_namespace(name):
    """Returns whether a module is a namespace package, such as `google`. Several installed packages can have
    folders in it, and it has no names except those of its modules."""
    spec = _spec(name)
    return spec is not None and spec.origin is None and spec.submodule_search_locations is not None


@functools.cache
def not_installed(name):
    """Returns the shortest part of a module's dotted name that `import` does not find; None if it finds all.

    A package may create a module when it runs. So a package is imported if the file of a module is not found.
    """
    parts = name.split(".")
    for part in (".".join(parts[:length]) for length in range(1, len(parts) + 1)):
        is_found = part in sys.modules or _spec(part) is not None
        if not is_found and ("." not in part or _imported(part)[0] is None):
            return part
    return None


class Fork:
    """The program that is checked: its modules, and the imports between its files.

    Attributes:
      methods: set of the names of all functions that the files define.
      not_followed: set of the imports that are not checked.
      homes: {module, without a dot: set of the folders that contain it}.
    """

    def __init__(self, root, files):
        """Reads the imports and definitions of a program.

        Args:
          root: pathlib.Path of the folder that is checked.
          files: {path of a Python file below root: text of the file}.
        """
        self.not_followed = set()
        self.homes = collections.defaultdict(set)
        for path in files:
            self.homes[path.stem].add(path.parent)
            for folder in path.relative_to(root).parents:
                if folder.name:
                    self.homes[folder.name].add(root / folder.parent)
        resolved = root.resolve()
        self.homes[resolved.name].add(resolved.parent)
        self.methods, self._parts, self._changes_path = set(), set(), False
        for text in files.values():
            self.methods.update(_DEFINITION.findall(text))
            self._changes_path |= "sys.path" in text
            for package, names in _FROM_PACKAGE.findall(text):
                parts = package.split(".")
                self._parts.update((parts[-1], name.split()[0]) for name in names.split(",") if name.strip())
                self._parts.update(zip(parts, parts[1:]))
            self._parts.update(tuple(module.split(".")[-2:]) for module in _IMPORT_PART.findall(text))

    def is_only_beside(self, name, path):
        """Returns whether a module is in the package of the given file and in no other folder.

        If so, `import name` in this file finds the module with Python 2, but not with Python 3.

        Args:
          name: name of the module, without a dot.
          path: pathlib.Path of the file.
        """
        package = path.parent
        return (not self._changes_path and (package.name, path.stem) in self._parts
                and self.homes.get(name) == {package} and (package / "__init__.py").exists()
                and not_installed(name))


def python_files(root):
    """Lists the files below a folder. Leaves out links to folders, hidden folders and virtual environments.

    Returns:
      (.py files, number of notebooks, [(folder that could not be read, reason)]).
    """
    found, notebooks, unread = [], 0, []
    for folder, folders, files in os.walk(root, onerror=lambda error: unread.append(
            (pathlib.Path(error.filename), error.strerror))):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in (
            "__pycache__", "node_modules", "site-packages") and not os.path.exists(
                os.path.join(folder, name, "pyvenv.cfg")))
        notebooks += sum(name.endswith(".ipynb") for name in files)
        found += [pathlib.Path(folder, name) for name in sorted(files) if name.endswith(".py")]
    return found, notebooks, unread
