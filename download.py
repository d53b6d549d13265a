"""Fetches published checkpoints and data. See `python download.py --help`."""
from bertlib.commands import download, launch

if __name__ == "__main__":
    launch.start(download)
