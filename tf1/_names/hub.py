"""`tensorflow_hub` as programs of TensorFlow 1 use it: `hub.Module` and what makes such modules, over
`bertlib.checkpoints.hub_module`.

`import tensorflow_hub as hub` finds it after `import tf1`. If the package is installed, its other names, such
as `hub.load` and `hub.KerasLayer`, are its own; later versions of it have no `hub.Module`.
"""

import importlib
import importlib.util

from bertlib.checkpoints import hub_export, hub_module
from tf1._names.namespace import Namespace, own_names

# Name of the package: the module of it that has the name.
_OF_THE_PACKAGE = {"KerasLayer": "keras_layer", "load": "module_v2", "resolve": "module_v2"}
REPLACEMENTS = {
    **dict.fromkeys(("image_embedding_column", "sparse_text_embedding_column", "text_embedding_column",
                     "text_embedding_column_v2"),
                    "not provided: apply a hub.Module in the model_fn, and use its output."),
    **dict.fromkeys(("LatestModuleExporter", "create_module_spec_from_saved_model",
                     "register_module_for_export"), "not provided: hub.create_module_spec(…).export(…) "
                    "writes a module with the weights of a checkpoint."),
}


def _explain(name):
    if name in _OF_THE_PACKAGE:
        return "of TensorFlow 2; `pip install tensorflow-hub` provides it. tf.saved_model.load does without."
    return REPLACEMENTS.get(name, "not provided.")


class _Package:
    """The names of the installed package, each imported from its module when it is first used."""

    def __getattr__(self, name):
        if name not in _OF_THE_PACKAGE or not hub.__path__:
            raise AttributeError(name)
        return getattr(importlib.import_module(f"tensorflow_hub.{_OF_THE_PACKAGE[name]}"), name)

    def __dir__(self):
        return list(_OF_THE_PACKAGE) if hub.__path__ else []


hub = Namespace("tensorflow_hub", dict(
    **own_names(hub_module, "Module", "ModuleSpec", "create_module_spec", "load_module_spec"),
    **own_names(hub_export, "add_signature", "attach_message")), _Package, _explain)
# So that modules of the installed package are found under ours.
_package = importlib.util.find_spec("tensorflow_hub")
hub.__path__ = list(_package.submodule_search_locations or ()) if _package else []
