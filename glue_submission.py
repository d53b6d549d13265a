"""Checks predictions for GLUE and zips them. See `python glue_submission.py --help`."""
from bertlib.commands import glue_submission, launch

if __name__ == "__main__":
    launch.start(glue_submission)
