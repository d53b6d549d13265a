"""Runs scripts as several replicas, with or without Horovod."""
