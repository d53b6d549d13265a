"""Reads files, and writes files atomically, on local disks and on TensorFlow's file systems (gs://…).

TensorFlow is imported only for files that are not local.
"""

import contextlib
import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import stat
import sys

from absl import logging
from tqdm import tqdm

from bertlib.system import terminal

# {path: (path of its complete temporary file, path that this file replaces), or None if the file was not
# written}. The dict exists only in the block of `replace_together`.
_group = None
_MAX_NAME_BYTES = 255  # longest name of a file or directory on common file systems
_RETRY = "then run the same command again"
# {errno: (problem, advice)} of the write errors whose cause the user can remove.
_DISK_ERRORS = {
    errno.ENOSPC: ("the disk is full", f"Make room on the disk, {_RETRY}."),
    errno.EDQUOT: ("the disk quota is used up", f"Remove files, or have the quota raised, {_RETRY}."),
    errno.EFBIG: ("it is larger than files may be here (ulimit -f, or the file system's limit)",
                  f"Raise that limit, or write to another file system, {_RETRY}."),
    errno.EROFS: ("the file system is read-only",
                  "Write to another file system, or have this one mounted for writing.")}


def is_remote(path):
    """Returns whether a path is on one of TensorFlow's file systems, such as gs://bucket/file."""
    return "://" in os.fspath(path)


def _remote():
    """Returns `tf.io.gfile`, the module with which TensorFlow accesses remote file systems."""
    # The import is here and not at the top, because worker processes and commands that only convert text do
    # not need TensorFlow.
    import tensorflow as tf

    return tf.io.gfile


def open_file(path, mode="r"):
    """Opens a file. Text is UTF-8; line ends are not converted."""
    if is_remote(path):
        return _remote().GFile(path, mode)
    return open(path, mode, **({} if "b" in mode else {"encoding": "utf-8", "newline": ""}))


def read_bytes(path):
    """Returns the content of a file.

    Raises:
      FileNotFoundError: the file does not exist.
    """
    if is_remote(path) and not exists(path):
        raise FileNotFoundError(f"No such file: {path!r}")
    with open_file(path, "rb") as reader:
        return reader.read()


def read_text(path):
    """Returns the content of a UTF-8 file, without the byte-order mark.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is not UTF-8. The message names the line.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    return decode_text(data, path)


def decode_text(data, path):
    """Returns the text of a file's content.

    Args:
      data: bytes, the content.
      path: the file, which the error message names.

    Raises:
      ValueError: see `read_text`.
    """
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: byte {data[error.start]:#04x} at offset {error.start} is not "
                         "UTF-8; convert the file to UTF-8") from None


def exists(path):
    """Returns whether a file or a directory exists."""
    return _remote().exists(path) if is_remote(path) else os.path.exists(path)


def is_directory(path):
    """Returns whether a path is an existing directory."""
    return _remote().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_directories(path):
    """Creates a directory and its parent directories. Does nothing if the directory exists."""
    with translate_disk_errors(path):
        if is_remote(path):
            _remote().makedirs(path)
        else:
            try:
                os.makedirs(path, exist_ok=True)
            except FileExistsError as error:  # the path is a file
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from error


def make_parent(path):
    """Creates the directory that will contain a file, and logs its name, which may be misspelled. Does
    nothing if the directory exists."""
    directory = os.path.dirname(path) or "."
    if not is_directory(directory):
        make_directories(directory)
        logging.info("The directory %s is new.", directory)


def cut_name(name, most):
    """Returns the beginning of a name, as many whole characters as fit into `most` bytes. File systems limit
    names in bytes, and a character can have up to four bytes."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore")


def path_beside(path, suffix):
    """Returns the path with a suffix added to its name. If the new name is too long for a file system, the
    part before the suffix is shortened, and a hash of this part is added."""
    directory, name = os.path.split(path)
    most = _MAX_NAME_BYTES - len(os.fsencode(suffix))
    if len(os.fsencode(name)) <= most:
        return f"{path}{suffix}"
    digest = hashlib.blake2b(os.fsencode(name), digest_size=4).hexdigest()
    return os.path.join(directory, f"{cut_name(name, most - 9)}.{digest}{suffix}")


def size(path):
    """Returns the size of a file in bytes."""
    return _remote().stat(path).length if is_remote(path) else os.path.getsize(path)


def find_files(pattern):
    """Returns the sorted list of the files that match a path or a glob pattern. The list is empty if no file
    matches.

    The characters of glob patterns have no special meaning in the name of an existing file or directory. For
    example, if the file "a[1].txt" exists, the pattern "a[1].txt" matches only this file. If the directory
    "b[2]" exists, the pattern "b[2]/*.txt" matches only files in this directory.
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


def describe_disk_error(error, path, size=None):
    """Returns a pair of texts, (problem, advice), if an error means that a disk could not be written. Returns
    None for other errors.

    The class of a TensorFlow error does not identify the problem. TensorFlow raises a ResourceExhaustedError
    for a full disk, and also for a lack of memory. It raises an OutOfRangeError for a file above the size
    limit, and also for the end of the input.

    Args:
      error: an OSError, or an error of TensorFlow.
      path: the file that could not be written.
      size: size of the file in bytes, if it is known.
    """
    if isinstance(error, OSError):
        number = error.errno
    else:
        # TensorFlow's writer of event files raises other errors: a RuntimeError instead of a
        # ResourceExhaustedError, and an IndexError instead of an OutOfRangeError.
        is_of_writer = isinstance(error, (RuntimeError, IndexError))
        text = error.message if hasattr(error, "error_code") else str(error) * is_of_writer
        number = next((number for number in _DISK_ERRORS if os.strerror(number) in text), None)
    if number not in _DISK_ERRORS:
        return None
    problem, advice = _DISK_ERRORS[number]
    if number == errno.ENOSPC and not is_remote(path):
        takes = f"it takes {readable_size(size)}, and " if size is not None else "without this file, "
        with contextlib.suppress(OSError):
            problem += f": {takes}{readable_size(shutil.disk_usage(existing_parent(path)).free)} are free"
    return problem, advice


def existing_parent(path):
    """Returns the absolute form of a local path. If the path does not exist, returns its nearest existing
    parent directory instead."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def require_directory(title, path):
    """Checks that a directory exists or can be created. Returns its nearest existing parent, or the directory
    itself.

    Args:
      title: name of the directory in messages, such as "--output=model".
      path: the directory.

    Raises:
      NotADirectoryError: the path, or one of its parent directories, is a file or a broken link.
    """
    parent = path
    while parent and not exists(parent):
        if os.path.islink(parent):
            raise NotADirectoryError(f"{title}: {parent} is a broken link. Remove the link, or use another "
                                     "directory.")
        parent = os.path.dirname(parent)
    if parent and not is_directory(parent):
        raise NotADirectoryError(f"{title}: {parent} is not a directory. Use another directory.")
    return parent or os.curdir


def absolute(path):
    """Returns the absolute form of a local path. Remote paths are returned unchanged."""
    return path if is_remote(path) else os.path.abspath(path)


def readable_size(number):
    """Returns a number of bytes as text, such as "1.50 GB"."""
    return f"{number / 1e9:.2f} GB" if number >= 1e9 else f"{number / 1e6:.2f} MB"


@contextlib.contextmanager
def translate_disk_errors(path, describe_kept=None):
    """Returns a context manager. If its block fails because a disk cannot be written, the context manager
    raises an OSError with a plain message instead of the original error.

    Args:
      path: the file that the block writes. The message names this file if the original error names no file.
      describe_kept: function that returns a sentence about the files that were kept. This sentence is added
        to the message. None to add no sentence.

    Raises:
      OSError: the disk is full or read-only, or a size limit is reached. The error has a message and no
        errno.
    """
    try:
        yield
    except Exception as error:
        problem = describe_disk_error(error, path)
        if problem is None:
            raise
        name = getattr(error, "filename", None) or path
        name = path if os.fspath(name).startswith((f"{path}.", path_beside(path, ".partial"))) else name
        remains = f"{describe_kept()} " if describe_kept else ""
        raise OSError(f"{name} could not be written: {problem[0]}. {remains}{problem[1]}") from error


def file_identity(path):
    """Returns a value that identifies a file. All paths of the same file have the same value.

    Two paths of the same file can differ in spelling, or one of them can contain links. They can also differ
    in letter case, if the file system ignores letter case. For a missing file, the value is the path at which
    the file would be created.
    """
    if is_remote(path):
        return os.fspath(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


def is_special(path):
    """Returns whether a path leads to a special file, which can be written but is neither a regular file nor
    a directory.

    Examples are a device (/dev/null), a FIFO, and a path that names an open file of a process (/dev/stdout).
    Symbolic links are followed.
    """
    if is_remote(path):
        return False
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if not stat.S_ISREG(mode):
        return not stat.S_ISDIR(mode)
    if not os.path.islink(path):
        return False
    folder = os.path.realpath(os.path.dirname(path))
    return (re.fullmatch(r"/proc/[^/]+/(task/[^/]+/)?fd", folder) is not None
            or is_special(os.path.join(folder, os.readlink(path))))


def resolve_links(path):
    """Returns the path of the file to which a symbolic link leads. This file may be missing.

    Other paths are returned unchanged.

    Raises:
      OSError: the links form a cycle.
    """
    if is_remote(path) or not os.path.islink(path):
        return path
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return target


@contextlib.contextmanager
def atomic_replacement(path, describe_kept=None):
    """A context manager that yields the path of a temporary file. When the `with` block ends, the temporary
    file replaces `path`.

    If the block fails, the temporary file is removed. If `path` is a symbolic link, the link is kept, and the
    file to which the link leads is replaced. If `is_special(path)` is true, `path` itself is yielded, because
    a device or a FIFO cannot be replaced.

    Args:
      path: the file.
      describe_kept: see `translate_disk_errors`.

    Raises:
      OSError: the disk cannot be written; see `translate_disk_errors`.
    """
    if is_special(path):
        with _add_path_to_errors(path):
            yield path
        return
    target = resolve_links(path)
    partial = path_beside(target, ".partial")
    with translate_disk_errors(path, describe_kept):
        try:
            yield partial
            if _group is not None and os.fspath(path) in _group:
                _group[os.fspath(path)] = partial, target
            else:
                move(partial, target)
        except BaseException:
            if exists(partial):
                remove(partial)
            raise


@contextlib.contextmanager
def replace_together(paths):
    """Returns a context manager for files that belong together, such as the results of one evaluation.

    The block writes some of the files, by `atomic_replacement`. When the block ends, these files replace the
    older files, and all other files of the group are removed. So the files of two evaluations are never
    mixed. If the block fails, the older files stay unchanged.

    Args:
      paths: list of the paths of all files of the group.
    """
    global _group
    _group = dict.fromkeys(map(os.fspath, paths))
    try:
        yield
    except BaseException:
        for partial, _ in filter(None, _group.values()):
            remove(partial)
        raise
    else:
        for path in (path for path in _group if exists(path) and not is_special(path)):
            if _group[path] is None:
                logging.info("Removed %s: it belongs to earlier results.", path)
            remove(resolve_links(path))
        for partial, target in filter(None, _group.values()):
            move(partial, target)
    finally:
        _group = None


@contextlib.contextmanager
def _add_path_to_errors(path):
    """Returns a context manager. If its block raises an error of the operating system that names no file,
    the context manager adds the path to the error."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from error


def write_text(path, text):
    """Writes a UTF-8 text file atomically; see `atomic_replacement`."""
    write_bytes(path, text.encode())


def write_bytes(path, content):
    """Writes a file atomically; see `atomic_replacement`."""
    with atomic_replacement(path) as partial, open_file(partial, "wb") as writer:
        writer.write(content)


def move(path, target):
    """Renames a file within one file system. An existing file or link with the new name is replaced."""
    if is_remote(target):
        _remote().rename(path, target, overwrite=True)
    else:
        os.replace(path, target)


def remove(path):
    """Removes a file."""
    if is_remote(path):
        _remote().remove(path)
    else:
        os.remove(path)


# --- JSON ------------------------------------------------------------------------------------------------


def read_json_object(path):
    """Returns the content of a JSON file as a dict.

    Raises:
      ValueError: the file contains no JSON object.
      FileNotFoundError: the file does not exist.
    """
    try:
        value = json.loads(read_bytes(path).decode("utf-8-sig"))
    except ValueError as error:  # for example invalid JSON, invalid UTF-8, a number with thousands of digits
        raise ValueError(f"{path} is not JSON: {error}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is damaged: its brackets are nested too deeply.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must contain a JSON object, not a {type(value).__name__}.")
    return value


def has_form(value, form):
    """Returns whether a value that was read from JSON has a form.

    Args:
      value: the value.
      form: a type, None, or a tuple of possible forms. A list [form] describes a list of such values, and
        {name: form} an object with these fields. The name "*" stands for all fields of an object.
    """
    if isinstance(form, tuple):
        return any(has_form(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(one, form[0]) for one in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            all(has_form(one, rule) for one in value.values()) if name == "*"
            else has_form(value.get(name), rule) for name, rule in form.items())
    return value is None if form is None else type(value) is form


def to_json(value):
    """Converts a value to types that JSON has. A number that is not finite becomes None, because JSON has no
    notation for it.

    Args:
      value: str, bytes, bool, None, a number or an array of Python or NumPy, or a dict, list or tuple of such
        values. The keys of a dict can also be NumPy's numbers.
    """
    if isinstance(value, dict):
        return {to_json(key): to_json(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # a number or an array of NumPy, which workers do not import
        is_float = value.dtype.kind == "f" and not value.shape
        # float(str(…)) writes 0.1, as in the log, and not 0.10000000149011612.
        value = float(str(value)) if is_float else value.tolist()
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value, indent=None, ensure_ascii=True, sort_keys=False):
    """Returns a value as JSON text; see `to_json`. The other arguments are those of `json.dumps`."""
    return json.dumps(to_json(value), allow_nan=False, indent=indent, ensure_ascii=ensure_ascii,
                      sort_keys=sort_keys)


def write_json(path, value, indent=1):
    """Writes a JSON file atomically; see `to_json` and `atomic_replacement`."""
    write_text(path, json_text(value, indent=indent) + "\n")


# --- Progress --------------------------------------------------------------------------------------------


def with_progress(items, total, doing, every=10000):
    """Yields items and shows the progress. On a terminal, a progress bar appears after one second. If the
    standard error is not a terminal, lines are written to the log.

    Args:
      items: iterable.
      total: number of items.
      doing: name of the work, such as "Converting example".
      every: number of items between two log lines.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, terminal.printable(doing), total, leave=False, delay=1)
        return
    for index, item in enumerate(items):
        if index and index % every == 0:
            logging.info("%s %d of %d", doing, index, total)
        yield item
