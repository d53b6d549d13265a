"""Starts and connects replicas (processes that train one model together), and exchanges their values."""
