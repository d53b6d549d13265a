"""The parts of `tf.contrib`, one module for each; `parts` lists them all."""
