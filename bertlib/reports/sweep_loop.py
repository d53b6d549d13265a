"""Runs a sweep: skips the runs that have ended, starts the others, and writes the results after each run."""

import os
import time
from typing import NamedTuple

from absl import logging

from bertlib.reports import recorded_inputs, sweep_directory, sweep_page, sweep_runs
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import child_command, child_jobs, child_processes, files, locks, terminal

_LAST_BYTES = 100_000  # number of bytes at the end of a log that are searched for an error message
_MAX_MESSAGE = 500  # longest message in a row, in characters


class Sweep(NamedTuple):
    """Describes a sweep.

    Attributes:
      script: file name of the training command.
      arguments: list of str, the arguments that all runs share.
      metric: name of the metric by which runs are compared.
      keep: one of `sweep_directory.KEPT`.
      slots: the parts of the machine for the jobs, see `child_jobs.divide_machine`.
      shares_features: whether the runs get --features_cache.
    """

    script: str
    arguments: list
    metric: str
    keep: str
    slots: list
    shares_features: bool = False


def run_sweep(sweep, directory, runs):
    """Runs a sweep: skips the runs that have already ended, starts the other runs, and writes the results.

    Args:
      sweep: a `Sweep`.
      directory: the `sweep_directory.SweepDirectory`.
      runs: list of `sweep_runs.Run`, the runs of the grid.

    Returns:
      the number of runs in `runs` that failed.

    Raises:
      ValueError: the results of the runs do not contain the metric; or a file was changed after earlier runs
        had read it.
      locks.InUseError: another sweep uses the directory.
    """
    files.make_directories(directory.path)
    lock = os.path.join(directory.path, "children.lock")
    with locks.lock_directory(directory.path), child_jobs.no_other_children(lock) as descriptor:
        open_runs = [run for run in runs if directory.load(run).status not in sweep_runs.NOT_REPEATED]
        if open_runs:
            recorded_inputs.check_unchanged(map(directory.output_dir, directory.runs))
        else:
            recorded_inputs.check_equal(directory.output_dir(run) for run in runs)
        directory.add(runs, sweep.metric)
        logging.info("%s: %d already ended, %d to go. Results: %s.", terminal.counted(len(runs), "run"),
                     len(runs) - len(open_runs), len(open_runs),
                     os.path.join(directory.path, sweep_directory.PAGE))
        _write_results(sweep, directory)
        num_left = len(open_runs)
        for run, child, log_start in child_jobs.run_all(
                open_runs, lambda run: _prepare(sweep, directory, run), sweep.slots, descriptor):
            num_left -= 1
            _log(sweep, directory, _record(sweep, directory, run, child, log_start), num_left)
            _write_results(sweep, directory)
    ranking = sweep_runs.by_rank(directory.ended_runs(), sweep.metric)
    for best in ranking[:1]:
        logging.info("The best run by %s: %s.", sweep.metric, directory.output_dir(best))
    num_dev_sets = recorded_inputs.count_dev_sets(map(directory.output_dir, ranking))
    if num_dev_sets > 1:
        logging.warning("The runs were evaluated on %d different development sets, so their ranks have no "
                        "meaning. Leave settings that change this set out of --grid.", num_dev_sets)
    return sum(directory.load(run).status == sweep_runs.FAILED for run in runs)


def _prepare(sweep, directory, run):
    """Stores that a run is about to start. Returns (the run's command, the path of its log)."""
    before, log = directory.load(run), directory.log(run)
    seconds = before.seconds
    if before.status == sweep_runs.RUNNING and os.path.exists(log):
        # The sweep was killed during this run, so it is unknown when the run ended. The run ended shortly
        # after the last change of its log. So the time of this change is used.
        seconds += max(0.0, os.path.getmtime(log) - before.started)
    directory.store(sweep_runs.Run(run.settings, sweep_runs.RUNNING, seconds=seconds, started=time.time()))
    flags = child_command.flags(run.settings)
    if sweep.shares_features:
        flags.append(f"--features_cache={directory.features_cache}")
    return [*child_command.command_line(sweep.script), *sweep.arguments, *flags,
            f"--output_dir={directory.output_dir(run)}"], log


def _record(sweep, directory, run, child, log_start):
    """Stores and returns a run that has ended. For the arguments see `child_jobs.run_all`."""
    stored_run, outcome, results = directory.load(run), child.outcome, None
    stored_run.seconds += child.end_time - child.start_time
    try:
        if outcome.exit_code:
            outcome = _with_message(sweep.script, child, directory.log(run), log_start)
        else:
            results = OutputDirectory(directory.output_dir(run)).read_results()
            output_dirs = [directory.output_dir(other) for other in directory.ended_runs()
                           if other.status in sweep_runs.NOT_REPEATED]
            recorded_inputs.check_equal([*output_dirs, directory.output_dir(run)])
    except (OSError, ValueError) as problem:
        outcome = child_processes.Outcome("failed", 1, str(problem))
    sweep_runs.set_result(stored_run, outcome, results)
    directory.store(stored_run)
    return stored_run.judged_by(sweep.metric)


def _with_message(script, child, log, log_start):
    """Returns the outcome of a process that failed. If the process has reported no message, the message is
    the last line of the log."""
    with open(log, "rb") as reader:
        reader.seek(max(log_start, os.path.getsize(log) - _LAST_BYTES))
        lines = reader.read().decode("utf-8", "backslashreplace").splitlines()
    message = child_command.describe_signal(script, child, lines) or child.outcome.known_message or (
        lines[-1] if lines else "")
    return child.outcome._replace(
        message=message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…")


def _write_results(sweep, directory):
    """Removes the checkpoints that --keep_checkpoints does not keep, and writes sweep.csv and sweep.html. If
    one of these actions fails, a warning is logged. The sweep continues, because the results of the runs
    are already stored.

    Raises:
      ValueError: a finished run has no value of the metric, so the runs have no ranks.
    """
    for run in directory.ended_runs():
        if run.status == sweep_runs.DONE and sweep.metric not in run.metrics:
            raise ValueError(f"--metric={sweep.metric}: the runs have no such metric. Pass one of their "
                             f"metrics: {', '.join(sorted(run.metrics))}. Finished runs are not repeated.")

    def write_page():
        runs = directory.ended_runs()
        sweep_page.write_page(os.path.join(directory.path, sweep_directory.PAGE), runs, sweep.metric,
                              len(directory.runs), sweep.script, directory.base,
                              recorded_inputs.count_dev_sets(map(directory.output_dir, runs)))

    for action in (lambda: directory.remove_checkpoints(sweep.keep, sweep.metric), directory.write_table,
                   write_page):
        try:
            action()
        except OSError as error:
            logging.warning("%s", error)


def _log(sweep, directory, run, num_left):
    """Logs the result of a run with a warning about it, and the remaining time."""
    value = run.value(sweep.metric)
    result = run.status if value is None else f"{sweep.metric} {value:.6g}"
    result += f". {run.message}" if run.message else "."
    times = [other.seconds for other in directory.ended_runs() if other.status == sweep_runs.DONE]
    rest = f" {terminal.counted(num_left, 'run')} to go"
    if times and num_left:
        seconds = sum(times) / len(times) * -(-num_left // len(sweep.slots))
        rest += f", about {_duration(seconds)}"
    logging.info("%s: %s %s.%s.", ", ".join(f"{name} {text}" for name, text in run.settings.items()),
                 result, _duration(run.seconds), rest)


def _duration(seconds):
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
