"""The commands of an installed package: `bert-run-classifier` is `python run_classifier.py`, and so on."""

import importlib
import importlib.util
import os
import runpy
import sys

from bertlib.command_line import launch


def run():
    """Runs the command that this process was started as.

    Commands that google-research/bert lacked are modules of `bertlib.commands`. The published commands
    are scripts. They are installed under their published names, because programs import them.
    """
    name = os.path.splitext(os.path.basename(sys.argv[0]))[0].removeprefix("bert-").replace("-", "_")
    module = f"bertlib.commands.{name}"
    if importlib.util.find_spec(module):
        launch.start(importlib.import_module(module))
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
