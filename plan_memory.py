"""Says which micro-batch fits into a card, without the card. `python plan_memory.py --help` says how."""
from bertlib.commands import launch, plan_memory

if __name__ == "__main__":
    launch.start(plan_memory)
