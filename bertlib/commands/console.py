"""Runs the commands of an installed package: `bert-run-classifier` runs run_classifier.py, and so on."""

import importlib
import importlib.util
import os
import runpy
import sys

from bertlib.commands import launch


def run():
    """Runs the command whose name is the program name of this process.

    The commands of google-research/bert are scripts. These scripts keep their published names when they are
    installed, because other programs import them by these names. All other commands are modules of
    `bertlib.commands`.
    """
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0].removeprefix("bert-").replace("-", "_")
    module = f"bertlib.commands.{name}"
    if importlib.util.find_spec(module):
        launch.start(importlib.import_module(module))
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
