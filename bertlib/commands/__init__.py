"""What the commands have in common, and the commands that google-research/bert did not have.

The import of this room makes a command of the process: TensorFlow is loaded, quietly and in graph mode. A
command imports it first, which is where the linter's order puts it; after TensorFlow, all that differs is
that TensorFlow's messages are seen.
"""

from bertlib.runtime import quiet_tensorflow

_tf = quiet_tensorflow.load()
if not quiet_tensorflow.shows_all_messages():
    # Else it warns of what the commands need, such as graph mode.
    _tf.logging.set_verbosity(_tf.logging.ERROR)
_tf.disable_v2_behavior()
_tf.enable_resource_variables()
