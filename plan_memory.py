"""Predicts the largest micro-batch that fits on a GPU, without a GPU. See `python plan_memory.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import plan_memory

if __name__ == "__main__":
    launch.start(plan_memory)
