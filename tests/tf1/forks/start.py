"""start.py FORK FLAGS: a fork in a process with our modules, as its user starts it.

With `import tf1 as tf` in it that is `PYTHONPATH=<this repository> python FORK FLAGS`; with `import
tensorflow as tf`, `python -m tf1 FORK FLAGS`. `Scripts` forks a process that has loaded this repository's
modules; those that the fork has its own of are unloaded here.
"""

import pathlib
import runpy
import sys

HERE = pathlib.Path(__file__).resolve().parent

del sys.argv[0]
fork = HERE / sys.argv[0]
sys.argv[0] = str(fork)
for path in fork.parent.glob("*.py"):
    sys.modules.pop(path.stem, None)
sys.path[:1] = [str(fork.parent), str(HERE.parents[2])]
if "import tf1 as tf" in fork.read_text(encoding="utf-8"):
    runpy.run_path(sys.argv[0], run_name="__main__")
else:
    sys.argv[:0] = ["tf1"]
    sys.modules.pop("tf1.__main__", None)
    runpy.run_module("tf1", run_name="__main__")
