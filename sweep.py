"""Trains with each combination of some settings, and compares the results. See `python sweep.py --help`."""
from bertlib.commands import launch, sweep

if __name__ == "__main__":
    launch.start(sweep)
