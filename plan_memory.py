"""Predicts the largest micro-batch that fits on a GPU, without a GPU. See `python plan_memory.py --help`."""
from bertlib.commands import launch, plan_memory

if __name__ == "__main__":
    launch.start(plan_memory)
