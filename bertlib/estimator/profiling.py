"""Profiles training steps: writes a trace for TensorBoard, and logs the time of each type of op."""

import collections
import contextlib
import os
import re
import time

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files
from bertlib.graph import tensorflow_internals

# In a CPU trace, an event with the name `_RUN_BY_XLA` is one run of a function that XLA compiled. The table
# in the log lists all such events as the type `_COMPILED_BY_XLA`.
_RUN_BY_XLA, _COMPILED_BY_XLA = "CpuExecutable::ExecuteAsyncOnStream", "(compiled by XLA)"
_TABLE_ROWS = 10  # number of types of ops in the table


class ProfileHook(tf.train.SessionRunHook):
    """Traces some steps for TensorBoard, and logs the types of ops that took most of the time.

    The number of a step is the value of the global step when the step has ended, so the first step has the
    number 1. Put this hook last in the list of hooks. The trace then begins after all other hooks have
    finished the previous step. An error of the profiler becomes a warning, and the training goes on.
    """

    def __init__(self, model_dir, first_step, last_step):
        self._model_dir = model_dir
        self._first_step, self._last_step = first_step, last_step
        self._traced_from = None  # number of the first step in the trace
        self._finished = False

    def begin(self):
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session, coord):
        step = int(session.run(self._global_step))
        if step >= self._last_step:
            logging.info("No profile is written: the steps %d to %d are already done, and the training "
                         "continues after step %d.",
                         self._first_step, self._last_step, step)
            self._finished = True
        self._start_or_stop(step)

    def after_run(self, run_context, run_values):
        self._start_or_stop(int(run_context.session.run(self._global_step)))

    def end(self, session):
        if self._traced_from is not None and not self._finished:
            self._stop(int(session.run(self._global_step)))

    def _start_or_stop(self, step):
        """Starts the trace if `step` is the last step before the trace. Stops the trace if `step` is the last
        step of the trace. Call this method after each step."""
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
            path = max(checkpoint_files.list_by_ending(newest, ".xplane.pb"))
            with tf.gfile.Open(path, "rb") as reader:
                table = _table_of(op_times(tensorflow_internals.parse_profile(reader.read())))
            logging.info("Profile of steps %d to %d, %.3f seconds. Time in ops, of all threads:\n%s\nThe "
                         "trace, for TensorBoard's profile plugin, is %s.", self._traced_from, step, seconds,
                         table, path)

    @contextlib.contextmanager
    def _surviving(self):
        """Returns a context manager that turns an error in its block into a warning, because a failed profile
        must not end the training."""
        try:
            yield
        except Exception as error:
            self._finished = True
            logging.warning("Steps %d to %d could not be profiled. The training goes on. Reason: %s",
                            self._first_step, self._last_step, getattr(error, "message", None) or error)


def op_times(space):
    """Returns the times in a trace: {op type: (seconds, calls)}. All functions that XLA compiled have the
    type "(compiled by XLA)".

    The seconds of an op do not include the seconds of the ops that run inside of it.

    Args:
      space: an XSpace. If ops ran on GPUs, only the ops on GPUs are counted, because the CPU only launches
        ops while the GPUs compute.
    """
    on_gpus = _op_times([plane for plane in space.planes if plane.name.startswith("/device:GPU")])
    return on_gpus or _op_times(space.planes)


def _op_times(planes):
    seconds, calls = collections.Counter(), collections.Counter()
    for plane in planes:
        for line in plane.lines:
            open_ops = []  # (type, end) of the ops inside of which the current op runs, outermost first
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
    """Returns the type of the op that an event belongs to; None if it belongs to no op."""
    # A text "name:type" describes the op. On a CPU, this text is the name of the event. On a GPU, the name of
    # the event is the name of the kernel, and the text is the value of the stat "tf_op".
    names = [plane.event_metadata[event.metadata_id].name]
    if names == [_RUN_BY_XLA]:
        return _COMPILED_BY_XLA
    names += [stat.str_value or plane.stat_metadata[stat.ref_value].name for stat in event.stats
              if plane.stat_metadata[stat.metadata_id].name == "tf_op"]
    matches = [re.fullmatch(r"[^:]+:(\w+)", name) for name in names]
    return next((match.group(1) for match in matches if match), None)


def _table_of(times):
    """Returns a table of the types of ops that took the most time. Each type is one line of text."""
    total = sum(seconds for seconds, _ in times.values()) or 1.0
    ordered = sorted(times.items(), key=lambda item: -item[1][0])
    table = [(kind, *values) for kind, values in ordered[:_TABLE_ROWS]]
    if ordered[_TABLE_ROWS:]:
        table.append((f"{len(ordered) - _TABLE_ROWS} other types",
                      *map(sum, zip(*(values for _, values in ordered[_TABLE_ROWS:])))))
    return "\n".join(f"  {seconds / total:6.1%}  {seconds:9.4f} s  {calls:7d} calls  {kind}"
                     for kind, seconds, calls in table)
