"""Predicts labels and other outputs for lines of text. See `python predict.py --help`."""
from bertlib.commands import launch, predict

if __name__ == "__main__":
    launch.start(predict)
