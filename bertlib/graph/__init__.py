"""Parts of a TensorFlow graph: random numbers, gradients, recomputation, sums over replicas, CRFs."""
