"""Tagging the words of a sentence, as in named-entity recognition."""
