"""The published checkpoints and data sets, and their downloads."""
