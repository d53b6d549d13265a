"""Defines `Namespace` and `ModuleFinder`.

A `Namespace` is a module that has the names of another module, such as a module of TensorFlow. In addition,
it has names of tf1. With a `ModuleFinder`, an import statement can import such modules.
"""

import importlib
import importlib.abc
import importlib.machinery
import types


class Namespace(types.ModuleType):
    """A module with names from two places: it looks for a name among the names of tf1 first, and then in
    another module."""

    def __init__(self, name, own, base=None, explain=None):
        """Creates a namespace.

        Args:
          name: the name that programs use for the module, such as "tf.contrib.layers" or "tensorflow_hub".
          own: the names that tf1 itself defines in this namespace, as a dict {name: object}.
          base: function without arguments that returns the base module. If a name is not in `own`, it is
            looked up in the base module. None if the namespace contains only the names in `own`.
          explain: function that takes a missing name and returns the advice for the error message, or None if
            there is no advice. By default, if the base module is a Namespace, the `explain` of that
            Namespace is used.
        """
        super().__init__(f"tf1.{name[3:]}" if name.startswith("tf.") else name)
        self._title = name
        self._own = own
        self._base = base or (lambda: None)
        self._explain = explain
        vars(self).update(own)

    def __getattr__(self, name):
        if name == "__all__":  # for `from … import *`
            return [public for public in dir(self) if not public.startswith("_")]
        if not name.startswith("__"):
            base = self._base()
            if hasattr(base, name):
                return getattr(base, name)
            explain = self._explain or getattr(base, "_explain", None)
            if explain is not None and not name.startswith("_") and (advice := explain(name)):
                raise AttributeError(f"{self._title}.{name}: {advice}")
        raise AttributeError(f"{self._title} has no attribute {name!r}")

    def __dir__(self):
        return sorted({*self._own, *dir(self._base())})


def own_names(module, names):
    """Returns attributes of a module as a dict {name: object}.

    Args:
      module: the module.
      names: the names, separated by spaces. "new=old" means that the attribute `old` gets the name `new`. "*"
        alone means all names of `defined_names`.
    """
    if names == "*":
        return defined_names(module)
    pairs = [name.split("=") for name in names.split()]
    return {pair[0]: getattr(module, pair[-1]) for pair in pairs}


def defined_names(module):
    """Returns {name: object} of the public functions and classes that a module itself defines."""
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__}


def optional_module(name):
    """Imports a module of a package that tf1 does not require. Returns None if the package is not
    installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] != name.split(".")[0]:
            raise
        return None


def refused(name, reason):
    """Returns a class that programs can import and subclass. Its constructor raises a ValueError.

    Args:
      name: full name of the class, such as "tf.contrib.seq2seq.Helper".
      reason: the rest of the message. The class has it as the attribute `refusal`, which the checker reads.
    """
    def refuse(self, *args, **kwargs):
        raise ValueError(f"{name}: {reason}")

    return type(name.rpartition(".")[2], (), {"__init__": refuse, "refusal": reason})


def rows(text, columns=2):
    """Returns the rows of a table: one row for each line, as a list of its columns.

    Args:
      text: the table. Spaces separate the columns. Only the last column can contain spaces.
      columns: number of columns.
    """
    return [line.split(None, columns - 1) for line in text.strip().splitlines()]


class ModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder for `sys.meta_path`. It provides the modules that a given function returns."""

    def __init__(self, find):
        """Creates a finder.

        Args:
          find: function that takes a module's full name and returns the module, or None if this finder does
            not provide the module.
        """
        self._find = find

    def find_spec(self, name, path=None, target=None):
        module = self._find(name)
        return None if module is None else importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return self._find(spec.name)

    def exec_module(self, module):
        pass
