"""Opens the sessions of trainings, evaluations and predictions, and restores their weights from a checkpoint.

The module `checkpoint_formats` finds the newest checkpoint of a directory, and loads the initial weights of a
new training. The input and the random numbers are functions of the step, so their state is not saved.
"""

import contextlib
import os

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.graph import collectives, graph_keys, tensorflow_internals
from bertlib.system import files


class Saver(tensorflow_internals.Saver):
    """TensorFlow's saver, but with a safe removal of old checkpoints.

    TensorFlow's saver uses the path of an old checkpoint as a glob pattern, and removes all files that match.
    If the path contains glob characters such as `*`, TensorFlow's saver could also remove the checkpoints of
    a different directory. This saver removes only the files of the old checkpoint.
    """

    def remove(self, prefix):
        checkpoint_files.remove(prefix)


class Scaffold(tf.train.Scaffold):
    """TensorFlow's scaffold, but sessions with it start faster.

    With TensorFlow's scaffold, a session first checks twice that all variables have values. This scaffold is
    only for graphs that need no such check: the initializers of all variables run, or the saver restores all
    variables.

    Attributes:
      init_checkpoint: the `checkpoint_formats.Checkpoint` from which the `init_fn` loads weights, or None.
    """

    ready_op = ready_for_local_init_op = None

    def __init__(self, init_fn=None, init_checkpoint=None, **other_arguments):
        # With these ops, `finalize` does not build the ops of the check.
        super().__init__(init_fn=init_fn, ready_op=tf.no_op(), ready_for_local_init_op=tf.no_op(),
                         **other_arguments)
        self.init_checkpoint = init_checkpoint


def create_init_checkpoint_scaffold(init_checkpoint):
    """Returns a `Scaffold` that initializes the weights from a checkpoint, for use in a model_fn.

    The weights are all trainable variables that the graph has at the time of the call.

    Args:
      init_checkpoint: see `checkpoint_formats.open_checkpoint`. If it is None, the weights stay random, and
        this function returns None.
    """
    if not init_checkpoint:
        return None
    checkpoint = checkpoint_formats.open_checkpoint(init_checkpoint)
    return Scaffold(checkpoint_formats.create_init_fn(checkpoint, tf.trainable_variables()), checkpoint)


def create_checked_scaffold(spec, checkpoint, config):
    """Returns the spec's scaffold with a saver, and checks that the checkpoint fits the graph.

    If the checkpoint lacks optional variables (`graph_keys.OPTIONAL_IN_CHECKPOINT`), the saver initializes
    these variables. If the scaffold or the graph already has a saver, the scaffold is returned unchanged. In
    this case, the checkpoint is not checked, because the existing saver may restore a different set of
    variables.

    Args:
      spec: an `EstimatorSpec`.
      checkpoint: path of the checkpoint that the saver will restore, or None for no check.
      config: a `RunConfig`, whose fields set the number of checkpoints that are kept.

    Raises:
      ValueError: a variable is missing in the checkpoint, or has a different shape or type in the checkpoint;
        or the checkpoint cannot be read.
    """
    has_saver = tf.get_collection(tf.GraphKeys.SAVERS)
    scaffold = spec.scaffold or (tf.train.Scaffold() if has_saver else Scaffold())
    if scaffold.saver is None and not has_saver:
        saveables = tf.global_variables() + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)
        saver = Saver(
            saveables, sharded=True, max_to_keep=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours, allow_empty=True,
            save_relative_paths=True)
        # The scaffold and the hooks of users take the saver from this collection.
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        if checkpoint:
            shapes = _open_checked(checkpoint).shapes
            new_variables = [variable for variable in tf.global_variables() if variable.op.name not in shapes]
            if new_variables:
                _restore_without(saver, saveables, new_variables)
    return scaffold


def _open_checked(path):
    """Opens a checkpoint of the run, and checks that it fits the variables of the current graph. Returns a
    `checkpoint_formats.Checkpoint`."""
    checkpoint, variables = checkpoint_formats.open_checkpoint(path), tf.global_variables()
    checkpoint_formats.check_variables(checkpoint, variables,
                                       tf.get_collection(graph_keys.OPTIONAL_IN_CHECKPOINT))
    checkpoint_formats.check_same_types(checkpoint, variables)
    # One tensor is read now. If the data file is missing, the error message of this read names the missing
    # file. TensorFlow's own message would name a different file.
    checkpoint.read(tf.train.get_global_step().op.name)
    return checkpoint


def _restore_without(saver, saveables, new_variables):
    """Changes a saver so that it initializes the variables that the checkpoint lacks, and restores the rest.

    Args:
      saver: a tf.train.Saver.
      saveables: list of the variables and saveable objects that the saver saves.
      new_variables: list of the elements of `saveables` that the checkpoint lacks.
    """
    initialize = tf.variables_initializer(new_variables)
    saver_of_others = tf.train.Saver(
        [item for item in saveables if not any(item is variable for variable in new_variables)])

    def restore(session, path):
        session.run(initialize)
        saver_of_others.restore(session, path)

    saver.restore = restore


def create_inference_scaffold(spec, checkpoint, outputs):
    """Returns a `Scaffold` whose sessions contain no more weights than needed, see `load_read_weights`.

    Returns None if all variables are needed: no weights are prepared, all weights start at random, or the
    model_fn has a scaffold or a saver of its own.

    Args:
      spec: an `EstimatorSpec`.
      checkpoint: path of a checkpoint of the run; None for the weights with which a new training would start.
      outputs: tensors and ops, in any nested structure: all that the sessions run.

    Raises:
      ValueError: see `create_checked_scaffold`.
    """
    prepared_weights = tf.get_collection(graph_keys.PREPARED_WEIGHTS)
    init_checkpoint = getattr(spec.scaffold, "init_checkpoint", None)
    if (not prepared_weights or not (checkpoint or init_checkpoint)
            or type(spec.scaffold) not in (Scaffold, type(None))
            or tf.get_collection(tf.GraphKeys.SAVERS) or tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)):
        return None
    source = _open_checked(checkpoint) if checkpoint else init_checkpoint
    variables = [variable for variable in (tf.global_variables() if checkpoint else tf.trainable_variables())
                 if variable.op.name in source.shapes]

    def init_fn(scaffold, session):
        load_read_weights(session, source, variables, outputs)
        if not checkpoint:
            checkpoint_formats.log_starting_weights(source, tf.trainable_variables())

    names = {variable.op.name for variable in variables + prepared_weights}
    initialize_global, initialize_local = (
        tf.variables_initializer([variable for variable in collection if variable.op.name not in names])
        for collection in (tf.global_variables(), tf.local_variables()))
    return Scaffold(init_fn, saver=tf.train.Saver([], allow_empty=True), init_op=initialize_global,
                    local_init_op=tf.group(initialize_local, tf.tables_initializer()))


def load_read_weights(session, checkpoint, variables, outputs):
    """Loads variables of the current graph from a checkpoint, without the weights that `outputs` do not read.
    Also prepares weights (see `inference_kernels.InferenceKernels`).

    A weight that is only read to prepare other weights gets no memory in the session: its value is fed when
    these weights are prepared, group by group. So a model in bfloat16 is never in memory in float32 as a
    whole.

    Args:
      session: a session of the current graph.
      checkpoint: a `checkpoint_formats.Checkpoint` that contains the variables.
      variables: list of global variables.
      outputs: tensors and ops, in any nested structure.
    """
    from bertlib.graph import inference_kernels
    reads = inference_kernels.find_weight_reads(getattr(output, "op", output)
                                                for output in tf.nest.flatten(outputs))
    unread_names = {variable.op.name for variable in tf.trainable_variables()} - set(reads)
    for group in checkpoint_formats.groups_by_size(tf.get_collection(graph_keys.PREPARED_WEIGHTS)):
        initializers = [variable.initializer for variable in group]
        session.run(initializers, {
            tensor: checkpoint.read(name)
            for name, tensors in inference_kernels.find_weight_reads(initializers).items()
            if name in checkpoint.shapes for tensor in tensors})
    checkpoint_formats.load_variables(
        session, checkpoint, [variable for variable in variables if variable.op.name not in unread_names])


def open_session(scaffold, checkpoint, config, hooks, is_training=False, group=None):
    """Opens a session for training, evaluation or prediction, and restores a checkpoint in it.

    Args:
      scaffold: the scaffold that `create_checked_scaffold` returned.
      checkpoint: path, or None to initialize all variables.
      config: a `RunConfig`.
      hooks: list of SessionRunHook.
      is_training: whether the session writes checkpoints. If so, the limit on the number of kept checkpoints
        includes the checkpoints that the directory already contains.
      group: the `replica_group.Group` of the replicas that train together, or None.

    Returns:
      A tf.train.SingularMonitoredSession. An error ends this session. (A tf.train.MonitoredSession treats an
      AbortedError or an UnavailableError as a lost worker, and would open a new session again and again.)

    Raises:
      ValueError: the checkpoint is damaged.
    """
    session_config = collectives.session_config(config.session_config) if group else config.session_config
    with translate_restore_errors(checkpoint):
        # TensorFlow restores the checkpoint here. If there is a checkpoint, TensorFlow does not call the
        # scaffold's init_fn, so --init_checkpoint has no effect.
        session = tf.train.SingularMonitoredSession(
            hooks, scaffold, master=collectives.session_target(group, session_config) if group else "",
            config=session_config,
            checkpoint_filename_with_path=checkpoint and checkpoint_files.escape_prefix(checkpoint))
    directory = config.model_dir.rstrip("/")
    if is_training and checkpoint and os.path.dirname(checkpoint) == directory:
        # Checkpoints outside of this directory are left out: a run in a copied directory must not remove the
        # checkpoints of the original directory.
        scaffold.saver.set_last_checkpoints_with_time(
            [(path, tf.gfile.Stat(f"{path}.index").mtime_nsec / 1e9)  # the time of saving in seconds
             for path in checkpoint_formats.all_checkpoints(directory)
             if os.path.dirname(path) == directory])
    return session


@contextlib.contextmanager
def translate_restore_errors(checkpoint):
    """Returns a context manager for a block that restores a checkpoint. If the block fails because the
    checkpoint is damaged, the context manager raises a `DamagedError` with advice instead of the original
    error."""
    try:
        yield
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        # These errors do not always mean a damaged checkpoint: if a hook writes a file at the start of the
        # session and the disk is full, TensorFlow raises the same errors.
        if files.describe_disk_error(error, checkpoint or ""):
            raise
        damage = checkpoint and checkpoint_formats.find_damage(checkpoint)  # a sentence that names the tensor
        if not damage:
            raise
        raise checkpoint_formats.DamagedError(checkpoint, damage) from error
