"""Restores a run: the graph's variables, from a checkpoint in the run's own directory.

`checkpoints` finds the newest checkpoint of a directory and reads the weights that a new training starts
from. Our input and random numbers need nothing restored: they are functions of the step.
"""

import contextlib
import os

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.graph import collectives, graph_keys
from bertlib.system import files


def create_checked_scaffold(spec, checkpoint, config):
    """Returns the spec's scaffold, with a saver of ours if it has none, after a check that the checkpoint
    fits the graph.

    Nothing is checked without a checkpoint, or if the scaffold or the graph has a saver already: that saver
    may restore other variables.

    Args:
      spec: an `EstimatorSpec`.
      checkpoint: path of the checkpoint that the saver will restore, or None.
      config: a `RunConfig`, which says how many checkpoints stay.

    Raises:
      ValueError: a variable is missing in the checkpoint or has another shape, or it cannot be read.
    """
    scaffold = spec.scaffold or tf.train.Scaffold()
    if scaffold.saver is None and not tf.get_collection(tf.GraphKeys.SAVERS):
        saved = tf.global_variables() + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
        saver = checkpoint_files.Saver(
            saved, sharded=True, max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours, allow_empty=True,
            save_relative_paths=True)
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)  # where the scaffold and a user's hook look for it
        if checkpoint:
            variables = tf.global_variables()
            shapes = {variable.op.name: tuple(variable.shape.as_list()) for variable in variables}
            found = checkpoint_formats.open_checkpoint(checkpoint)
            checkpoint_formats.check_types(found, [variable.op.name for variable in variables
                                                   if variable.dtype.base_dtype.is_floating])
            optional = tf.get_collection(graph_keys.OPTIONAL_IN_CHECKPOINT)
            checkpoint_formats.check_fits(found, shapes, {variable.op.name for variable in optional})
            checkpoint_formats.check_same_types(
                found, {variable.op.name: variable.dtype.base_dtype for variable in variables})
            # Reads one tensor now, so that a missing data file is reported as such. TensorFlow would report a
            # wrong name.
            found.read(tf.train.get_global_step().op.name)
            absent = [variable for variable in optional if variable.op.name not in found.shapes]
            if absent:
                _restore_without(saver, saved, absent)
    return scaffold


def _restore_without(saver, saved, absent):
    """Makes the saver of `saved` restore all but the variables `absent`, and initialize these."""
    initialize = tf.variables_initializer(absent)
    others = tf.train.Saver([item for item in saved if not any(item is variable for variable in absent)])

    def restore(session, path):
        session.run(initialize)
        others.restore(session, path)

    saver.restore = restore


def open_session(scaffold, checkpoint, config, hooks, is_training=False, group=None):
    """Opens a session and restores a checkpoint in it, from which a killed run continues.

    Args:
      scaffold: see `create_checked_scaffold`.
      checkpoint: path, or None to initialize all variables.
      config: a `RunConfig`.
      hooks: list of SessionRunHook.
      is_training: whether checkpoints are written, and the earlier ones counted when old ones are removed.
      group: the `replica_group.Group` of the replicas that train together, or None.

    Returns:
      tf.train.SingularMonitoredSession: an error ends it. A `MonitoredSession` takes an AbortedError or an
      UnavailableError for a lost worker, and begins anew for ever.

    Raises:
      ValueError: the checkpoint is damaged.
    """
    session_config = collectives.session_config(config.session_config) if group else config.session_config
    with translate_restore_errors(checkpoint):
        opened = tf.train.SingularMonitoredSession(
            hooks, scaffold, master=collectives.session_target(group, session_config) if group else "",
            config=session_config,
            checkpoint_filename_with_path=checkpoint and checkpoint_files.escape_prefix(checkpoint))
    directory = config.model_dir.rstrip("/")
    if is_training and checkpoint and os.path.dirname(checkpoint) == directory:
        # Skip checkpoints outside of this directory: a copy must not delete the original's.
        scaffold.saver.set_last_checkpoints_with_time(
            [(path, checkpoint_files.saved_time(path))
             for path in checkpoint_formats.all_checkpoints(directory)
             if os.path.dirname(path) == directory])
    return opened


@contextlib.contextmanager
def translate_restore_errors(checkpoint):
    """Says what can be done about a checkpoint that cannot be restored in the block."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        # Hooks write files when a session begins.
        if files.describe_disk_error(error, checkpoint or ""):
            raise
        what = checkpoint and checkpoint_formats.find_damage(checkpoint)  # which names the tensor
        if not what:
            raise
        raise checkpoint_formats.DamagedError(checkpoint, what) from error
