"""Files, local or on TensorFlow's file systems, whole or not at all. Loads no TensorFlow for local ones."""

import contextlib
import errno
import glob
import json
import os
import re
import shutil
import stat
import sys
import tempfile

from absl import logging
from tqdm import tqdm

from bertlib.system import terminal

# Whether this process writes; see `disable_writing`.
_is_writing_enabled = True
_MAX_LINKS = 40  # that lead to each other; the kernel follows no more
# What keeps a disk from being written that users can mend: what is wrong, and what to do.
_RETRY = "then run the same command again"
_DISK_ERRORS = {
    errno.ENOSPC: ("the disk is full", f"Make room on the disk, {_RETRY}."),
    errno.EDQUOT: ("the disk quota is used up", f"Make room within the quota, or have it raised, {_RETRY}."),
    errno.EFBIG: ("it is larger than files may be here (ulimit -f, or the file system's limit)",
                  f"Raise that limit, or write to another file system, {_RETRY}."),
    errno.EROFS: ("the file system is read-only", "Write to another one, or have it mounted for writing.")}


def is_remote(path):
    """Whether a path is of another file system, such as gs://bucket/file."""
    return "://" in os.fspath(path)


def _remote():
    """TensorFlow's file systems."""
    # Imported here: worker processes, and commands that only make text of text, do without TensorFlow.
    import tensorflow as tf

    return tf.io.gfile


def open_file(path, mode="r"):
    """Opens a file; text is UTF-8, with line ends as they are."""
    if is_remote(path):
        return _remote().GFile(path, mode)
    return open(path, mode, **({} if "b" in mode else {"encoding": "utf-8", "newline": ""}))


def read_bytes(path):
    """Returns the content of a file.

    Raises:
      FileNotFoundError: there is none.
    """
    if is_remote(path) and not exists(path):
        raise FileNotFoundError(f"No such file: {path!r}")
    with open_file(path, "rb") as reader:
        return reader.read()


def read_text(path):
    """Returns the content of a UTF-8 file, without the byte-order mark.

    Raises:
      FileNotFoundError, ValueError: there is none, or it is not UTF-8; with the line.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    return decode_text(data, path)


def decode_text(data, path):
    """Returns the text of a file's bytes; see `read_text`."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: byte {data[error.start]:#04x} at offset {error.start} is not "
                         "UTF-8; convert the file to UTF-8") from None


def exists(path):
    """Whether there is a file or a directory of that name."""
    return _remote().exists(path) if is_remote(path) else os.path.exists(path)


def is_directory(path):
    """Whether there is a directory of that name."""
    return _remote().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_directories(path):
    """Makes a directory and those it is in; no error if it exists."""
    if not _is_writing_enabled:
        return
    with translate_disk_errors(path):
        if is_remote(path):
            _remote().makedirs(path)
        else:
            os.makedirs(path, exist_ok=True)


def size(path):
    """Returns the number of bytes of a file."""
    return _remote().stat(path).length if is_remote(path) else os.path.getsize(path)


def read_json_object(path):
    """Reads a file that holds a JSON object; returns it as a dict.

    Raises:
      ValueError: it holds something else.
      FileNotFoundError: there is no such file.
    """
    try:
        found = json.loads(read_bytes(path).decode("utf-8-sig"))
    except ValueError as error:  # also of bytes that are not UTF-8, and of numbers of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is damaged: its brackets are nested too deep.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(found).__name__}.")
    return found


def find_files(pattern):
    """Returns the files that a path or a glob names, sorted; none if there are none.

    What exists as it stands is no glob: neither a file of that name nor the directory that a glob is in.
    """
    if is_remote(pattern):
        return [pattern] if exists(pattern) else sorted(_remote().glob(pattern))
    if os.path.exists(pattern):
        return [pattern]
    directory, name = os.path.split(pattern)
    if os.path.isdir(directory):
        pattern = os.path.join(glob.escape(directory), name)
    return sorted(glob.glob(pattern))


# --- Writing ---------------------------------------------------------------------------------------------


def disable_writing():
    """Has this process change no file from now on, by functions of this module: it computes the same as
    another one, which writes."""
    global _is_writing_enabled
    _is_writing_enabled = False


def is_writing_enabled():
    """Whether this process writes; see `disable_writing`."""
    return _is_writing_enabled


def describe_disk_error(error, path, needed=None):
    """Returns what keeps a disk from being written, and what to do about it: two texts, or None for an error
    of another kind.

    TensorFlow has other names for the same: a full disk is a ResourceExhaustedError, as if memory had run
    out, and a file beyond the limit is an OutOfRangeError, as if the input had ended.

    Args:
      error: an OSError, or one of TensorFlow's.
      path: what was to be written.
      needed: bytes that it takes, if they are known.
    """
    if isinstance(error, OSError):
        number = error.errno
    else:
        # Writers of events raise an IndexError in place of an OutOfRangeError.
        text = error.message if hasattr(error, "error_code") else str(error) * isinstance(error, IndexError)
        number = next((number for number in _DISK_ERRORS if os.strerror(number) in text), None)
    if number not in _DISK_ERRORS:
        return None
    wrong, to_do = _DISK_ERRORS[number]
    if number == errno.ENOSPC and not is_remote(path):
        takes = f"it takes {_readable_size(needed)}, and " if needed is not None else "without it "
        with contextlib.suppress(OSError):
            wrong += f": {takes}{_readable_size(shutil.disk_usage(existing_parent(path)).free)} are free"
    return wrong, to_do


def existing_parent(path):
    """Returns a local path from the root, or the nearest directory above it that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _readable_size(number):
    return f"{number / 1e9:.2f} GB" if number >= 1e9 else f"{number / 1e6:.2f} MB"


@contextlib.contextmanager
def translate_disk_errors(path, kept=None):
    """Makes one message of an error in the block that says that a disk cannot be written.

    Args:
      path: what is written there, if the error does not name it.
      kept: function that returns a sentence for the message.

    Raises:
      OSError: the disk is full, or a limit is reached, or it is read-only; in words, without a number.
    """
    try:
        yield
    except Exception as error:
        problem = describe_disk_error(error, path)
        if problem is None:
            raise
        name = getattr(error, "filename", None) or _path_in_tensorflow_error(error) or path
        name = path if os.fspath(name).startswith(f"{path}.") else name
        remains = f"{kept()} " if kept else ""
        raise OSError(f"{name} could not be written: {problem[0]}. {remains}{problem[1]}") from error


def _path_in_tensorflow_error(error):
    """The file in an error's "FILE; No space left on device", less what the names of unfinished files end
    with."""
    match = re.search(r"([^\s;][^\n;]*/[^\n;]*); ", getattr(error, "message", None) or str(error))
    name = match and re.sub(r"^\{\{.*?\}\}\s*", "", match.group(1))
    return name and re.sub(r"\.(tmp[0-9a-f]{32}|tempstate\d+)$", "", name)


def file_identity(path):
    """Returns what is equal for two paths of one file: other spellings, links, or letter case where a file
    system ignores it.

    What does not exist has the identity of where it would be.
    """
    if is_remote(path):
        return os.fspath(path)
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def is_special(path):
    """Whether a path, or the link that it is, leads to something that takes bytes and is no regular file: a
    device such as /dev/null, a FIFO, or an open file of a process such as /dev/stdout."""
    if is_remote(path):
        return False
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(mode := os.stat(path).st_mode):
            return not stat.S_ISDIR(mode)
    return any(re.match(r"/proc/[^/]+/(task/[^/]+/)?fd/", link) for link in _resolution_steps(path))


def _resolution_steps(path):
    """Yields the absolute path and, for as long as it is a symbolic link, the path that the link names."""
    for _ in range(_MAX_LINKS):
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        yield path
        if not os.path.islink(path):
            return
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def resolve_links(path):
    """Returns the path of the regular file that a path names: for a symbolic link the file that it leads to,
    there or not.

    Raises:
      OSError: links lead to each other.
    """
    if is_remote(path) or not os.path.islink(path):
        return path
    found = os.path.realpath(path)
    if os.path.islink(found):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return found


@contextlib.contextmanager
def atomic_replacement(path):
    """Gives the name of a file that replaces `path` when the block ends, and is removed if the block fails.

    A symbolic link stays; the file that it leads to is replaced. The name of what `is_special` is given
    unchanged: bytes that are written there have left.

    Raises:
      OSError: the disk cannot be written; see `translate_disk_errors`.
    """
    if not _is_writing_enabled:
        with tempfile.TemporaryDirectory() as directory:
            yield os.path.join(directory, os.path.basename(path))
        return
    if is_special(path):
        with _add_path_to_errors(path):
            yield path
        return
    target = resolve_links(path)
    partial = f"{target}.partial"
    with translate_disk_errors(path):
        try:
            yield partial
            move(partial, target)
        except BaseException:
            if exists(partial):
                remove(partial)
            raise


@contextlib.contextmanager
def _add_path_to_errors(path):
    """Names a path in an error of the operating system's in the block that names none: it is of this path."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def write_text(path, text):
    """Writes a text file whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path, content):
    """Writes a file whole or not at all."""
    with atomic_replacement(path) as partial, open_file(partial, "wb") as writer:
        writer.write(content)


def move(path, target):
    """Gives a file another name, on the same file system; the file or link of that name is replaced."""
    if is_remote(target):
        _remote().rename(path, target, overwrite=True)
    else:
        os.replace(path, target)


def remove(path):
    """Removes a file."""
    if not _is_writing_enabled:
        return
    if is_remote(path):
        _remote().remove(path)
    else:
        os.remove(path)


def with_progress(items, total, doing, every=10000):
    """Yields the items and shows how many they were: a bar on a terminal if it takes long, else a log line.

    Args:
      items: iterable.
      total: their number.
      doing: what is done with them, such as "Converting example".
      every: number of items between two lines.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, terminal.printable(doing), total, leave=False, delay=1)
        return
    for index, item in enumerate(items):
        if index and index % every == 0:
            logging.info("%s %d of %d", doing, index, total)
        yield item
