"""tf.contrib.slim: the package tf-slim, where it is installed. It is no requirement of this project.

What `tf.contrib.layers` and `tf.contrib.training` had besides our own names is in that package too.
"""

import importlib
import sys

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import array_ops, control_flow_ops, variable_scope
from tf_keras.src.legacy_tf_layers import normalization

from tf1 import _contrib_framework
from tf1._namespace import own_names

INSTALL = "the package tf-slim: pip install tf-slim"


def _variable(initial_value=None, trainable=None, collections=None, validate_shape=True, caching_device=None,
              name=None, dtype=None, **others):
    """tensorflow.python.ops.variable_scope.variable of TensorFlow 1."""
    return tf.Variable(initial_value, trainable=trainable, collections=collections, name=name, dtype=dtype,
                       validate_shape=validate_shape, caching_device=caching_device, **others)


def _put_back(module, names):
    """Gives a module the names that it had, where it lacks them."""
    for name, value in names.items():
        if not hasattr(module, name):
            setattr(module, name, value)


# Names of TensorFlow's own modules that moved, and that the package looks for where they were.
_put_back(ops, own_names(tf, "IndexedSlices", "Tensor"))
_put_back(array_ops, own_names(tf, "stack", "unstack"))
_put_back(control_flow_ops, own_names(tf, "Assert", "case", "cond", "while_loop"))
_put_back(variable_scope, dict(variable=_variable))
# tensorflow.python.layers.normalization looks for this where Keras 2 had it.
sys.modules.setdefault("tf_keras.legacy_tf_layers.normalization", normalization)


def package():
    """Returns the module tf_slim, or None where it is not installed."""
    try:
        slim = importlib.import_module("tf_slim")
    except ModuleNotFoundError as error:
        if error.name != "tf_slim":
            raise
        return None
    _share_scopes(importlib.import_module("tf_slim.ops.arg_scope"))
    return slim


def _share_scopes(scopes):
    """Makes an arg_scope of tf_slim also one of `tf.contrib.framework`, and the other way round."""
    if scopes._ARGSTACK is not _contrib_framework.SCOPES:
        _contrib_framework.SCOPED.update(scopes._DECORATED_OPS)
        scopes._ARGSTACK, scopes._DECORATED_OPS = _contrib_framework.SCOPES, _contrib_framework.SCOPED


def part(name):
    """Returns a function that returns a module of tf_slim, the whole if its name is ""; None without it."""
    return lambda: package() and importlib.import_module(f"tf_slim.{name}".rstrip("."))
