"""Reads and writes the directory of a sweep: sweep.json, sweep.csv, and the files of each run.

The files of a run are its result (a file in `rows`), its log, and its output directory.
"""

import csv
import dataclasses
import functools
import io
import os

from absl import logging

from bertlib.checkpoints import checkpoint_files
from bertlib.reports import sweep_runs
from bertlib.runs import file_names
from bertlib.runs.input_paths import absolute_paths
from bertlib.system import files

RECORD, TABLE, PAGE = file_names.SWEEP_RECORD, "sweep.csv", "sweep.html"
_FORMAT = 1
# The first and the last columns of sweep.csv. The settings and the metrics are between them.
_FIRST, _LAST = ("run",), ("status", "seconds", "message", "directory")
KEPT = ("best", "all", "none")  # the values of --keep_checkpoints


class SweepDirectory:
    """Reads and writes the files of a sweep.

    Attributes:
      path: the directory.
      base: {flag: value as text}, the flags of the training command that all runs share.
      metric: name of the metric by which the runs were ranked last; None if sweep.json does not name it.
    """

    def __init__(self, path, script=None, base=None):
        """Reads the directory, if it exists. Writes nothing.

        Args:
          path: the directory.
          script: name of the training command, such as "run_classifier.py".
          base: {flag: value as text}, the flags of the training command that all runs share. `script` and
            `base` are None for the command of an existing sweep.

        Raises:
          ValueError: the directory belongs to a sweep with another training command, or its sweep.json cannot
            be read.
        """
        self.path, self._script, self._runs, self.metric = path, script, {}, None
        record = os.path.join(path, RECORD)
        content = _read_record(record) if files.exists(record) else None
        if script is None:
            self._script, base = content["script"], _absolute(content["flags"], content["working_directory"])
        self.base = dict(sorted(base.items()))
        if content:
            self._check_command(content)
            self._runs = {run.name: run for run in map(sweep_runs.Run, content["runs"])}
            self.metric = content.get("metric")

    def _check_command(self, content):
        """Raises a ValueError if the content of sweep.json belongs to another training command."""
        before = {"the command": content["script"],
                  **_absolute(content["flags"], content["working_directory"])}
        now = {"the command": self._script, **_absolute(self.base, os.getcwd())}
        changes = [f"{name if name == 'the command' else f'--{name}'}: {before.get(name, 'not given')} -> "
                   f"{now.get(name, 'not given')}"
                   for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        if changes:
            raise ValueError(f"--sweep_dir={self.path} contains a sweep with another training command: "
                             f"{'; '.join(changes)}. Pass another --sweep_dir, or the same command.")

    def add(self, runs, metric=None):
        """Makes `runs` the grid of the sweep, and writes sweep.json with the name of the metric that ranks
        the runs. Ended runs of an earlier grid stay in the sweep. Its other runs are left out."""
        self.metric = metric or self.metric
        for folder in ("runs", "logs", "rows"):
            files.make_directories(os.path.join(self.path, folder))
        now, ended = {run.name: run for run in runs}, {run.name for run in self.ended_runs()}
        earlier = self._runs.keys() - now
        if earlier:
            logging.info("An earlier --grid had other runs: %d that have ended stay in the results, and %d "
                         "that have not ended are left out.", len(earlier & ended), len(earlier - ended))
        self._runs = {name: run for name, run in {**self._runs, **now}.items() if name not in earlier - ended}
        content = {"format": _FORMAT, "script": self._script, "flags": self.base,
                   "working_directory": os.getcwd(), "metric": self.metric,
                   "runs": [run.settings for run in self._runs.values()]}
        files.write_json(os.path.join(self.path, RECORD), content, indent=2)

    @property
    def runs(self):
        """Returns the list of all runs: those of the current grid, and ended runs of earlier grids."""
        return list(self._runs.values())

    def output_dir(self, run):
        """Returns the output directory of a run."""
        return os.path.join(self.path, "runs", run.name)

    @property
    def features_cache(self):
        """Returns the directory of the features that the runs share."""
        return os.path.join(self.path, "features")

    def log(self, run):
        """Returns the path of the log of a run."""
        return os.path.join(self.path, "logs", f"{run.name}.log")

    def load(self, run):
        """Returns a run with its stored result. If the output directory of an ended run was removed, the run
        is new."""
        path = self._result_path(run)
        result = sweep_runs.Run(**files.read_json_object(path)) if files.exists(path) else run
        is_removed = result.status in sweep_runs.NOT_REPEATED and not files.is_directory(self.output_dir(run))
        return sweep_runs.Run(run.settings) if is_removed else result

    def store(self, run):
        """Stores the result of a run."""
        files.write_json(self._result_path(run), dataclasses.asdict(run), indent=2)

    def _result_path(self, run):
        return os.path.join(self.path, "rows", f"{run.name}.json")

    def ended_runs(self):
        """Returns the list of the runs that have ended, including failed runs, judged by the metric of the
        sweep."""
        return [run.judged_by(self.metric) for run in map(self.load, self.runs)
                if run.status not in (sweep_runs.NEW, sweep_runs.RUNNING)]

    def write_table(self):
        """Writes sweep.csv, with a row for each run that has ended. Metrics have 6 digits, as on the page."""
        runs = self.ended_runs()
        names = list(dict.fromkeys(name for run in runs for name in run.settings))
        metrics = sorted({name for run in runs for name in run.metrics})
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow([*_FIRST, *names, *metrics, *_LAST])
        for number, run in enumerate(runs, 1):
            writer.writerow([number, *(run.settings.get(name, "") for name in names),
                             *(f"{value:.6g}" if isinstance(value, float) else value
                               for value in map(run.metrics.get, metrics)), run.status,
                             f"{run.seconds:.1f}", run.message, self.output_dir(run)])
        files.write_text(os.path.join(self.path, TABLE), table.getvalue())

    def remove_checkpoints(self, keep, metric):
        """Removes the checkpoints of ended runs, but not their results. Failed runs keep their checkpoints,
        because a repeated run continues from its last checkpoint.

        Args:
          keep: one of `KEPT`. "best": only the run with the best value of the metric keeps its checkpoints.
            If this run has no checkpoint, the best run that has one keeps its checkpoints, and a warning is
            logged. If there is no such run, nothing is removed.
          metric: name of the metric.
        """
        if keep == "all":
            return
        runs = [run for run in self.ended_runs() if run.status in sweep_runs.NOT_REPEATED]
        best_dir = None
        if keep == "best":
            output_dirs = list(map(self.output_dir, sweep_runs.by_rank(runs, metric)))
            best_dir = next((path for path in output_dirs if _list_checkpoints(path)), None)
            if output_dirs and best_dir != output_dirs[0]:
                _warn_once(f"{output_dirs[0]} is the best run by {metric}, but it has no checkpoint. " + (
                    f"The checkpoints of {best_dir} are kept." if best_dir else "No run has a checkpoint."))
            if best_dir is None:
                return
        for output_dir in map(self.output_dir, runs):
            if output_dir != best_dir:
                _remove_checkpoints(output_dir)


def _read_record(path):
    """Returns the content of sweep.json."""
    content = files.read_json_object(path)
    if content.get("format") != _FORMAT:
        raise ValueError(f"{path} has the format {content.get('format')!r}, but this version reads the "
                         f"format {_FORMAT}. Name the directory of another sweep.")
    return content


def _absolute(flags, directory):
    return {name: absolute_paths(name, value, directory) for name, value in flags.items()}


def _checkpoint_directories(output_dir):
    """Returns the directories of a run that can contain checkpoints. A training with --keep_best also writes
    checkpoints into the directory "best"."""
    return output_dir, os.path.join(output_dir, "best")


def _list_checkpoints(output_dir):
    return [prefix for directory in _checkpoint_directories(output_dir)
            for prefix in checkpoint_files.list_training_checkpoints(directory)]


def _remove_checkpoints(output_dir):
    for prefix in _list_checkpoints(output_dir):
        checkpoint_files.remove(prefix)
    for directory in _checkpoint_directories(output_dir):
        state = os.path.join(directory, "checkpoint")
        if files.exists(state):
            files.remove(state)


@functools.cache  # the checkpoints are removed after each run
def _warn_once(message):
    logging.warning("%s", message)
