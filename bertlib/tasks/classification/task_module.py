"""Loads the Python file of --task_module, which contains a processor or a task of the user.

A training stores a copy of the file as task_module.py in its output directory. An evaluation or a prediction
in the same directory executes this copy, unless --task_module names a file. No other command executes it.
"""

import contextlib
import functools
import os
import sys
import traceback
import types
from typing import NamedTuple

from absl import logging

from bertlib.runs import file_names
from bertlib.runs.input_paths import require_file
from bertlib.runs.settings import PHASES
from bertlib.system import files, fingerprints
from bertlib.tasks.classification import classifier_data
from bertlib.tasks.task import Task


class Module(NamedTuple):
    """The file of a task module.

    Attributes:
      name: name of the file, for run.json.
      fingerprint: fingerprint of the content.
      content: bytes.
    """

    name: str
    fingerprint: str
    content: bytes

    def record(self, num_texts):
        """Returns the field "task_module" of run.json. `num_texts` is that of the `Task`."""
        return {"name": self.name, "fingerprint": self.fingerprint, "texts": num_texts}

    @property
    def copy(self):
        """{name: content} of the copy in the output directory."""
        return {file_names.TASK_MODULE: self.content}


def refuse_flags(settings, others):
    """Raises a ValueError if `others` contains a flag: it cannot be combined with --task_module."""
    for name in others:
        raise ValueError(f"--task_module={settings.task_module} and --{name} exclude each other: "
                         "the module contains the task, its examples and its labels. Leave one of these "
                         "two flags out.")


def use_copy(settings, has_task):
    """If an evaluation or a prediction in a trained --output_dir has no --task_module, sets this flag to the
    copy in the directory.

    Args:
      settings: a `Settings`.
      has_task: whether to use the copy if the module contains a task (true) or a processor (false).

    Raises:
      ValueError: the run would continue a training with a task module, but has no --task_module.
    """
    record = None if settings.task_module else settings.output_directory.trained_record
    module = record and record["task_module"]
    if not module or (record["task"] != classifier_data.TASK_MODULE) != has_task:
        return
    if settings.do_train or not any(getattr(settings, phase) for phase in PHASES):
        raise ValueError(f"--output_dir={settings.output_dir} contains a training with "
                         f"--task_module={module['name']}. To continue this training, pass --task_module. To "
                         "use the trained model, pass --do_eval=true or --do_predict=true.")
    settings.set_default("task_module", os.path.join(settings.output_dir, file_names.TASK_MODULE),
                         f"the copy of {module['name']}, with which the model was trained")


def load(settings):
    """Executes the task module.

    Args:
      settings: a `Settings`.

    Returns:
      (the user's class, the `Module`).

    Raises:
      ValueError, OSError: the file is missing, or does not contain exactly one class; or the copy in
        --output_dir was changed. Any error of the user's code.
    """
    path, name = settings.task_module, os.path.basename(settings.task_module)
    content = files.read_bytes(require_file(settings, "task_module"))
    fingerprint = fingerprints.hash_bytes(content)
    if not settings.is_given("task_module"):
        recorded = settings.output_directory.trained_record["task_module"]
        name = recorded["name"]
        if fingerprint != recorded["fingerprint"]:
            raise ValueError(f"{path} was changed after the training wrote it: its fingerprint differs from "
                             f"the fingerprint in {file_names.RECORD}. Restore the file from a copy, or "
                             "name the original module with --task_module.")
    return _find_class(path, content), Module(name if name.isprintable() else ascii(name), fingerprint,
                                              content)


def find_task(settings):
    """Returns an object of the class in --task_module, or in the copy in --output_dir (see `use_copy`), if
    this class is a `bertlib.tasks.task.Task`. Returns None for a processor, and without a module.

    Raises:
      ValueError, OSError: see `load` and `use_copy`; or --task_name was given with a task.
    """
    use_copy(settings, has_task=True)
    if not settings.task_module:
        return None
    with name_line_in_errors(settings):
        task_class, module = load(settings)
    if not issubclass(task_class, Task):
        return None
    refuse_flags(settings, filter(settings.is_given, ["task_name"]))
    task = task_class(settings)
    task.module = module
    return task


@functools.cache
def _find_class(path, content):
    """Executes a module. Returns its only class that is derived from `DataProcessor` or from `Task`.

    Args:
      path: the file.
      content: bytes.
    """
    # `import run_classifier` would execute the running command again, and define its flags again.
    sys.modules.setdefault("run_classifier", classifier_data)
    # No other module has this name.
    module = types.ModuleType(f"task_module_{fingerprints.hash_bytes(content)}")
    module.__file__ = path
    # The module must be in `sys.modules`, because pickle searches there for the module of a class.
    sys.modules[module.__name__] = module
    exec(compile(content, path, "exec"), vars(module))
    classes = {value.__name__: value for value in vars(module).values()
               if isinstance(value, type) and issubclass(value, (classifier_data.DataProcessor, Task))
               and value.__module__ == module.__name__ and not value.__name__.startswith("_")}
    if len(classes) != 1:
        raise ValueError(f"--task_module={path} must contain exactly one class derived from "
                         "run_classifier.DataProcessor or bertlib.tasks.task.Task, but it contains "
                         f"{len(classes)}{': ' if classes else ''}{', '.join(classes)}. A class whose name "
                         "begins with an underscore does not count.")
    return next(iter(classes.values()))


@contextlib.contextmanager
def name_line_in_errors(settings):
    """Returns a context manager. If code of the task module raises an error in its block, the context manager
    logs the file and the line, and raises the error again with its traceback.

    Args:
      settings: a `Settings`.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == settings.task_module]
        if isinstance(error, SyntaxError) and error.filename == settings.task_module:
            lines.append(error.lineno)
        if lines:
            error.has_traceback = True
            logging.error("--task_module=%s, line %d: %s: %s", settings.task_module, lines[-1],
                          type(error).__name__, error)
        raise
