"""start.py FORK FLAGS: `PYTHONPATH=<this repository> python FORK FLAGS` in a process with our modules.

`Scripts` forks a process that has loaded this repository's modules; those that the fork has its own of are
unloaded here.
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
runpy.run_path(sys.argv[0], run_name="__main__")
