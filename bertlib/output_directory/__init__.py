"""Reads and writes the files of an output directory: run.json, the vocabulary, the labels and the model."""
