"""Prepares texts for a terminal. Also raises clear errors if a standard stream is closed or cannot be
written."""

import errno
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
    """Returns the first line of an error's message. If there is no message, returns the error's class.

    The text of an error of a TensorFlow op begins with the position of the op in the program. The message is
    the text after this position.
    """
    text = getattr(error, "message", None) or str(error)
    if text.startswith("Graph execution error"):
        text = text.rpartition("\nNode: ")[2].partition("\n")[2] or text
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def counted(number, noun):
    """Returns a number with its noun, such as "1 run" or "8 runs".

    Args:
      number: int.
      noun: the noun in singular. Its plural ends with "s".
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def open_closed_streams():
    """Opens /dev/null in place of the standard streams that were closed when the process started. The
    standard input is then empty, and text for the standard error is discarded. Writing to the standard output
    raises an OSError.

    Without this function, after `command >&-`, the next file that the process opens would get the descriptor
    of the closed standard output, and all printed text would be written to this file. After `2>&-`, error
    messages would be written to a file of results.
    """
    # For the standard output, /dev/null is opened only for reading, so that writing fails.
    for name, access, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"),
                               ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            # `os.open` returns the lowest free descriptor, which is the descriptor of the closed stream.
            stream = os.fdopen(os.open(os.devnull, access), mode, encoding="utf-8")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def guard_output():
    """Translates errors of the standard output into `StreamError`s. If the program has replaced `sys.stdout`
    by another object, this object is not changed."""
    stream = sys.stdout
    if stream is sys.__stdout__ and stream is not None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False)),
                                      stream.encoding, stream.errors, line_buffering=stream.line_buffering)


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


class _Output(io.FileIO):
    """The standard output. If a write fails for the first time, an error is raised. After this error, `write`
    discards all text without raising an error. If it raised an error again, Python would keep the text, and
    would try to write it again at exit."""

    error = None

    def write(self, data):
        if self.error:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError:
            self.error = ClosedPipeError(
                "the standard output cannot be written: the other end of the pipe is closed.")
        except OSError as error:
            problem = ("is closed. Redirect it to a file or to /dev/null" if error.errno == errno.EBADF
                       else f"cannot be written: {error.strerror}")
            self.error = StreamError(f"the standard output {problem}.")
        raise self.error
