"""TensorFlow 1.x for programs of its time: `import tf1 as tf` in place of `import tensorflow as tf`.

It is `tensorflow.compat.v1`, in graph mode with resource variables, with what TensorFlow 2 removed put back
over this project's own modules: `tf.estimator`, `tf.layers`, and of `tf.contrib` what forks of BERT used. The
rest of `tf.contrib` raises an error that names the replacement. Modules that bypass `tf`, such as `from
tensorflow.contrib import crf` or `from tensorflow.python.estimator.run_config import RunConfig`, are found
too once this one is imported.

So that a run repeats, `tf.nn.dropout`, `tf.layers.dropout` and a `Dataset.shuffle` without a seed are keyed
by seed, step and place (see `bertlib.graph.randomness`), and `parallel_interleave` is never sloppy.

    python -m tf1 run_my_task.py --flags…

runs a script of TensorFlow 1.x whose files say `import tensorflow as tf`, unchanged;

    python -m tf1 --names

lists every name that a program gets, `python -m tf1 --names --ours` those that TensorFlow itself no longer
has, or has otherwise.
"""

from tf1._names.compat import disable_v2_behavior  # noqa: F401
from tf1._names.compat import tf as _tf  # must be the first import: it loads TensorFlow, without messages

# isort: split
import importlib as _importlib
import sys as _sys

from tf1._contrib.contrib_parts import contrib as contrib
from tf1._names import metric_weights as _metric_weights
from tf1._names import reference_variables as _reference_variables
from tf1._names.examples import parse_example as parse_example
from tf1._names.namespace import Namespace as _Namespace
from tf1._names.reference_variables import assign as assign
from tf1._names.tensorflow_names import app, data, estimator, io, layers, logging, nn, train  # noqa: F401
from tf1._run import modules as _modules  # noqa: F401  its import puts the finders of modules in place
from tf1._run import session_threads as _session_threads

_metric_weights.install()
_reference_variables.install()
_session_threads.install()
compat = _Namespace("tf.compat", dict(v1=_sys.modules[__name__]), lambda: _tf.compat)


def __getattr__(name):
    if name in ("core", "python"):  # TensorFlow 1 had its inner packages as attributes
        return _importlib.import_module(f"tensorflow.{name}")
    return getattr(_tf, name)


def __dir__():
    return sorted({name for name in (*globals(), *dir(_tf)) if not name.startswith("_")})
