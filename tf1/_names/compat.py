"""`tensorflow.compat.v1` as its programs expect it: quiet, in graph mode, resource variables, tf-keras."""

import importlib
import logging
import os
import warnings

from bertlib.system import quiet_tensorflow

# tf.layers, tf.keras and tf.nn.rnn_cell are those of tf-keras, because Keras 3 left them out. Read when Keras
# is first used.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
tf = quiet_tensorflow.load()

_verbosity = tf.logging.get_verbosity()
tf.logging.set_verbosity(tf.logging.ERROR)  # these two announce that they are old
tf.disable_v2_behavior()
tf.enable_resource_variables()
tf.logging.set_verbosity(_verbosity)


def disable_v2_behavior():
    """tf.disable_v2_behavior, which a program may call once more: variables stay of their kind."""
    uses_resources = tf.resource_variables_enabled()
    tf.disable_v2_behavior()
    if uses_resources:
        tf.enable_resource_variables()


# That names of TensorFlow 1 are deprecated is no news to a program that imports this. The module is not
# imported above because it loads TensorFlow, with its messages.
importlib.import_module("tf1._names.internals").silence_deprecations()
warnings.filterwarnings("ignore", r"`tf\.(layers|nn\.rnn_cell)\.", UserWarning)


def _is_shown_once(record):
    """A filter of TensorFlow's handler: false where the root logger writes to the terminal too."""
    return not any(type(handler) is logging.StreamHandler for handler in logging.root.handlers)


for _handler in logging.getLogger("tensorflow").handlers:
    _handler.addFilter(_is_shown_once)
