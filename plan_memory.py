"""Says which micro-batch fits into a card, without the card. `python plan_memory.py --help` says how."""
from bertlib.command_line import launch

from bertlib.commands import plan_memory

if __name__ == "__main__":
    launch.start(plan_memory)
