"""Defines `tensorflow.python.keras` and `tf.contrib.keras`: the Keras of `tf.keras` under its old names.

TensorFlow itself still has a module `tensorflow.python.keras`. This module is an incomplete copy of Keras for
TensorFlow's own use. Its layers and models are not those of `tf.keras`, so a program cannot combine them.
"""

import functools
import importlib
import inspect
import types

import tensorflow.compat.v1 as tf

from tf1._names import internals
from tf1._names.namespace import Namespace

# Parts that the names of these modules had in some versions of TensorFlow 1, and that are left out here.
_LEFT_OUT = ("_impl", "_v1", "api", "keras", "python")
# Files of Keras in TensorFlow 1 that Keras 2 has divided or renamed. Their names are in the package above.
_OLD_FILES = """
    advanced_activations convolutional_recurrent cudnn_recurrent dense_attention embeddings local merge
    multi_gpu_utils network normalization_v2 recurrent recurrent_v2 rnn_cell_wrapper_v2 topology wrappers
"""


class _Names:
    """Has the names of several objects. The first object that has a name provides it. `dir` returns only the
    names of the first two, without modules, for `from … import *`."""

    def __init__(self, title, homes):
        self._title, self._homes = title, homes

    def __getattr__(self, name):
        home = next((home for home in self._homes if hasattr(home, name)), None)
        if home is None:
            raise AttributeError(name)
        value = getattr(home, name)
        is_part = isinstance(value, types.ModuleType) and value.__name__.startswith("tf_keras.")
        return find(f"{self._title}.{name}") if is_part else value

    def __dir__(self):
        return [name for home in self._homes[:2] for name, value in vars(home).items()
                if not isinstance(value, types.ModuleType)]


@functools.cache
def find(title):
    """Returns a module of Keras, such as tensorflow.python.keras.layers.recurrent.

    The module has the names of `tf.keras.layers.recurrent`, of the file `layers/recurrent.py` of Keras 2, and
    of the packages above both. Keras 2 has moved many files, but rarely to a package of another name.

    Args:
      title: dotted name of the module, such as tf.contrib.keras.layers. The path of the module within Keras
        begins after the part `keras`.

    Returns:
      the module; None if Keras has no package for it.
    """
    path = [part for part in title.split(".")[title.split(".").index("keras"):] if part not in _LEFT_OUT]
    if path[:1] == ["optimizer_v2"]:
        path[:1] = ["optimizers", "legacy"]
    if path and path[-1] not in _OLD_FILES.split() and _public(path) is None and _file(path) is None:
        return None
    homes = []
    for length in range(len(path), -1, -1):
        homes += [_public(path[:length]), _file(path[:length])]
    homes += [tf.keras.layers, tf.keras.models]
    found = _Names(title, [home for home in homes if home is not None])
    return Namespace(title, {}, lambda: found,
                     lambda name: "tf.contrib is gone. Use tf.keras." if "contrib" in title else
                     "Keras 2 has no such name. Use tf.keras.")


def _public(path):
    return functools.reduce(lambda module, name: getattr(module, name, None), path, tf.keras)


def _file(path):
    try:
        return importlib.import_module(".".join(["tf_keras.src", *path]))
    except ModuleNotFoundError:
        return None


# This is `tf.python`: TensorFlow's inner package, but with the Keras of `tf.keras`.
python = Namespace("tf.python", dict(keras=find("tf.python.keras")),
                   lambda: internals.inner_python)


@internals.replaces_metric_lookup
def _find_metric(get_metric, *args, **kwargs):
    """Makes `tf.keras.Model.compile` accept methods as metrics. Keras sets an attribute of each metric, and a
    method has no attributes that can be set."""
    metric = get_metric(*args, **kwargs)
    return functools.partial(metric) if inspect.ismethod(metric) else metric
