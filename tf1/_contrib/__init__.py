"""The parts of `tf.contrib`, one module for each. `contrib_parts` lists all of them."""
