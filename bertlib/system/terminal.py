"""Prepares texts for a terminal. Also raises clear errors if a standard stream is closed or cannot be
written."""

import io
import os
import re
import sys

# Matches characters that move the cursor, change colors, reorder the text around them, or are invisible:
# control characters, marks of text direction, zero-width spaces, line separators, tags, and unpaired
# surrogates. It does not match line feed, tab, and the two joiners (U+200C, U+200D), because Persian words
# and emoji contain these joiners.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
                     "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")


class StreamError(OSError):
    """The error for a standard stream that is closed or cannot be written."""


class ClosedPipeError(StreamError):
    """The error for a standard output whose reader has ended, as in `command | head`."""


def printable(text):
    """Returns a text in which characters that could mislead a reader or control a terminal are escaped.

    The escapes are those of Python's `repr`. For example, the character that begins a color code becomes
    "\\x1b", so that the terminal shows "\\x1b[31m" and does not turn red.
    """
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape", "surrogatepass").decode(), text)


def first_line(error):
    """Returns the first line of an error's message. If there is no message, returns the error's class."""
    text = getattr(error, "message", None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def counted(number, noun):
    """Returns a number with its noun, such as "1 run" or "8 runs".

    Args:
      number: int.
      noun: the noun in singular. Its plural ends with "s".
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def open_closed_streams():
    """Replaces the standard streams that were closed when the process started. Reading from the replaced
    standard input, or writing to the replaced standard output, raises a `StreamError`. Text for the replaced
    standard error is discarded.

    Without this function, after `command >&-`, the next file that the process opens would get the descriptor
    of the closed standard output, and all printed text would be written to this file. After `2>&-`, error
    messages would be written to a file of results.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # opens descriptor 0 (the standard input), the lowest free one
        sys.stdin = io.TextIOWrapper(io.BufferedReader(_ClosedInput()), "utf-8")
    if sys.stdout is None:
        sys.stdout = _text(_Output(os.open(os.devnull, os.O_WRONLY), is_closed=True), "utf-8")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def guard_output():
    """Translates errors of the standard output into `StreamError`s. If the program has replaced `sys.stdout`
    by another object, this object is not changed."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or stream is None:
        return
    try:
        output = _Output(stream.fileno())
    except OSError:  # the program itself has closed the descriptor of its standard output
        output = _Output(os.open(os.devnull, os.O_WRONLY), is_closed=True)
    sys.stdout = _text(output, stream.encoding, stream.errors, stream.line_buffering)


def _text(raw, encoding, errors="strict", line_buffering=False):
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=line_buffering)


def flush_output():
    """Writes all buffered text to the standard output.

    Raises:
      StreamError: the buffered text, or an earlier text, could not be written.
    """
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    # If the function `input` cannot write its prompt, it hides the error. But the stream `raw` has stored the
    # error, so it is raised here.
    if isinstance(raw, _Output) and raw.error:
        raise raw.error


class _ClosedInput(io.RawIOBase):
    """The raw stream of the new `sys.stdin` in a process that was started with a closed standard input. Each
    read raises a `StreamError`."""

    def readable(self):
        return True

    def readinto(self, buffer):
        raise StreamError("the standard input is closed. Redirect it from a file or from /dev/null.")


class _Output(io.FileIO):
    """The standard output. If a write fails for the first time, an error is raised. After this error, `write`
    discards all text without raising an error. If it raised an error again, Python would keep the text, and
    would try to write it again at exit."""

    def __init__(self, number, is_closed=False):
        super().__init__(number, "w", closefd=False)
        self._is_closed, self.error = is_closed, None

    def write(self, data):
        if self.error:
            return len(data)
        try:
            if not self._is_closed:
                return super().write(data)
            self.error = StreamError("the standard output is closed. Redirect it to a file or to /dev/null.")
        except BrokenPipeError:
            self.error = ClosedPipeError(
                "the standard output cannot be written: the other end of the pipe is closed.")
        except OSError as error:
            self.error = StreamError(f"the standard output cannot be written: {error.strerror}.")
        raise self.error
