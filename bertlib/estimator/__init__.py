"""Trains, evaluates, predicts and exports the model that a `model_fn` builds. It knows no module of BERT."""
