"""Trains with each combination of some settings, and compares the results. See `python sweep.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import sweep

if __name__ == "__main__":
    launch.start(sweep)
