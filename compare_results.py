"""Says whether two trainings differ. See `python compare_results.py --help`."""
from bertlib.commands import compare_results, launch

if __name__ == "__main__":
    launch.start(compare_results)
