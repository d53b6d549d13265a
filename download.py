"""Fetches published checkpoints and data. `python download.py --help` says how."""
from bertlib.command_line import launch

from bertlib.commands import download

if __name__ == "__main__":
    launch.start(download)
