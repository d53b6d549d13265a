"""Contains the commands that google-research/bert did not have, and starts all commands: parses flags, prints
`--help`, handles signals and errors, and starts replicas. A module of a command has `ENTRIES`, its flags, and
`main`.

The import of this package prepares the process for a command: when a module imports TensorFlow, TensorFlow
prints no messages and is switched to graph mode. This package itself imports no TensorFlow, because
predict.py and serve.py do not need it for an ONNX file. A command imports this package before its other
modules, and the linter is configured for this order. If TensorFlow was already imported, the command still
works, but TensorFlow's messages appear. Loading the modules takes seconds. If Ctrl-C is pressed during this
time, or TensorFlow is not installed, the process ends with a one-line message.
"""

import os
import sys
import traceback

from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import quiet_tensorflow, replica_group, terminal
import bertlib.tasks  # noqa: F401  registers the tasks


def _hook(kind, error, trace, before=sys.excepthook):
    """Ends the process with a one-line message if Ctrl-C interrupted an import, or if TensorFlow is not
    installed. Passes every other uncaught error to `before`, the `sys.excepthook` that this function
    replaces."""
    chain, inner = [], error
    # C++ code may raise its own error in place of a KeyboardInterrupt. In this case, Python stores the
    # KeyboardInterrupt in the attribute `__cause__` or `__context__` of the new error.
    while inner is not None and inner not in chain:
        chain.append(inner)
        inner = inner.__cause__ or inner.__context__
    codes = [frame.f_code for frame, _ in traceback.walk_tb(trace)]
    loading = any(code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib")
                  for code in codes[1:])
    is_interrupted = any(isinstance(link, KeyboardInterrupt) for link in chain)
    lacks_tensorflow = isinstance(error, ImportError) and error.name == "tensorflow"
    if not loading or not (is_interrupted or lacks_tensorflow):
        return before(kind, error, error.__traceback__)
    if not replica_group.is_replica():  # for a replica, its launcher prints the message
        message = "interrupted." if is_interrupted else f"error: {error}"
        print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr, flush=True)
    os._exit(130 if is_interrupted else 1)


def _set_up():
    """Switches TensorFlow to graph mode."""
    if not quiet_tensorflow.shows_all_messages():
        # At the default verbosity, TensorFlow would warn about features that the commands need, such as graph
        # mode. So only errors are logged.
        tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()


sys.excepthook = _hook
terminal.open_closed_streams()
quiet_tensorflow.load_on_import(_set_up)
