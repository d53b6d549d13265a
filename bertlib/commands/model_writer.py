"""Writes a model into a directory: its weights, configuration and vocabulary.

This module is used by commands that do not train. The files appear in the directory only when all of them are
complete. Files of an older model in this directory are removed.
"""

import contextlib
import errno
import fnmatch
import os
import shutil
import uuid

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import file_names, tokenizer_files
from bertlib.system import files, locks

# Names of the files of a model in each format.
TENSORFLOW_WEIGHTS, HUGGING_FACE_WEIGHTS = "bert_model.ckpt", "model.safetensors"
TOKENIZER_CONFIG = tokenizer_files.TOKENIZER_CONFIG
_TEMPORARY_PREFIX = ".new_model."  # the directories of unfinished models have names with this prefix
# For each format: patterns of existing files that a new model replaces. If such a file stayed in the
# directory, a program could read it together with the new files or instead of them.
_REPLACED_FILES = {
    "tensorflow": (TENSORFLOW_WEIGHTS + ".*", *file_names.MODEL_FILES, *tokenizer_files.NAMES),
    "hugging_face": ("*.safetensors", "*.safetensors.index.json", file_names.CONFIGS["hugging_face"],
                     file_names.VOCABULARY, *tokenizer_files.NAMES),
}


def list_replaced_files(directory, file_format):
    """Returns the names of the existing files that a new model will replace if it is written to a directory.

    Args:
      directory: str; it need not exist.
      file_format: format of the new model, "tensorflow" or "hugging_face".
    """
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return sorted(name for name in names
                  if any(fnmatch.fnmatchcase(name, pattern) for pattern in _REPLACED_FILES[file_format]))


def check_directory(directory, file_format, title, force=None):
    """Checks that a model can be written, and removes the temporary directories of killed processes.

    Args:
      directory: str, the directory of the new model.
      file_format: format of the new model, "tensorflow" or "hugging_face".
      title: name of the directory in messages, such as "--output=model".
      force: bool, whether existing files are replaced; None if the command has no flag --force.

    Raises:
      NotADirectoryError, IsADirectoryError, FileExistsError: the model cannot be written.
    """
    existing_parent = os.path.abspath(files.require_directory(title, directory))
    # A process that was killed after it had moved the files leaves a complete model and its temporary
    # directory. So the temporary directory is removed first, before the check for existing files can raise an
    # error.
    for folder in {existing_parent, os.path.dirname(os.path.abspath(directory))}:
        locks.remove_abandoned(folder, _TEMPORARY_PREFIX)
    names = list_replaced_files(directory, file_format)
    for name in names:
        if os.path.isdir(os.path.join(directory, name)):
            raise IsADirectoryError(f"{title}: {name} must be written to this directory, but a subdirectory "
                                    f"already has the name {name}. Remove the subdirectory, or name another "
                                    "directory.")
    if names and not force:
        advice = "." if force is None else ", or pass --force to replace them."
        raise FileExistsError(f"{title} contains files that would be replaced: {', '.join(names)}. "
                              f"Use another directory{advice}")


def write(directory, file_format, source, names, contents):
    """Writes a model to a temporary directory, and then moves it to `directory`.

    A new directory appears with all of its files, or not at all. Into an existing directory, the files are
    moved one by one, and files of an older model that are not replaced by new files are removed.

    Args:
      directory: str, the directory of the model.
      file_format: "tensorflow" or "hugging_face".
      source: the weights, a `checkpoint_formats.Checkpoint`.
      names: names of the tensors to write.
      contents: the other files, {name: content in bytes}.

    Returns:
      list of str, the names of the written files.

    Raises:
      FileExistsError: another process wrote to the directory at the same time.
      locks.InUseError: another process is writing to the directory.
    """
    with files.translate_disk_errors(directory), contextlib.ExitStack() as stack:
        is_new = not os.path.isdir(directory)
        if not is_new:
            stack.enter_context(locks.lock_directory(directory))
        before = list_replaced_files(directory, file_format)
        # The temporary directory is on the same file system as the model, so it can be renamed. It is locked
        # before it exists, so that `check_directory` can find out whether it is abandoned.
        temporary = os.path.join(files.existing_parent(directory), f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        stack.enter_context(locks.lock_file(temporary))
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        os.mkdir(temporary)
        if file_format == "tensorflow":
            checkpoint_formats.write_tensorflow(os.path.join(temporary, TENSORFLOW_WEIGHTS), source, names)
        else:
            checkpoint_formats.write_safetensors(os.path.join(temporary, HUGGING_FACE_WEIGHTS), source,
                                                 names)
        for name, content in contents.items():
            files.write_bytes(os.path.join(temporary, name), content)
        new = sorted(os.listdir(temporary))
        if is_new:
            _move_directory(temporary, directory)
        else:
            for name in new:
                os.replace(os.path.join(temporary, name), os.path.join(directory, name))
            for name in set(before) - set(new):
                os.remove(os.path.join(directory, name))
    return new


def _move_directory(model, directory):
    """Renames a directory with a whole model to `directory`, which must not exist or must be empty."""
    os.makedirs(os.path.dirname(os.path.abspath(directory)), exist_ok=True)
    try:
        os.rename(model, directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise FileExistsError(f"{directory}: another process wrote to this directory at the same time. Name "
                              "another directory, or run the command again.") from None
