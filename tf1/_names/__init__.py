"""Defines names of `tf`, and of packages from its time, that are missing or different in TensorFlow 2."""
