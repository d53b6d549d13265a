"""Processes that train one model together: how they start, find each other, and exchange values."""
