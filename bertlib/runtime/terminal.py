"""The terminal: texts that are safe to show; standard streams that are closed or cannot be written."""

import io
import os
import re
import sys

# Characters that move the cursor, change colors, reorder the text around them or cannot be seen: control
# characters, marks of direction, spaces of no width, other ends of lines, tags, halves of surrogate pairs.
# End of line and tab stay, and the two joiners, without which words of Persian and emoji fall apart.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
                     "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
# How /dev/null is opened in place of standard streams that the process was started without.
_IN_PLACE = {"stdin": ("r", os.O_RDONLY), "stdout": ("w", os.O_WRONLY), "stderr": ("w", os.O_WRONLY)}


class StreamError(OSError):
    """A standard stream is closed or cannot be written."""


def printable(text):
    """Returns a text with escapes, as of Python's `repr`, in place of characters that could mislead a reader
    or control a terminal: "\\x1b[31m" for what would turn it red."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode(), text)


def guard_streams():
    """Makes errors of standard streams a `StreamError`, and opens those that the process was started without.

    After `command >&-`, without this, the next file that is opened would get the number of the closed stream,
    and with it all that is printed; and an error message could be printed among the results.
    """
    closed = [name for name in _IN_PLACE if getattr(sys, name) is None]
    for name in closed:
        mode, flags = _IN_PLACE[name]
        setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))
    if "stdin" in closed:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()))
    if "stdout" in closed or sys.stdout is sys.__stdout__:
        raw = _Output(sys.stdout.fileno(), "stdout" in closed)
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), sys.stdout.encoding, sys.stdout.errors,
                                      line_buffering=sys.stdout.line_buffering)


class _ClosedInput(io.RawIOBase):
    """The standard input of a process that was started without."""

    def readable(self):
        return True

    def readinto(self, buffer):
        raise StreamError("the standard input is closed. Name a file for it, or /dev/null.")


class _Output(io.FileIO):
    """The standard output. After an error it drops what is written: Python would try again at its end."""

    def __init__(self, number, is_closed):
        super().__init__(number, "w", closefd=False)
        self._is_closed, self._has_failed = is_closed, False

    def write(self, data):
        if self._has_failed:
            return len(data)
        try:
            if not self._is_closed:
                return super().write(data)
            wrong = "the standard output is closed. Name a file for it, or /dev/null."
        except BrokenPipeError:
            wrong = "nobody reads the standard output any more: the other end of the pipe is closed."
        except OSError as error:
            wrong = f"the standard output cannot be written: {error.strerror}."
        self._has_failed = True
        raise StreamError(wrong)
