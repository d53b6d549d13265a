"""Says whether two trainings differ. See `python compare_results.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import compare_results

if __name__ == "__main__":
    launch.start(compare_results)
