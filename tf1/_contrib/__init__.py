"""Contains the parts of `tf.contrib`, one module for each part. `contrib_parts` lists all parts."""
