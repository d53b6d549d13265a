"""Provides the package `bert` of bert-tensorflow, if Python finds no other package `bert`.

The modules of the package are the modules of this project that are listed in `ours.PUBLISHED`. So `from bert
import run_classifier` and `import bert.modeling` work.
"""

import importlib
import importlib.abc
import importlib.util
import sys

from tf1._run.ours import PUBLISHED


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the package `bert` and its modules. It is the last finder, so an installed package is found
    first."""

    def find_spec(self, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package != "bert" or module and (module not in PUBLISHED or path != []):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=not module)

    def exec_module(self, module):
        name = module.__name__.partition(".")[2]
        if name:  # `bert.modeling` becomes this project's module `modeling`
            sys.modules[module.__name__] = importlib.import_module(name)
