"""TensorFlow 1.x for old programs: write `import tf1 as tf` instead of `import tensorflow as tf`.

This module is `tensorflow.compat.v1` in graph mode, with resource variables. Names that TensorFlow 2 removed
are defined here by this project's own modules: `tf.estimator`, `tf.layers`, and the names of `tf.contrib`
that forks of BERT used. Other names of `tf.contrib` raise an error that names the replacement.
After `import tf1`, imports of single modules also work, such as `from tensorflow.contrib import crf` or `from
tensorflow.python.estimator.run_config import RunConfig`.

Two runs with the same seed give the same results. The random numbers of `tf.nn.dropout`, `tf.layers.dropout`
and of a `Dataset.shuffle` without a seed depend only on the graph's seed, the step and the place of the op in
the model (see `bertlib.graph.randomness`). `parallel_interleave` ignores `sloppy=True`, because this option
could change the order of the records from run to run.

    python -m tf1 run_my_task.py --flags…

runs a script of TensorFlow 1.x without changes: its files still contain `import tensorflow as tf`.

    python -m tf1 --names

lists every name that a program gets from `tf`. With `--ours`, it lists only the names that TensorFlow itself
lacks or defines differently.
"""

from tf1._names.compat import disable_v2_behavior  # noqa: F401
from tf1._names.compat import tf as _tf  # this import must stay first: it turns off TensorFlow's messages

# isort: split
import importlib as _importlib
import sys as _sys

from tf1._contrib.contrib_parts import contrib as contrib
from tf1._names import metric_weights as _metric_weights  # noqa: F401
from tf1._names.examples import parse_example as parse_example
from tf1._names.namespace import Namespace as _Namespace
from tf1._names.reference_variables import assign as assign
from tf1._names.tensorflow_names import advice as _advice
from tf1._names.tensorflow_names import app, data, estimator, io, layers, logging, nn, train  # noqa: F401
from tf1._run import keras_modules as _keras_modules
from tf1._run import modules as _modules  # noqa: F401  this import adds finders for modules of TensorFlow 1
from tf1._run import session_options as _session_options  # noqa: F401

compat = _Namespace("tf.compat", dict(v1=_sys.modules[__name__]), lambda: _tf.compat)


def __getattr__(name):
    if name in ("core", "python"):  # in TensorFlow 1, these inner packages were attributes of `tf`
        return _keras_modules.python if name == "python" else _importlib.import_module(f"tensorflow.{name}")
    if not hasattr(_tf, name) and (instead := _advice(f"tf.{name}")):
        raise AttributeError(f"tf.{name}: {instead}")
    return getattr(_tf, name)


def __dir__():
    return sorted({name for name in (*globals(), *dir(_tf)) if not name.startswith("_")})
