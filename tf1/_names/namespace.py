"""Modules of our names over those of TensorFlow's modules, and the finder that imports them."""

import importlib.abc
import importlib.machinery
import types


class Namespace(types.ModuleType):
    """A module of names of our own over those of another module."""

    def __init__(self, name, own, base=None, explain=None):
        """Creates a namespace.

        Args:
          name: what programs call it, such as "tf.contrib.layers", or the name that it is imported by.
          own: {name: object}.
          base: function that returns the module to find other names in, or None.
          explain: function of a missing name that returns what to do; that of the other module if None.
        """
        super().__init__(f"tf1.{name[3:]}" if name.startswith("tf.") else name)
        self._title = name
        self._own = own
        self._base = base or (lambda: None)
        self._explain = explain
        vars(self).update(own)

    def __getattr__(self, name):
        if not name.startswith("__"):
            base = self._base()
            if hasattr(base, name):
                return getattr(base, name)
            explain = self._explain or getattr(base, "_explain", None)
            if not name.startswith("_") and explain is not None:
                raise AttributeError(f"{self._title}.{name}: {explain(name)}")
        raise AttributeError(f"{self._title} has no attribute {name!r}")

    def __dir__(self):
        return sorted({*self._own, *dir(self._base())})


def own_names(module, *names):
    """{name: what a module has under it}."""
    return {name: getattr(module, name) for name in names}


def defined_names(module):
    """{name: object} of the public functions and classes that a module defines itself."""
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__}


class ModuleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules that a function makes."""

    def __init__(self, find):
        """Takes a function of a module's full name that returns the module, or None."""
        self._find = find

    def find_spec(self, name, path=None, target=None):
        found = self._find(name)
        return None if found is None else importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return self._find(spec.name)

    def exec_module(self, module):
        pass
