"""Contains the commands that google-research/bert did not have. Each has `ENTRIES`, its flags, and `main`."""
