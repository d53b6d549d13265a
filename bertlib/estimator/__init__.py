"""Trains, evaluates and exports the model of a `model_fn`, and predicts with it. This package imports no
module of BERT."""
