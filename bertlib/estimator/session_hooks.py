"""Hooks of a training session: broken losses, whole checkpoints, progress."""

import contextlib
import glob
import logging as stdlib_logging
import os
import resource
import sys
import threading
import time

from absl import logging
import numpy as np
import tensorflow.compat.v1 as tf
from tqdm import tqdm

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.graph import graph_keys, tensorflow_internals
from bertlib.replicas import replica_group
from bertlib.system import files

# With a scaled loss, this many skipped steps in a row are an error.
_MOST_SKIPPED_IN_A_ROW = 20
# Errors of a writer of events. It raises an IndexError where others raise tf.errors.OutOfRangeError.
EVENT_ERRORS = tf.errors.OpError, OSError, IndexError


class NanLossError(RuntimeError):
    """The loss of a training step is NaN or infinite."""


class InitializeHook(tf.train.SessionRunHook):
    """Starts the input once variables have their values: where it starts may depend on the global step."""

    def __init__(self, initializer):
        self._initializer = initializer

    def after_create_session(self, session, coord):
        session.run(self._initializer)


class StopOnNanHook(tf.train.SessionRunHook):
    """Ends training when the loss, or another logged scalar, such as the gradient's norm, is not finite.

    A scaled loss skips such steps by itself; then training ends when it has skipped too many in a row.
    """

    def __init__(self, loss):
        self._loss = loss

    def begin(self):
        self._skipped = tf.get_collection(graph_keys.CONSECUTIVE_SKIPPED_STEPS)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs([_watched_scalars(self._loss), self._skipped])

    def after_run(self, run_context, run_values):
        watched, skipped = run_values.results
        if skipped and skipped[0] >= _MOST_SKIPPED_IN_A_ROW:
            step = run_context.session.run(tf.train.get_global_step())
            raise NanLossError(f"Up to step {step}, {skipped[0]} steps in a row had gradients that are not "
                               "finite, whatever the scale of the loss. The checkpoints of before are kept. "
                               "fp16 may be too narrow for this model: use bf16 or fp32. A lower learning "
                               "rate may help too; so may a look at the data.")
        for name, value in watched.items() if not skipped else ():
            if not np.all(np.isfinite(value)):
                step = run_context.session.run(tf.train.get_global_step())
                raise NanLossError(f"The {name} of step {step} is {value}. The checkpoints of before are "
                                   "kept. A lower learning rate or a longer warm-up may help; so may a look "
                                   "at the data.")


def _is_here(device):
    """Whether a device is this process's, and not another replica's."""
    group = replica_group.current()
    return group is None or f"/task:{group.index}/" in device


def _watched_scalars(loss):
    """{name: tensor} of the loss and of what `optimization` asks to log."""
    return {"loss": loss,
            **{tensor.op.name: tensor for tensor in tf.get_collection(graph_keys.LOGGED_SCALARS)}}


class SaveWholeHook(tf.train.CheckpointSaverHook):
    """Saves checkpoints at the start, at intervals and at the end, each whole or not at all.

    TensorFlow writes the new files first, then renames the file `checkpoint` that names them into place, then
    removes old ones. So files that `checkpoint` names must not be written again: a process killed then would
    leave none.
    """

    def __init__(self, model_dir, save_secs, save_steps, scaffold, listeners, restored):
        super().__init__(model_dir, save_secs=save_secs, save_steps=save_steps,
                         saver=_WholeSaver(model_dir, scaffold), listeners=listeners)
        self._restored = restored

    def after_create_session(self, session, coord):
        step = session.run(tf.train.get_global_step())
        if self._restored and os.path.basename(self._restored) == f"model.ckpt-{step}":
            tensorflow_internals.count_as_saved(self, step)
        else:
            super().after_create_session(session, coord)


class _WholeSaver(object):
    """The saver of a scaffold, which removes the files of a save that failed. Listeners are not included."""

    def __init__(self, model_dir, scaffold):
        self._model_dir = model_dir
        self._scaffold = scaffold

    @property
    def saver_def(self):
        return self._scaffold.saver.saver_def

    def save(self, session, save_path, global_step, **options):
        try:
            return self._scaffold.saver.save(session, save_path, global_step=global_step, **options)
        except (tf.errors.OpError, OSError) as error:
            prefix = f"{save_path}-{global_step}"
            last = checkpoint_formats.latest_checkpoint(self._model_dir)
            # If it was the last file that failed, the graph's, the checkpoint is there.
            for path in glob.glob(glob.escape(prefix) + (".meta*" if last == prefix else "[._]*")):
                tf.gfile.DeleteRecursively(path) if os.path.isdir(path) else tf.gfile.Remove(path)
            checkpoint_files.remove_leftovers(self._model_dir)
            size = sum(variable.shape.num_elements() * variable.dtype.base_dtype.size
                       for variable in tf.global_variables() if variable.shape.is_fully_defined())
            reason = (getattr(error, "message", None) or str(error)).splitlines()[0]
            wrong, to_do = files.describe_disk_error(error, self._model_dir, size) or (
                reason, "Make room on the disk, then run the same command again.")
            raise OSError(f"The checkpoint of step {global_step} could not be saved in {self._model_dir} "
                          f"({wrong}). The last whole one is {last or 'none'}. {to_do}") from error


@contextlib.contextmanager
def quiet_event_writers():
    """Lets TensorFlow's writers of events raise their errors where they are used, and there alone: their
    thread would print a traceback besides."""
    def is_of_writer(thread):
        return thread is not None and thread.name == "EventLoggerThread"

    def hook(arguments):
        if not is_of_writer(arguments.thread):
            before(arguments)

    def passes(record):
        return not is_of_writer(threading.current_thread())

    before, threading.excepthook = threading.excepthook, hook
    logger = stdlib_logging.getLogger("tensorflow")
    logger.addFilter(passes)
    try:
        yield
    finally:
        threading.excepthook = before
        logger.removeFilter(passes)


def close_event_files():
    """Closes all writers of events. What they could not write is a warning: no summary is worth a run."""
    try:
        tf.summary.FileWriterCache.clear()
    except EVENT_ERRORS as error:
        tensorflow_internals.forget_summary_writers()
        warn_of_events(error)


def warn_of_events(error):
    """Says that summaries are missing, and why."""
    reason = (getattr(error, "message", None) or str(error)).splitlines()[0]
    logging.warning("Some summaries for TensorBoard could not be written (%s). Nothing else is missing.",
                    reason)


class ProgressHook(tf.train.SessionRunHook):
    """Logs the loss, what `optimization` asks for, and the speed; shows a progress bar on a terminal. Without
    a directory it writes no summaries."""

    def __init__(self, model_dir, loss, every_steps, last_step, batch_size):
        self._model_dir = model_dir
        self._loss = loss
        self._every_steps = every_steps
        self._last_step = last_step
        self._batch_size = batch_size

    def begin(self):
        self._fetches = _watched_scalars(self._loss)
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord):
        self._first_step = self._logged_step = self._step = int(session.run(self._global_step))
        self._logged_time = time.time()
        devices = sorted(device.name.rpartition("/")[2] for device in session.list_devices()
                         if not device.device_type.startswith("XLA") and _is_here(device.name))
        logging.info("Devices: %s.", ", ".join(devices))
        self._gpus = [name.split("device:")[-1] for name in devices if "GPU" in name]
        self._bar = progress_bar(self._last_step, "training", "step", self._step)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        step = int(run_context.session.run(self._global_step))
        self._bar.set_postfix(loss=f"{run_values.results['loss']:.4f}", refresh=False)
        self._bar.update(step - self._step)
        due = self._step == self._first_step or step % (self._every_steps
                                                        or 1) == 0 or step == self._last_step
        self._step = step
        if self._every_steps and due and step > self._logged_step:
            self._log(run_values.results)

    def _log(self, values):
        now = time.time()
        speed = (self._step - self._logged_step) / max(now - self._logged_time, 1e-9)
        speeds = {"global_step/sec": speed}
        if self._batch_size:
            speeds["examples/sec"] = speed * self._batch_size
        speeds["peak_memory_gb"] = peak_memory_bytes(self._gpus) / 1e9
        of_last = f"/{self._last_step}" if self._last_step is not None else ""
        logging.info("step %d%s  %s", self._step, of_last,
                     "  ".join(f"{name} {value:.5g}" for name, value in {**values, **speeds}.items()))
        summary = tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)
                                    for tag, value in speeds.items()])
        if self._model_dir:
            tf.summary.FileWriterCache.get(self._model_dir).add_summary(summary, self._step)
        self._logged_step, self._logged_time = self._step, now

    def end(self, session):
        self._bar.close()


def peak_memory_bytes(gpus=()):
    """Returns the most memory that this process had in use so far.

    Args:
      gpus: names such as "GPU:0": the fullest of these counts, by its allocator's statistics. None: the
        resident set.
    """
    if gpus:
        return max(tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def progress_bar(total, doing, unit, initial=0):
    """A progress bar on stderr if that is a terminal; elsewhere it counts silently."""
    shown = sys.stderr.isatty()
    if shown:
        logging.get_absl_logger().addFilter(_clear_bars)
    return tqdm(total=total, initial=initial, desc=doing, unit=unit, file=sys.stderr, leave=False,
                disable=not shown)


def _clear_bars(record):
    """A logging filter that lets everything pass, on a line of its own."""
    del record
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.clear()
    return True
