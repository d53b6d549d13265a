"""Defines `tensorflow_hub` for programs of TensorFlow 1: `hub.Module` and functions that create modules.

After `import tf1`, `import tensorflow_hub as hub` finds this module, even if the package tensorflow-hub is
installed: its newer versions have no `hub.Module`. `hub_export` defines the names, on top of
`bertlib.checkpoints.hub_module`.
"""

from tf1._names import hub_export
from tf1._names.namespace import Namespace, own_names, rows

REPLACEMENTS = dict(rows("""
    KerasLayer                          a name of TensorFlow 2. Use tf.saved_model.load.
    LatestModuleExporter                not provided. Use hub.create_module_spec(…).export(…).
    create_module_spec_from_saved_model not provided. Use hub.create_module_spec(…).export(…).
    image_embedding_column              not provided. Apply a hub.Module in the model_fn, and use its output.
    load                                a name of TensorFlow 2. Use tf.saved_model.load.
    register_module_for_export          not provided. Use hub.create_module_spec(…).export(…).
    resolve                             a name of TensorFlow 2. Use tf.saved_model.load.
    sparse_text_embedding_column        not provided. Apply a hub.Module in the model_fn, and use its output.
    text_embedding_column               not provided. Apply a hub.Module in the model_fn, and use its output.
    text_embedding_column_v2            not provided. Apply a hub.Module in the model_fn, and use its output.
"""))

hub = Namespace("tensorflow_hub", own_names(
    hub_export, "Module ModuleSpec add_signature create_module_spec load_module_spec"),
    explain=lambda name: REPLACEMENTS.get(name, "not provided."))
