"""Reads the export of a trained model as an ONNX or TFLite file. `export_portable` writes it.

    export_onnx/<time>/      one export
      model.onnx             the graph with its weights; its inputs are token ids
      export.json            the task, the fingerprint of the weights, and the fingerprints of all other files
      vocab.txt, run.json …  the files that describe the model, as in the output directory of the training
"""

import os
from typing import NamedTuple

from bertlib.runs import file_names, trained_model
from bertlib.runs.output_directory import OutputDirectory
from bertlib.serving import onnx_model, tflite_model
from bertlib.system import files, fingerprints

DESCRIPTION = "export.json"
DESCRIPTION_FORMAT = 1
# {name: module}. Each module has the same names: TITLE, the name of the format in messages; FILE, the name of
# the model's file; and `Model`, the loaded model, which is used like a `loaded_model.LoadedModel`.
FORMATS = {"onnx": onnx_model, "tflite": tflite_model}


class Export(NamedTuple):
    """A model that was exported as an ONNX or TFLite file.

    Attributes:
      model: the `trained_model.TrainedModel` of the export. Its attribute `checkpoint` is the path of
        the ONNX or TFLite file.
      format: a key of `FORMATS`.
      task: one of `registry.ANSWERS`.
      weights: fingerprint of the exported checkpoint.
    """

    model: trained_model.TrainedModel
    format: str
    task: str
    weights: str

    def load(self):
        """Loads the model; returns an object that is used like a `loaded_model.LoadedModel`.

        Raises:
          ValueError: the file is damaged.
          ImportError: a package is not installed.
        """
        return FORMATS[self.format].Model(self.model.checkpoint)


def default_directory(model_dir, file_format):
    """Returns the directory that contains all exports of a model in the given format."""
    return os.path.join(model_dir, f"export_{file_format}")


def hash_weights(model):
    """Returns the fingerprint of the weights of a `trained_model.TrainedModel`.

    Only the index file of the checkpoint is read. It contains the checksum of each tensor, so it changes if
    the weights change.
    """
    return fingerprints.hash_file(f"{model.checkpoint}.index")


def hash_directory(directory):
    """Returns the fingerprints of the files in an export, {name: str}."""
    return {name: fingerprints.hash_file(os.path.join(directory, name))
            for name in sorted(os.listdir(directory)) if name != DESCRIPTION}


def hash_files(directory):
    """Returns {name of a file: its fingerprint} for the files that describe the model and its tokenizer."""
    names = (*file_names.MODEL_FILES, file_names.RECORD, DESCRIPTION)
    paths = {name: os.path.join(directory, name) for name in names}
    return {name: fingerprints.hash_file(path) for name, path in paths.items()
            if files.exists(path)}


def find(path):
    """Returns the directory of an export. `path` may be this directory or the model's file in this directory.
    Returns None for any other path."""
    if files.is_directory(path):
        return path if files.exists(os.path.join(path, DESCRIPTION)) else None
    is_export = path.endswith(tuple(f".{file_format}" for file_format in FORMATS)) and files.exists(path)
    return os.path.dirname(path) or "." if is_export else None


def read(directory, task=None):
    """Returns the `Export` in a directory. Checks that none of its files was changed.

    Args:
      directory: the directory of the export.
      task: the requested task; None for the task of the export.

    Raises:
      ValueError, OSError: a file is missing, damaged or changed; or the export is for another task than
        `task`.
    """
    description = _read_description(directory)
    path, exported_task = os.path.join(directory, DESCRIPTION), description["task"]
    hashes = hash_directory(directory)
    for name, recorded_hash in description["files"].items():
        if hashes.get(name) != recorded_hash:
            problem = "was changed after the export" if name in hashes else "is missing"
            raise ValueError(f"{os.path.join(directory, name)} {problem}, according to {path}. Export the "
                             "model again.")
    if task not in (None, exported_task):
        raise ValueError(f"The requested task is {task}, but {directory} is an export for the task "
                         f"{exported_task}. Export the model again, with --task={task}.")
    file_format = description["file_format"]
    model = trained_model.read_with_weights(
        OutputDirectory(directory), os.path.join(directory, FORMATS[file_format].FILE))
    return Export(model, file_format, exported_task, description.get("weights"))


def _read_description(directory):
    """Returns the content of an export's export.json. Raises a ValueError if the file is missing, or its
    format is unknown."""
    path = os.path.join(directory, DESCRIPTION)
    description = files.read_json_object(path) if files.exists(path) else {}
    if description.get("format") != DESCRIPTION_FORMAT:
        raise ValueError(f"{path} does not exist, or does not have the format {DESCRIPTION_FORMAT}, which "
                         "this version reads. Pass a directory that export.py has written, or export the "
                         "model again.")
    return description


def newest(model_dir, model, file_format, task):
    """Returns the newest `Export` of a model for a task. Checks that it has the current weights.

    Args:
      model_dir: the output directory of a training.
      model: the `trained_model.TrainedModel` of this directory, or of its folder best/.
      file_format: a key of `FORMATS`.
      task: the requested task; None for the task of the newest export.

    Raises:
      ValueError, OSError: there is no export for this task, or the weights of the export are not the current
        weights of the model; see also `read`.
    """
    directory = default_directory(model_dir, file_format)
    names = os.listdir(directory) if files.is_directory(directory) else ()
    versions = sorted((name for name in names if name.isdecimal()), key=int, reverse=True)
    paths = filter(find, (os.path.join(directory, name) for name in versions))
    to_do = (f"Run export.py with --model_dir={model_dir} --format={file_format}, and with the same --task "
             "and --weights.")
    path = next((path for path in paths if task in (None, _read_description(path)["task"])), None)
    if path is None:
        raise ValueError(f"{directory} contains no export{f' for the task {task}' if task else ''}. {to_do}")
    export = read(path, task)
    if export.weights != hash_weights(model):
        raise ValueError(f"{export.model.path} does not contain the weights of {model.checkpoint}, "
                         f"because it was exported from other weights. {to_do}")
    return export
