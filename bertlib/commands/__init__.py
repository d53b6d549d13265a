"""Contains the commands that google-research/bert did not have. Each module has `define_flags` and `main`."""
