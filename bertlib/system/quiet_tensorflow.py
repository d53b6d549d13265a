"""Loads TensorFlow without what its C++ writes to stderr meanwhile. TF_CPP_MIN_LOG_LEVEL=0 shows it."""

import contextlib
import gc
import glob
import importlib
import os
import sys


def load():
    """Imports TensorFlow, quietly if nothing imported it before; returns `tensorflow.compat.v1`."""
    # 3 hides errors too, such as that of a missing GPU driver. Where there is a GPU they are worth seeing.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if glob.glob("/dev/nvidia[0-9]*") else "3")
    with _garbage_collection_paused(), (
            contextlib.nullcontext() if shows_all_messages() else _native_messages_hidden()):
        return importlib.import_module("tensorflow.compat.v1")


def shows_all_messages():
    """Whether the environment asks for TensorFlow's messages."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") in ("0", "1")


@contextlib.contextmanager
def _garbage_collection_paused():
    """Has the collector of garbage leave alone, then and later, what the block makes: a fifth of the seconds
    that the import takes would go to looking through modules, which stay."""
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
