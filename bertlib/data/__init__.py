"""Encodes examples, reads and writes TFRecord files, and builds input pipelines."""
