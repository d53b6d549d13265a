"""Compares trainings: a training with its repetition, and the results of different trainings."""
