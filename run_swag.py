"""Fine-tunes BERT to choose the right one of several endings. See `python run_swag.py --help`."""
from bertlib.commands import launch, run_swag

if __name__ == "__main__":
    launch.start(run_swag)
