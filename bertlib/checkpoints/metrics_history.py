"""Writes metrics.jsonl, the history of a training: a JSON object for each log line and for each evaluation.

Each object is one line of the file. If a training continues from the checkpoint of step N, the lines of later
steps are removed, because the training repeats these steps and writes their lines again.
"""

import contextlib
import functools
import json
import os
import time

from absl import logging

from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import files, terminal

FILE = "metrics.jsonl"
# {name of a value in the log: its name in the file}. All other values have the same name in the log and in
# the file.
_NAMES = {"global_step/sec": "steps_per_second", "examples/sec": "examples_per_second"}


class MetricsHistory:
    """The file metrics.jsonl in a directory.

    Only one process may write the file at a time. If the file cannot be written, the class logs a warning and
    raises no error, because a problem with the history must not end a training.
    """

    def __init__(self, directory):
        """Creates the history of the training in a directory. Writes nothing yet."""
        self.path = os.path.join(directory, FILE)

    def cut(self, step):
        """Removes the lines of all steps after `step`. Also removes incomplete lines.

        Args:
          step: int, the step of the checkpoint from which the training continues. None for a new training:
            all lines are removed.
        """
        with self._log_errors():
            self._keep(lambda row: step is not None and row["step"] <= step)

    def add(self, step, values):
        """Adds a log line of the training.

        Args:
          step: int.
          values: {name in the log: number}.
        """
        fields = {_NAMES.get(name, name): value for name, value in values.items()}
        with self._log_errors():
            self._append({"step": step, **fields, "time": time.time()})

    def add_evaluation(self, step, name, metrics):
        """Adds the metrics of an evaluation. They replace the metrics of an earlier evaluation of the same
        data at the same step.

        Args:
          step: int, the step of the evaluated weights.
          name: name of the data, such as "dev".
          metrics: {name: number or array}. The entry "global_step" is not written to the file, because
            `step` is already written.
        """
        values = {key: value for key, value in metrics.items() if key != "global_step"}
        row = {"step": int(step), "evaluation": name, **values, "time": time.time()}
        with self._log_errors():
            self._keep(lambda old: (old["step"], old.get("evaluation")) != (row["step"], name))
            self._append(row)

    def read(self):
        """Returns the rows of the file as a list of dicts, each with the key "step". Damaged lines are left
        out. If the file does not exist, the list is empty."""
        return [row for line in self._lines() if (row := _parse(line)) is not None]

    def _lines(self):
        """Returns the lines of the file as bytes. A device, such as /dev/null, stores no lines."""
        if not files.exists(self.path) or files.is_special(self.path):
            return []
        return files.read_bytes(self.path).splitlines(keepends=True)

    @contextlib.contextmanager
    def _log_errors(self):
        """Returns a context manager. If its block cannot change the file, a warning is logged."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            reason = getattr(error, "strerror", None) or terminal.first_line(error)
            _warn_once(self.path, reason.rstrip("."))

    def _append(self, row):
        """Adds a row at the end of the file, as one line. If only a part of the line can be written, this
        part is removed again."""
        line = (files.json_text(row) + "\n").encode()
        if files.is_remote(self.path):
            with files.open_file(self.path, "ab") as writer:
                writer.write(line)
            return
        with open(self.path, "ab", buffering=0) as writer:
            end = writer.tell()
            try:
                # If the disk becomes full, a write stores a part of the line and raises no error. The write
                # after it raises an error that names the cause.
                while line:
                    line = line[writer.write(line):]
            except OSError:
                with contextlib.suppress(OSError):  # a device cannot be truncated
                    writer.truncate(end)
                raise

    def _keep(self, is_kept):
        """Removes the lines for which `is_kept` is false. Also removes lines that do not contain a complete
        JSON object with a step. The file is replaced only if a line is removed.

        Args:
          is_kept: function (row) -> bool. A row is a dict with the key "step".
        """
        lines = self._lines()
        kept_lines = [line.rstrip(b"\n") + b"\n" for line in lines
                      if (row := _parse(line)) is not None and is_kept(row)]
        if kept_lines != lines:
            files.write_bytes(self.path, b"".join(kept_lines))


def _parse(line):
    """Returns the row in a line of the file; None if the line contains no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and type(row.get("step")) is int else None


@functools.cache
def _warn_once(path, reason):
    logging.warning("%s could not be written: %s. Some lines of the history are missing in this file. All "
                    "other files are complete.", path, reason)
