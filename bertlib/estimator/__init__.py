"""Trains, evaluates and exports the model of a `model_fn`, and predicts with it.

This package works with any `model_fn`. It does not import the modules that implement BERT.
"""
