"""Fetches published checkpoints and data. See `python download.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import download

if __name__ == "__main__":
    launch.start(download)
