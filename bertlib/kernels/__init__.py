"""The arithmetic of a layer and its gradients, as TensorFlow's ops, as ops in C++ (`cpp/`) and as oneDNN's."""
