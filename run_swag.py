"""Fine-tunes BERT to choose the right one of several endings. See `python run_swag.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import run_swag

if __name__ == "__main__":
    launch.start(run_swag)
