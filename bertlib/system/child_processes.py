"""Starts child processes, and finds out how they ended.

A command writes how it ended, as JSON, if its caller asks for it. To ask, the caller sets the environment
variable BERT_OUTCOME_FILE to the path of a new file. At its end, the command calls `report`, which writes an
`Outcome` to this file. The class `Child` sets the variable and reads the file. So callers need not search the
log of a command for messages.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from bertlib.system import files, terminal

VARIABLE = "BERT_OUTCOME_FILE"
# The signals that ask a command to end.
_SIGNALS = signal.SIGTERM, signal.SIGHUP, signal.SIGINT

_reporting = threading.Lock()
# The texts of the warnings in the log, see `note_warning`.
_warnings = []


class Outcome(NamedTuple):
    """How a command ended.

    Attributes:
      outcome: "finished", "diverged", "refused", "failed" or "stopped". "diverged": the loss or the gradients
        were not finite. "refused": the same command would end with the same error again. "failed": the same
        command may succeed if it is run again. "stopped": SIGTERM, SIGHUP or SIGINT ended the command.
      exit_code: int, as a shell shows it: 128 + n after signal n.
      message: str; None if the command ended without a message.
      has_traceback: whether the log of the command contains a traceback, which says more than the message.
      flags: names of the flags that the error is about; empty if they are unknown.
      similar_flags: names of flags that are similar to the flag in `flags`; None unless the command has no
        such flag.
      file: the file that the error is about, or None.
      step: the step of a training in which the error occurred, or None.
      replica: index of the replica that caused the end, or None.
      warnings: list of str, the different warnings in the log.
    """

    outcome: str
    exit_code: int = 0
    message: str | None = None
    has_traceback: bool = False
    flags: list = []
    similar_flags: list | None = None
    file: str | None = None
    step: int | None = None
    replica: int | None = None
    warnings: list = []

    @property
    def line(self):
        """Returns the last line of the command's output."""
        return self.message if self.outcome in ("finished", "stopped") else f"error: {self.message}"

    def show(self, program):
        """Prints the message to stderr, after the name of the program."""
        if self.message:
            with contextlib.suppress(OSError):  # the terminal may be closed
                line = f"{os.path.basename(program)}: {self.line}"
                print(terminal.printable(line), file=sys.stderr, flush=True)

    @property
    def known_message(self):
        """Returns the message; None if there is none, or if the traceback in the log says more."""
        return None if self.has_traceback else self.message


def stopped_by(number, advice=""):
    """Returns the `Outcome` of a command that signal `number` ended. `advice` is the end of its message."""
    word = "interrupted" if number == signal.SIGINT else "terminated"
    return Outcome("stopped", 128 + number, f"{word}.{advice}")


def note_warning(record):
    """Adds the text of a warning to the outcome of this process. This function is a filter of a logger. It
    returns true, so that the logger also shows the `logging.LogRecord`."""
    if record.levelname == "WARNING":
        _warnings.append(record.getMessage())
    return True


def noted_warnings():
    """Returns the texts of the warnings so far, each once."""
    return list(dict.fromkeys(_warnings))


def report(outcome):
    """Writes the outcome of this process to the file that its caller named. Only the first call writes."""
    with _reporting, contextlib.suppress(OSError):
        path = os.environ.get(VARIABLE)
        if path:
            content = {**outcome._asdict(), "warnings": list(dict.fromkeys([*outcome.warnings, *_warnings]))}
            files.write_text(path, json.dumps(content, default=str))
            del os.environ[VARIABLE]


# --- Children --------------------------------------------------------------------------------------------


def without_flags(arguments, names):
    """Returns command-line arguments without the flags in `names`. A flag may be written as --name=value or
    as --name value."""
    words, is_value = [], False
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        is_removed = is_value or argument.startswith("-") and name in names
        is_value = is_removed and not is_value and not equals
        if not is_removed:
            words.append(argument)
    return words


def describe_end(code):
    """Returns the verb of a sentence about the end of a process.

    Args:
      code: exit code of the process; -n if signal n ended it.
    """
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class Child:
    """A child process that reports its `Outcome`.

    Attributes:
      process: the subprocess.Popen object.
      outcome: the `Outcome` of the process; None until `runs` or `wait` has noticed the end of the process.
      start_time, end_time: times of the start and of the end, in seconds of the monotonic clock.
    """

    def __init__(self, command, environment=os.environ, ends_with_caller=True, **options):
        """Starts the process.

        Args:
          command: list of str.
          environment: {name: value}, the environment variables of the process.
          ends_with_caller: whether the process gets SIGTERM when the thread that called this function ends,
            even if it was killed. Otherwise, a training would continue after a restart of a notebook's
            kernel, for example. This works only on Linux, if the program `setpriv` is installed. The caller
            must keep the thread alive until the process has ended.
          **options: arguments of `subprocess.Popen`. By default, the process has no standard input, and it is
            in a new session of the operating system, so that Ctrl-C in a terminal reaches only the caller.
        """
        self._directory = tempfile.TemporaryDirectory(prefix="bert-outcome-")
        self._file = os.path.join(self._directory.name, "outcome.json")
        self.outcome, self.start_time, self.end_time = None, time.monotonic(), None
        guard = shutil.which("setpriv") if ends_with_caller else None
        self.process = subprocess.Popen([*([guard, "--pdeathsig", "TERM", "--"] if guard else []), *command],
                                        env={**environment, VARIABLE: self._file},
                                        **{"start_new_session": True, "stdin": subprocess.DEVNULL, **options})

    def runs(self):
        """Returns whether the process runs. If it has ended, stores its outcome.

        The process may have reported no outcome, for example because it was killed. Then, the stored
        `Outcome` is "stopped" after SIGTERM, SIGHUP and SIGINT. After other ends, it is "failed" or
        "finished", and has no message.
        """
        code = self.process.poll()
        if code is not None and self.outcome is None:
            self.end_time = time.monotonic()
            code = code if code >= 0 else 128 - code
            self.outcome = (stopped_by(code - 128) if code - 128 in _SIGNALS else
                            Outcome("failed" if code else "finished", code))
            with self._directory, contextlib.suppress(OSError, ValueError, TypeError):
                with open(self._file, encoding="utf-8") as reader:
                    outcome = Outcome(**json.load(reader))
                # A process that has reported its success may be killed before its end.
                self.outcome = outcome if outcome.exit_code or not code else self.outcome
        return code is None

    def wait(self):
        """Waits for the end of the process, and returns its outcome."""
        self.process.wait()
        self.runs()
        return self.outcome

    def kill(self):
        """Kills the process, and waits for its end."""
        self.process.kill()
        self.wait()


def end(children, wait=Child.wait):
    """Sends SIGTERM to children, and waits until they have ended. Kills them if the wait is interrupted.

    Args:
      children: list of `Child`.
      wait: function that waits for the end of a `Child`.
    """
    try:
        for child in children:
            child.process.terminate()
        for child in children:
            wait(child)
    except BaseException:
        for child in children:
            child.kill()
        raise


# --- Signals ---------------------------------------------------------------------------------------------


class NotedSignals(list):
    """The numbers of the signals that this process has received; see `noted_signals`."""

    _num_forwarded = 0

    def forward(self, children):
        """Sends the signals that arrived after the last call to children. Returns whether there were any."""
        new = self[self._num_forwarded:]
        self._num_forwarded += len(new)
        for number in new:
            for child in children:
                child.process.send_signal(number)
        return bool(new)


@contextlib.contextmanager
def noted_signals():
    """Returns a context manager that yields `NotedSignals`. In its block, SIGTERM, SIGHUP and SIGINT do not
    end the process. Instead, the number of each received signal is appended to the list.

    A signal that is already ignored, such as SIGHUP under nohup, stays ignored.
    """
    signals = NotedSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    handlers = {number: signal.signal(number, lambda number, frame: signals.append(number))
                for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield signals
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
