"""Writes data of the calling program to JSON Lines files, which the commands can read."""

import contextlib
import hashlib
import json
import math
import os
import re
from typing import Any, NamedTuple

from bertlib.system import files

# {length of the tuples: names of the text columns}, for tuples (text, label) and (text_a, text_b, label).
_TEXTS_OF_TUPLES = {2: ("text",), 3: ("text_a", "text_b")}
_LABEL_OF_TUPLES = "label"
_FORMS = ("a pandas DataFrame, a list of dicts, a list of tuples (text, label) or (text_a, text_b, label), "
          "or the path of a file")
# Maps flags of the commands to the arguments of the functions in `bertlib.api` that set these flags.
ARGUMENTS = {"train_file": "data", "dev_file": "dev", "text_column": "text", "label_column": "label"}
_MAX_SHOWN = 80
# Names of the classes that pandas uses for a missing value.
_MISSING = {"NAType", "NaTType"}


class Columns(NamedTuple):
    """Names of the columns of the data: a tuple of str for the texts, and a tuple of str for the labels. If a
    tuple is None, the command looks for columns with usual names."""

    text: tuple[str, ...] | None = None
    label: tuple[str, ...] | None = None


class DataFile(NamedTuple):
    """A file that a command reads.

    Attributes:
      path: str.
      columns: the `Columns`.
      content: the bytes that `write` writes to the path; None if the file exists already.
      argument: name of the argument with the data, for error messages.
      data: the data of the caller.
    """

    path: str
    columns: Columns
    content: bytes | None = None
    argument: str = "data"
    data: Any = None


def is_frame(data):
    """Returns whether data are a pandas DataFrame. The function does not import pandas."""
    return hasattr(data, "columns") and hasattr(data, "to_dict") and hasattr(data, "iloc")


def is_series(data):
    """Returns whether data are a pandas Series. The function does not import pandas."""
    return hasattr(data, "to_frame") and hasattr(data, "iloc")


def index_of(data):
    """Returns the index of a pandas DataFrame. Returns None for all other data."""
    return data.index if is_frame(data) else None


def row_name(number, index, argument="data"):
    """Returns the name of a row for error messages, such as "data, row 3 (index 'id14')".

    Args:
      number: number of the row, from 1.
      index: the index of the pandas data; None for all other data.
      argument: name of the argument with the data.
    """
    name = f"{argument}, row {number}"
    return name if index is None else f"{name} (index {plain_value(index[number - 1])!r})"


def name_rows(message, file):
    """Returns a message of a command in which the rows of the caller replace the lines of a `DataFile`."""
    def name(match):
        return row_name(int(match[1]), index_of(file.data), file.argument) if match[1] else file.argument

    text = re.sub(rf"(?:--\w+=)?{re.escape(file.path)}(?::(\d+))?", name, message)
    # The second group is in quotes: it is a part of the data.
    return message if text == message else re.sub(
        r"\bline(s?)\b|('[^'\n]*')", lambda match: match[2] or f"row{match[1]}", text)


def explain_flags(message: str, names: set[str]) -> str:
    """Returns an error message for a Python program: flags are written as arguments of a function. For
    example, --skip_bad_lines=true becomes skip_bad_lines=True.

    Args:
      message: the message of a command.
      names: the flags that the function takes as arguments. All other flags are left unchanged.
    """
    def in_python(match):
        name, value = ARGUMENTS.get(match[1], match[1]), match[2].title()
        return match[0] if match[1] not in names else f"{name}{value}" if value else f"`{name}`"

    return re.sub(r"--(\w+)(=true\b|=false\b|=|)", in_python, message)


def is_path(data):
    """Returns whether data are the path of a file."""
    return isinstance(data, str | os.PathLike)


def directory_path(output_dir, call):
    """Returns the argument `output_dir` as a str. `call` shows the order of arguments, for the TypeError."""
    if not is_path(output_dir):
        raise TypeError(f"output_dir is {_describe(output_dir)}, but it must be the path of a directory. "
                        f"Call {call}.")
    return expand_path(output_dir)


def expand_path(path):
    """Returns a path as a str, in which ~ is replaced by the user's home directory."""
    return os.path.expanduser(os.fspath(path))


def is_column_name(text):
    """Returns whether a text can be passed to a command as the name of a column."""
    return bool(text) and "," not in text and text == text.strip()


def column_names(value, name):
    """Returns the names of the columns in an argument, as a tuple of str. Returns None if the argument is
    None.

    Args:
      value: the name or the number of a column, or a list or tuple of them.
      name: name of the argument, for error messages.

    Raises:
      TypeError: the value has a type that is not supported.
      ValueError: the value is empty, or a name cannot be written in a flag.
    """
    if value is None:
        return None
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values or not all(isinstance(column, str | int) and not isinstance(column, bool)
                             for column in values):
        raise TypeError(f"{name}={value!r:.{_MAX_SHOWN}} must be the name of a column, or a list of names.")
    names = tuple(map(str, values))
    for column in names:
        if not is_column_name(column):
            problem = "contains a comma" if "," in column else "is empty, or begins or ends with a space"
            raise ValueError(f"{name}: the name {column!r} {problem}, so it cannot be passed to the command. "
                             "Rename the column in the data.")
    return names


def named_columns(text, label):
    """Returns the `Columns` that the arguments `text` and `label` name; see `column_names`."""
    return Columns(column_names(text, "text"), column_names(label, "label"))


def prepare(data, directory, name, columns, of_tuples=None, argument="data"):
    """Converts data into a `DataFile` for a command. The function `write` writes this file later.

    The name of the file contains a fingerprint of the content. So equal data are written to the same file.

    Args:
      data: a DataFrame, a list of dicts, a list of tuples, or the path of a file.
      directory: the directory for the file.
      name: the first part of the file's name.
      columns: the columns that the caller named.
      of_tuples: names for the values in a tuple. They are used if `data` is a list of tuples and `columns`
        contains no names. If `of_tuples` is None, default names such as "text" and "label" are used instead.
      argument: name of the argument, for error messages.

    Raises:
      TypeError: the data have a type that is not supported.
      ValueError: the data are empty, a column is missing, or two columns have the same name.
    """
    if is_path(data):
        return DataFile(expand_path(data), columns)
    rows, columns = to_rows(data, columns, of_tuples, argument)
    content = json_lines(rows)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    path = os.path.join(directory, f"{name}-{digest}.jsonl")
    return DataFile(path, columns, content, argument, data)


def frame_path(path):
    """Returns the path of the second file that `write` writes for a DataFrame."""
    return f"{path.removesuffix('.jsonl')}.frame.json"


def write(file):
    """Writes the content of a `DataFile` atomically, unless the file exists already. The parts of a DataFrame
    that JSON Lines lack are written to a second file; see `tables_of_results.read_frame`."""
    if file.content is not None and not files.exists(file.path):
        files.make_parent(file.path)
        files.write_bytes(file.path, file.content)
    if is_frame(file.data):
        index = file.data.index
        levels = map(index.get_level_values, range(index.nlevels))
        about = {"columns": list(file.data), "types": list(map(str, file.data.dtypes)),
                 "index": [[level.name, str(level.dtype), list(level)] for level in levels]}
        files.write_json(frame_path(file.path), plain_value(about), indent=None)


def to_inputs(data):
    """Checks the data for a prediction, and converts them to a path or to a list.

    Returns:
      a path as a str, a list of dicts, a list of texts, or a list of pairs of texts (tuples).

    Raises:
      TypeError, ValueError: see `to_rows`.
    """
    if is_path(data):
        if not files.exists(path := expand_path(data)):
            raise FileNotFoundError(f"{path} does not exist. To predict one text, pass a list.")
        return path
    if not is_frame(data) and hasattr(data, "tolist"):  # a NumPy array or a pandas Series
        data = data.tolist()
    if isinstance(data, list) and data and not isinstance(data[0], dict):
        return data
    if not is_frame(data) and not isinstance(data, list):
        raise TypeError(f"data is {_describe(data)}. Pass a pandas DataFrame, a list of dicts, a list of "
                        "texts, a list of pairs, or the path of a file. For a single input, use `load`.")
    return to_rows(data, Columns())[0]


def json_lines(rows):
    """Returns the rows in the format JSON Lines, as bytes."""
    return b"".join(map(_line, rows))


def to_rows(data, columns, of_tuples=None, argument="data"):
    """Converts data in memory to rows. Returns (list of dicts, names of the columns as `Columns`). For the
    arguments and errors, see `prepare`."""
    kinds = {type(row) for row in data} if isinstance(data, list) else None
    if is_frame(data):
        names = data.columns.map(str)
        if not names.is_unique:
            raise ValueError(f"{argument} has two columns with the name {names[names.duplicated()][0]!r}. "
                             "Rename one of them.")
        rows = data.to_dict("records")
    elif kinds == {tuple}:
        rows, columns = _tuple_rows(data, columns, of_tuples, argument)
    elif kinds is not None and kinds <= {dict}:
        rows = data
    else:
        raise TypeError(f"{argument} is {_describe(data)}. Pass {_FORMS}.")
    if not rows:
        raise ValueError(f"{argument} has no rows. Pass at least one row.")
    return list(map(plain_value, rows)), columns


def plain_value(value):
    """Converts a value to a type that JSON has. A missing value becomes None. Bytes in UTF-8 become the text
    that they encode. A value that JSON cannot represent, such as a date, becomes text."""
    if isinstance(value, dict):
        return {str(name): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain_value, value))
    if isinstance(value, set | frozenset):
        return sorted(map(plain_value, value), key=str)
    if hasattr(value, "tolist"):  # a NumPy array or a NumPy number
        if getattr(getattr(value, "dtype", None), "kind", "") not in ("m", "M"):
            return plain_value(value.tolist())
        if value.ndim:  # `tolist` would convert the nanoseconds of dates and durations to numbers
            return list(map(plain_value, value))
        return None if str(value) == "NaT" else str(value)
    if type(value).__name__ in _MISSING or isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bytes):
        # Not all bytes are a text, for example an image in a column that is not used.
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    if value is None or isinstance(value, str | int) or isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def _describe(data):
    """Returns the type of data in words, for error messages."""
    if isinstance(data, list):
        kinds = sorted({type(row).__name__ for row in data})
        return f"a list of {' and '.join(kinds)}"
    return f"of the type {type(data).__name__}"


def _tuple_rows(data, columns, of_tuples, argument):
    defaults = of_tuples or Columns()
    width = len(data[0])
    tuple_columns = Columns(columns.text or defaults.text or _TEXTS_OF_TUPLES.get(width, ("text",)),
                            columns.label or defaults.label or (_LABEL_OF_TUPLES,))
    names = [*tuple_columns.text, *tuple_columns.label]
    for number, row in enumerate(data):
        if len(row) != len(names):
            raise ValueError(f"{argument}[{number}] has {len(row)} values, but the columns are "
                             f"{', '.join(names)}. Pass a tuple with one value for each of these columns.")
    return [dict(zip(names, row)) for row in data], tuple_columns


def _line(row):
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        # The row contains half of a surrogate pair. This half is written as an escape, so that the command
        # can read the file and name this line in its error message.
        return (json.dumps(row) + "\n").encode()
