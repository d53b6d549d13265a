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
    module `tensorflow.compat.v1`."""
    # Level 3 also hides errors, such as the error that no GPU driver was found. On a machine with a GPU,
    # these errors are useful, so the default level is 2.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia[0-9]*") else "3")
    with contextlib.nullcontext() if shows_all_messages() else _native_messages_hidden():
        return importlib.import_module("tensorflow.compat.v1")


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
    imported = {name for name in _PARTS_OF_KERAS if name in sys.modules}
    sys.modules.update(dict.fromkeys(_PARTS_OF_KERAS - imported))
    before = set(sys.modules)
    try:
        yield
    finally:
        # After a failed import of Keras, some modules of Keras may be left in `sys.modules`. They are
        # removed.
        for name in [*(_PARTS_OF_KERAS - imported), *(set(sys.modules) - before)]:
            if name.partition(".")[0] in ("keras", "tf_keras"):
                del sys.modules[name]


@contextlib.contextmanager
def _native_messages_hidden():
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "w") as devnull:
        os.dup2(devnull.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
