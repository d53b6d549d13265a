"""Writes a model that was not trained here, for example a converted one: its weights, configuration and
vocabulary."""

import contextlib
import fnmatch
import os
import shutil

from bertlib.checkpoints import checkpoint_formats
from bertlib.runs import file_names, tokenizer_files
from bertlib.system import files, locks

# Names of the files of a model in each format.
TENSORFLOW_WEIGHTS, HUGGING_FACE_WEIGHTS = "bert_model.ckpt", "model.safetensors"
TOKENIZER_CONFIG = tokenizer_files.CONFIG
_TEMPORARY = ".new_model"  # name of the directory of an unfinished model
# For each format: patterns of existing files that a new model replaces. If such a file stayed in the
# directory, a program could read it together with the new files or instead of them.
_REPLACED_FILES = {
    "tensorflow": (TENSORFLOW_WEIGHTS + ".*", *file_names.NAMES, *tokenizer_files.NAMES),
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


def check_directory(directory, file_format, given, force=None):
    """Checks that a model can be written.

    Args:
      directory: str, the directory of the new model.
      file_format: format of the new model, "tensorflow" or "hugging_face".
      given: name of the directory in messages, such as "--output=model".
      force: bool, whether existing files are replaced; None if the command has no flag --force.

    Raises:
      NotADirectoryError, IsADirectoryError, FileExistsError: the model cannot be written.
    """
    files.require_directory(given, directory)
    blocking = list_replaced_files(directory, file_format)
    for name in blocking:
        if os.path.isdir(os.path.join(directory, name)):
            raise IsADirectoryError(f"{given}: {name} must be written to this directory, but a subdirectory "
                                    f"already has the name {name}. Remove the subdirectory, or name another "
                                    "directory.")
    if blocking and not force:
        advice = "." if force is None else ", or pass --force to replace them."
        raise FileExistsError(f"{given} contains files that would be replaced: {', '.join(blocking)}. "
                              f"Use another directory{advice}")


def write(directory, file_format, source, names, contents, removes_others=True):
    """Writes a model. Each file gets its name only after all files are written.

    Args:
      directory: str, the directory of the model. It is created if it does not exist.
      file_format: "tensorflow" or "hugging_face".
      source: the weights, a `checkpoint_formats.Checkpoint`.
      names: names of the tensors to write.
      contents: the other files, {name: content in bytes}.
      removes_others: whether files of an older model are removed if no new file replaces them.

    Returns:
      list of str, the names of the written files.

    Raises:
      locks.InUseError: another process is writing to the directory.
    """
    temporary = os.path.join(directory, _TEMPORARY)
    with files.translate_disk_errors(directory), contextlib.ExitStack() as stack:
        os.makedirs(directory, exist_ok=True)
        stack.enter_context(locks.lock_directory(directory))
        shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have left it
        os.mkdir(temporary)
        stack.callback(shutil.rmtree, temporary)
        if file_format == "tensorflow":
            checkpoint_formats.write_tensorflow(os.path.join(temporary, TENSORFLOW_WEIGHTS), source, names)
        else:
            checkpoint_formats.write_safetensors(os.path.join(temporary, HUGGING_FACE_WEIGHTS), source,
                                                 names)
        for name, content in contents.items():
            files.write_bytes(os.path.join(temporary, name), content)
        before, new = list_replaced_files(directory, file_format), sorted(os.listdir(temporary))
        # The names are sorted, so an index file of weights never exists without its data file.
        for name in new:
            os.replace(os.path.join(temporary, name), os.path.join(directory, name))
        for name in set(before) - set(new) if removes_others else ():
            os.remove(os.path.join(directory, name))
    return new
