"""The modules that programs import past `tf`."""

import sys

from tf1 import _bert_package, _contrib, _hub, _names
from tf1._namespace import Namespace


def _modules_that_bypass_us():
    """{name of a module of TensorFlow 1: what stands in for it}."""
    found = {"tensorflow.contrib": _contrib.contrib}
    for name in _contrib.REPLACEMENTS:
        found[f"tensorflow.contrib.{name}"] = getattr(_contrib.contrib, name)
    found["tensorflow.contrib.compiler.jit"] = _contrib.jit
    python_layers = Namespace("tensorflow.contrib.layers.python", {})
    initializers = Namespace("tensorflow.contrib.layers.python.layers.initializers", _contrib.INITIALIZERS)
    python_layers.layers = Namespace("tensorflow.contrib.layers.python.layers",
                                     dict(initializers=initializers), lambda: _contrib.contrib.layers)
    found["tensorflow.contrib.layers.python"] = python_layers
    found["tensorflow.contrib.layers.python.layers"] = python_layers.layers
    found["tensorflow.contrib.layers.python.layers.initializers"] = python_layers.layers.initializers
    found["tensorflow_hub"] = _hub.hub
    found["tensorflow.estimator"] = _names.estimator
    parts = dict.fromkeys(("estimator", "model_fn", "run_config", "training"), _names.estimator)
    found["tensorflow.python.estimator"] = Namespace("tensorflow.python.estimator", parts,
                                                     lambda: _names.estimator)
    found.update({f"tensorflow.python.estimator.{name}": module for name, module in parts.items()})
    return found


def _under_our_name(modules):
    """The same modules by the names that they have after the import of `tf1` in place of `tensorflow`."""
    ours = {name.replace("tensorflow.", "tf1.", 1): module for name, module in modules.items()
            if not name.startswith("tensorflow.python.")}
    return {**ours, **{f"tf1.{name}": module for name, module in dict(
        app=_names.app, data=_names.data, layers=_names.layers, logging=_names.logging,
        nn=_names.nn).items()}}


_modules = _modules_that_bypass_us()
sys.modules.update({**_modules, **_under_our_name(_modules)})
sys.meta_path.append(_bert_package.Finder())
