"""Predicts labels and other outputs for lines of text. See `python predict.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import predict

if __name__ == "__main__":
    launch.start(predict)
