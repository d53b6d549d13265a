"""Builds parts of TensorFlow graphs: random numbers, gradients, recomputation, sums over replicas, CRFs."""
