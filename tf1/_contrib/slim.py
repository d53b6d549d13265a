"""Provides the package tf-slim as tf.contrib.slim, if the package is installed. tf1 does not require it.

Names of `tf.contrib.layers` and `tf.contrib.training` that tf1 does not define are also taken from tf-slim.
"""

import importlib

from tf1._contrib import framework
from tf1._names.namespace import optional_module

INSTALL = "the package tf-slim (pip install tf-slim), if this package has the name"


def package():
    """Returns the module tf_slim, or None if the package is not installed."""
    slim = optional_module("tf_slim")
    if slim is not None:
        importlib.import_module("tf_slim.nets")  # tf_slim does not import this part itself
        _share_scopes(importlib.import_module("tf_slim.ops.arg_scope"))
    return slim


def _share_scopes(scopes):
    """Makes tf_slim and `tf.contrib.framework` use the same stack of scopes and the same dict of decorated
    functions."""
    if scopes._ARGSTACK is not framework.SCOPES:
        framework.SCOPED.update(scopes._DECORATED_OPS)
        scopes._ARGSTACK, scopes._DECORATED_OPS = framework.SCOPES, framework.SCOPED


def part(name):
    """Returns a function that imports a module of tf_slim. The returned function takes no arguments. It
    returns the module, or None if tf-slim is not installed.

    Args:
      name: name of the module below tf_slim; "" for tf_slim itself.
    """
    return lambda: package() and importlib.import_module(f"tf_slim.{name}".rstrip("."))
