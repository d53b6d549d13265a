"""Imports TensorFlow, and hides the messages that its C++ code writes to stderr. To show these messages, set
the environment variable TF_CPP_MIN_LOG_LEVEL=0."""

import contextlib
import gc
import glob
import importlib
import os
import sys

# `_keras_postponed` blocks the import of these packages while TensorFlow is imported. keras and tf_keras need
# them, so the import of Keras fails, and TensorFlow goes on without Keras. Keras is imported later, when a
# program uses `tf.keras`.
_PARTS_OF_KERAS = {"keras.src", "tf_keras.src"}


def load():
    """Imports TensorFlow without messages, faster than `load_in_library`; returns `tensorflow.compat.v1`."""
    with _garbage_collection_paused(), _keras_postponed():
        return load_in_library()


def load_in_library():
    """Imports TensorFlow without messages, and changes nothing else in the process of a user. Returns the
    module `tensorflow.compat.v1`.

    Raises:
      ImportError: TensorFlow is not installed.
    """
    with _messages_hidden():
        try:
            return importlib.import_module("tensorflow.compat.v1")
        except ModuleNotFoundError as error:
            if error.name.partition(".")[0] != "tensorflow":
                raise
            raise _not_installed() from error


def _not_installed():
    return ImportError("TensorFlow is not installed. Install it: pip install -r requirements.txt. To answer "
                       "without TensorFlow, export the model by export.py --format=onnx on a machine with "
                       "TensorFlow, and pass the directory of the export as --model_dir.", name="tensorflow")


def load_on_import(then):
    """Makes the first import of TensorFlow in this process quiet and fast, as `load` does. This also holds
    for an import statement in any module.

    Args:
      then: function without arguments. It is called after the import, or at once if TensorFlow is already
        imported.
    """
    if sys.modules.get("tensorflow"):
        then()
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.callbacks.append(then)


class _Finder:
    """Finds TensorFlow for Python's import system, see `load_on_import`."""

    def __init__(self):
        self.callbacks = []

    def find_spec(self, name, path=None, target=None):
        """Returns the spec of TensorFlow; None for any other module.

        Raises:
          ImportError: TensorFlow is not installed.
        """
        if name != "tensorflow":
            return None
        specs = (finder.find_spec(name, None) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, specs), None)
        if spec is None:
            raise _not_installed()
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: self._execute(execute, module)
        return spec

    def _execute(self, execute, module):
        sys.meta_path.remove(self)
        with _garbage_collection_paused(), _keras_postponed(), _messages_hidden():
            execute(module)
            importlib.import_module("tensorflow.compat.v1")
        while self.callbacks:
            self.callbacks.pop(0)()


_FINDER = _Finder()


def shows_all_messages():
    """Returns whether the environment variable TF_CPP_MIN_LOG_LEVEL asks for TensorFlow's messages."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


@contextlib.contextmanager
def _garbage_collection_paused():
    """Returns a context manager that stops the garbage collector. Objects that its block creates are never
    garbage collected.

    The block only imports modules, which stay in memory, so there is nothing to collect. A running garbage
    collector would take a fifth of the import time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _keras_postponed():
    """Returns a context manager. If its block imports TensorFlow, this import does not import Keras.

    The last step of the import of TensorFlow is the import of Keras. In the block, this step raises an
    ImportError, and TensorFlow goes on without Keras. This saves up to a third of the import time, because
    Keras would also import scikit-learn, SciPy and h5py, if they are installed. A program that uses
    `tf.keras` imports Keras at the first use of `tf.keras`.
    """
    modules = {name for name in _PARTS_OF_KERAS if name in sys.modules}
    sys.modules.update(dict.fromkeys(_PARTS_OF_KERAS - modules))
    before = set(sys.modules)
    try:
        yield
    finally:
        # After a failed import of Keras, some modules of Keras may be left in `sys.modules`. They are
        # removed.
        for name in [*(_PARTS_OF_KERAS - modules), *(set(sys.modules) - before)]:
            if name.partition(".")[0] in ("keras", "tf_keras"):
                del sys.modules[name]


@contextlib.contextmanager
def _messages_hidden():
    """Returns a context manager that hides the messages of TensorFlow's C++ code, unless the user asks for
    them."""
    # Level 3 also hides errors, such as the error that no GPU driver was found. On a machine with a GPU,
    # these errors are useful, so the default level is 2.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia[0-9]*") else "3")
    if shows_all_messages():
        yield
        return
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    with open(os.devnull, "w") as devnull:
        os.dup2(devnull.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
