"""The names of `tf`, and of modules of its time, that TensorFlow lacks or has otherwise."""
