"""Trains, evaluates, predicts and exports any `model_fn`, of whatever model; knows no module of BERT."""
