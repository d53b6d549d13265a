"""Writes the results of an evaluation or a prediction as tables and HTML reports."""
