"""Builds the graphs of hub modules in the format of TensorFlow 1, and writes the modules to directories.

Programs do not call this Python module directly. They call `create_module_spec` and `ModuleSpec.export` in
the Python module `hub_module`, which also reads hub modules.
"""

import os

import tensorflow.compat.v1 as tf

from bertlib.graph import tensorflow_internals
from bertlib.system import files

# Name of the file that declares a directory to be a hub module.
DECLARATION = "tfhub_module.pb"
# Content of the file that declares a hub module: a serialized protobuf message. Field 1 of this message is 3,
# the number of the format. The message has no other fields, because the module needs no additional features.
FORMAT_3 = b"\x08\x03"
# Name of a graph collection. It contains a pair (name, SignatureDef) for each signature.
_SIGNATURES = "hub_signatures"
_KEYS = tf.GraphKeys
# Names of the graph collections that are stored in a hub module. All other collections are removed.
_COLLECTIONS = (_KEYS.ASSET_FILEPATHS, _KEYS.COND_CONTEXT, _KEYS.GLOBAL_VARIABLES,
                _KEYS.MODEL_VARIABLES, _KEYS.REGULARIZATION_LOSSES, _KEYS.TABLE_INITIALIZERS,
                _KEYS.TRAINABLE_VARIABLES, _KEYS.UPDATE_OPS, _KEYS.WHILE_CONTEXT)


def add_signature(name=None, inputs=None, outputs=None):
    """Adds a signature with inputs and outputs to the module whose module_fn is running.

    Args:
      name: name of the signature; None for "default".
      inputs, outputs: {name: tensor}, or a single tensor, which gets the name "default"; None if the
        signature has no inputs or no outputs.

    Raises:
      ValueError: the module already has a signature with this name.
    """
    name = name or "default"
    signatures = tf.get_collection_ref(_SIGNATURES)
    if any(name == other for other, _ in signatures):
        raise ValueError(f"hub.add_signature: the module already has a signature {name!r}. Pass another "
                         "name.")
    sides = [{} if side is None else side if isinstance(side, dict) else {"default": side}
             for side in (inputs, outputs)]
    signatures.append((name, tf.saved_model.build_signature_def(*(
        {key: tf.saved_model.build_tensor_info(tensor) for key, tensor in side.items()} for side in sides))))


def build_variants(module_fn, tags_and_args=None, drop_collections=None):
    """Builds the variants of a module. Each variant is a graph, for example a graph for training.

    Args:
      module_fn: function that builds the graph of a variant, and calls `add_signature` for each signature.
      tags_and_args: list of (set of tags, dict of keyword arguments for module_fn), one for each variant.
        None for a single variant without tags and arguments.
      drop_collections: names of collections that are left out.

    Returns:
      List of MetaGraphDef.

    Raises:
      ValueError: two variants have the same tags, or a variant has no signature.
    """
    variants, kept = {}, set(_COLLECTIONS) - set(drop_collections or ())
    for tags, arguments in tags_and_args or [((), {})]:
        if frozenset(tags) in variants:
            raise ValueError(f"hub.create_module_spec: two variants have the tags {sorted(tags)}.")
        with tf.Graph().as_default() as graph:
            module_fn(**arguments)
            signatures = dict(tf.get_collection(_SIGNATURES))
            if not signatures:
                raise ValueError("hub.create_module_spec: module_fn added no signature. Call "
                                 "hub.add_signature in module_fn.")
            for key in set(graph.get_all_collection_keys()) - kept:
                graph.clear_collection(key)
            variant = tf.train.export_meta_graph(graph=graph, clear_devices=True)
        variant.meta_info_def.tags.extend(sorted(tags))
        for name, signature in signatures.items():
            variant.signature_def[name].CopyFrom(signature)
        variants[frozenset(tags)] = variant
    return list(variants.values())


def write_module(path, variants, values):
    """Writes a module to a directory. If an error occurs, all files that were written are removed.

    Args:
      path: the directory. It must be missing or empty.
      variants: list of MetaGraphDef.
      values: {name of a variable: array}.

    Raises:
      FileExistsError: the directory is not empty.
      OSError: the disk cannot be written.
    """
    path = os.fspath(path).rstrip("/")
    if files.exists(path) and not (files.is_directory(path) and not tf.gfile.ListDirectory(path)):
        raise FileExistsError(f"{path} already exists. Export the module to a new directory.")
    partial = files.path_beside(path, ".partial")
    try:
        with files.translate_disk_errors(path):
            if tf.gfile.Exists(partial):
                tf.gfile.DeleteRecursively(partial)
            builder = tf.saved_model.Builder(partial)
            for number, variant in enumerate(variants):
                _add_variant(builder, variant, values if number == 0 else None)
            builder.save()
            with files.open_file(os.path.join(partial, DECLARATION), "wb") as declaration:
                declaration.write(FORMAT_3)
            tf.gfile.Rename(partial, path, overwrite=True)
    except BaseException:
        if tf.gfile.Exists(partial):
            tf.gfile.DeleteRecursively(partial)
        raise


def _add_variant(builder, variant, values):
    """Adds a variant of a module to a SavedModel builder.

    Args:
      builder: a `tf.saved_model.Builder`.
      variant: MetaGraphDef.
      values: {name of a variable: array}, the weights to add; None to add only the graph.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        tensorflow_internals.import_meta_graph(variant, clear_devices=True)
        arguments = dict(signature_def_map=dict(variant.signature_def),
                         assets_collection=tf.get_collection(_KEYS.ASSET_FILEPATHS))
        if values is None:
            return builder.add_meta_graph(list(variant.meta_info_def.tags), **arguments)
        for variable in tf.global_variables():
            variable.load(values[variable.op.name], session)
        return builder.add_meta_graph_and_variables(session, list(variant.meta_info_def.tags), **arguments)
