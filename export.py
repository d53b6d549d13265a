"""Exports a trained model as a SavedModel. See `python export.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import export

if __name__ == "__main__":
    launch.start(export)
