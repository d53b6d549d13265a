"""Loads the Python file of --task_module, which contains a task of the user, and checks the examples and
labels that this task returns.

A training stores a copy of the file as task_module.py in its output directory. An evaluation or a prediction
in the same directory executes this copy, unless --task_module names a file. No other command executes the
copy.
"""

import contextlib
import importlib.abc
import importlib.util
import math
import os
import re
import sys
import types

from absl import logging

from bertlib.output_directory import output_files
from bertlib.runs import run_record
from bertlib.runs.settings import PHASES, require_data_dir, require_file
from bertlib.system import files, fingerprints
from bertlib.tasks import targets
from bertlib.tasks.classification import classifier_data
from bertlib.tasks.classification.task import custom_task
from bertlib.tasks.classification.text_targets import MultiLabel, create_target

TASK = "task module"  # name of the task in run.json
# {name of a set: flag of the phase that needs this set}.
_PHASE_OF = dict(zip(("train", "dev", "test"), PHASES))
# Most flags for the user's own files cannot be combined with --task_module. The following flags can be
# combined with it, because they describe labels and answers and not files.
_SHARED_FLAGS = ("threshold", "label_separator")
_MAX_SET_NAME_BYTES = 200  # a file name adds a prefix and a suffix, and can have 255 bytes
_MAX_SCORE = 3.4e38  # slightly below the largest float32, because scores are stored as float32


# --- Flags and phases ------------------------------------------------------------------------------------


def is_given(settings):
    """Returns whether the run uses a task module. If an evaluation or a prediction names no task, and
    --output_dir contains a copy of a task module, sets --task_module to this copy.

    Args:
      settings: a `Settings`.

    Raises:
      ValueError: flags exclude each other; or --output_dir contains a training with a task module, and the
        run would continue this training, but --task_module was not given.
    """
    others = [name for name in ("task_name", *custom_task.given_flags(settings), "xnli_language")
              if settings.is_given(name) and name not in _SHARED_FLAGS]
    if settings.task_module:
        if others:
            raise ValueError(f"--task_module={settings.task_module} and --{others[0]} exclude each other: "
                             "the module contains the task, its examples and its labels. Leave one of these "
                             "two flags out.")
        return True
    record = None if others else settings.directory.trained_record
    if not record or not record.get("task_module"):
        return False
    name = record["task_module"]["name"]
    if settings.do_train or not any(getattr(settings, phase) for phase in PHASES):
        raise ValueError(f"--output_dir={settings.output_dir} contains a training with --task_module={name}. "
                         "To continue this training, pass --task_module. To use the trained model, pass "
                         "--do_eval=true or --do_predict=true.")
    settings.set_default("task_module", os.path.join(settings.output_dir, output_files.TASK_MODULE),
                         f"the copy of {name}, with which the model was trained")
    return True


def create_processor(settings, suffix=""):
    """Loads the task module. Also sets these flags if they are not on the command line: the flags of the
    phases (such as --do_train), --output_dir, and the flags whose values the training has recorded.

    Args:
      settings: a `Settings`.
      suffix: suffix of the default --output_dir.

    Returns:
      a `ModuleProcessor`.

    Raises:
      ValueError, OSError: a flag is invalid, the module cannot be used, or the module contradicts the
        training in --output_dir.
    """
    path, name = settings.task_module, os.path.basename(settings.task_module)
    record = settings.directory.trained_record
    if settings.is_given("task_module"):
        content = files.read_bytes(require_file(settings, "task_module"))
    else:
        content, name = _read_copy(path, record), record["task_module"]["name"]
    is_default = settings.output_dir is None
    if is_default:
        settings.set_default("output_dir", files.path_beside(
            os.path.join("output", os.path.splitext(name)[0]), suffix))
        record = settings.directory.trained_record
    processor = ModuleProcessor(path, name, content)
    settings.task_name, settings.task_type = TASK, processor.task_type
    _choose_phases(settings, processor)
    _check_against_training(settings, processor, record, is_default)
    run_record.inherit_settings(settings, *custom_task.TASK_TYPES, without=("task_name",))
    if settings.data_dir is not None:
        require_data_dir(settings.data_dir)
    processor.set_target(settings)
    return processor


def _read_copy(path, record):
    """Returns the content of task_module.py in an output directory.

    Raises:
      FileNotFoundError, ValueError: the file is missing, or differs from the file that the training wrote.
    """
    advice = "Restore the file from a copy, or name the original module with --task_module."
    if not files.exists(path):
        raise FileNotFoundError(f"{path} is missing. This file contains the task of the model. {advice}")
    content = files.read_bytes(path)
    if fingerprints.hash_bytes(content) != record["task_module"]["fingerprint"]:
        raise ValueError(f"{path} was changed after the training wrote it: its fingerprint differs from the "
                         f"fingerprint in {output_files.RECORD}. {advice}")
    return content


def _choose_phases(settings, processor):
    """If no phase was given, turns on each phase for which the task has examples.

    Raises:
      ValueError: a phase was given, but the task has no examples for it. Or no phase was given, and the task
        has no training examples.
    """
    if not any(settings.is_given(phase) for phase in PHASES):
        for split, phase in _PHASE_OF.items():
            if processor.has_examples(split):
                settings.set_default(phase, True)
        processor.require_examples("train")
    settings.choose_phases()
    for split, phase in _PHASE_OF.items():
        if getattr(settings, phase):
            processor.require_examples(split)


def _check_against_training(settings, processor, record, is_default):
    """Checks a task module against the training in --output_dir.

    Args:
      settings: a `Settings`.
      processor: the `ModuleProcessor`.
      record: the record of this training, or None.
      is_default: whether --output_dir is the default, which depends only on the name of the module.

    Raises:
      ValueError: the labels or the type of the task differ from the training. Or --output_dir is the
        default, the run trains, and the training in this directory used a different module with the same
        file name.
    """
    if record is None:
        return
    where, kind = f"the training in --output_dir={settings.output_dir}", record["task_type"]
    if kind != processor.task_type:
        raise ValueError(f"--task_module={processor.path}: the type of the task is {processor.task_type}, "
                         f"but {where} is of the type {kind}. Use another --output_dir.")
    if record["labels"] != processor.get_labels():
        raise ValueError(f"--task_module={processor.path}: get_labels() returns "
                         f"{', '.join(processor.get_labels())}, but {where} has the labels "
                         f"{', '.join(record['labels'])}. Return the same labels in the same order, or use "
                         "another --output_dir.")
    trained = record.get("files", {}).get("task_module")
    other = trained and trained != os.path.abspath(processor.path) and (
        record["task_module"]["fingerprint"] != processor.module.fingerprint)
    if is_default and settings.do_train and other:
        raise ValueError(f"--task_module={processor.path}: the default output directory, "
                         f"{settings.output_dir}, already contains a training with a different module, "
                         f"{trained}. Name another directory with --output_dir. To continue that training "
                         f"with {processor.path}, pass --output_dir={settings.output_dir}.")


# --- Loading ---------------------------------------------------------------------------------------------


class _Loader(importlib.abc.SourceLoader):
    """Loads a module from its content in memory. Writes no bytecode."""

    def __init__(self, path, content):
        self._path, self._content = path, content

    def get_filename(self, fullname):
        return self._path

    def get_data(self, path):
        return self._content


class Module:
    """A task module.

    Attributes:
      name: name of the file that the user wrote.
      content: content of the file in bytes.
      fingerprint: fingerprint of the content.
    """

    def __init__(self, name, content):
        self.name = name if name.isprintable() else ascii(name)
        self.content, self.fingerprint = content, fingerprints.hash_bytes(content)

    def describe(self, examples):
        """Returns the entry for run.json that describes this task module.

        Args:
          examples: {name of a set: list of `InputExample`}.
        """
        counts = {2 if example.text_b else 1 for rows in examples.values() for example in rows}
        return {"name": self.name, "fingerprint": self.fingerprint,
                "texts": counts.pop() if len(counts) == 1 else None}


def _load_class(path, module):
    """Executes a task module, and returns the class of the task.

    Args:
      path: path of the file.
      module: the `Module`.

    Raises:
      ValueError: the module raises an error, or does not contain exactly one task.
    """
    name = f"task_module_{module.fingerprint}"  # no other module has this name
    spec = importlib.util.spec_from_loader(name, _Loader(path, module.content), origin=path)
    # The module must be in `sys.modules`, because pickle searches there for the module of a class.
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _user_code(path, "the module"):
            spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[name]
        raise
    classes = {value.__name__: value for value in vars(loaded).values()
               if isinstance(value, type) and value.__module__ == name}
    tasks = [value for value in classes.values() if issubclass(value, classifier_data.DataProcessor)
             and not value.__name__.startswith("_")]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        raise ValueError(f"--task_module={path} contains {len(tasks)} classes derived from DataProcessor: "
                         f"{', '.join(task.__name__ for task in tasks)}. Keep one of them. If a class is "
                         "only the base of another class, begin its name with an underscore.")
    others = f" It contains only the classes {', '.join(classes)}." if classes else ""
    raise ValueError(f"--task_module={path} contains no class derived from DataProcessor.{others} Write "
                     "\"from run_classifier import DataProcessor\" and \"class MyTask(DataProcessor):\".")


@contextlib.contextmanager
def _published_names():
    """Returns a context manager. In its block, `import run_classifier` provides the names that a task module
    needs from run_classifier.py, such as `DataProcessor`. Without this context manager, Python would execute
    the running command a second time, and define its flags again."""
    if "run_classifier" in sys.modules:
        yield
        return
    module = types.ModuleType("run_classifier", "The names of run_classifier.py for a task module.")
    vars(module).update({name: value for name, value in vars(classifier_data).items()
                         if not name.startswith("__")})
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.modules.pop(module.__name__, None)


@contextlib.contextmanager
def _user_code(path, what, hint=""):
    """Returns a context manager for code of a task module. It turns an exception in its block into a
    ValueError that names the file, the line and the exception.

    Args:
      path: path of the module.
      what: name of the code that runs in the block, such as "get_labels", for the message.
      hint: sentence that is added to the message.

    Raises:
      ValueError: the code raised an exception, or tried to end the process.
    """
    try:
        with _published_names():
            yield
    except (Exception, SystemExit) as error:
        if isinstance(error, MemoryError):
            raise
        line = _line_of(error, path)
        advice = hint or _advice_on_import(error, path)
        text = f"{type(error).__name__}: {error}".strip().rstrip(":.")
        raise ValueError(f"--task_module={path}{f', line {line}' if line else ''}: {what} raised {text}. "
                         f"{advice}--traceback=true shows the traceback.") from error


def _line_of(error, path):
    """Returns the number of the line in a task module that raised an error; None if no line of the module was
    being executed."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    line, frames = None, error.__traceback__
    while frames is not None:
        line = frames.tb_lineno if frames.tb_frame.f_code.co_filename == path else line
        frames = frames.tb_next
    return line


def _advice_on_import(error, path):
    """Returns advice (a sentence) if a task module failed because it imports another file of its directory.
    Returns "" for other errors."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    beside = os.path.join(os.path.dirname(path), name)
    if isinstance(error, ModuleNotFoundError) and (files.exists(f"{beside}.py") or files.exists(beside)):
        return (f"A task module cannot import files of its directory, because only the module is copied into "
                f"--output_dir. Move the code of {name} into the module, or install {name} as a package. ")
    return ""


# --- The processor ---------------------------------------------------------------------------------------


class ModuleProcessor(classifier_data.DataProcessor):
    """The processor of a task module. It calls the methods of the user's class and checks their results.

    Attributes:
      path: path of the module.
      module: the `Module`.
      task: the object of the user's class.
      target: see the module `text_targets`; None before `set_target`.
    """

    def __init__(self, path, name, content):
        """Loads the module and creates the user's object.

        Args:
          path: path of the module.
          name: name of the user's original file. If `path` is a copy, the copy may have another name.
          content: content of the file in bytes.

        Raises:
          ValueError: the module cannot be used.
        """
        self.path, self.module, self.target = path, Module(name, content), None
        task_class = _load_class(path, self.module)
        with _user_code(path, f"{task_class.__name__}()"):
            self.task = task_class()
        self.task_type = self.task.task_type
        if self.task_type not in custom_task.TASK_TYPES:
            raise self._error(f"task_type is {self.task_type!r}. It must be one of "
                              f"{', '.join(custom_task.TASK_TYPES)}.")
        self._kind = targets.find(self.task_type)
        if task_class.metrics == classifier_data.DataProcessor.metrics and (
                self.task_type != classifier_data.DataProcessor.task_type):
            self.task.metrics = tuple(self._kind.metric_names)[:2]
        self.name = self.task.name or os.path.splitext(self.module.name)[0]
        self.metrics, self.further_sets = self.task.metrics, self.task.further_sets
        for further in self.further_sets:
            if not (isinstance(further, str) and re.fullmatch(r"[\w-]+", further)
                    and len(further.encode()) <= _MAX_SET_NAME_BYTES):
                raise self._error(f"further_sets contains {further!r:.80}. The name of a set is a part of "
                                  "file names. It must consist of letters, digits, underscores and hyphens, "
                                  f"and have at most {_MAX_SET_NAME_BYTES} bytes.")
        self._labels = self._read_labels()
        self._test_count, self.failure = None, None

    def set_target(self, settings):
        """Sets the target. For a multi-label task, the target contains the values of --threshold and
        --label_separator."""
        if self._kind.is_multilabel:
            separator = settings.label_separator
            for label in (label for label in self._labels if separator in label):
                raise self._error(f"the label {label!r} contains {separator!r}, which separates labels. Pass "
                                  "another --label_separator.")
            self.target = MultiLabel(self._labels, settings.threshold, separator)
            return
        for name in filter(settings.is_given, _SHARED_FLAGS):
            raise ValueError(f"--{name} is for tasks of the type multilabel, but the type of this task is "
                             f"{self.task_type}. Leave --{name} out.")
        self.target = create_target(self._labels)

    def _error(self, problem):
        return ValueError(f"--task_module={self.path}, class {type(self.task).__name__}: {problem}")

    def _call(self, method, *arguments):
        """Returns the result of a method of the user's object."""
        no_directory = method.endswith("_examples") and arguments[0] is None
        hint = "data_dir is None, because --data_dir is not given. " if no_directory else ""
        with _user_code(self.path, method, hint):
            result = getattr(self.task, method)(*arguments)
            # The code of a generator runs only when the generator is read. So the generator is read in this
            # block, where `_user_code` reports the errors of this code.
            return list(result) if isinstance(result, types.GeneratorType) else result

    # --- Labels

    def _read_labels(self):
        """Returns the list of the labels; None for a regression."""
        if self._kind.is_score:
            return None
        base = classifier_data.DataProcessor
        if type(self.task).get_labels is base.get_labels and self.task.labels is None:
            raise self._error("the method get_labels() is missing. Write this method, declare "
                              "labels = (\"no\", \"yes\"), or declare task_type = \"regression\".")
        labels = self._call("get_labels")
        if not isinstance(labels, list | tuple) or not labels:
            raise self._error(f"get_labels() returns {labels!r:.80}. It must return a list of texts.")
        for index, label in enumerate(labels):
            if not isinstance(label, str):
                raise self._error(f"get_labels() returns the label {label!r:.80}, which is not a text. Write "
                                  f"{str(label)!r:.80}.")
            if not label.strip() or not label.isprintable():
                raise self._error(f"get_labels() returns the label {label!r:.80}. A label must not be empty "
                                  "and must not contain control characters.")
            if label in labels[:index]:
                raise self._error(f"get_labels() returns the label {label!r:.80} twice.")
        return [str(label) for label in labels]

    def get_labels(self):
        return self._labels and list(self._labels)

    def _check_label(self, label, where):
        """Checks the label of an example, and returns it in the form that the target needs.

        Args:
          label: the label that the user's object returned.
          where: description of the example, for error messages.
        """
        if self._kind.is_score:
            try:
                score = float(label)
            except (TypeError, ValueError):
                score = math.nan
            if not abs(score) <= _MAX_SCORE:
                raise self._error(f"{where}: the label is {label!r:.80}. It must be a finite number.")
            return score
        if self._kind.is_multilabel and (isinstance(label, str) or not hasattr(label, "__iter__")):
            raise self._error(f"{where}: the label is {label!r:.80}. It must be a tuple of labels.")
        names = tuple(label) if self._kind.is_multilabel else (label,)
        for name in names:
            if name not in self._labels:
                raise self._error(f"{where}: the label {name!r:.80} is not one of the labels that "
                                  f"get_labels() returns: {', '.join(self._labels[:20])}.")
        return tuple(dict.fromkeys(names)) if self._kind.is_multilabel else label

    # --- Examples

    def has_examples(self, split):
        """Returns whether the user's class provides a set. Either the class has the method that returns the
        examples of the set, or it declares the file of the set."""
        base, method = classifier_data.DataProcessor, f"get_{split}_examples"
        return getattr(type(self.task), method) is not getattr(base, method) or split in self.task.files

    def require_examples(self, split):
        """Raises a ValueError if the class has no examples for a set."""
        if not self.has_examples(split):
            raise self._error(f"the method get_{split}_examples(data_dir) is missing, but "
                              f"--{_PHASE_OF[split]}=true needs it. Write this method, or pass only the "
                              "phases that you need.")

    def source_rows(self, examples):
        """See `DataProcessor`."""
        return self.task.source_rows(examples)

    def note_source(self, example, line, fields):
        """See `DataProcessor`."""
        self.task.note_source(example, line, fields)

    def get_train_examples(self, data_dir):
        return self._examples("get_train_examples", True, data_dir)

    def get_dev_examples(self, data_dir):
        return self._examples("get_dev_examples", True, data_dir)

    def get_test_examples(self, data_dir):
        examples = self._examples("get_test_examples", False, data_dir)
        self._test_count = len(examples)
        return examples

    def get_further_examples(self, data_dir, split):
        return self._examples("get_further_examples", split.startswith("dev"), data_dir, split)

    def _examples(self, method, has_labels, *arguments):
        """Returns copies of the checked examples of a set. The copies of test examples have a placeholder as
        label."""
        examples = self._call(method, *arguments)
        if examples is None and method == "get_further_examples":
            return None
        if not isinstance(examples, list | tuple):
            raise self._error(f"{method} returns {examples!r:.80}. It must return a list of InputExample.")
        if not examples:
            raise self._error(f"{method} returns no examples.")
        copies = []
        for index, example in enumerate(examples):
            if not isinstance(example, classifier_data.InputExample):
                raise self._error(f"{method}, example {index}: {example!r:.80} is not an "
                                  "InputExample.")
            where = f"{method}, example {index} (guid {example.guid!r:.40})"
            self._check_texts(example, where)
            label = self._check_label(example.label, where) if has_labels else self.target.default_label
            copies.append(classifier_data.copy_example(self.task, example, label))
        return copies

    def _check_texts(self, example, where):
        if not isinstance(example.text_a, str) or not isinstance(example.text_b, str | None):
            name = "text_b" if isinstance(example.text_a, str) else "text_a"
            raise self._error(f"{where}: {name} is {getattr(example, name)!r:.80}. It must be a text.")
        if not example.text_a.strip():
            raise self._error(f"{where}: text_a is empty.")

    def get_test_labels(self, data_dir):
        labels, count = self._call("get_test_labels", data_dir), self._test_count
        if labels is None:
            return None
        if not isinstance(labels, list | tuple) or len(labels) != count:
            size = len(labels) if isinstance(labels, list | tuple) else repr(labels)
            raise self._error(f"get_test_labels returns {size} labels, but get_test_examples returns {count} "
                              "examples. Return a list with one label for each example, or None.")
        return [self._check_label(label, f"get_test_labels, label {index}")
                for index, label in enumerate(labels)]

    def file_names(self):
        return self.task.file_names()

    # --- Metrics

    def own_metrics(self, examples, predictions, known):
        """Returns the metrics of the task's method `compute_metrics`, {name in eval_results.txt: number}.

        If `compute_metrics` raises an error, this error is logged and an empty dict is returned, so that the
        other results are still written. The attribute `failure` keeps it for the end of the run.

        Args:
          examples: list of `InputExample`.
          predictions: list of dicts, the head's prediction of each example.
          known: names of the metrics that the head computes.
        """
        method = getattr(self.task, "compute_metrics", None)
        if method is None:
            return {}
        answers = [self._answer(prediction[self.target.output]) for prediction in predictions]
        try:
            metrics = self._call("compute_metrics", [example.label for example in examples], answers)
            return self._check_metrics(metrics, known)
        except ValueError as error:
            logging.error("%s", error)
            self.failure = self.failure or error
            return {}

    def _answer(self, numbers):
        if not self._kind.is_multilabel:
            return self.target.predicted_label(numbers)
        return tuple(label for label, number in zip(self._labels, numbers) if number >= self.target.threshold)

    def _check_metrics(self, metrics, known):
        if not isinstance(metrics, dict):
            raise self._error(f"compute_metrics returns {metrics!r:.80}. It must return a dict "
                              "{name: number}.")
        checked = {}
        for name, value in metrics.items():
            full = f"eval_{name}"
            if not isinstance(name, str) or not re.fullmatch(r"[^\W\d]\w*", name) or full in known:
                raise self._error(f"compute_metrics returns a metric with the name {name!r:.80}. The name "
                                  "must consist of letters, digits and underscores, and must differ from "
                                  f"{', '.join(sorted(key.removeprefix('eval_') for key in known))}.")
            try:
                checked[full] = float(value)
            except (TypeError, ValueError):
                raise self._error(f"compute_metrics returns {value!r:.80} for {name}. It must return a "
                                  "number.") from None
        return checked
