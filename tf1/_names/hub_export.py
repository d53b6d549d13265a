"""Defines the parts of `tensorflow_hub` that only programs of TensorFlow 1 use: creates hub modules, writes
them to directories, and describes the hub module in a graph.

`bertlib.checkpoints.hub_module` reads hub modules.
"""

import os
from typing import NamedTuple

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import hub_module
from bertlib.graph import tensorflow_internals
from bertlib.system import files

# Names of default signatures. A call that names no signature uses the first name in this list that exists in
# the module.
_DEFAULT_SIGNATURES = ("default", "serving_default")
# Name of a graph collection. It contains a pair (name, SignatureDef) for each signature.
_SIGNATURES = "hub_signatures"
_KEYS = tf.GraphKeys
# Names of the graph collections that are stored in a hub module. All other collections are removed.
_COLLECTIONS = (_KEYS.ASSET_FILEPATHS, _KEYS.COND_CONTEXT, _KEYS.GLOBAL_VARIABLES,
                _KEYS.MODEL_VARIABLES, _KEYS.REGULARIZATION_LOSSES, _KEYS.TABLE_INITIALIZERS,
                _KEYS.TRAINABLE_VARIABLES, _KEYS.UPDATE_OPS, _KEYS.WHILE_CONTEXT)


class TensorInfo(NamedTuple):
    """Describes an input or an output of a signature: its type, its shape and whether it is a sparse
    tensor."""

    dtype: tf.DType
    shape: tf.TensorShape
    is_sparse: bool = False

    def get_shape(self):
        return self.shape


class ModuleSpec(hub_module.ModuleSpec):
    """The variants of a hub module. The module is stored in a directory, or it is new and not yet written.

    Attributes:
      directory: the directory of the module; for a new module, a text that names it in error messages.
      is_new: whether the module was created by `create_module_spec`.
    """

    def __init__(self, directory, graphs=None):
        """Reads a module from a directory, or creates a new module from graphs.

        Args:
          directory: see the attribute.
          graphs: list of MetaGraphDef, the variants of a new module; None to read the variants from the
            directory.

        Raises:
          ValueError: saved_model.pb is damaged.
        """
        self.is_new = graphs is not None
        if self.is_new:
            self.directory = directory
            self.variants = {frozenset(graph.meta_info_def.tags): graph for graph in graphs}
        else:
            super().__init__(directory)

    def find_signature(self, name=None, tags=None):
        """Returns the name of a signature.

        Args:
          name: name of the signature; None for the default signature.
          tags: see `variant`.

        Raises:
          ValueError: the signature or the variant does not exist.
        """
        signatures = self.variant(tags).signature_def
        names = _DEFAULT_SIGNATURES if name is None else (name,)
        for candidate in names:
            if candidate in signatures:
                return candidate
        raise ValueError(f"Signature {names[0]!r} is missing in {self.directory}. The existing signatures: "
                         f"{', '.join(sorted(signatures)) or 'none'}.")

    def get_input_info_dict(self, signature=None, tags=None):
        """Returns {name: TensorInfo} of a signature's inputs."""
        return _tensor_infos(self.signature(self.find_signature(signature, tags), tags).inputs)

    def get_output_info_dict(self, signature=None, tags=None):
        """Returns {name: TensorInfo} of a signature's outputs."""
        return _tensor_infos(self.signature(self.find_signature(signature, tags), tags).outputs)

    def get_signature_names(self, tags=None):
        """Returns the names of a variant's signatures."""
        return list(self.variant(tags).signature_def)

    def get_tags(self):
        """Returns a list with one set of str for each variant. The set contains the tags of the variant."""
        return [set(tags) for tags in self.variants]

    def export(self, path, _sentinel=None, checkpoint_path=None, name_transform_fn=None):
        """Writes the module with the weights of a checkpoint.

        Args:
          path: the directory to which the module is written. It must be new or empty.
          checkpoint_path: path of a checkpoint that contains all variables.
          name_transform_fn: function (name of a variable in the module) -> its name in the checkpoint; None
            if the names are equal.

        Raises:
          ValueError: the checkpoint does not exist or lacks a variable.
          FileExistsError: the directory is not empty.
        """
        if _sentinel is not None or not checkpoint_path:
            raise ValueError("ModuleSpec.export: pass checkpoint_path=…, the checkpoint with the module's "
                             "weights.")
        rename = name_transform_fn or (lambda name: name)
        with tf.Graph().as_default(), tf.Session() as session:
            module = Module(self)
            tf.train.init_from_checkpoint(checkpoint_path, {
                rename(name): variable for name, variable in module.variable_map.items()})
            session.run(tf.global_variables_initializer())
            module.export(path, session)


def _tensor_infos(tensors):
    return {name: TensorInfo(tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape),
                             info.WhichOneof("encoding") == "coo_sparse") for name, info in tensors.items()}


def load_module_spec(spec):
    """Returns the `ModuleSpec` of a module.

    Args:
      spec: directory or address of the module (see `hub_module.find_directory`); a `ModuleSpec` is returned
        unchanged.
    """
    return spec if isinstance(spec, ModuleSpec) else ModuleSpec(hub_module.find_directory(spec))


def create_module_spec(module_fn, tags_and_args=None, drop_collections=None):
    """Returns the `ModuleSpec` of a new module. Each variant of the module is a graph, for example a graph
    for training.

    Args:
      module_fn: function that builds the graph of a variant, and calls `add_signature` for each signature.
      tags_and_args: list of (set of tags, dict of keyword arguments for module_fn), one for each variant.
        None for a single variant without tags and arguments.
      drop_collections: names of collections that are left out.

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
    return ModuleSpec("a new module", list(variants.values()))


class Module(hub_module.Module):
    """A hub module that was added to the current graph."""

    def __init__(self, spec, trainable=False, name="module", tags=None):
        """Creates the module's variables and tables; see `hub_module.Module`."""
        super().__init__(load_module_spec(spec), trainable, name, tags)

    def __call__(self, inputs=None, _sentinel=None, signature=None, as_dict=None):
        """Adds the computation of a signature to the graph.

        Args:
          inputs: {name: tensor, or a value that can be converted to a tensor}. If the signature has one
            input, `inputs` may be the tensor itself. If the signature has no input, `inputs` may be None.
          signature: name of the signature; None for "default".
          as_dict: whether to return all outputs.

        Returns:
          {name: tensor} if `as_dict`, otherwise the output "default".

        Raises:
          TypeError: `inputs` does not fit the signature; or `as_dict` is false, and the signature has no
            output "default".
          ValueError: the signature does not exist, or its computation cannot be trained.
          RuntimeError: the module belongs to a graph that is not the current graph.
        """
        if self._graph is not tf.get_default_graph():
            raise RuntimeError("hub.Module: the module was created in a different graph. Create the module "
                               "in the current graph.")
        name = self._spec.find_signature(signature, self._tags)
        definition = self._spec.signature(name, self._tags)
        inputs = _inputs_by_name(name, set(definition.inputs), inputs)
        if not as_dict and "default" not in definition.outputs:
            raise TypeError(f"Signature {name!r} has no output 'default', only "
                            f"{', '.join(sorted(definition.outputs))}. Pass as_dict=True.")
        results = self.apply(name, inputs)
        return results if as_dict else results["default"]

    @property
    def variable_map(self):
        """Returns {name in the module: variable, or list of the parts of a partitioned variable}."""
        return dict(self._variable_map)

    @property
    def variables(self):
        """Returns the list of all variables, sorted by their names in the module."""
        return tf.nest.flatten([self._variable_map[name] for name in sorted(self._variable_map)])

    def get_signature_names(self):
        """Returns the names of the signatures."""
        return self._spec.get_signature_names(self._tags)

    def get_input_info_dict(self, signature=None):
        """Returns {name: TensorInfo} of a signature's inputs."""
        return self._spec.get_input_info_dict(signature, self._tags)

    def get_output_info_dict(self, signature=None):
        """Returns {name: TensorInfo} of a signature's outputs."""
        return self._spec.get_output_info_dict(signature, self._tags)

    def export(self, path, session):
        """Writes all variants of the module, with the current weights of a session; see
        `ModuleSpec.export`."""
        variables, spec = self.variables, self._spec
        variants = [hub_module.set_asset_paths(graph, spec.directory) for graph in spec.variants.values()]
        write_module(path, variants, {
            variable.op.name.removeprefix(f"{self._scope}/"): value
            for variable, value in zip(variables, session.run(variables))})

    def _variables_by_name(self, imported):
        """Returns {name in the module: variable, or list of the parts of a partitioned variable}."""
        variables, found = {}, super()._variables_by_name(imported)
        slices = {name: variable.to_proto().save_slice_info_def for name, variable in found.items()}
        for name in sorted(found, key=lambda name: tuple(slices[name].var_offset)):
            if slices[name].full_name:
                variables.setdefault(os.path.dirname(name), []).append(found[name])
            else:
                variables[name] = found[name]
        return variables

    def _start_from_checkpoint(self):
        if not self._spec.is_new:  # the weights of a new module come from its initializers
            super()._start_from_checkpoint()


def _inputs_by_name(signature, names, inputs):
    """Returns the inputs of a call, {name: value}.

    Args:
      signature: name of the signature.
      names: set of the names of its inputs.
      inputs: see `Module.__call__`.

    Raises:
      TypeError: `inputs` does not have these names.
    """
    if inputs is None:
        inputs = {}
    elif not isinstance(inputs, dict):
        if len(names) != 1:
            raise TypeError(f"Signature {signature!r} has the inputs {', '.join(sorted(names)) or 'none'}. "
                            "Pass a dict {name of the input: value}.")
        inputs = {next(iter(names)): inputs}
    missing, unknown = (", ".join(sorted(found)) for found in (names - set(inputs), set(inputs) - names))
    if missing or unknown:
        raise TypeError(f"Signature {signature!r}: missing inputs: {missing or 'none'}; unknown inputs: "
                        f"{unknown or 'none'}.")
    return inputs


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
            with files.open_file(os.path.join(partial, hub_module.DECLARATION), "wb") as declaration:
                declaration.write(hub_module.FORMAT_3)
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
