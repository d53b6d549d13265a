"""Finds and removes the files of TensorFlow checkpoints, also if a path contains glob characters.

TensorFlow treats the path of a checkpoint as a glob pattern. If a directory has one of the characters
`*?[]\\` in its name, TensorFlow finds no checkpoint in this directory, or finds checkpoints of a different
directory. The functions of this module treat these characters like all other characters.
"""

import atexit
import os
import re
import shutil
import tempfile

from bertlib.graph import lazy_tensorflow as tf
from bertlib.system import files

GLOB_CHARACTERS = re.compile(r"[*?\[\]\\]")
_ENDINGS = r"\.(index|meta|data-\d{5}-of-\d{5})"


def list_by_ending(directory, *endings):
    """Lists the files in a directory that have a name with one of the given endings. Returns their paths,
    sorted. If the directory is missing, the list is empty."""
    if not tf.gfile.IsDirectory(directory or "."):
        return []
    return [os.path.join(directory, name) for name in sorted(tf.gfile.ListDirectory(directory or "."))
            if name.endswith(endings)]


def list_checkpoints(directory):
    """Returns the prefixes of all checkpoints in a directory, sorted by name. A checkpoint without an index
    file is left out."""
    return [path.removesuffix(".index") for path in list_by_ending(directory, ".index")]


def list_training_checkpoints(directory):
    """Returns the prefixes of the checkpoints `model.ckpt-<step>` in a directory, sorted by step. A
    checkpoint without an index file is left out."""
    return sorted((prefix for prefix in list_checkpoints(directory) if step_in_name(prefix) is not None),
                  key=step_in_name)


def step_in_name(prefix):
    """Returns the step in the name `model.ckpt-<step>` of a checkpoint; None for any other name."""
    match = re.fullmatch(r"model\.ckpt-(\d+)", os.path.basename(prefix))
    return int(match.group(1)) if match else None


def exists(prefix):
    """Returns whether a checkpoint with this prefix exists: whether it has an index file."""
    return tf.gfile.Exists(prefix + ".index")


def list_files(prefix):
    """Returns the paths of a checkpoint's files: index, data and graph files."""
    directory, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + _ENDINGS)
    return [path for path in list_by_ending(directory, "") if pattern.fullmatch(os.path.basename(path))]


def remove(prefix):
    """Removes a checkpoint's files. The index file is removed first, because files without an index file do
    not count as a checkpoint."""
    for path in sorted(list_files(prefix), key=lambda path: not path.endswith(".index")):
        tf.gfile.Remove(path)


def remove_leftovers(model_dir):
    """Removes temporary directories and files of a process that was killed while it saved a checkpoint."""
    for path in list_by_ending(model_dir, ""):
        if re.search(r"\.ckpt-\d+_temp/?$", path) and tf.gfile.IsDirectory(path):
            tf.gfile.DeleteRecursively(path)
        elif re.search(r"\.tmp[0-9a-f]{32}$", path) and not tf.gfile.IsDirectory(path):
            tf.gfile.Remove(path)


def escape_prefix(prefix):
    """Returns a prefix with which TensorFlow can open a checkpoint. The prefix is valid until this process
    ends.

    If the prefix has no glob characters, or if the checkpoint is on remote storage, the prefix is returned
    unchanged. Otherwise, symbolic links to the files of the checkpoint are created, and the prefix of these
    links is returned.
    """
    if not GLOB_CHARACTERS.search(prefix) or files.is_remote(prefix):
        return prefix
    links = new_link()
    os.mkdir(links)
    for path in list_files(prefix):
        os.symlink(os.path.abspath(path), os.path.join(links, "checkpoint" + path.removeprefix(prefix)))
    return os.path.join(links, "checkpoint")


def new_link():
    """Returns the path for a new symbolic link, or for a directory of links. It is removed at the end of the
    process."""
    directory = tempfile.mkdtemp(prefix="checkpoint_links.")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return os.path.join(directory, "link")
