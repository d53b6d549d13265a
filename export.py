"""Exports a trained model as a SavedModel. See `python export.py --help`."""
from bertlib.commands import export, launch

if __name__ == "__main__":
    launch.start(export)
