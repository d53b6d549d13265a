"""The start of every command: flags and `--help`, launching, signals, errors, and the role of the process.

The import of this room makes a command of the process: TensorFlow is loaded, quietly and in graph mode. A
command imports it first, which is where the linter's order puts it; after TensorFlow, all that differs is
that TensorFlow's messages are seen. Ctrl-C while modules are loaded, which takes seconds, is answered in one
line.
"""

import os
import sys

from bertlib.replicas import replica_group
from bertlib.system import quiet_tensorflow, terminal


def _hook(kind, error, trace, before=sys.excepthook):
    """What is done with an error that nothing catches: one line for a Ctrl-C while a module is loaded."""
    chain, inner, frames = [], error, []
    while inner is not None and inner not in chain:  # C++ modules make other errors of it
        chain.append(inner)
        inner = inner.__cause__ or inner.__context__
    while trace is not None:
        frames.append(trace.tb_frame.f_code)
        trace = trace.tb_next
    loading = any(code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib")
                  for code in frames[1:])
    if not loading or not any(isinstance(link, KeyboardInterrupt) for link in chain):
        return before(kind, error, error.__traceback__)
    if not replica_group.is_replica():  # else its launcher says it
        print(f"{os.path.basename(sys.argv[0])}: interrupted.", file=sys.stderr, flush=True)
    os._exit(130)


sys.excepthook = _hook
terminal.open_closed_streams()

_tf = quiet_tensorflow.load()
if not quiet_tensorflow.shows_all_messages():
    # Else it warns of what the commands need, such as graph mode.
    _tf.logging.set_verbosity(_tf.logging.ERROR)
_tf.disable_v2_behavior()
_tf.enable_resource_variables()
