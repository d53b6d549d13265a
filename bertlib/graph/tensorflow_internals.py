"""All names that `bertlib` and the root take from TensorFlow outside of its public interface.

A release of TensorFlow may rename, change or remove each of them without notice. The comment above a name
says why we need it and which public name does not replace it. No other file imports such a name or reads a
private attribute of an object of TensorFlow; `tests/graph/test_tensorflow_internals.py` tests that.
`docs/development/house.md` says what to do when TensorFlow has a new release.
"""

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import meta_graph, op_def_library, op_def_registry
from tensorflow.python.grappler import cluster, item, tf_optimizer
from tensorflow.python.lib.io import tf_record
from tensorflow.python.saved_model import loader_impl
from tensorflow.python.saved_model.model_utils import export_utils

# The releases of TensorFlow with which the whole test suite passed.
SEEN_WITH = ("2.21.0",)


# --- Ops and graphs --------------------------------------------------------------------------------------

# (type of op) -> its OpDef, or None if this TensorFlow has no such op. `tf.raw_ops` has functions without an
# OpDef, and none for oneDNN's ops. `tf.Operation.op_def` needs the op in a graph: to ask about the nodes of a
# GraphDef, we would have to import the whole graph.
op_definition = op_def_registry.get

# Creates an op by its type, with attributes inferred from the inputs. We need it for oneDNN's ops, which
# `tf.raw_ops` leaves out. `tf.Graph.create_op` infers nothing: each type, length and list would be given as a
# tf.AttrValue, for each op in its own way.
apply_op = op_def_library.apply_op

# Adds a MetaGraphDef to the current graph and returns its variables by their old names. The public
# `tf.train.import_meta_graph` also adds a `tf.train.Saver` with its ops, which would be exported with a hub
# module, and does not return the variables.
import_meta_graph = meta_graph.import_scoped_meta_graph

# The message for each entry in a collection of variables. The public `tf.Variable.from_proto` takes such a
# message and adds the variable to the graph; no public function only parses the message.
VariableDef = variable_pb2.VariableDef


def control_flow_context(graph_or_op):
    """Returns the tf.cond or tf.while_loop that a graph is building, or that an op is in; None outside.

    Nothing public tells it.
    """
    return graph_or_op._get_control_flow_context()


def add_control_inputs(op, others):
    """Makes an op that exists wait for other ops; `tf.control_dependencies` is only for ops still to come."""
    op._add_control_inputs(others)


def set_attribute(op, name, value):
    """Sets an attribute, a tf.AttrValue, of an op that exists.

    Public functions set attributes of ops still to come, and only some attributes. `jit_scope` of
    `tf.xla.experimental` with a function of the node sets `_XlaCompile` on all ops, so that XLA must compile
    those which it could leave out.
    """
    op._set_attr(name, value)


# --- Sessions, hooks, summaries --------------------------------------------------------------------------

# (bool) -> None: whether XLA compiles clusters for the CPU, too. `tf.config.optimizer.set_jit` is only for
# functions in eager mode. The environment variable TF_XLA_FLAGS (--tf_xla_cpu_global_jit) is read once, when
# TensorFlow lists the devices, which may be before.
compile_clusters_for_cpu = pywrap_tf_session.TF_SetTfXlaCpuGlobalJit


class Saver(tf.train.Saver):
    """A `tf.train.Saver` with two steps for subclasses, by which they remove old checkpoints themselves.

    `tf.train.Saver` takes the name of an old checkpoint for a pattern of names. The public `max_to_keep=None`
    removes nothing, but leaves all but the newest checkpoint out of the file `checkpoint`, too.
    """

    def removes(self, prefix):
        """Returns whether `remove` removes this checkpoint, instead of TensorFlow."""
        raise NotImplementedError

    def remove(self, prefix):
        """Removes a checkpoint."""
        raise NotImplementedError

    def _MaybeDeleteOldCheckpoints(self, meta_graph_suffix="meta"):
        waiting = self._checkpoints_to_be_deleted
        if not waiting or not self.removes(waiting[0][0]):
            super()._MaybeDeleteOldCheckpoints(meta_graph_suffix)
            return
        prefix, saved_at = waiting.pop(0)
        if saved_at > self._next_checkpoint_time:
            self._next_checkpoint_time += self.saver_def.keep_checkpoint_every_n_hours * 3600
        else:
            self.remove(prefix)


def saving_listeners(hook):
    """Returns the listeners of a tf.train.CheckpointSaverHook."""
    return list(hook._listeners)


def set_saving_listeners(hook, listeners):
    """Replaces the listeners of a hook that a program made; publicly, only its constructor takes them."""
    hook._listeners = listeners


def count_as_saved(hook, step):
    """Tells a tf.train.CheckpointSaverHook that the checkpoint of a step exists.

    Without it the hook would write the checkpoint again after the first step. It has no public method for it.
    """
    hook._timer.update_last_triggered_step(step)


def forget_summary_writers(directory=None):
    """Removes the writer of a directory, or all writers, from `tf.summary.FileWriterCache`, unclosed.

    The public `FileWriterCache.clear` closes all writers first. It fails, and keeps them, if one of them
    cannot write.
    """
    writers = tf.summary.FileWriterCache._cache
    for path in [directory] if directory else list(writers):
        writers.pop(path, None)


def parse_profile(serialized):
    """Returns the XSpace message that a profiler's .xplane.pb file holds; no public module has its class."""
    # Imported here: only a run with a profile needs it, and `import tensorflow` does not load it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    return xplane_pb2.XSpace.FromString(serialized)


# --- Files -----------------------------------------------------------------------------------------------

# Reads and verifies a record at an offset of a TFRecord file. The public `tf.io.tf_record_iterator` logs that
# it is deprecated. `tf.data.TFRecordDataset` needs a session of its own, which takes all memory of a GPU.
open_records = tf_record.tf_record_random_reader

# (directory of a SavedModel) -> its SavedModel message. `tf.saved_model.load` puts one of its graphs into the
# current graph and session, and we read the graphs first.
parse_saved_model = loader_impl.parse_saved_model

# (directory, MetaGraphDef) -> {name of the tensor: path of the asset}, for both formats in which assets are
# stored. The public field `asset_file_def` is only one of them.
asset_paths = loader_impl.get_asset_tensors

# (export_outputs, predictions) -> export_outputs with a default signature, as tf.estimator named it; and
# (receiver tensors, export_outputs, alternatives) -> {name: SignatureDef}. The values of `export_outputs` are
# objects of classes that have no public name, and `tf.saved_model` has no function that takes them.
with_default_output = export_utils.get_export_outputs
signatures_of = export_utils.build_all_signature_defs


# --- Simulation of a graph on a device that is not there -------------------------------------------------

# Grappler: devices by description, the graph as the runtime would rewrite it, and the time and memory of its
# ops. `tf.profiler` measures runs on devices that exist.
NamedDevice = device_properties_pb2.NamedDevice
DeviceProperties = device_properties_pb2.DeviceProperties
Cluster = cluster.Cluster
Item = item.Item
optimize_graph = tf_optimizer.OptimizeGraph
