"""Computes layers and their gradients, by TensorFlow's ops, by ops in C++ (`cpp/`) and by oneDNN's ops."""
