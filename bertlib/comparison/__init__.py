"""Compares trainings: a training with its repetition, and the predictions or scores of different trainings."""
