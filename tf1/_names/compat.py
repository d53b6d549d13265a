"""Loads `tensorflow.compat.v1` without messages, in graph mode, with resource variables and with tf-keras."""

import importlib
import logging
import os
import warnings

from bertlib.system import quiet_tensorflow

# With this environment variable, TensorFlow takes tf.layers, tf.keras and tf.nn.rnn_cell from the package
# tf-keras (Keras 2). Keras 3 has no tf.layers and no tf.nn.rnn_cell, and its layers cannot be used in graphs
# of TensorFlow 1. TensorFlow reads the environment variable at the first use of Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
tf = quiet_tensorflow.load()

_verbosity = tf.logging.get_verbosity()
tf.logging.set_verbosity(tf.logging.ERROR)  # otherwise the next two calls log deprecation warnings
tf.disable_v2_behavior()
tf.enable_resource_variables()
tf.logging.set_verbosity(_verbosity)


def disable_v2_behavior():
    """Calls tf.disable_v2_behavior. If resource variables were enabled before the call, they stay enabled."""
    uses_resources = tf.resource_variables_enabled()
    tf.disable_v2_behavior()
    if uses_resources:
        tf.enable_resource_variables()


# A program that imports tf1 uses names of TensorFlow 1 on purpose, so deprecation warnings would not help.
# `internals` is imported here and not at the top of this file, because its import also loads TensorFlow. If
# TensorFlow were loaded before the call of `quiet_tensorflow.load`, TensorFlow would print its messages.
importlib.import_module("tf1._names.internals").silence_deprecations()
warnings.filterwarnings("ignore", r"`tf\.(layers|nn\.rnn_cell)\.", UserWarning)


def _is_shown_once(record):
    """Returns whether TensorFlow's log handler should write a record.

    If the root logger also writes to the terminal, the result is False. Otherwise, the terminal would show
    the message twice.
    """
    return not any(type(handler) is logging.StreamHandler for handler in logging.root.handlers)


for _handler in logging.getLogger("tensorflow").handlers:
    _handler.addFilter(_is_shown_once)
