"""Imports TensorFlow without the messages of its C++ code on stderr. TF_CPP_MIN_LOG_LEVEL=0 shows them."""

import contextlib
import gc
import glob
import importlib
import os
import sys


def load():
    """Imports TensorFlow without messages; returns the module `tensorflow.compat.v1`."""
    # Level 3 also hides errors, such as the error that no GPU driver was found. On a machine with a GPU,
    # these errors are useful.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia[0-9]*") else "3")
    with _garbage_collection_paused(), (
            contextlib.nullcontext() if shows_all_messages() else _native_messages_hidden()):
        return importlib.import_module("tensorflow.compat.v1")


def shows_all_messages():
    """Returns whether the environment variable TF_CPP_MIN_LOG_LEVEL asks for TensorFlow's messages."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


@contextlib.contextmanager
def _garbage_collection_paused():
    """Excludes the objects that the block creates from garbage collection, now and later.

    The block imports modules, which are never collected. The garbage collector would take a fifth of the
    time of the import.
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
