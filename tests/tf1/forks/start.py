"""start.py FORK FLAGS: runs a fork as its user starts it, by `python -m tf1 FORK FLAGS`.

`Scripts` forks a process that has loaded the modules of this repository. If the fork has its own modules of
the same names, they are unloaded here.
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
sys.argv[:0] = ["tf1"]
sys.modules.pop("tf1.__main__", None)
runpy.run_module("tf1", run_name="__main__")
