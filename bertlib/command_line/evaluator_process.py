"""The evaluator of a cluster: evaluates what the others train, each checkpoint that is the newest when it
comes to it, by the same command in a process of its own.
"""

import os
import re
import socket
import subprocess
import sys
import time

from absl import flags, logging

from bertlib.command_line import common_flags

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.output_directory import output_files
from bertlib.replicas import replica_launcher
from bertlib.runs.settings import WEIGHTS
from bertlib.system import files

FLAGS = flags.FLAGS

_RESULTS = ("eval_results.txt", "eval_results_mismatched.txt")
# The chief may start later, and be started again: as many of --replica_timeout are waited for it.
_START = 5
_POLL_SECONDS, _LOOK_SECONDS = 0.05, 5.0


def follow(coordinator, timeout):
    """Evaluates checkpoints in --output_dir until the training has ended and the last one is evaluated.

    What is written goes to evaluator/ in --output_dir: the command's results of the newest checkpoint, and a
    copy of each file of results that has the step in its name.

    Args:
      coordinator: (host, port) of the chief, which listens there as long as the training runs.
      timeout: seconds without the chief after which the training is taken to have ended.

    Returns:
      a `replica_launcher.End`.

    Raises:
      ValueError: the command does not evaluate, or --output_dir was not given.
      OSError: the chief cannot be reached.
    """
    if "do_eval" not in FLAGS:
        raise ValueError("TF_CONFIG makes this machine an evaluator, and this command has no --do_eval. "
                         "Leave the evaluator out of the cluster.")
    if not FLAGS.output_dir:
        raise ValueError("TF_CONFIG makes this machine an evaluator, which needs --output_dir: the "
                         "directory, seen by all machines, that the others train in.")
    chief, evaluated = _Chief(coordinator, timeout), None
    logging.info("Evaluating the checkpoints in %s as long as %s:%d can be reached.", FLAGS.output_dir,
                 *coordinator)
    with replica_launcher.noted_signals() as signals:
        while not signals:
            runs, newest = chief.runs(), checkpoint_formats.latest_checkpoint(FLAGS.output_dir)
            step = newest and checkpoint_files.step_in_name(newest)
            if step and step != evaluated:  # at step 0 there is nothing to evaluate yet
                code = _evaluate(signals)
                if code and files.exists(f"{newest}.index"):  # else it was removed meanwhile, for newer ones
                    return replica_launcher.End(code, None, False)  # which has said why
                evaluated = None if code else _keep_results(step)
            elif not runs:
                return replica_launcher.End(0, None, False)
            else:
                _pause(signals, min(_LOOK_SECONDS, timeout))
    return replica_launcher.stopped_by(signals[0])


def _pause(signals, seconds):
    end = time.monotonic() + seconds
    while not signals and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


def _evaluate(signals):
    """Runs the evaluation of the newest checkpoint; returns its exit code.

    It is told the settings of the weights that run.json has: the flags of this command line are those of a
    training that may go on with others, and has not written them down yet.
    """
    record, settings = output_files.read_record(FLAGS.output_dir), common_flags.read_settings()
    trained = record["settings"] if record else {}
    changes = {**{name: trained[name] for name in settings.names_of_class(WEIGHTS)
                  if trained.get(name) is not None},
               "do_train": "false", "do_eval": "true", "do_predict": "false", "do_export": "false",
               "eval_each_checkpoint": "false",
               "results_dir": os.path.join(FLAGS.output_dir, "evaluator")}
    command = [sys.executable, *sys.orig_argv[1:],
               *(f"--{name}={value}" for name, value in changes.items() if name in FLAGS)]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    passed_on = 0
    while process.poll() is None:
        for number in signals[passed_on:]:
            passed_on += 1
            process.send_signal(number)
        time.sleep(_POLL_SECONDS)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _keep_results(step):
    """Copies the results to files that have the step in their name; returns it. It is a later one than was
    looked for if the training was faster."""
    directory = os.path.join(FLAGS.output_dir, "evaluator")
    for name in _RESULTS:
        path = os.path.join(directory, name)
        if files.exists(path):
            text = files.read_text(path)
            found = re.search(r"^global_step = (\d+)$", text, re.MULTILINE)
            step = int(found[1]) if found else step
            files.write_text(path.removesuffix(".txt") + f".{step}.txt", text)
    return step


class _Chief:
    """Whether a training runs: whether its chief listens at its port.

    One connection is held, which is closed when the chief's process is gone: what connects again and again
    would fill the queue of a port where nobody is awaited any more.
    """

    def __init__(self, address, timeout):
        self._address, self._timeout, self._connection, self._seen = address, timeout, None, False
        self._until = time.monotonic() + _START * timeout

    def runs(self):
        """Whether it listens, or may begin to listen.

        Raises:
          OSError: it never did.
        """
        if self._is_connected():
            return True
        try:
            self._connection = socket.create_connection(self._address, timeout=10)
        except OSError as error:
            waited = time.monotonic() >= self._until
            if waited and not self._seen:
                raise OSError(f"The chief of the cluster, {self._address[0]}:{self._address[1]} in "
                              f"TF_CONFIG, was never reached ({error}). Does the training run there, and is "
                              "the port open?") from error
            return not waited
        # The connection ends if the machine does, within two minutes.
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
            self._connection.recv(64)  # the end of the connection, or what is meant for a replica
        except BlockingIOError:
            self._until = time.monotonic() + self._timeout
            return True
        except OSError:
            pass
        self._connection.close()
        self._connection = None
        return False
