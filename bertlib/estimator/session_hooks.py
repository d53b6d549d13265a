"""Hooks of a training session: where input starts, broken losses, whole checkpoints, progress, profiles."""

import collections
import contextlib
import glob
import logging as stdlib_logging
import os
import re
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

# What a trace calls the run of a function that XLA compiled for the CPU, and what our table does.
_RUN_BY_XLA, _COMPILED_BY_XLA = "CpuExecutable::ExecuteAsyncOnStream", "(compiled by XLA)"
# Of a scaled loss, that many skipped steps in a row are an error.
_MOST_SKIPPED_IN_A_ROW = 20


# What a writer of events raises; an IndexError where others raise tf.errors.OutOfRangeError.
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
        self._skipped = tf.get_collection(graph_keys.SKIPPED_IN_A_ROW)

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
            wrong, to_do = files.disk_problem(error, self._model_dir, size) or (
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


class ProfileHook(tf.train.SessionRunHook):
    """Traces some steps for TensorBoard, and logs which types of ops took the time.

    Steps are the values of the global step after them, so that 1 is the first one. A trace begins when the
    hooks are done with the step before, if this is the last of them. One that fails ends in a warning:
    training goes on.
    """

    def __init__(self, model_dir, first_step, last_step):
        self._model_dir = model_dir
        self._first_step, self._last_step = first_step, last_step
        self._traced_from = None  # the first step that is in the trace
        self._finished = False

    def begin(self):
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord):
        step = int(session.run(self._global_step))
        if step >= self._last_step:
            logging.info("No profile: steps %d to %d are done, training goes on from step %d.",
                         self._first_step, self._last_step, step)
            self._finished = True
        self._start_or_stop(step)

    def after_run(self, run_context, run_values):
        if not self._finished:
            self._start_or_stop(int(run_context.session.run(self._global_step)))

    def end(self, session):
        if self._traced_from is not None and not self._finished:
            self._stop(int(session.run(self._global_step)))

    def _start_or_stop(self, step):
        """To be called after each step."""
        if self._finished:
            return
        if self._traced_from is None and step >= self._first_step - 1:
            self._traced_from, self._start_time = step + 1, time.time()
            with self._surviving():
                tf.compat.v2.profiler.experimental.start(self._model_dir)
        elif self._traced_from is not None and step >= self._last_step:
            self._stop(step)

    def _stop(self, step):
        seconds = time.time() - self._start_time
        self._finished = True
        with self._surviving():
            tf.compat.v2.profiler.experimental.stop()
            profiles = os.path.join(self._model_dir, "plugins", "profile")
            newest = os.path.join(profiles, max(tf.gfile.ListDirectory(profiles)))
            path = max(checkpoint_files.in_directory(newest, ".xplane.pb"))
            with tf.gfile.Open(path, "rb") as reader:
                table = _table_of(op_times(tensorflow_internals.parse_profile(reader.read())))
            logging.info("Profile of steps %d to %d, %.3f seconds. Time in ops, of all threads:\n%s\nThe "
                         "trace, for TensorBoard's profile plugin, is %s.", self._traced_from, step, seconds,
                         table, path)

    @contextlib.contextmanager
    def _surviving(self):
        """Makes a warning of what goes wrong in the block, whatever it is: no profile is worth a run."""
        try:
            yield
        except Exception as error:
            self._finished = True
            logging.warning("No profile of steps %d to %d, training goes on: %s", self._first_step,
                            self._last_step, getattr(error, "message", None) or error)


def op_times(space):
    """Returns a trace's {op type: (seconds without those of ops inside it, calls)}, "(compiled by XLA)" too.

    Args:
      space: an XSpace. If ops ran on GPUs, those count alone: what their launch took is in parallel.
    """
    on_gpus = _op_times([plane for plane in space.planes if plane.name.startswith("/device:GPU")])
    return on_gpus or _op_times(space.planes)


def _op_times(planes):
    seconds, calls = collections.Counter(), collections.Counter()
    for plane in planes:
        for line in plane.lines:
            open_ops = []  # (type, end) of ops that others may be inside of
            for event in sorted(line.events, key=lambda event: (event.offset_ps, -event.duration_ps)):
                kind = _op_type(plane, event)
                if not kind:
                    continue
                while open_ops and open_ops[-1][1] <= event.offset_ps:
                    open_ops.pop()
                if open_ops:
                    seconds[open_ops[-1][0]] -= event.duration_ps * 1e-12
                seconds[kind] += event.duration_ps * 1e-12
                calls[kind] += 1
                open_ops.append((kind, event.offset_ps + event.duration_ps))
    return {kind: (seconds[kind], calls[kind]) for kind in calls}


def _op_type(plane, event):
    """The type of the op that an event is about; None if it is about none."""
    # "name:type" is the event's name on a CPU, and on a GPU, where a kernel has its own, the value of a stat.
    names = [plane.event_metadata[event.metadata_id].name]
    if names == [_RUN_BY_XLA]:
        return _COMPILED_BY_XLA
    names += [stat.str_value or plane.stat_metadata[stat.ref_value].name for stat in event.stats
              if plane.stat_metadata[stat.metadata_id].name == "tf_op"]
    matches = [re.fullmatch(r"[^:]+:(\w+)", name) for name in names]
    return next((match.group(1) for match in matches if match), None)


def _table_of(times, rows=10):
    """The types that took the most time, a line each, as text."""
    total = sum(seconds for seconds, _ in times.values()) or 1.0
    ordered = sorted(times.items(), key=lambda item: -item[1][0])
    table = [(kind, *values) for kind, values in ordered[:rows]]
    if ordered[rows:]:
        table.append((f"{len(ordered) - rows} other types",
                      *map(sum, zip(*(values for _, values in ordered[rows:])))))
    return "\n".join(f"  {seconds / total:6.1%}  {seconds:9.4f} s  {calls:7d} calls  {kind}"
                     for kind, seconds, calls in table)


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
