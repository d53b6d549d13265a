"""All private names of TensorFlow that `bertlib` and the modules in the root folder use.

A release of TensorFlow may rename, change or remove each of them without notice. The comment above a name
says why we need it, and why a public name does not replace it. No other file imports a private name or reads
a private attribute of an object of TensorFlow; `tests/graph/test_tensorflow_internals.py` tests that.
`docs/development/house.md` says what to do for a new release of TensorFlow.
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
# OpDef, and no functions for oneDNN's ops. `tf.Operation.op_def` needs an op in a graph: for the nodes of a
# GraphDef, we would have to import the whole graph.
op_definition = op_def_registry.get

# Creates an op by its type, with attributes inferred from the inputs. We need it for oneDNN's ops, which
# `tf.raw_ops` does not have. `tf.Graph.create_op` infers nothing: the caller would have to pass each type,
# length and list as a tf.AttrValue, in a different way for each op.
apply_op = op_def_library.apply_op

# Adds a MetaGraphDef to the current graph and returns its variables by their old names. The public
# `tf.train.import_meta_graph` also adds a `tf.train.Saver` with its ops, which would become a part of an
# exported hub module. It does not return the variables.
import_meta_graph = meta_graph.import_scoped_meta_graph

# The message for each entry in a collection of variables. The public `tf.Variable.from_proto` takes such a
# message and adds the variable to the graph; no public function only parses the message.
VariableDef = variable_pb2.VariableDef


def control_flow_context(graph_or_op):
    """Returns the context of the tf.cond or tf.while_loop that a graph is building, or that contains an op.

    Returns None outside of both. No public function returns this context.
    """
    return graph_or_op._get_control_flow_context()


def add_control_inputs(op, others):
    """Makes an existing op wait for other ops. The public `tf.control_dependencies` affects new ops only."""
    op._add_control_inputs(others)


def set_attribute(op, name, value):
    """Sets an attribute of an existing op to a tf.AttrValue.

    Public functions set attributes of new ops only, and only some attributes. For example, `jit_scope` of
    `tf.xla.experimental` with a function of the node sets `_XlaCompile` on all ops. XLA must then also
    compile ops that it would otherwise leave out.
    """
    op._set_attr(name, value)


# --- Sessions, hooks, summaries --------------------------------------------------------------------------

# (bool) -> None: sets whether XLA also compiles clusters for the CPU. `tf.config.optimizer.set_jit` affects
# only functions in eager mode. TensorFlow reads the environment variable TF_XLA_FLAGS
# (--tf_xla_cpu_global_jit) only once, when it lists the devices, which may be earlier.
compile_clusters_for_cpu = pywrap_tf_session.TF_SetTfXlaCpuGlobalJit


class Saver(tf.train.Saver):
    """A `tf.train.Saver` whose subclasses remove old checkpoints themselves.

    `tf.train.Saver` treats the name of an old checkpoint as a pattern of file names. So it may remove other
    files. The public `max_to_keep=None` removes nothing, but then the file `checkpoint` lists only the newest
    checkpoint.
    """

    def removes(self, prefix):
        """Returns whether `remove` removes this checkpoint. Otherwise TensorFlow removes it."""
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
    """Replaces the listeners of a hook. In the public interface, only its constructor takes listeners."""
    hook._listeners = listeners


def count_as_saved(hook, step):
    """Marks the checkpoint of a step as written in a tf.train.CheckpointSaverHook.

    Otherwise the hook would write the checkpoint again after the first step. The hook has no public method
    for it.
    """
    hook._timer.update_last_triggered_step(step)


def forget_summary_writers(directory=None):
    """Removes the writer of a directory, or all writers, from `tf.summary.FileWriterCache`, without a close.

    The public `FileWriterCache.clear` closes all writers first. If one of them cannot write, it fails and
    keeps all writers.
    """
    writers = tf.summary.FileWriterCache._cache
    for path in [directory] if directory else list(writers):
        writers.pop(path, None)


def parse_profile(serialized):
    """Returns the XSpace message of a profiler's .xplane.pb file. No public module has the message's class.

    Args:
      serialized: content of the file, bytes.
    """
    # Imported here: only a run with a profile needs it, and `import tensorflow` does not load it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2
    return xplane_pb2.XSpace.FromString(serialized)


# --- Files -----------------------------------------------------------------------------------------------

# (path) -> a reader that reads and verifies the record at an offset of a TFRecord file. The public
# `tf.io.tf_record_iterator` logs that it is deprecated. `tf.data.TFRecordDataset` needs a separate session,
# which takes all memory of a GPU.
open_records = tf_record.tf_record_random_reader

# (directory of a SavedModel) -> its SavedModel message. The public `tf.saved_model.load` adds one of the
# graphs to the current graph and session. We must read the graphs before that.
parse_saved_model = loader_impl.parse_saved_model

# (directory, MetaGraphDef) -> {name of the tensor: path of the asset}, for both formats in which assets are
# stored. The public field `asset_file_def` contains only one of the two formats.
asset_paths = loader_impl.get_asset_tensors

# (export_outputs, predictions) -> export_outputs with a default signature, with the name that tf.estimator
# gave it. The values of `export_outputs` are objects of classes without a public name, and `tf.saved_model`
# has no function that takes them.
with_default_output = export_utils.get_export_outputs
# (receiver tensors, export_outputs, alternatives) -> {name: SignatureDef}.
signatures_of = export_utils.build_all_signature_defs


# --- Simulation of a graph on a device that this machine lacks -------------------------------------------

# Grappler's classes and functions. They describe devices, rewrite a graph in the same way as the runtime, and
# estimate the time and memory of its ops. `tf.profiler` measures only runs on existing devices.
NamedDevice = device_properties_pb2.NamedDevice
DeviceProperties = device_properties_pb2.DeviceProperties
Cluster = cluster.Cluster
Item = item.Item
optimize_graph = tf_optimizer.OptimizeGraph
