"""Checks that the paths in flags exist, gives advice on missing ones, and finds this project's samples."""

import os
import re

from bertlib.checkpoints import hugging_face_cache
from bertlib.runs import file_names, registry
from bertlib.system import files

# Maps a flag to the name of its file in the directory of a published checkpoint.
_PUBLISHED_FILES = {"bert_config_file": file_names.BERT_CONFIG, "vocab_file": file_names.VOCABULARY}


def expand_home(paths):
    """Replaces ~ at the beginning of paths by the user's home directory. `paths` is a str with commas between
    the paths. A shell replaces ~ only at the beginning of a word, and so not in --output_dir=~/model."""
    return ",".join(map(os.path.expanduser, paths.split(",")))


def absolute_paths(name, value, directory):
    """Makes all local paths in the value of a flag absolute. Returns the new value.

    Args:
      name: name of the flag.
      value: its value. Several paths are separated by commas.
      directory: the working directory to which relative paths refer.
    """
    if not registry.is_path(name) or not isinstance(value, str) or not value:
        return value
    value = expand_home(value)
    whole = os.path.join(os.path.abspath(directory), value)
    if os.path.exists(whole):  # a single path may contain commas
        return whole
    return ",".join(part if "://" in part or part.startswith(hugging_face_cache.PREFIX)
                    else os.path.join(os.path.abspath(directory), part) for part in value.split(","))


def sample_path(*parts):
    """Returns the path of a file or directory of this project's samples. The samples are in the directory
    samples/ of the checkout or of the installed package.

    Args:
      *parts: parts of the path below samples/.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed, checkout = (os.path.join(path, "samples") for path in (package, os.path.dirname(package)))
    return os.path.join(installed if os.path.isdir(installed) else checkout, *parts)


def require_data_dir(directory):
    """Raises a NotADirectoryError if the value of --data_dir is not a directory."""
    if not files.is_directory(directory):
        raise NotADirectoryError(f"--data_dir={directory}: there is no such directory. download.py downloads "
                                 f"published data.{advice_on_missing_path('data_dir', directory)}")


def require_model(settings):
    """Raises an OSError if --model_dir does not exist or may not be read."""
    path = settings.model_dir
    if not files.exists(path):
        raise FileNotFoundError(f"--model_dir={path}: there is no such directory. Pass the "
                                "output directory of a training.")
    if not files.is_remote(path) and not os.access(path, os.R_OK):
        raise PermissionError(f"--model_dir={path}: this user may not read it. Check its permissions.")


def require_file(settings, name):
    """Returns the path that a flag contains, after checking that the file exists.

    Args:
      settings: a `Settings`.
      name: the flag.

    Raises:
      IsADirectoryError, FileNotFoundError: the path is a directory or does not exist.
    """
    path = getattr(settings, name)
    if files.is_directory(path):
        raise IsADirectoryError(f"--{name}={path} is a directory; name the file.")
    if not files.exists(path):
        raise FileNotFoundError(f"--{name}={path}: there is no such file."
                                f"{advice_on_missing_path(name, path, _PUBLISHED_FILES.get(name))}")
    return path


def refuse_directory(settings):
    """Raises an IsADirectoryError if --output_file is a directory."""
    if settings.output_file and files.is_directory(settings.output_file):
        raise IsADirectoryError(f"--output_file={settings.output_file} is a directory; name a file.")


def advice_on_missing_path(name, path, published_file=None):
    """Returns advice for a path that does not exist: how to download a published checkpoint or SQuAD, or
    whether a shell variable is set. Returns "" for other paths.

    Args:
      name: the flag with the path.
      path: its value.
      published_file: if the flag takes a file of a published checkpoint, the name of this file, such as
        "vocab.txt". None for other flags.
    """
    model = published_file and re.search(r"(?:\w+_)?L-\d+_H-\d+_A-\d+", path)
    if not model:
        # Without the variable BERT_BASE_DIR, the shell replaces "$BERT_BASE_DIR/vocab.txt" by "/vocab.txt".
        first = re.match("/[^/]+", path)
        if first and not files.exists(first.group()):
            return f" If your command has a shell variable before {path}: is this variable set?"
        squad = re.search(r"(?:train|dev)-v(\d\.\d)\.json$", path)
        return f" `python download.py --data=squad{squad[1]}` downloads SQuAD to data/squad." if squad else ""
    return (f" `python download.py --model={model.group()}` downloads the published model. Then pass "
            f"--{name}=checkpoints/{model.group()}/{published_file}.")
