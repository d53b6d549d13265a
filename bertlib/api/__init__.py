"""Trains, evaluates and predicts from a notebook or another Python program.

    from bertlib import api

    result = api.train([("good film", "1"), ("bad film", "0"), ...], "output/films", dev_fraction=0.2)
    print(result.metrics["eval_accuracy"])
    with api.load("output/films") as predictor:
        print(predictor("a very good film")["prediction"])

`train` and `evaluate` run the command run_classifier.py in a child process. `load` and `predict` compute in
the calling process. In the calling process, none of these functions changes TensorFlow's eager execution, the
logging or the signal handlers. The import of this package is fast, because only `load` and `predict` import
TensorFlow.

- How are the caller's data passed on, such as a DataFrame? `data_files`
- What do the functions return? `text_predictor`, `tables_of_results`
"""

import contextlib
import json
import os
from typing import Any

from bertlib.api import data_files, tables_of_results
from bertlib.api.tables_of_results import Result
from bertlib.api.text_predictor import TextPredictor
from bertlib.data.columns import parse_columns
from bertlib.data.tables import is_json_lines
from bertlib.runs import entries, file_names, registry
from bertlib.runs.output_directory import OutputDirectory
from bertlib.system import child_command, files
import bertlib.tasks  # noqa: F401  registers the tasks

__all__ = ["Result", "TextPredictor", "evaluate", "load", "predict", "train"]

_SCRIPT = "run_classifier.py"
_OWN_DATA = "own data"  # the value of "task" in run.json if a training used the user's own data
_TASK_MODULE = "task module"  # the value of "task" in run.json if a training used --task_module
# Commands that train classifiers.
_COMMANDS = (_SCRIPT, "run_classifier_with_tfhub.py")
_FOLDER = "data"  # folder of an output directory; data that are passed as objects are written to it
# Flags that the user cannot pass as settings: the functions of this module set them, or they have no use in
# Python.
_REFUSED = {"do_train", "do_eval", "do_predict", "test_file", "task_name", "data_dir", "predictions_format",
            "help", "helpfull", "helpshort", "helpxml", "flagfile", "undefok", "only_check_args"}


def train(data: Any, output_dir: str | os.PathLike[str], *, dev: Any = None,
          dev_fraction: float | None = None, text: Any = None, label: Any = None,
          task_type: str = "classification", verbose: bool = True, **settings: Any) -> Result:
    """Trains a classifier on your own data, and evaluates it.

    The function runs the command `run_classifier.py` in a child process. A direct call of this command with
    the same data and the same settings gives the same weights, bit for bit. Data in memory are written to the
    folder `data` in `output_dir`, as JSON Lines.

    After Ctrl-C, or after "Interrupt" in a notebook, the training saves its last complete step. To continue
    an interrupted training from its last checkpoint, repeat the same call.

    If `output_dir` contains a complete training, no step is trained. Other data in memory than those of this
    training are an error. If a file or a setting differs, a warning says so.

    Args:
      data: the training data: a pandas DataFrame; a list of dicts; a list of tuples (text, label) or
        (text_a, text_b, label); or the path of a file, see --train_file. With
        `task_type="multilabel"`, the label of a row is a list of str.
      output_dir: directory for the checkpoints and the results.
      dev: the development data for the evaluation, in one of the forms of `data`.
      dev_fraction: fraction of `data`, at most 0.5, that is used for the evaluation instead of the training.
        Without `dev` and `dev_fraction`, nothing is evaluated.
      text: name of the column of the text, or a list of two names for pairs of texts. By default, the
        command looks for columns with usual names, such as "text".
      label: name of the column of the label. By default, the command looks for a usual name, such as "label".
      task_type: "classification", "regression" or "multilabel".
      verbose: whether to print the log of the training. Without the log, each of its warnings is a Python
        `UserWarning`.
      **settings: flags of `run_classifier.py` by name, such as num_train_epochs=2 or learning_rate=3e-5. A
        setting with the value None is not passed to the command.

    Returns:
      a `Result` with the metrics and the predictions of the development data. Without development data, its
      metrics and predictions are None.

    Raises:
      TypeError: a setting is unknown, or an argument has the wrong type.
      ValueError: the data or the settings cannot be used. The text of the exception is the error message of
        the command, with arguments of Python instead of flags. If the data are in memory, the message names
        rows instead of lines, counted from 1.
      ChildProcessError: the training was ended by a signal, or by an unknown error.
      KeyboardInterrupt: the training was interrupted.

    Examples:
      >>> from bertlib import api
      >>> rows = [("a good film", "good"), ("a bad film", "bad")] * 20
      >>> result = api.train(rows, "output/films", dev=rows[:4], num_train_epochs=1, verbose=False)
      >>> "eval_accuracy" in result.metrics
      True
    """
    directory = data_files.directory_path(output_dir, "train(data, output_dir)")
    files.require_directory("output_dir", directory)
    if dev is not None and dev_fraction is not None:
        raise TypeError("`dev` and `dev_fraction` exclude each other: the development data are either "
                        "`dev` or a part of `data`. Pass only one of the two arguments.")
    columns = data_files.named_columns(text, label)
    folder = os.path.join(directory, _FOLDER)
    files_by_flag = {"train_file": data_files.prepare(data, folder, "train", columns)}
    _refuse_other_data(directory, files_by_flag["train_file"])
    if dev is not None:
        columns = files_by_flag["train_file"].columns
        files_by_flag["dev_file"] = data_files.prepare(dev, folder, "dev", columns, argument="dev")
    has_dev = bool(dev is not None or dev_fraction is not None)
    flags = _settings(settings, train, dict(output_dir=directory, task_type=task_type,
                                            dev_fraction=dev_fraction, do_train=True,
                                            do_eval=has_dev or None))
    _run(flags, files_by_flag, verbose)
    results_dir = data_files.expand_path(settings.get("results_dir") or directory)
    if not has_dev:
        return Result(directory, results_dir)
    return _result(directory, results_dir, data if dev is None else dev, columns.label)


def evaluate(output_dir: str | os.PathLike[str], data: Any = None, *, text: Any = None, label: Any = None,
             results_dir: str | os.PathLike[str] | None = None, verbose: bool = True,
             **settings: Any) -> Result:
    """Evaluates a trained classifier.

    The function runs the command `run_classifier.py` in a child process. All settings of the model come from
    `output_dir`. The training in `output_dir` is not changed.

    Args:
      output_dir: output directory of the training, for example of `train`.
      data: the data with labels, in one of the forms that `train` takes. None: the development data of the
        training are used. If the model was trained with --task_module, this executes the copy of the module
        in `output_dir`.
      text: see `train`. By default, the function uses the columns that the training used.
      label: see `train`. By default, the function uses the column that the training used.
      results_dir: directory for the results; by default, the folder `evaluation` in `output_dir`.
      verbose: see `train`.
      **settings: see `train`.

    Returns:
      a `Result`. Its `metrics` are those of eval_results.json. Its `predictions` have one row for each row of
      the data. The columns of `predictions` are line, all columns of the data, label, prediction,
      probability_LABEL for each label, is_right and loss.

    Raises:
      TypeError: see `train`.
      ValueError: see `train`; or `output_dir` contains no training of a classifier.
      ChildProcessError: see `train`.
      KeyboardInterrupt: the evaluation was interrupted.

    Examples:
      >>> from bertlib import api
      >>> result = api.evaluate("output/mrpc", "samples/MRPC/dev.tsv", text=[4, 5], label=1, header="true",
      ...                       verbose=False)
      >>> len(result.predictions) == sum(map(sum, result.metrics["eval_confusion_matrix"]))
      True
    """
    directory = data_files.directory_path(output_dir, "evaluate(output_dir, data)")
    record = _record(directory)
    if record.get("command", _SCRIPT) not in _COMMANDS:
        raise ValueError(f"{directory} contains a training by {record['command']}, and no training of a "
                         "classifier. Evaluate the model with that command, or pass the `output_dir` of a "
                         "classifier.")
    results = data_files.expand_path(results_dir or os.path.join(directory, "evaluation"))
    columns = data_files.named_columns(text, label)
    files_by_flag, more = {}, {}
    train_file = record.get("files", {}).get("train_file")
    if train_file and settings.get("baseline") in (True, "true"):
        files_by_flag["train_file"] = data_files.DataFile(_find_moved(directory, train_file), columns)
    if data is not None:
        files_by_flag["dev_file"] = data_files.prepare(data, os.path.join(results, _FOLDER), "dev", columns,
                                                       _trained_columns(record))
        if files_by_flag["dev_file"].content is not None:
            # The training may have used --skip_bad_lines for its file. But the evaluation of rows in memory
            # must raise an error for a bad row, and must not skip it.
            settings = {"skip_bad_lines": False, **settings}
    elif record["task"] == _OWN_DATA:
        name, data = _development_file(record, directory)
        files_by_flag[name] = data_files.DataFile(data, columns)
    elif record["task"] != _TASK_MODULE:
        more["task_name"] = record["task"]
    earlier_record = OutputDirectory(results).record
    if earlier_record and earlier_record["task"] != (_OWN_DATA if files_by_flag else record["task"]):
        raise ValueError(f"results_dir={results} contains the training of a different task, and the "
                         "results of that training would be read. Pass another `results_dir`.")
    flags = _settings(settings, evaluate, dict(output_dir=directory, results_dir=results, do_eval=True,
                                               **more))
    _run(flags, files_by_flag, verbose)
    return _result(directory, results, data, columns.label)


def predict(output_dir: str | os.PathLike[str], data: Any, *, text: Any = None, **options: Any) -> Any:
    """Predicts with a trained model for many rows, in the calling process.

    Args:
      output_dir: output directory of a training.
      data: a pandas DataFrame, a pandas Series, a list of dicts, a list of texts, a list of pairs
        (tuples of two str), or the path of a file. Labels are not needed.
      text: name of the column of the text, or a list of two names. By default, the function uses the
        columns that the training used.
      **options: see `load`.

    Returns:
      a table with all columns of the data, a column prediction, and a column probability_LABEL for each
      label. The columns of the data keep their names. Exception: a column with the name of one of the other
      columns gets the prefix "input_", such as input_prediction. The table is a DataFrame if pandas is
      installed, otherwise a list of dicts. If the data are a DataFrame or a Series, the table has the index
      of the data. Predictions have the type of the labels in a DataFrame. Without these, they have the type
      of the training labels, if `train` got these in memory. Otherwise, they are texts.

    Raises:
      TypeError: the data have a type that is not supported, or an option is unknown.
      ValueError: the data are empty, a column is missing, a text is empty or missing, or the model cannot be
        loaded.
      FileNotFoundError: the data are the path of a file that does not exist.

    Examples:
      >>> from bertlib import api
      >>> table = api.predict("output/mrpc", [("The cat sleeps.", "A cat is sleeping.")])
      >>> len(table)
      1
    """
    directory = data_files.directory_path(output_dir, "predict(output_dir, data)")
    if data_files.is_series(data):
        if text is not None:
            raise TypeError("The argument `text` names columns, but a Series has no columns. Leave `text` "
                            "out.")
        name = str(data.name) if isinstance(data.name, str | int) else ""
        text = name if data_files.is_column_name(name) else "text"
        data = data.to_frame(text)
    names = data_files.column_names(text, "text")
    inputs, index = data_files.to_inputs(data), data_files.index_of(data)
    with _load(directory, data, options) as predictor:
        table = tables_of_results.table(predictor.predict_rows(inputs, names, index), index)
    return tables_of_results.restore_columns(table, data, 0) if data_files.is_frame(data) else table


def load(output_dir: str | os.PathLike[str], **options: Any) -> TextPredictor:
    """Loads a trained model into the calling process.

    The function imports TensorFlow, and hides the messages that TensorFlow prints at its start. To see these
    messages, set the environment variable TF_CPP_MIN_LOG_LEVEL=0. The function does not change TensorFlow's
    settings: eager execution stays on, and Keras can be used in the same process.

    Args:
      output_dir: output directory of a training.
      **options: task, precision and batch_size, see `bertlib.serving.load`.

    Returns:
      a `TextPredictor`. Its labels have the type of the training labels, see `predict`. To free the memory of
      the predictor, call its method `close`, or use the predictor in a `with` statement.

    Raises:
      NotADirectoryError: `output_dir` does not exist or is not a directory.
      TypeError: an option is unknown.
      ValueError: a file of the training is missing or damaged.

    Examples:
      >>> from bertlib import api
      >>> with api.load("output/mrpc") as predictor:
      ...     answer = predictor(("The cat sleeps.", "A cat is sleeping."))
      >>> sorted(answer)
      ['label', 'prediction', 'probabilities']
    """
    return _load(data_files.directory_path(output_dir, "load(output_dir)"), None, options)


def _load(directory, data, options):
    """Returns a `TextPredictor`; see `load`. Its labels have the type of the labels in `data`, see
    `_label_values`."""
    # The import is here because `import bertlib.api` has to be fast.
    from bertlib import serving

    predictor = serving.load(directory, **options)
    return TextPredictor(predictor, predictor.answers.has_label and _label_values(directory, data))


# --- Files and flags -------------------------------------------------------------------------------------


def _flag_names():
    """Returns the names of the command's flags that have an argument or a setting in Python, as a set."""
    return {entry.name for entry in registry.find_flags(_SCRIPT.removesuffix(".py"))} - _REFUSED


def _settings(settings, function, ours):
    """Returns the flags of a command, {name: value}.

    Args:
      settings: {name: value}, the settings that the user passed.
      function: the function that the user called.
      ours: {name: value}, the flags that the called function sets itself.

    Raises:
      TypeError: a setting cannot be passed.
    """
    for name in settings:
        if function is evaluate and name == "train_file":
            raise TypeError("evaluate() does not take the setting 'train_file': pass baseline=True, and it "
                            "reads the training file of the model.")
        if name in data_files.ARGUMENTS:
            raise TypeError(f"{function.__name__}() got the setting {name!r}. Pass the argument "
                            f"`{data_files.ARGUMENTS[name]}` instead.")
        if name in _REFUSED:
            raise TypeError(f"{function.__name__}() does not take the setting {name!r}: the function sets "
                            "this flag, or the flag has no use in Python. Leave it out.")
        if name not in (flag_names := {*_flag_names(), "traceback", "verbosity"}):
            raise child_command.unknown_flag(name, entries.similar_names(name, flag_names)[:1])
    return {"predictions_format": tables_of_results.PREDICTIONS_FORMAT, **settings, **ours}


def _refuse_other_data(directory, file):
    """Raises a ValueError if an output directory contains a training on other data than those in memory that
    become a `DataFile`: its scores would be those of the other data."""
    training = OutputDirectory(directory)
    record = training.latest_checkpoint and training.record
    if record and file.content is not None and record["task"] == _OWN_DATA and (
            os.path.basename(file.path) != os.path.basename(record["files"].get("train_file") or "")):
        raise ValueError(f"output_dir={directory} contains a training on other data. Pass another "
                         "`output_dir`. To continue that training, pass its data.")


def _run(flags, files_by_flag, verbose):
    """Writes the data files, and runs the command.

    Args:
      flags: {name: value}, the flags that name neither a data file nor a column.
      files_by_flag: {name of a flag: the `DataFile` whose path is the value of the flag}.
      verbose: see `train`.

    Raises:
      TypeError: the value of a flag has the wrong type.
    """
    columns = next(iter(files_by_flag.values())).columns if files_by_flag else data_files.Columns()
    words = child_command.flags({**flags, **{name: file.path for name, file in files_by_flag.items()},
                                 "text_column": columns.text, "label_column": columns.label})

    def explain(message):
        for file in files_by_flag.values():
            message = message if file.content is None else data_files.name_rows(message, file)
        return data_files.explain_flags(message, _flag_names())

    for file in files_by_flag.values():
        data_files.write(file)
    child_command.run(_SCRIPT, words, verbose, explain)


def _result(output_dir, results_dir, data, label):
    """Returns the `Result` of an evaluation.

    Args:
      output_dir, results_dir: see `Result`.
      data: the evaluated data, as the caller passed them, or data that contain them; or the path of a file.
      label: names of the columns of the labels, a tuple of str; None for those of the training.
    """
    table = tables_of_results.read_predictions(results_dir, _label_values(output_dir, data, label))
    frame = tables_of_results.read_frame(data) if data_files.is_path(data) else data
    if data_files.is_frame(frame):
        table = tables_of_results.restore_columns(table, frame.iloc[table["line"] - 1], 1)
    return Result(output_dir, results_dir, OutputDirectory(results_dir).read_results(), table)


def _label_values(directory, data=None, names=None):
    """Returns {text: label}, if the caller's labels are numbers or booleans. Otherwise, returns {}.

    The type is that of the first label in `data`. Without labels in `data`, it is the type of the first label
    of the training, if the training data were in memory.

    Args:
      directory: the output directory of the training.
      data: a DataFrame; other data are ignored.
      names: names of the columns of the labels; None for those of the training.
    """
    record = OutputDirectory(directory).record or {"settings": {}}
    names = names or _trained_columns(record).label or ()

    def find_labels():
        for name in data if data_files.is_frame(data) else ():
            yield from data[name].dropna() if str(name) in names else ()
        path = _moved_path(directory, record.get("files", {}).get("train_file") or "")
        if is_json_lines(path) and files.exists(path):
            with files.open_file(path) as lines:
                for row in map(json.loads, lines):
                    yield from (row[name] for name in names if row.get(name) is not None)

    if isinstance(next(find_labels(), ""), str | list):
        return {}
    with contextlib.suppress(ValueError):  # --label_map has replaced numbers by names
        return {text: json.loads(text) for text in record.get("labels") or ()}
    return {}


def _moved_path(directory, path):
    """Returns the path that a file of the folder `data` has now, if the output directory was moved."""
    return os.path.join(directory, _FOLDER, os.path.basename(path))


def _record(directory):
    """Returns the content of run.json in an output directory.

    Raises:
      ValueError: there is no run.json, or it is damaged.
    """
    record = OutputDirectory(directory).record
    if record is None:
        raise ValueError(f"{directory} has no {file_names.RECORD}, so it is not the output directory of a "
                         "training. Pass the `output_dir` of a training.")
    return record


def _trained_columns(record):
    """Returns the `Columns` that a training used. They are read from the record, the content of run.json.
    `Columns.text` is None if the record has no --text_column. `Columns.label` is None if the record has no
    --label_column."""
    def names(flag):
        value = record["settings"].get(flag)
        return tuple(map(str, parse_columns(value))) if value else None

    return data_files.Columns(names("text_column"), names("label_column"))


def _development_file(record, directory):
    """Returns (flag, path) of the file with the development data of a training. The flag is "train_file" if
    the development data are a fraction of the training file, otherwise "dev_file".

    Raises:
      ValueError: the training had no development data.
    """
    paths = record.get("files", {})
    name = "train_file" if record["settings"].get("dev_fraction") else "dev_file"
    path = paths.get(name)
    if not path:
        raise ValueError(f"the training in {directory} had no development data. Pass `data`.")
    return name, _find_moved(directory, path)


def _find_moved(directory, path):
    """Returns the path of a file of a training. If the output directory was moved after the training, the
    file is no longer at the recorded path. But it may still be in the folder `data` of the directory."""
    here = _moved_path(directory, path)
    return here if files.exists(here) and not files.exists(path) else path
