"""tf.contrib.slim: the package tf-slim, where it is installed. It is no requirement of this project.

What `tf.contrib.layers` and `tf.contrib.training` had besides our own names is in that package too.
"""

import importlib
import sys

from tf1._contrib import framework
from tf1._names import internals

INSTALL = "the package tf-slim: pip install tf-slim"

# tensorflow.python.layers.normalization looks for this where Keras 2 had it.
sys.modules.setdefault("tf_keras.legacy_tf_layers.normalization", internals.normalization)


def package():
    """Returns the module tf_slim, or None where it is not installed."""
    try:
        slim = importlib.import_module("tf_slim")
    except ModuleNotFoundError as error:
        if error.name != "tf_slim":
            raise
        return None
    importlib.import_module("tf_slim.nets")  # a part of it that it does not import itself
    _share_scopes(importlib.import_module("tf_slim.ops.arg_scope"))
    return slim


def _share_scopes(scopes):
    """Makes an arg_scope of tf_slim also one of `tf.contrib.framework`, and the other way round."""
    if scopes._ARGSTACK is not framework.SCOPES:
        framework.SCOPED.update(scopes._DECORATED_OPS)
        scopes._ARGSTACK, scopes._DECORATED_OPS = framework.SCOPES, framework.SCOPED


def part(name):
    """Returns a function that returns a module of tf_slim, the whole if its name is ""; None without it."""
    return lambda: package() and importlib.import_module(f"tf_slim.{name}".rstrip("."))
