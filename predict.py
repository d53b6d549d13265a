"""Answers lines of text by a trained model. `python predict.py --help` says how."""
from bertlib.command_line import launch

from bertlib.commands import predict

if __name__ == "__main__":
    launch.start(predict)
