"""Repeats a training, and compares the results bit by bit. See `python reproduce.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import reproduce

if __name__ == "__main__":
    launch.start(reproduce)
