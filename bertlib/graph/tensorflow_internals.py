"""Contains all private names of TensorFlow that `bertlib` and the modules in the root folder use.

A release of TensorFlow may rename, change or remove any of these names without notice. The comment above a
name says why we need the private name, and why no public name can replace it. No other file imports a private
name or reads a private attribute of an object of TensorFlow; `tests/graph/test_tensorflow_internals.py` tests
that. `docs/development/packages.md` says what to do for a new release of TensorFlow.
"""

import os

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.python.framework import meta_graph, op_def_library, op_def_registry
from tensorflow.python.grappler import cluster, item, tf_optimizer
from tensorflow.python.lib.io import file_io, tf_record
from tensorflow.python.saved_model import loader_impl
from tensorflow.python.saved_model.model_utils import export_utils

# The releases of TensorFlow with which the whole test suite passed.
SEEN_WITH = ("2.21.0",)


# --- Ops and graphs --------------------------------------------------------------------------------------

# Function: (type of op) -> the OpDef of this type, or None if this release of TensorFlow has no such op.
# `tf.raw_ops` does not show whether an op exists: some of its functions have no OpDef, and it has no
# functions for oneDNN's ops. `tf.Operation.op_def` works only for an op in a graph: to use it for the nodes
# of a GraphDef, we would have to import the whole GraphDef.
op_definition = op_def_registry.get

# Creates an op from the name of its type, and infers the attributes from the inputs. We need this function
# for oneDNN's ops, which `tf.raw_ops` does not contain. The public `tf.Graph.create_op` infers no attributes:
# its caller has to know the attributes of each op, such as dtypes and the lengths of lists, and has to pass
# each of them as a tf.AttrValue.
apply_op = op_def_library.apply_op

# Adds a MetaGraphDef to the current graph and returns {name of a variable in the MetaGraphDef: variable}.
# The public `tf.train.import_meta_graph` also adds a `tf.train.Saver` and the ops of this saver. These ops
# would become a part of an exported hub module. In addition, `tf.train.import_meta_graph` does not return the
# variables.
import_meta_graph = meta_graph.import_scoped_meta_graph

# Class of the protobuf message that describes one variable in a collection of variables. The public
# `tf.Variable.from_proto` takes such a message and adds the variable to the graph. No public function parses
# the message without adding the variable.
VariableDef = variable_pb2.VariableDef


def control_flow_context(graph_or_op):
    """Returns the context of a tf.cond or tf.while_loop; None outside of these.

    For a graph, this is the tf.cond or tf.while_loop to which the next op of the graph would belong. For an
    op, it is the tf.cond or tf.while_loop that contains the op. No public function returns this context.
    """
    return graph_or_op._get_control_flow_context()


def add_control_inputs(op, others):
    """Makes an existing op wait for other ops. The public `tf.control_dependencies` affects new ops only."""
    op._add_control_inputs(others)


def set_initializer(variable, op):
    """Sets the op that initializes a resource variable. The public `tf.Variable` changes an initial value
    that reads other variables: it takes their initial values, if they are reference variables."""
    variable._initializer_op = op


def set_attribute(op, name, value):
    """Sets an attribute of an existing op to a tf.AttrValue.

    Public functions can set only some attributes, and only on new ops. For example,
    `tf.xla.experimental.jit_scope` sets `_XlaCompile` to True or False on all new ops. It cannot leave the
    attribute out for a part of the ops. This matters because XLA treats three kinds of ops differently. With
    the value True, XLA must compile the op. With False, XLA must not compile it. Without the attribute, XLA
    decides.
    """
    op._set_attr(name, value)


# --- Sessions, hooks, summaries --------------------------------------------------------------------------

class Saver(tf.train.Saver):
    """Extends `tf.train.Saver`: a subclass defines how old checkpoints are removed.

    `tf.train.Saver` uses the name of an old checkpoint as a pattern of file names. So it may remove files
    that do not belong to this checkpoint. The public argument `max_to_keep=None` does not solve this problem:
    nothing is removed, but the file `checkpoint` then lists only the newest checkpoint.
    """

    def remove(self, prefix):
        """Removes a checkpoint."""
        raise NotImplementedError

    def _MaybeDeleteOldCheckpoints(self, meta_graph_suffix="meta"):
        if not self._checkpoints_to_be_deleted:
            return
        prefix, saved_at = self._checkpoints_to_be_deleted.pop(0)
        if saved_at > self._next_checkpoint_time:
            self._next_checkpoint_time += self.saver_def.keep_checkpoint_every_n_hours * 3600
        else:
            self.remove(prefix)


class CheckpointSaverHook(tf.train.CheckpointSaverHook):
    """Extends `tf.train.CheckpointSaverHook`: it writes the file graph.pbtxt faster.

    `str(graph_def)` is ten times as fast as the function that TensorFlow calls. With the public argument
    `save_graph_def=False`, the hook would also write checkpoints without their .meta files.
    """

    def after_create_session(self, session, coord):
        file_io.atomic_write_string_to_file(os.path.join(self._checkpoint_dir, "graph.pbtxt"),
                                            str(session.graph.as_graph_def(add_shapes=True)))
        self._save_graph_def = False
        super().after_create_session(session, coord)

    def _save(self, session, step):
        self._save_graph_def = True
        return super()._save(session, step)


def count_as_saved(hook, step):
    """Makes a tf.train.CheckpointSaverHook assume that the checkpoint of a step is already written.

    Without this call, the hook would write the checkpoint again after the first step. The hook has no public
    method to mark a checkpoint as written.
    """
    hook._timer.update_last_triggered_step(step)


def forget_summary_writers(directory=None):
    """Removes the writer of a directory, or all writers, from `tf.summary.FileWriterCache` without closing
    them.

    The public `FileWriterCache.clear` closes all writers first. If one of the writers cannot write, `clear`
    fails and no writer is removed.
    """
    writers = tf.summary.FileWriterCache._cache
    for path in [directory] if directory else list(writers):
        writers.pop(path, None)


def parse_profile(serialized):
    """Returns the XSpace message of a profiler's .xplane.pb file. The class of this message is only in a
    private module of TensorFlow.

    Args:
      serialized: bytes, the content of the file.
    """
    # This module is imported here, not at the top of the file, because `import tensorflow` does not load it.
    # Only a run with a profile needs it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    return xplane_pb2.XSpace.FromString(serialized)


# --- Files -----------------------------------------------------------------------------------------------

# Takes the path of a TFRecord file. Returns a reader that reads and verifies the record at an offset. The
# public function `tf.io.tf_record_iterator` is not used, because it logs a deprecation warning. The public
# class `tf.data.TFRecordDataset` needs a separate session, and this session would take all memory of a GPU.
open_records = tf_record.tf_record_random_reader

# Takes the directory of a SavedModel. Returns the SavedModel message, which contains all graphs. The public
# `tf.saved_model.load` is not used, because it adds one of the graphs to the current graph and session. We
# must read the graphs before one of them is added.
parse_saved_model = loader_impl.parse_saved_model

# Takes (directory, MetaGraphDef). Returns {name of the tensor: path of the asset}. A MetaGraphDef can store
# the names of its assets in two formats, and this function reads both of them. The public field
# `asset_file_def` has only one of the two formats.
asset_paths = loader_impl.get_asset_tensors

# Takes (export_outputs, predictions). Returns export_outputs with an additional default signature. The name
# of this signature is the same as in tf.estimator. The values of `export_outputs` are objects whose classes
# have no public name, and no function of `tf.saved_model` takes these objects.
with_default_output = export_utils.get_export_outputs
# Takes (receiver tensors, export_outputs, alternatives). Returns {name: SignatureDef}. The argument
# `export_outputs` is the return value of `with_default_output`.
signatures_of = export_utils.build_all_signature_defs


# --- Simulation of a graph on a device that this machine lacks -------------------------------------------

# Grappler's classes and functions. They describe devices, rewrite a graph in the same way as the runtime, and
# estimate the time and memory of its ops. `tf.profiler` measures only runs on existing devices.
NamedDevice = device_properties_pb2.NamedDevice
DeviceProperties = device_properties_pb2.DeviceProperties
Cluster = cluster.Cluster
Item = item.Item
optimize_graph = tf_optimizer.OptimizeGraph
