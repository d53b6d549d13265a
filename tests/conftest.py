"""Shared fixtures. `scripts` run as a user runs them, but in children of one process that has TensorFlow loaded."""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
