"""Checks predictions for GLUE and zips them. See `python glue_submission.py --help`."""
from bertlib.command_line import launch

from bertlib.commands import glue_submission

if __name__ == "__main__":
    launch.start(glue_submission)
