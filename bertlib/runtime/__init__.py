"""Trains, evaluates, predicts and exports any `model_fn`, of whatever model; knows nothing of BERT's
modules."""
