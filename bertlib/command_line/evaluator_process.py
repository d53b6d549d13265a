"""Runs the evaluator of a cluster, which evaluates the checkpoints that the other machines write.

When an evaluation has ended, the evaluator takes the newest checkpoint. To evaluate this checkpoint, the
evaluator starts its own command again in a separate process, with flags that request only an evaluation.
"""

import os
import socket
import sys
import time

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.flag_table.entries import WEIGHTS
from bertlib.output_directory.directory import OutputDirectory
from bertlib.system import child_processes, files

FLAGS = flags.FLAGS

# Names of the result files that commands write. run_squad.py writes only the last one, eval_results.json.
_RESULTS = ("eval_results.txt", "eval_results_mismatched.txt", "eval_results.json")
# Names of the flags that a command accepts only if it trains. They are removed from the command line of an
# evaluation.
_TRAINING_ONLY = ("eval_every_steps", "keep_best", "early_stopping_evals")
# Longest time that the evaluator waits for the start of the chief, as a multiple of --replica_timeout.
_START_TIMEOUTS = 5
# `_POLL_SECONDS` is the time between two checks of the signals and of the child process. `_LOOK_SECONDS` is
# the time between two searches for a new checkpoint.
_POLL_SECONDS, _LOOK_SECONDS = 0.05, 5.0


def follow(coordinator, timeout):
    """Evaluates checkpoints in --output_dir until the training has ended and its last checkpoint is
    evaluated.

    The results are written to the folder `evaluator` in --output_dir. Each evaluation replaces the result
    files of the evaluation before it. So this function also keeps a copy of the result files of each
    evaluation, with the evaluated step in the file names.

    Args:
      coordinator: (host, port). The chief listens at this address as long as the training runs.
      timeout: float, in seconds. If the chief cannot be reached for this time, the training counts as ended.

    Returns:
      a `child_processes.Outcome`.

    Raises:
      ValueError: the command does not evaluate, or --output_dir was not given.
      OSError: the chief could not be reached within the time that it has for its start.
    """
    if "do_eval" not in FLAGS:
        raise ValueError("TF_CONFIG makes this machine an evaluator, but this command cannot evaluate: it "
                         "has no flag --do_eval. Remove the evaluator from the cluster.")
    if not FLAGS.output_dir:
        raise ValueError("TF_CONFIG makes this machine an evaluator. Pass --output_dir, the directory in "
                         "which the other machines train. All machines must be able to read this directory.")
    chief, evaluated = _Chief(coordinator, timeout), None
    logging.info("Evaluating the checkpoints in %s as long as %s:%d can be reached.", FLAGS.output_dir,
                 *coordinator)
    with child_processes.noted_signals() as signals:
        while not signals:
            runs, newest = chief.runs(), checkpoint_formats.latest_checkpoint(FLAGS.output_dir)
            step = newest and checkpoint_files.step_in_name(newest)
            if step and step != evaluated:  # at step 0, nothing is trained yet
                outcome = _evaluate(signals)
                # If the training has removed the checkpoint in the meantime, the evaluation may have failed
                # for this reason. Such a failure is ignored.
                if outcome.exit_code and files.exists(f"{newest}.index"):
                    # The process of the evaluation has already printed the error.
                    return outcome._replace(message=None)
                evaluated = None if outcome.exit_code else _keep_results(step)
            elif not runs:
                return child_processes.Outcome("finished")
            else:
                _pause(signals, min(_LOOK_SECONDS, timeout))
    return child_processes.stopped_by(signals[0])


def _pause(signals, seconds):
    end = time.monotonic() + seconds
    while not signals and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


def _evaluate(signals):
    """Evaluates the newest checkpoint in a separate process; returns its `Outcome`.

    Settings that affect the weights are taken from run.json and not from this command line. run.json
    describes the training that wrote the checkpoint. The command line may describe a different training,
    which has not yet written its run.json.
    """
    record, settings = OutputDirectory(FLAGS.output_dir).record, common_flags.read_settings()
    recorded = record["settings"] if record else {}
    changes = {**{entry.name: recorded[entry.name] for entry in settings.entries(WEIGHTS)
                  if recorded.get(entry.name) is not None},
               "do_train": "false", "do_eval": "true", "do_predict": "false", "do_export": "false",
               "eval_each_checkpoint": "false", "weights": "last",
               "results_dir": os.path.join(FLAGS.output_dir, "evaluator")}
    command = [sys.executable, *child_processes.without_flags(sys.orig_argv[1:], _TRAINING_ONLY),
               *(f"--{name}={value}" for name, value in changes.items() if name in FLAGS)]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    child = child_processes.Child(command, environment)
    while child.runs():
        signals.forward([child])
        time.sleep(_POLL_SECONDS)
    return child.outcome


def _keep_results(step):
    """Copies the result files of an evaluation, with the evaluated step in the names of the copies.

    Args:
      step: int, the step of the newest checkpoint before the evaluation was started. If the training saved a
        newer checkpoint before the evaluation began, the evaluated step is higher than `step`. It is read
        from the results.

    Returns:
      int, the evaluated step.
    """
    results = OutputDirectory(os.path.join(FLAGS.output_dir, "evaluator"))
    step = int((results.results() or {}).get("global_step", step))
    for name in _RESULTS:
        if files.exists(results.join(name)):
            stem, extension = os.path.splitext(results.join(name))
            files.write_text(f"{stem}.{step}{extension}", files.read_text(results.join(name)))
    return step


class _Chief:
    """Finds out whether a training runs. While a training runs, its chief listens at a port.

    This class keeps one connection open. The operating system closes the connection when the chief's process
    ends. The chief does not accept connections while it trains, so new connections wait in a queue. If each
    check opened a new connection, this queue would become full.
    """

    def __init__(self, address, timeout):
        self._address, self._timeout, self._connection, self._seen = address, timeout, None, False
        self._until = time.monotonic() + _START_TIMEOUTS * timeout

    def runs(self):
        """Returns whether the training counts as running.

        The training counts as running if the chief can be reached. If the chief cannot be reached, the
        training counts as running until a time limit is over. Before the first connection, this limit is
        longer.

        Raises:
          OSError: the chief could not be reached within the time that it has for its start.
        """
        if self._is_connected():
            return True
        try:
            self._connection = socket.create_connection(self._address, timeout=10)
        except OSError as error:
            is_late = time.monotonic() >= self._until
            if is_late and not self._seen:
                raise OSError(f"The chief of the cluster, {self._address[0]}:{self._address[1]} in "
                              f"TF_CONFIG, was never reached ({error}). Check that the training runs on that "
                              "machine and that the port is open.") from error
            return not is_late
        # With keep-alive, the connection ends within two minutes after the chief's machine fails.
        for level, option, value in ((socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
                                     (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 60),
                                     (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 15),
                                     (socket.IPPROTO_TCP, "TCP_KEEPCNT", 4)):
            if hasattr(socket, option):
                self._connection.setsockopt(level, getattr(socket, option), value)
        self._connection.setblocking(False)
        self._seen, self._until = True, time.monotonic() + self._timeout
        return True

    def _is_connected(self):
        if self._connection is None:
            return False
        try:
            # `recv` returns in two cases: the connection has ended, or the chief has sent data that are meant
            # for a replica. In both cases, the connection is closed below, and `runs` opens a new one.
            self._connection.recv(64)
        except BlockingIOError:
            self._until = time.monotonic() + self._timeout
            return True
        except OSError:
            pass
        self._connection.close()
        self._connection = None
        return False
