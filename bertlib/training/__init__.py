"""Runs the commands that train: one driver, and one task for each command."""
