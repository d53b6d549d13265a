"""Trains, evaluates, predicts and exports the model that a `model_fn` builds. It imports no module of
BERT."""
