"""Trains, evaluates, predicts with and exports the model of a `model_fn`. Imports no module of BERT."""
