"""Writes the model of a `model_fn` as a SavedModel into a new directory."""

import contextlib
import itertools
import os
import time

import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.estimator import sessions
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import tensorflow_internals
from bertlib.system import files, locks

_TEMPORARY = "temp-"  # prefix of the name of an unfinished version; TensorFlow Serving ignores such names


def write(builder, config, checkpoint, export_dir_base, serving_input_receiver_fn, assets_extra, as_text):
    """Writes the SavedModel. For the arguments that are not listed here, see
    `estimator.Estimator.export_saved_model`.

    Args:
      builder: the `model_graph.Builder`.
      config: the `RunConfig`.
      checkpoint: prefix of the checkpoint with the weights.

    Returns:
      the new directory, as bytes.
    """
    with tf.Graph().as_default() as graph:
        receiver = None

        def features_fn():
            nonlocal receiver
            receiver = serving_input_receiver_fn()
            return receiver.features, None, []

        spec, _ = builder.build(features_fn, ModeKeys.PREDICT)
        outputs = tensorflow_internals.with_default_output(spec.export_outputs, spec.predictions)
        signatures = tensorflow_internals.signatures_of(
            receiver.receiver_tensors, outputs, receiver.receiver_tensors_alternatives)
        # The scaffold is not finalized, because this would also finalize the graph. The SavedModelBuilder
        # could then add no ops to the graph.
        scaffold = sessions.create_checked_scaffold(spec, checkpoint, config)
        saver = scaffold.saver or tf.get_collection(tf.GraphKeys.SAVERS)[0]
        main_op = scaffold.local_init_op or tf.train.Scaffold.default_local_init_op()
        with tf.Session(graph=graph, config=config.session_config) as session:
            with sessions.translate_restore_errors(checkpoint):
                saver.restore(session, checkpoint_files.escape_prefix(checkpoint))
            with new_export_dir(export_dir_base) as (temporary_dir, final_dir):
                writer = tf.saved_model.builder.SavedModelBuilder(temporary_dir)
                writer.add_meta_graph_and_variables(
                    session, [tf.saved_model.tag_constants.SERVING], signature_def_map=signatures,
                    assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS), main_op=main_op,
                    strip_default_attrs=True, saver=saver)
                writer.save(as_text)
                for target, source in (assets_extra or {}).items():
                    path = os.path.join(temporary_dir, "assets.extra", target)
                    tf.gfile.MakeDirs(os.path.dirname(path))
                    tf.gfile.Copy(source, path)
    return final_dir


@contextlib.contextmanager
def new_export_dir(export_dir_base):
    """Returns a context manager that creates a version directory in export_dir_base.

    The context manager yields two paths: the temporary directory to fill, as str, and the version directory,
    as bytes. At the end of the block the temporary directory is renamed to the version directory. If the
    block fails, the temporary directory is removed, and no version directory is created.

    The version is the current time as a whole number of seconds. If this number is already used by a finished
    or unfinished export, the version is the next unused number. At the start, unfinished directories of
    killed exports are removed, unless export_dir_base is remote.
    """
    base = tf.compat.as_str(export_dir_base)
    with files.translate_disk_errors(base), contextlib.ExitStack() as stack:
        tf.gfile.MakeDirs(base)
        if not files.is_remote(base):
            locks.remove_abandoned(base, _TEMPORARY)
        # The version is the current time in seconds, but larger than the existing versions: these may be from
        # a machine whose clock is ahead.
        names = [name.rstrip("/") for name in tf.gfile.ListDirectory(base)]
        used = [int(name) + 1 for name in names if name.isdecimal()]
        for version in itertools.count(max([int(time.time()), *used])):
            final_dir = os.path.join(base, str(version))
            temporary_dir = os.path.join(base, f"{_TEMPORARY}{version}")
            with contextlib.suppress(locks.InUseError, FileExistsError):
                if files.is_remote(base):
                    tf.gfile.MkDir(temporary_dir)
                else:
                    stack.enter_context(locks.lock_file(temporary_dir))
                    # Several threads of a process can hold the lock, but only one of them creates the
                    # directory. `tf.gfile.MkDir` raises no error if the directory exists.
                    os.mkdir(temporary_dir)
                if not tf.gfile.Exists(final_dir):
                    break
                tf.gfile.DeleteRecursively(temporary_dir)
        try:
            yield temporary_dir, os.fsencode(final_dir)
            tf.gfile.Rename(temporary_dir, final_dir)
        except BaseException:
            tf.gfile.DeleteRecursively(temporary_dir)
            raise
