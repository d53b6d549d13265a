"""Checkpoints: their files and formats, what a run restores, and hub modules."""
