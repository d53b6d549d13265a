"""Defines the hooks of a training session. They check the loss, save checkpoints, and log the progress."""

import contextlib
import datetime
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

from bertlib.graph import graph_keys, tensorflow_internals
from bertlib.system import replica_group, terminal

# If this number of steps in a row is skipped, the training ends with an error. Steps are skipped only if the
# loss is scaled (for example in fp16).
_MOST_SKIPPED_IN_A_ROW = 20
# Errors that an event writer raises. If the disk is full, it raises a RuntimeError. Where other code of
# TensorFlow raises a tf.errors.OutOfRangeError, an event writer raises an IndexError instead.
EVENT_ERRORS = tf.errors.OpError, OSError, IndexError, RuntimeError


class NanLossError(RuntimeError):
    """The error for a training step whose loss is NaN or infinite. Its attribute `step` is the number of the
    step."""

    outcome = "diverged"  # see `child_processes.Outcome`

    def __init__(self, message, step):
        super().__init__(message)
        self.step = step


class InitializeHook(tf.train.SessionRunHook):
    """Initializes the input after the variables, because the first batch may depend on the global step."""

    def __init__(self, initializer):
        self._initializer = initializer

    def after_create_session(self, session, coord):
        session.run(self._initializer)


class SaveWholeHook(tensorflow_internals.CheckpointSaverHook):
    """Saves checkpoints at the start, at intervals and at the end.

    TensorFlow first writes the new files, then replaces the file `checkpoint`, which names the newest
    checkpoint, and then removes old checkpoints. Files that `checkpoint` already names must not be written
    again: if the process were killed while these files are written, no complete checkpoint would be left. For
    this reason, this hook does not save a checkpoint of the step that it has just restored.
    """

    def __init__(self, model_dir, save_secs, save_steps, scaffold, listeners, restored):
        super().__init__(model_dir, save_secs=save_secs, save_steps=save_steps, scaffold=scaffold,
                         listeners=listeners)
        self._restored = restored

    def after_create_session(self, session, coord):
        step = session.run(tf.train.get_global_step())
        if self._restored and os.path.basename(self._restored) == f"model.ckpt-{step}":
            tensorflow_internals.count_as_saved(self, step)
        else:
            super().after_create_session(session, coord)


@contextlib.contextmanager
def quiet_event_writers():
    """Returns a context manager. In its block, the threads of TensorFlow's event writers print no messages.

    If a writer fails, the code that uses the writer raises the error. Without this context manager, the
    thread of the writer would also print a traceback.
    """
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
    """Closes all event writers. If they could not write something, logs a warning instead of raising an
    error: a missing summary must not end a run."""
    try:
        tf.summary.FileWriterCache.clear()
    except EVENT_ERRORS as error:
        tensorflow_internals.forget_summary_writers()
        warn_of_events(error)


def add_summary(directory, scalars, step):
    """Adds {name: float} to the event file in a directory, for TensorBoard; returns the file's writer."""
    writer = tf.summary.FileWriterCache.get(directory)
    writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, simple_value=value)
                                         for tag, value in scalars.items()]), step)
    return writer


def warn_of_events(error):
    """Logs a warning. It says that summaries are missing, and names the reason."""
    logging.warning("Some summaries for TensorBoard could not be written (%s). All other files are complete.",
                    terminal.first_line(error))


class ProgressHook(tf.train.SessionRunHook):
    """Checks and logs the loss and the other scalars in `LOGGED_SCALARS`, logs the speed and the remaining
    time, and shows a progress bar on a terminal.

    The training ends if a scalar, such as the norm of the gradient, is not finite. If the loss is scaled (for
    example in fp16), a step whose gradients are not finite is skipped. The training then ends only if too
    many steps in a row are skipped. At the end of the training, a warning is logged if most of its steps were
    skipped.

    The hook also writes the speed as summaries into `model_dir`, unless `model_dir` is None. The values of
    each log line are added to `history`, a `metrics_history.MetricsHistory`, unless `history` is None.
    """

    def __init__(self, model_dir, loss, every_steps, last_step, batch_size, history):
        self._model_dir = model_dir
        self._loss = loss
        self._every_steps = every_steps
        self._last_step = last_step
        self._batch_size = batch_size
        self._history = history

    def begin(self):
        scalars = {tensor.op.name: tensor for tensor in tf.get_collection(graph_keys.LOGGED_SCALARS)}
        self._fetches = {"loss": self._loss, **scalars}, tf.get_collection(
            graph_keys.CONSECUTIVE_SKIPPED_STEPS)
        self._global_step = tf.train.get_global_step()
        self._num_steps = self._num_skipped_steps = 0

    def after_create_session(self, session, coord):
        self._first_step = self._logged_step = self._step = int(session.run(self._global_step))
        self._logged_time = time.monotonic()
        self._measured_from = None  # (time, step) at the end of the session's first step
        # The session also lists the devices of the other replicas.
        group = replica_group.current()
        own_task = f"/task:{group.index}/" if group else ""
        devices = sorted(device.name.rpartition("/")[2] for device in session.list_devices()
                         if not device.device_type.startswith("XLA") and own_task in device.name)
        logging.info("Devices: %s.", ", ".join(devices))
        self._gpus = [name.split("device:")[-1] for name in devices if "GPU" in name]
        self._bar = progress_bar(self._last_step, "training", "step", self._step)

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values):
        values, skipped = run_values.results
        step = int(run_context.session.run(self._global_step))
        self._check(step, values, skipped)
        self._bar.set_postfix(loss=f"{values['loss']:.4f}", refresh=False)
        self._bar.update(step - self._step)
        due = (self._step == self._first_step or step % (self._every_steps or 1) == 0
               or step == self._last_step)
        self._step = step
        if self._every_steps and due and step > self._logged_step:
            self._log(values)
        if self._measured_from is None:
            self._measured_from = time.monotonic(), step

    def _check(self, step, values, skipped):
        """Raises a `NanLossError` if a value is not finite, or if too many steps in a row were skipped.

        Args:
          step: the step that has just ended.
          values: {name: value} of the scalars.
          skipped: list with the number of consecutive skipped steps, up to this step; empty unless the loss
            is scaled.
        """
        self._num_steps += 1
        self._num_skipped_steps += bool(skipped and skipped[0])
        if skipped and skipped[0] >= _MOST_SKIPPED_IN_A_ROW:
            raise NanLossError(f"The gradients of {skipped[0]} steps in a row, up to step {step}, are not "
                               "finite, although the scale of the loss was lowered. The earlier checkpoints "
                               "are kept. The numbers of this model may be too large for fp16: use bf16 or "
                               "fp32. A lower learning rate may help too. Also check the data for errors.",
                               step)
        for name, value in values.items() if not skipped else ():
            if not np.all(np.isfinite(value)):
                raise NanLossError(f"The {name} of step {step} is {value}. The earlier checkpoints are "
                                   "kept. Use a lower learning rate or a longer warm-up, and check the data "
                                   "for errors.", step)

    def _log(self, values):
        now = time.monotonic()
        speed = (self._step - self._logged_step) / max(now - self._logged_time, 1e-9)
        speeds = {"global_step/sec": speed}
        if self._batch_size:
            speeds["examples/sec"] = speed * self._batch_size
        speeds["peak_memory_gb"] = peak_memory_bytes(self._gpus) / 1e9
        of_last = f"/{self._last_step}" if self._last_step is not None else ""
        texts = [f"{name} {value:.5g}" for name, value in {**values, **speeds}.items()]
        if self._last_step is not None and self._measured_from is not None:
            # The estimate is the number of remaining steps times the mean time per step in this session. This
            # time includes evaluations and checkpoints between the steps. The first step is left out of the
            # mean, because it contains the start of the session and takes much longer than later steps. So
            # the log line of the first step has no remaining time.
            start, first_step = self._measured_from
            step_rate = (self._step - first_step) / max(now - start, 1e-9)
            remaining = datetime.timedelta(seconds=round((self._last_step - self._step) / step_rate))
            texts.append(f"remaining {remaining}")
        logging.info("step %d%s  %s", self._step, of_last, "  ".join(texts))
        if self._history:
            self._history.add(self._step, {**values, **speeds})
        if self._model_dir:
            add_summary(self._model_dir, speeds, self._step)
        self._logged_step, self._logged_time = self._step, now

    def end(self, session):
        self._bar.close()
        if 2 * self._num_skipped_steps > self._num_steps:
            logging.warning("%d of the %d steps of this run were skipped, because their gradients were not "
                            "finite. A skipped step does not change the weights. In fp16, the first steps "
                            "are often skipped, until the scale of the loss is low enough. Train more steps, "
                            "or use bf16 or fp32.", self._num_skipped_steps, self._num_steps)


def peak_memory_bytes(gpus):
    """Returns the peak memory of this process in bytes.

    Args:
      gpus: names such as "GPU:0". The result is the highest peak among these GPUs, according to TensorFlow's
        allocator. If `gpus` is empty, the result is the peak of the resident set in RAM.
    """
    if gpus:
        return max(tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def progress_bar(total, doing, unit, initial=0):
    """Returns a `tqdm` progress bar on stderr. The bar shows nothing if stderr is not a terminal."""
    if sys.stderr.isatty():
        logging.get_absl_logger().addFilter(_clear_bars)
    return tqdm(total=total, initial=initial, desc=doing, unit=unit, file=sys.stderr, leave=False,
                disable=None)


def _clear_bars(record):
    """Clears the progress bars, so that the next log message is not written into the line of a bar. This
    function is used as a logging filter. It returns True, so every log message is written."""
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.clear()
    return True
