"""Defines names that programs of TensorFlow 1 use, and that are missing or different in today's packages."""
