"""Contains the commands that google-research/bert did not have, and starts all commands: parses flags, prints
`--help`, handles signals and errors, and starts replicas. A module of a command has `ENTRIES`, its flags, and
`main`.

- How does a command start and end? `common_flags` (reads the flags, prints `--help`), `launch`, `devices`,
  `signals`, `evaluator_process`; `console` for the commands `bert-…` of pip
- Which commands train and answer? `run_ner`, `run_swag`, `predict`, `serve`
- Which commands change models? `export`, `convert_checkpoint`, `build_vocab`. `model_writer` writes a model.
- Which commands help with experiments? `sweep`, `compare_results`, `reproduce`, `plan_memory`,
  `glue_submission`, `download` with `published_files` (addresses and contents); `training_command` reads the
  training command after the separator `--`

The import of this package prepares the process for a command: when a module imports TensorFlow, TensorFlow
prints no messages and is switched to graph mode. This package itself imports no TensorFlow, because
predict.py and serve.py do not need it for an ONNX file. A command imports this package before its other
modules, and the linter is configured for this order. If TensorFlow was already imported, the command still
works, but TensorFlow's messages appear. Loading the modules takes seconds. If Ctrl-C is pressed during this
time, or a required package is not installed, the process ends with a one-line message.
"""

import os
import sys
import traceback

_OUR_CODE = os.path.dirname(os.path.dirname(__file__))  # the folder `bertlib`


def _hook(kind, error, trace, before=sys.excepthook):
    """Ends the process with a one-line message if Ctrl-C interrupted an import, or if a required package is
    not installed. Passes every other uncaught error to `before`, the `sys.excepthook` that this function
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
    message = "interrupted." if is_interrupted else _describe_missing(error, codes)
    if not loading or message is None:
        return before(kind, error, error.__traceback__)
    if is_interrupted:
        from bertlib.system import replica_group
        if replica_group.is_replica():  # its launcher prints the message
            os._exit(130)
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr, flush=True)
    os._exit(130 if is_interrupted else 1)


def _describe_missing(error, codes):
    """Returns the message if a required package is not installed, otherwise None. `codes` are the code
    objects of the traceback."""
    if isinstance(error, ImportError) and error.name == "tensorflow":
        return f"error: {error}"
    # A name with a dot is a missing module of an existing package.
    if isinstance(error, ModuleNotFoundError) and "." not in (error.name or ".") and (
            codes[-1].co_filename.startswith(_OUR_CODE)):
        return (f"error: {error}. Activate the environment of this project: . .venv/bin/activate. If it does "
                "not exist, run make .venv/.installed first, or run pip install -r requirements.txt in your "
                "own environment.")
    return None


# This hook is set before the next imports, because they need installed packages.
sys.excepthook = _hook

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
