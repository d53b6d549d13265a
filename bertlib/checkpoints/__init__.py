"""Reads and writes checkpoints and hub modules, and restores the checkpoint of a run."""
