"""Builds parts of TensorFlow graphs: the arithmetic of a layer with its gradients (also in C++, in `cpp/`,
and with oneDNN), random numbers, recomputation, sums over replicas, CRFs."""
