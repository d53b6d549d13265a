"""Runs a command in a child process and shows its log. If the command fails, its error message is raised as a
Python exception."""

import collections
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Any
import warnings

# The directory that contains the script files of the commands. It is the checkout of this project, or, after
# an installation, the directory of the installed packages.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_KEPT_LINES = 200
_FLAGS_ERROR = re.compile(r"^FATAL Flags parsing error:(.*?)(?:^Pass --help|\Z)", re.DOTALL | re.MULTILINE)
# The warnings of `run_record.RunRecord.warn_about_results`.
_ABOUT_RESULTS = re.compile(r"WARNING: .*?((?:The development data differ from|No step was trained with) .*)")
_UNKNOWN = re.compile(r"Unknown command line flag '(.*?)'\.?(?: Did you mean: (.*?) \?)?")
# Maps flags of the commands to the arguments of the functions in `bertlib.api` that set these flags.
_ARGUMENTS = {"--train_file": "data", "--dev_file": "dev", "--text_column": "text", "--label_column": "label"}


def flag(name: str, value: Any) -> str:
    """Returns a flag as it is written on a command line: --name=value.

    Args:
      name: name of the flag.
      value: a text, a path, a number, True or False, or a list of these.

    Raises:
      TypeError: the value has a type that is not supported.
    """
    return f"--{name}={_text(name, value)}"


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


def run(script: str, flags: list[str], verbose: bool) -> None:
    """Runs a command of this project to its end.

    The child process belongs to a separate session of the operating system, so Ctrl-C reaches only the
    caller. After Ctrl-C, the caller asks the child process to end. If the child process is a training, it
    saves its last complete step before it ends.

    If the command trained no step although it got new settings, or evaluated other development data than the
    training, and its log is not printed, a `UserWarning` says so.

    Args:
      script: file name of the command, such as "run_classifier.py".
      flags: its command-line arguments.
      verbose: whether to print the log of the command to `sys.stdout`.

    Raises:
      TypeError: `flags` contains a flag that the command does not have.
      ValueError: the command ended with an error message, which is the text of the exception.
      ChildProcessError: the command was ended by a signal, or by an unknown error.
      KeyboardInterrupt: the caller was interrupted.
    """
    lines = collections.deque(maxlen=_KEPT_LINES)
    with subprocess.Popen([*ending_with_caller(), *command_line(script), *flags],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="utf-8", errors="backslashreplace", start_new_session=True) as process:
        try:
            _follow(process, lines, verbose)
        except BaseException as error:
            _end(process, lines, verbose and isinstance(error, KeyboardInterrupt))
            raise
    if process.returncode:
        raise _error(script, process.returncode, list(lines))
    for warning in [] if verbose else _ABOUT_RESULTS.findall("\n".join(lines)):
        # The level 4 is the line of the user's program that called the function of `bertlib.api`.
        warnings.warn(warning, stacklevel=4)


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


def ending_with_caller() -> list[str]:
    """Returns a prefix for a command line. With this prefix, the command ends when the calling process ends.

    Without the prefix, a training would continue after a restart of a notebook's kernel. With the prefix, the
    command gets SIGTERM when the thread that started the command ends. So the caller must keep this thread
    alive until the command has ended.

    Returns:
      list of str: Linux's program `setpriv` and its arguments. If `setpriv` is not installed, an empty list.
    """
    program = shutil.which("setpriv") if sys.platform.startswith("linux") else None
    return [program, "--pdeathsig", "TERM", "--"] if program else []


def _follow(process, lines, verbose):
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if verbose:
            print(line, end="", flush=True)
    process.wait()


def _end(process, lines, verbose):
    """Sends SIGTERM to the process, and waits until it has ended. If the caller is interrupted while it
    waits, the process is killed."""
    try:
        process.terminate()
        _follow(process, lines, verbose)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _error(script, code, lines):
    """Returns the exception for a command that failed.

    Args:
      script: see `run`.
      code: exit code of the process, or -n if signal n ended the process.
      lines: the last lines of the log.
    """
    of_flags = _FLAGS_ERROR.search("\n".join(lines))
    if of_flags:
        return _flags_error(of_flags[1].strip())
    message = last_message(script, lines)
    if message.startswith("error: ") and code == 1:
        return ValueError(explain_flags(message.removeprefix("error: ")))
    if code < 0:
        return ChildProcessError(describe_signal(script, -code, lines))
    return ChildProcessError(f"{script} ended with the exit code {code}: {message or ' / '.join(lines[-3:])}")


def describe_signal(script: str, number: int, lines: list[str]) -> str:
    """Returns a message about a command that a signal ended.

    Args:
      script: see `run`.
      number: number of the signal.
      lines: the last lines of the log.
    """
    name = signal.Signals(number).name
    why = " Memory may have run out." if name == "SIGKILL" else ""
    return (f"{script} was ended by the signal {name}.{why} The last lines of its log: "
            f"{' / '.join(lines[-3:])}")


def last_message(script: str, lines: list[str]) -> str:
    """Returns the message at the end of a command's log, without the name of the command. Returns "" if the
    log contains no message.

    Args:
      script: see `run`.
      lines: the last lines of the log.
    """
    starts = [number for number, line in enumerate(lines) if line.startswith(f"{script}: ")]
    return "\n".join(lines[starts[-1]:]).removeprefix(f"{script}: ") if starts else ""


def _flags_error(problem):
    """Converts an error message of absl about a flag into a Python exception. Returns the exception."""
    unknown = _UNKNOWN.match(problem)
    if not unknown:
        return ValueError(problem)
    close = f" Did you mean {unknown[2]}?" if unknown[2] else " See docs/reference/flags.md."
    return TypeError(f"there is no setting {unknown[1]!r}.{close}")


def explain_flags(message: str) -> str:
    """Returns an error message for a Python program. If the message names flags, a sentence that lists the
    corresponding arguments in Python is added at the end."""
    named = [f"{name} is the argument `{argument}`" for name, argument in _ARGUMENTS.items()
             if re.search(rf"{name}\b", message)]
    return f"{message} (In Python, {' and '.join(named)}.)" if named else message
