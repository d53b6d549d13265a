"""Reads the rows of a user's files, writes records, and reads records as batches. Writes and reads tables of
predictions."""
