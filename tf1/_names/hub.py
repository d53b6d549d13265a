"""Defines `tensorflow_hub` for programs of TensorFlow 1: `hub.Module` and functions that create modules.

After `import tf1`, `import tensorflow_hub as hub` finds this module. Its functions are defined in
`bertlib.checkpoints.hub_module`. If the package tensorflow-hub is installed, names such as `hub.load` and
`hub.KerasLayer` come from the package. The package alone would not be enough, because its newer versions have
no `hub.Module`.
"""

import importlib
import importlib.util

from bertlib.checkpoints import hub_export, hub_module
from tf1._names.namespace import Namespace, own_names

# Names that are taken from the installed package tensorflow-hub: {name: module of the package that defines
# this name}.
_OF_THE_PACKAGE = {"KerasLayer": "keras_layer", "load": "module_v2", "resolve": "module_v2"}
REPLACEMENTS = {
    **dict.fromkeys(("image_embedding_column", "sparse_text_embedding_column", "text_embedding_column",
                     "text_embedding_column_v2"),
                    "not provided. Apply a hub.Module in the model_fn, and use its output."),
    **dict.fromkeys(("LatestModuleExporter", "create_module_spec_from_saved_model",
                     "register_module_for_export"), "not provided. Use hub.create_module_spec(…).export(…), "
                    "which writes a module with the weights of a checkpoint."),
}


def _explain(name):
    if name in _OF_THE_PACKAGE:
        return ("a name of TensorFlow 2. Install it with `pip install tensorflow-hub`, or use "
                "tf.saved_model.load.")
    return REPLACEMENTS.get(name, "not provided.")


class _Package:
    """Provides names of the package tensorflow-hub, if it is installed. A name is imported from the package
    only when a program uses the name."""

    def __getattr__(self, name):
        if name not in _OF_THE_PACKAGE or not hub.__path__:
            raise AttributeError(name)
        return getattr(importlib.import_module(f"tensorflow_hub.{_OF_THE_PACKAGE[name]}"), name)

    def __dir__(self):
        return list(_OF_THE_PACKAGE) if hub.__path__ else []


hub = Namespace("tensorflow_hub", dict(
    **own_names(hub_module, "Module ModuleSpec create_module_spec load_module_spec"),
    **own_names(hub_export, "add_signature attach_message")), _Package, _explain)
# With `__path__`, Python finds the modules of the installed package, such as `tensorflow_hub.module_v2`.
_package = importlib.util.find_spec("tensorflow_hub")
hub.__path__ = list(_package.submodule_search_locations or ()) if _package else []
