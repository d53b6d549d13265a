"""Contains the commands that google-research/bert did not have, and starts all commands: parses flags, prints
`--help`, handles signals and errors, and starts replicas. A module of a command has `ENTRIES`, its flags, and
`main`.

The import of this package prepares the process for a command: when a module imports TensorFlow, TensorFlow
prints no messages and is switched to graph mode. This package itself imports no TensorFlow, because
predict.py and serve.py do not need it for an ONNX file. A command imports this package before its other
modules, and the linter is configured for this order. If TensorFlow was already imported, the command still
works, but TensorFlow's messages appear.
"""

from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import quiet_tensorflow, terminal
import bertlib.tasks  # noqa: F401  registers the tasks


def _set_up():
    """Switches TensorFlow to graph mode."""
    if not quiet_tensorflow.shows_all_messages():
        # At the default verbosity, TensorFlow would warn about features that the commands need, such as graph
        # mode. So only errors are logged.
        tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()


terminal.open_closed_streams()
quiet_tensorflow.load_on_import(_set_up)
