"""Computes layers and their gradients with ops of TensorFlow, ops in C++ (`cpp/`) and ops of oneDNN."""
