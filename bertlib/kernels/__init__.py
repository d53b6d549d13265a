"""The arithmetic of a layer and its gradients: by TensorFlow's ops, ops in C++ (`cpp/`) and oneDNN's ops."""
