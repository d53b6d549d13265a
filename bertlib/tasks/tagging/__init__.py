"""Predicts a tag for each word of a sentence, as in named-entity recognition."""
