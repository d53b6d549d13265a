"""Runs a command in a child process and shows its log. If the command fails, its error message is raised as a
Python exception."""

import collections
import os
import signal
import subprocess
import sys
from typing import Any
import warnings

from bertlib.system import child_processes

# The directory that contains the script files of the commands. It is the checkout of this project, or, after
# an installation, the directory of the installed packages.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_KEPT_LINES = 200


def flags(values: dict[str, Any]) -> list[str]:
    """Returns flags as they are written on a command line: --name=value.

    Args:
      values: {name of a flag: value}. A value is a text, a path, a number, True or False, or a list of these.
        None: the flag is left out.

    Raises:
      TypeError: a value has a type that is not supported.
    """
    return [f"--{name}={_text(name, value)}" for name, value in values.items() if value is not None]


def _text(name, value):
    if hasattr(value, "item") and not isinstance(value, str):  # a NumPy number
        value = value.item()
    if isinstance(value, list | tuple):
        return ",".join(_text(name, part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"{name}={value!r:.80} is of the type {type(value).__name__}. Pass a text, a number, "
                    "True, False, or a list of these.")


def run(script: str, flags: list[str], verbose: bool, explain: Any = str) -> None:
    """Runs a command of this project to its end.

    The child process belongs to a separate session of the operating system, so Ctrl-C reaches only the
    caller. After Ctrl-C, the caller asks the child process to end. If the child process is a training, it
    saves its last complete step before it ends.

    If the log is not printed, each warning in the log becomes a `UserWarning`.

    Args:
      script: file name of the command, such as "run_classifier.py".
      flags: its command-line arguments.
      verbose: whether to print the log of the command to `sys.stdout`.
      explain: function that returns a message of the command in the words of the called Python function.

    Raises:
      TypeError: `flags` contains a flag that the command does not have.
      ValueError: the command ended with an error message, which is the text of the exception.
      ChildProcessError: the command was ended by a signal, or by an unknown error.
      KeyboardInterrupt: the caller was interrupted. Its text names the checkpoint that a training saved.
    """
    lines = collections.deque(maxlen=_KEPT_LINES)
    child = child_processes.Child([*command_line(script), *flags], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, encoding="utf-8", errors="backslashreplace")
    with child.process.stdout:
        try:
            _follow(child, lines, verbose)
        except BaseException as error:
            is_interrupt = isinstance(error, KeyboardInterrupt)
            child_processes.end([child], lambda child: _follow(child, lines, verbose and is_interrupt))
            if is_interrupt:
                message = (child.outcome.message or "").partition(". ")[2]
                raise KeyboardInterrupt(message.replace("the same command", "the same call")) from None
            raise
    for warning in [] if verbose else child.outcome.warnings:
        # The level 4 is the line of the user's program that called the function of `bertlib.api`.
        warnings.warn(explain(warning), stacklevel=4)
    if child.outcome.exit_code:
        raise _error(script, child, list(lines), explain)


def command_line(script: str) -> list[str]:
    """Returns the command line that runs a command of this project, as a list of words without the flags.

    Args:
      script: file name of the command, such as "run_classifier.py".
    """
    path = os.path.join(_ROOT, script)
    if os.path.exists(path):
        return [sys.executable, path]
    # An installed package has script files only for the commands that google-research/bert also has. All
    # other commands are installed as programs.
    return [os.path.join(os.path.dirname(sys.executable), program_name(script))]


def program_name(script: str) -> str:
    """Returns the name of a command in an installed package, such as "bert-run-classifier"."""
    return "bert-" + script.removesuffix(".py").replace("_", "-")


def _follow(child, lines, verbose):
    for line in child.process.stdout:
        lines.append(line.rstrip("\n"))
        if verbose:
            print(line, end="", flush=True)
    child.wait()


def _error(script, child, lines, explain):
    """Returns the exception for a command that failed.

    Args:
      script: file name of the command.
      explain: function that returns a message in the words of the called Python function.
      child: the `child_processes.Child`.
      lines: the last lines of the log.
    """
    outcome = child.outcome
    if outcome.similar_flags is not None:
        return unknown_flag(outcome.flags[0], outcome.similar_flags)
    message, code = outcome.known_message, child.process.returncode
    if message and outcome.outcome != "stopped":
        return ValueError(explain(message))
    return ChildProcessError(describe_signal(script, child, lines) or (
        f"{script} ended with the exit code {code}: {message or ' / '.join(lines[-3:])}"))


def unknown_flag(name: str, similar: list[str]) -> TypeError:
    """Returns the error for a flag `name` that does not exist. `similar` are names of existing flags."""
    return TypeError(f"there is no setting {name!r}. " + (
        f"Did you mean {', '.join(similar)}?" if similar else "See docs/reference/flags.md."))


def describe_signal(script: str, child: child_processes.Child, lines: list[str]) -> str:
    """Returns a message about a command that a signal ended; "" if no signal ended it.

    Args:
      script: file name of the command.
      child: the process of the command, which has ended.
      lines: the last lines of its log.
    """
    if child.process.returncode >= 0:
        return ""
    name = signal.Signals(-child.process.returncode).name
    why = " Memory may have run out." if name == "SIGKILL" else ""
    return (f"{script} was ended by the signal {name}.{why} The last lines of its log: "
            f"{' / '.join(lines[-3:])}")
