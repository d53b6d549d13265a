"""Vectors of texts, from one or several layers of the model."""
