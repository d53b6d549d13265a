"""The arithmetic of a layer and its gradients: TensorFlow's ops, ops in C++ (`cpp/`) and oneDNN's."""
