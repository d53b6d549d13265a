"""Exports the model at the end of a training or an evaluation, if --do_export is given."""

import os

from absl import logging

from bertlib.runs import model_directory
from bertlib.system import files
from bertlib.tasks import export_model

DIRECTORY = "export"


def export_directory(settings):
    """Returns the directory that contains all exported versions of the model."""
    return os.path.join(settings.output_dir if settings.do_train else settings.results_dir, DIRECTORY)


def check(settings):
    """Checks that the export at the end of the run will be possible. Call this function before the run writes
    anything.

    Raises:
      ValueError, OSError: an export is not possible.
    """
    if not settings.do_train:
        model_directory.read(settings.output_dir, settings.weights)
    elif not (settings.vocab_file or settings.spm_model_file):
        raise ValueError("--do_export: an export needs the vocabulary of the model. Pass --vocab_file or "
                         "--spm_model_file.")
    directory = export_directory(settings)
    files.require_directory(directory, directory)


def write(settings):
    """Exports the weights in --output_dir that --weights chooses."""
    model = model_directory.read(settings.output_dir, settings.weights)
    log(export_model.export(model, export_directory(settings)), model)


def log(path, model):
    """Logs the path of an exported version, and the checkpoint whose weights it contains.

    Args:
      path: directory of the version.
      model: the `model_directory.ModelDirectory` that was exported.
    """
    logging.info("%s exported: %s", model.checkpoint, path)
