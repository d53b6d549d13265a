"""The commands of an installed package: `bert-run-classifier` is `python run_classifier.py`, and so on."""

import os
import runpy
import sys


def run():
    """Runs the command that this process was started as."""
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    runpy.run_module(name.removeprefix("bert-").replace("-", "_"), run_name="__main__", alter_sys=True)
