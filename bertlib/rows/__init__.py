"""Reads the rows and columns of CSV, TSV and JSON Lines files."""
