"""The tasks that BERT is trained for, from text to features, heads, answers and scores.

These modules are made for this project's `modeling`, `optimization` and `tokenization`, which have common
names: a script's own modules of these names would be imported in their place.
"""

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _check_module_files():
    """Raises an ImportError if another project's module is found instead of one the tasks are made for."""
    for name in ("modeling", "optimization", "tokenization"):
        ours = os.path.join(_FOLDER, f"{name}.py")
        found = getattr(sys.modules[name], "__file__",
                        None) if name in sys.modules else _find_module_file(name)
        if not (found and os.path.exists(found) and os.path.exists(ours) and os.path.samefile(found, ours)):
            raise ImportError(f"bertlib.tasks is made for {ours}, but `import {name}` finds "
                              f"{found or 'nothing'}. Rename the other file, or start Python where it does "
                              "not come first on the path.")


def _find_module_file(name):
    """The file that the import of a module would load, without loading it; None if there is none."""
    found = importlib.util.find_spec(name)
    return None if found is None else found.origin


_check_module_files()
