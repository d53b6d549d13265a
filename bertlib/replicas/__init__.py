"""Replicas, processes that train one model together: starts them, connects them, and exchanges values."""
