"""Reads TF Hub modules in the format of TensorFlow 1. A module is a part of a model with trained weights.

A module is stored as a directory with a SavedModel and the file tfhub_module.pb. The SavedModel contains one
or more graphs with the same variables. Each graph is called a variant. A variant is identified by a set of
tags, such as {} or {"train"}. A variant has one or more signatures. A signature has a name, inputs and
outputs. The constructor of `Module` adds the state of a variant (variables and tables) to the current graph
once. `Module.apply` adds the computation of a signature. A SavedModel of TensorFlow 1 can also be used as a
module.

Random numbers in the computation, for example for dropout, depend only on the seed, the step and the site.
The site is a name for the place in the graph where the numbers are drawn; see `randomness`.
"""

import hashlib
import os

from google.protobuf import message
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.graph import randomness, tensorflow_internals
from bertlib.system import files

# Name of the environment variable that contains the path of the cache directory of modules.
CACHE_VARIABLE = "TFHUB_CACHE_DIR"
# Name of the file that declares a directory to be a hub module.
DECLARATION = "tfhub_module.pb"
# Content of the file that declares a hub module: a serialized protobuf message. Field 1 of this message is 3,
# the number of the format. The message has no other fields, because the module needs no additional features.
FORMAT_3 = b"\x08\x03"
# Possible names of the file that contains the graphs of a module.
_SAVED_MODEL = "saved_model.pb", "saved_model.pbtxt"
# Maps the type of a random op to the type of the stateless op that replaces it. The replaced op draws numbers
# that depend on all earlier draws. The numbers of the stateless op depend only on its second input, a seed.
_RANDOM_OPS = {"RandomUniform": "StatelessRandomUniform", "RandomUniformInt": "StatelessRandomUniformInt",
               "RandomStandardNormal": "StatelessRandomNormal", "TruncatedNormal": "StatelessTruncatedNormal"}
# Name under which the module `custom_gradient` registers its gradient functions. A hub module can be trained
# without these functions, because TensorFlow's own gradients of the same ops have the same values.
_OWN_GRADIENT = "OwnGradient"
# Names of the collections that contain the contexts of tf.cond and tf.while_loop.
_CONTEXTS = (tf.GraphKeys.COND_CONTEXT, tf.GraphKeys.WHILE_CONTEXT)


# --- The directory of a module ---------------------------------------------------------------------------


def find_directory(handle):
    """Returns the directory of a module. If `handle` is an address, this directory is in the cache.

    Args:
      handle: the directory, or the address of the module (https://…). A module with an address must be in the
        cache directory $TFHUB_CACHE_DIR, because modules are never downloaded.

    Raises:
      FileNotFoundError, NotADirectoryError, ValueError: the module does not exist, or is not a hub module.
    """
    handle = os.fspath(handle)
    if handle.startswith(("https://", "http://")):
        return _cached(handle)
    if not files.exists(handle):
        raise FileNotFoundError(f"The hub module {handle} was not found: there is no such directory.")
    if not files.is_directory(handle):
        raise NotADirectoryError(f"{handle} is a file, but a hub module is a directory. If the file is an "
                                 "archive, unpack it, and name the directory.")
    if not any(files.exists(os.path.join(handle, name)) for name in _SAVED_MODEL):
        raise ValueError(f"{handle} is not a hub module: it has no {_SAVED_MODEL[0]}. Name the directory "
                         "that contains this file and the folders `variables` and `assets`.")
    declaration = os.path.join(handle, DECLARATION)
    if files.exists(declaration) and files.read_bytes(declaration) != FORMAT_3:
        raise ValueError(f"{declaration} is damaged, or the module has a format that is not supported. Only "
                         "modules in format 3 that need no additional features are supported.")
    return handle


def _cached(address):
    name = hashlib.sha1(address.encode()).hexdigest()
    cache = os.environ.get(CACHE_VARIABLE)
    directory = cache and os.path.join(cache, name)
    if directory and files.is_directory(directory):
        return find_directory(directory)
    where = f"${CACHE_VARIABLE} has no {name}" if cache else f"${CACHE_VARIABLE} is not set"
    raise FileNotFoundError(f"{address} is an address, but modules are not downloaded, and this module is "
                            f"not in the cache ({where}). Download the module and unpack it (tar -xzf). Then "
                            "pass the directory of the module; or move this directory into the cache, give "
                            f"it the name {name}, and set {CACHE_VARIABLE} to the cache.")


# --- The content of a module -----------------------------------------------------------------------------


class ModuleSpec:
    """The variants of a hub module. This class replaces the class `hub.ModuleSpec` of the package
    tensorflow_hub.

    Attributes:
      directory: the directory of the module.
      variants: {frozenset of tags: MetaGraphDef}.
    """

    def __init__(self, directory):
        """Reads a module from a directory.

        Raises:
          ValueError: saved_model.pb is damaged.
        """
        self.directory = os.fspath(directory)
        try:
            graphs = tensorflow_internals.parse_saved_model(self.directory).meta_graphs
        except (OSError, message.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.directory}: {_SAVED_MODEL[0]} is damaged ({error}).") from error
        self.variants = {frozenset(graph.meta_info_def.tags): graph for graph in graphs}
        if not self.variants:
            raise ValueError(f"{self.directory}: {_SAVED_MODEL[0]} is damaged: it contains no graph.")

    def variant(self, tags=None):
        """Returns the MetaGraphDef of a variant.

        Args:
          tags: tags of the variant; None for the variant without tags. If the module has only one variant,
            None selects this variant, even if it has tags.

        Raises:
          ValueError: the variant does not exist.
        """
        tags = frozenset(tags or ())
        if tags not in self.variants and not tags and len(self.variants) == 1:
            return next(iter(self.variants.values()))
        if tags not in self.variants:
            has = ", ".join(sorted(str(sorted(variant)) for variant in self.variants))
            raise ValueError(f"No such graph variant: tags={sorted(tags)}. The variants of {self.directory} "
                             f"are {has}.")
        return self.variants[tags]

    def signature(self, name, tags=None):
        """Returns the SignatureDef of an existing signature; for `tags` and errors, see `variant`."""
        return self.variant(tags).signature_def[name]


def load_module_spec(spec):
    """Returns the `ModuleSpec` of a module.

    Args:
      spec: directory or address of the module (see `find_directory`); a `ModuleSpec` is returned unchanged.
    """
    return spec if isinstance(spec, ModuleSpec) else ModuleSpec(find_directory(spec))


# --- A module in a graph ---------------------------------------------------------------------------------


class Module:
    """A hub module that was added to the current graph."""

    def __init__(self, spec, trainable=False, name="module", tags=None):
        """Creates the module's variables and tables. The variables' initial values are the module's weights.

        Args:
          spec: a `ModuleSpec`, or the directory or address of the module (see `find_directory`).
          trainable: whether the variables are trained. If so, the module's regularization losses and update
            ops are added to the collections of the current graph.
          name: name of the variable scope. If this scope already exists, a number is appended to the name.
          tags: set of str, the tags of the variant.

        Raises:
          ValueError: the variant does not exist, or the checkpoint lacks a variable.
          RuntimeError: a name scope with this name exists.
        """
        self._spec = load_module_spec(spec)
        self._tags = tags
        self._trainable = trainable
        self._graph = tf.get_default_graph()
        self._definition = set_asset_paths(self._spec.variant(tags), self._spec.directory)
        if self._definition.HasField("object_graph_def"):
            raise ValueError(f"{self._spec.directory} is a SavedModel of TensorFlow 2, which stores its "
                             "variables in a different form. Load it with tf.saved_model.load, or export the "
                             "model from TensorFlow 1.")
        self._scope = _unused_scope(name)
        with tf.name_scope(_parent_name_scope(self._scope)), tf.control_dependencies(None):
            variables, self._state = self._create_state()
        self._variable_map = self._variables_by_name(variables)
        self._start_from_checkpoint()

    # --- State

    def _create_state(self):
        """Adds the variables and tables to the graph.

        Returns:
          two dicts. The first dict contains the variables: {name of the tensor in the module: variable}. The
          second dict contains the variables and the tables: {name of the tensor in the module: tensor}.
        """
        collections = [tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES,
                       tf.GraphKeys.TABLE_INITIALIZERS, tf.GraphKeys.ASSET_FILEPATHS]
        if self._trainable:
            collections += [tf.GraphKeys.TRAINABLE_VARIABLES, tf.GraphKeys.REGULARIZATION_LOSSES]
        nodes = {node.name: node for node in self._definition.graph_def.node}
        state = [name for name, node in nodes.items() if _is_state(node)]
        node_names = _ancestors(nodes, {*state, *_nodes_in_collections(self._definition, collections)})
        part = _extract_subgraph(self._definition, node_names, collections, self._scope)
        variables = tensorflow_internals.import_meta_graph(
            part, clear_devices=True, import_scope=os.path.basename(self._scope)) or {}
        return variables, {f"{name}:0": self._graph.as_graph_element(f"{self._scope}/{name}:0")
                           for name in state}

    def _variables_by_name(self, variables):
        """Returns {name in the module: variable}.

        Args:
          variables: {name of the variable's tensor in the module: variable}.
        """
        return {_node_name(name): variable for name, variable in variables.items()}

    def _start_from_checkpoint(self):
        if not self._variable_map:
            return
        prefix = os.path.join(self._spec.directory, "variables", "variables")
        if not checkpoint_files.exists(prefix):
            raise ValueError(f"{self._spec.directory} lacks the files of its weights: {prefix}.index "
                             "and the data files in the same folder.")
        tf.train.init_from_checkpoint(prefix, self._variable_map)

    # --- Computation

    def apply(self, signature, inputs):
        """Adds the computation of a signature to the graph.

        Args:
          signature: name of the signature.
          inputs: {name: tensor, or a value that can be converted to a tensor} with all inputs of the
            signature.

        Returns:
          {name: tensor} of the outputs.

        Raises:
          TypeError: an input does not fit the signature, or an output is a sparse tensor.
          ValueError: the computation cannot be trained.
        """
        definition = self._spec.signature(signature, self._tags)
        feed = _feed_tensors(signature, definition.inputs, inputs)
        outputs = {key: _tensor_name(f"{signature}: output {key}", info)
                   for key, info in definition.outputs.items()}
        scope = f"{os.path.basename(self._scope)}_apply_{signature.replace(':', '_')}"
        return dict(zip(outputs, self._compute(scope, {**self._state, **feed}, list(outputs.values()))))

    def _compute(self, name, feed, outputs):
        """Adds to the graph the ops that compute the outputs. Returns the list of output tensors.

        Args:
          name: name of the scope of the ops.
          feed: {name of a tensor in the module: tensor that replaces it}.
          outputs: list of the names that the output tensors have in the module.
        """
        collections = [*_CONTEXTS, *([tf.GraphKeys.UPDATE_OPS] if self._trainable else [])]
        graph_def = self._definition.graph_def
        nodes = {node.name: node for node in graph_def.node}
        # The context of a tf.cond or tf.while_loop contains names of nodes. If the graph has such a context,
        # all nodes are kept, so that the named nodes exist.
        has_contexts = any(_collection(self._definition, key).bytes_list.value for key in _CONTEXTS)
        node_names = set(nodes) if has_contexts else _ancestors(
            nodes, {*map(_node_name, outputs), *_nodes_in_collections(self._definition, collections)},
            set(map(_node_name, feed)))
        scope = self._graph.unique_name(name, mark_as_used=False)
        part = _extract_subgraph(self._definition, node_names, collections, scope)
        self._handle_python_gradients(part.graph_def)
        feed = {**feed, **_seed_random_ops(part.graph_def)}
        # The first output of a node "a" is written as "a" or "a:0".
        inputs = {source.removesuffix(":0") for node in part.graph_def.node for source in node.input}
        input_map = {key: tensor for key, tensor in feed.items() if key.removesuffix(":0") in inputs}
        tensorflow_internals.import_meta_graph(part, clear_devices=True, import_scope=os.path.basename(scope),
                                               input_map=input_map)
        return [feed[key] if key in feed else self._graph.get_tensor_by_name(f"{scope}/{key}")
                for key in outputs]

    def _handle_python_gradients(self, graph_def):
        """Removes or renames the custom gradients of nodes, because the module contains only their names. A
        custom gradient is a Python function, which is not stored in a module.

        Raises:
          ValueError: the module is trainable, and TensorFlow's gradients cannot replace a custom gradient.
        """
        for node in graph_def.node:
            if "_gradient_op_type" not in node.attr:
                continue
            gradient = node.attr["_gradient_op_type"].s.decode()
            if gradient == _OWN_GRADIENT:
                del node.attr["_gradient_op_type"]
            elif self._trainable:
                raise ValueError(f"{self._spec.directory} cannot be trained: {node.name} has a custom "
                                 f"gradient, {gradient}. A custom gradient is a Python function, which is "
                                 "not stored in a module. Use trainable=False, or a module without custom "
                                 "gradients.")
            else:
                # The gradient gets a new name, because this process may have a different gradient function
                # with the old name.
                node.attr["_gradient_op_type"].s = f"{gradient} of a hub module".encode()


# --- The graph of a module -------------------------------------------------------------------------------


def _is_state(node):
    """Returns whether a node is a variable or a table: a stateful op without inputs."""
    definition = tensorflow_internals.op_definition(node.op)
    if definition is None:
        raise ValueError(f"The hub module has an op that this TensorFlow does not have: {node.op}, in "
                         f"{node.name}. First import the package that defines this op.")
    return definition.is_stateful and not definition.input_arg and len(definition.output_arg) == 1


def _node_name(name):
    """Returns the name of the node to which an input or a tensor belongs. For example, the inputs "^a", "a"
    and "a:1" all belong to the node "a"."""
    return name.lstrip("^").split(":")[0]


def _ancestors(nodes, names, borders=()):
    """Returns a set that contains the given names and the names of all nodes from which the named nodes are
    computed.

    Args:
      nodes: {name: node} of the graph.
      names: names of the nodes.
      borders: names of nodes at which the search stops. They are not in the result.
    """
    ancestors, queue = set(), [name for name in names if name not in borders]
    while queue:
        name = queue.pop()
        if name not in ancestors:
            ancestors.add(name)
            sources = map(_node_name, nodes[name].input)
            queue.extend(source for source in sources if source not in ancestors and source not in borders)
    return ancestors


def _collection(definition, key):
    """Returns a collection of a MetaGraphDef; an empty collection if the collection is missing.

    The MetaGraphDef stays unchanged. (`collection_def[key]` would add a missing collection to it.)
    """
    return (definition if key in definition.collection_def else tf.MetaGraphDef()).collection_def[key]


def _nodes_in_collections(definition, keys):
    """Yields the names of the nodes to which the entries of some collections refer. `keys` are the names of
    these collections."""
    for key in keys:
        collection = _collection(definition, key)
        yield from map(_node_name, collection.node_list.value)
        for entry in collection.bytes_list.value if key.endswith("variables") else ():
            variable = tensorflow_internals.VariableDef.FromString(entry)
            yield from map(_node_name, filter(None, (variable.variable_name, variable.initial_value_name,
                                                     variable.initializer_name, variable.snapshot_name)))


def _extract_subgraph(definition, node_names, collections, scope):
    """Returns a new MetaGraphDef that contains some nodes and collections of a given MetaGraphDef.

    Args:
      definition: the MetaGraphDef.
      node_names: names of the nodes.
      collections: names of the collections.
      scope: scope into which the result will be imported.
    """
    part = tf.MetaGraphDef()
    part.meta_info_def.CopyFrom(definition.meta_info_def)
    part.graph_def.library.CopyFrom(definition.graph_def.library)
    part.graph_def.versions.CopyFrom(definition.graph_def.versions)
    for node in definition.graph_def.node:
        if node.name not in node_names:
            continue
        part.graph_def.node.append(node)
        node = part.graph_def.node[-1]
        node.input[:] = [source for source in node.input if source[0] != "^" or source[1:] in node_names]
        # The attribute "_class" says that this node must be on the same device as a second node. The
        # attribute is removed, because the second node may be missing in the result.
        node.attr.pop("_class", None)
        if "shared_name" in node.attr and node.attr["shared_name"].s:
            # Without this prefix, two modules whose variables have the same names would share the variables.
            node.attr["shared_name"].s = f"{scope}/".encode() + node.attr["shared_name"].s
    for key in collections:
        if key in definition.collection_def:
            part.collection_def[key].CopyFrom(definition.collection_def[key])
    return part


def set_asset_paths(definition, directory):
    """Returns a copy of a MetaGraphDef with new paths of the asset files. The new paths are in `directory`,
    the directory of a module."""
    result = tf.MetaGraphDef()
    result.CopyFrom(definition)
    assets = tensorflow_internals.asset_paths(directory, definition)
    nodes = {node.name: node for node in result.graph_def.node}
    for name, path in assets.items():
        nodes[_node_name(name)].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(path))
    if assets:
        paths = result.collection_def[tf.GraphKeys.ASSET_FILEPATHS].node_list.value
        paths[:] = sorted({*paths, *assets})
    return result


def _seed_random_ops(graph_def):
    """Replaces the random ops of a graph by stateless ops. Each stateless op has an additional input for its
    seed.

    Returns:
      {name of a seed input: tensor that is the seed}.
    """
    seeds = {}
    for node in graph_def.node:
        if node.op not in _RANDOM_OPS:
            continue
        dtype = node.attr["Tout" if "Tout" in node.attr else "dtype"].type
        node.op = _RANDOM_OPS[node.op]
        for name in ("seed", "seed2", "Tout"):
            node.attr.pop(name, None)
        node.attr["dtype"].type, node.attr["Tseed"].type = dtype, tf.int64.as_datatype_enum
        name = f"{node.name}/keyed_seed:0"
        node.input.insert(1, name)
        seeds[name] = randomness.stateless_seed(randomness.new_site(f"hub module/{node.name}"))
    return seeds


# --- Names and inputs ------------------------------------------------------------------------------------


def _unused_scope(name):
    """Returns the name of a variable scope that does not exist yet: `name`, or `name` with a number.

    Raises:
      RuntimeError: a name scope already has the name that would be returned.
    """
    with tf.name_scope(_parent_name_scope(f"{tf.get_variable_scope().name}/{name}".lstrip("/"))):
        with tf.variable_scope(None, default_name=name, auxiliary_name_scope=False) as scope:
            result = scope.name
        if tf.get_default_graph().unique_name(os.path.basename(result), mark_as_used=False) != result:
            raise RuntimeError(f"hub.Module: the variable scope {result}/ is unused, but a name scope "
                               f"{result}/ already exists. Pass another name to hub.Module.")
    return result


def _parent_name_scope(scope):
    """Returns the name of the name scope that contains `scope`; an empty text if no scope contains it. The
    name ends in "/", so that `tf.name_scope` enters the existing name scope instead of creating a new one."""
    outer = os.path.dirname(scope)
    return f"{outer}/" if outer else ""


def _feed_tensors(signature, infos, inputs):
    """Converts the inputs of a call to tensors. Returns {name of the input's tensor in the module: tensor}.

    Args:
      signature: name of the signature.
      infos: {name of an input: TensorInfo message} of the signature.
      inputs: see `Module.apply`.

    Raises:
      TypeError: an input has a wrong type or shape.
    """
    feed = {}
    for name, info in infos.items():
        key = _tensor_name(f"{signature}: input {name}", info)
        try:
            feed[key] = tf.convert_to_tensor(inputs[name], tf.as_dtype(info.dtype), f"input_{name}")
        except (TypeError, ValueError) as error:
            raise TypeError(f"Signature {signature!r}: input {name}: {error}") from error
        shape = tf.TensorShape(info.tensor_shape)
        if not shape.is_compatible_with(feed[key].shape):
            raise TypeError(f"Signature {signature!r}: input {name} has the shape {feed[key].shape}, but the "
                            f"module takes {shape}.")
    return feed


def _tensor_name(what, info):
    if info.WhichOneof("encoding") != "name":
        raise TypeError(f"{what} is not a dense tensor. Sparse tensors of hub modules are not supported.")
    return info.name
