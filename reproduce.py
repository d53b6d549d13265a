"""Repeats a training, and compares the results bit by bit. See `python reproduce.py --help`."""
from bertlib.commands import launch, reproduce

if __name__ == "__main__":
    launch.start(reproduce)
