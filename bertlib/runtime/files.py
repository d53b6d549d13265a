"""Files, local or on a file system of TensorFlow's, written whole or not at all. Loads no TensorFlow for
local ones."""

import contextlib
import glob
import json
import os
import sys

from absl import logging
from tqdm import tqdm


def is_remote(path):
    """Whether a path is of another file system, such as gs://bucket/file."""
    return "://" in os.fspath(path)


def _remote():
    """TensorFlow's file systems."""
    # Imported here: worker processes, and commands that only make text of text, do without TensorFlow.
    import tensorflow as tf

    return tf.io.gfile


def opened(path, mode="r"):
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
    with opened(path, "rb") as reader:
        return reader.read()


def exists(path):
    """Whether there is a file or a directory of that name."""
    return _remote().exists(path) if is_remote(path) else os.path.exists(path)


def is_directory(path):
    """Whether there is a directory of that name."""
    return _remote().isdir(path) if is_remote(path) else os.path.isdir(path)


def make_directories(path):
    """Makes a directory and those it is in; no error if it exists."""
    if is_remote(path):
        _remote().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def size(path):
    """Returns the number of bytes of a file."""
    return _remote().stat(path).length if is_remote(path) else os.path.getsize(path)


def json_object(path):
    """Reads a file that holds a JSON object; returns it as a dict.

    Raises:
      ValueError: it holds something else.
      FileNotFoundError: there is no such file.
    """
    try:
        found = json.loads(read_bytes(path).decode("utf-8"))
    except ValueError as error:  # also of bytes that are not UTF-8, and of numbers of thousands of digits
        raise ValueError(f"{path} is not JSON: {error}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is damaged: its brackets are nested too deep.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(found).__name__}.")
    return found


def find(pattern):
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


@contextlib.contextmanager
def replacing(path):
    """Gives the name of a file that takes the place of `path` when the block ends, and is removed if the
    block fails."""
    partial = f"{path}.partial"
    try:
        yield partial
        if is_remote(path):
            _remote().rename(partial, path, overwrite=True)
        else:
            os.replace(partial, path)
    except BaseException:
        if exists(partial):
            _remote().remove(partial) if is_remote(path) else os.remove(partial)
        raise


def write_text(path, text):
    """Writes a text file whole or not at all."""
    with replacing(path) as partial, opened(partial, "w") as writer:
        writer.write(text)


def with_progress(items, total, doing, every=10000):
    """Yields the items and shows how many they were: a bar on a terminal if it takes longer, else a line in
    the log.

    Args:
      items: iterable.
      total: their number.
      doing: what is done with them, such as "Converting example".
      every: number of items between two lines.
    """
    if sys.stderr.isatty():
        yield from tqdm(items, doing, total, leave=False, delay=1)
        return
    for index, item in enumerate(items):
        if index and index % every == 0:
            logging.info("%s %d of %d", doing, index, total)
        yield item
