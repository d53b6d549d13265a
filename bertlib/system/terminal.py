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

class StreamError(OSError):
    """A standard stream is closed or cannot be written."""


def printable(text):
    """Returns a text with escapes, as of Python's `repr`, in place of characters that could mislead a reader
    or control a terminal: "\\x1b[31m" for what would turn it red."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode(), text)


def open_closed_streams():
    """Opens the standard streams that the process was started without; printing there is a `StreamError`.

    After `command >&-`, without this, the next file that is opened would get the number of the closed stream,
    and with it all that is printed; after `2>&-` messages would be printed among the results.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number, which is that of the stream
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()), "utf-8")
    if sys.stdout is None:
        sys.stdout = _text(_Output(os.open(os.devnull, os.O_WRONLY), is_closed=True), "utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def guard_output():
    """Makes errors of the standard output a `StreamError`, unless another stream was put in its place."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or stream is None:
        return
    try:
        output = _Output(stream.fileno())
    except OSError:  # the process closed the file descriptor after its start
        output = _Output(os.open(os.devnull, os.O_WRONLY), is_closed=True)
    sys.stdout = _text(output, stream.encoding, stream.errors, stream.line_buffering)


def _text(raw, encoding, errors="strict", line_buffering=False):
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def flush_output():
    """Writes what was printed so far.

    Raises:
      StreamError: that, or something before it, could not be written.
    """
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Output) and raw.error:  # `input` hides errors of its prompt
        raise raw.error


class _ClosedInput(io.RawIOBase):
    """The standard input of a process that was started without."""

    def readable(self):
        return True

    def readinto(self, buffer):
        raise StreamError("the standard input is closed. Name a file for it, or /dev/null.")


class _Output(io.FileIO):
    """The standard output. After an error it drops what is written: Python would try again at its end."""

    def __init__(self, number, is_closed=False):
        super().__init__(number, "w", closefd=False)
        self._is_closed, self.error = is_closed, None

    def write(self, data):
        if self.error:
            return len(data)
        try:
            if not self._is_closed:
                return super().write(data)
            wrong = "the standard output is closed. Name a file for it, or /dev/null."
        except BrokenPipeError:
            wrong = "nobody reads the standard output any more: the other end of the pipe is closed."
        except OSError as error:
            wrong = f"the standard output cannot be written: {error.strerror}."
        self.error = StreamError(wrong)
        raise self.error
