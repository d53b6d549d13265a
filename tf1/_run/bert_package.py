"""The package `bert`, as the package bert-tensorflow has it, where no other one is found: our root modules.

`from bert import run_classifier`, `import bert.modeling` and their kin.
"""

import importlib
import importlib.abc
import importlib.util
import sys

from tf1._run.ours import PUBLISHED


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what all other finders do not: it is the last one."""

    def find_spec(self, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package != "bert" or module and (module not in PUBLISHED or path != []):
            return None
        return importlib.util.spec_from_loader(name, self, is_package=not module)

    def exec_module(self, module):
        name = module.__name__.partition(".")[2]
        if name:  # a module of the package: ours takes its place
            sys.modules[module.__name__] = importlib.import_module(name)
