"""The names of `tf`, and of packages of its time, that are missing or different in TensorFlow 2."""
