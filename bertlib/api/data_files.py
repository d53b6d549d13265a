"""Writes data of the calling program to JSON Lines files, which the commands can read."""

import contextlib
import hashlib
import json
import math
import os
from typing import Any, NamedTuple

from bertlib.system import files

# {length of the tuples: names of the text columns}, for tuples (text, label) and (text_a, text_b, label).
_TEXTS_OF_TUPLES = {2: ("text",), 3: ("text_a", "text_b")}
_LABEL_OF_TUPLES = "label"
_FORMS = ("a pandas DataFrame, a list of dicts, a list of tuples (text, label) or (text_a, text_b, label), "
          "or the path of a file")
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
    """

    path: str
    columns: Columns
    content: bytes | None = None


def is_frame(data: Any) -> bool:
    """Returns whether data are a pandas DataFrame. The function does not import pandas."""
    return hasattr(data, "columns") and hasattr(data, "to_dict") and hasattr(data, "iloc")


def index_of(data: Any) -> Any:
    """Returns the index of a pandas DataFrame or Series. Returns None for all other data."""
    return data.index if hasattr(data, "iloc") else None


def is_path(data: Any) -> bool:
    """Returns whether data are the path of a file."""
    return isinstance(data, str | os.PathLike)


def column_names(value: Any, name: str) -> tuple[str, ...] | None:
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
        if not column or "," in column or column != column.strip():
            raise ValueError(f"{name}: the name {column!r} is empty, contains a comma, or begins or ends "
                             "with a space. Rename the column.")
    return names


def prepare(data: Any, directory: str, name: str, columns: Columns, of_tuples: Columns | None = None,
            argument: str = "data") -> DataFile:
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
        return DataFile(os.fspath(data), columns)
    rows, columns = to_rows(data, columns, of_tuples, argument)
    content = json_lines(rows)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return DataFile(os.path.join(directory, f"{name}-{digest}.jsonl"), columns, content)


def write(file: DataFile) -> list[str]:
    """Writes the content of a `DataFile` atomically. Returns the paths of new files and directories, in the
    order in which they were created."""
    if file.content is None or files.exists(file.path) and files.read_bytes(file.path) == file.content:
        return []
    created, directory = [file.path], os.path.dirname(file.path)
    while directory and not files.exists(directory):
        created.insert(0, directory)
        directory = os.path.dirname(directory)
    files.make_directories(os.path.dirname(file.path))
    files.write_bytes(file.path, file.content)
    return created


def remove(created: list[str]) -> None:
    """Removes files and directories that `write` has created. Directories that are not empty are kept."""
    for path in reversed(created):
        with contextlib.suppress(OSError):
            if files.is_directory(path):
                os.rmdir(path)
            else:
                files.remove(path)


def to_inputs(data: Any) -> Any:
    """Checks the data for a prediction, and converts them to a path or to a list.

    Returns:
      a path as a str, a list of dicts, a list of texts, or a list of pairs of texts (tuples).

    Raises:
      TypeError, ValueError: see `to_rows`.
    """
    if is_path(data):
        return os.fspath(data)
    if not is_frame(data) and hasattr(data, "tolist"):  # a NumPy array or a pandas Series
        data = data.tolist()
    if isinstance(data, list) and data and not isinstance(data[0], dict):
        return data
    if not is_frame(data) and not isinstance(data, list):
        raise TypeError(f"data is {_describe(data)}. Pass a pandas DataFrame, a list of dicts, a list of "
                        "texts, a list of pairs, or the path of a file. For a single input, use `load`.")
    return to_rows(data, Columns())[0]


def json_lines(rows: list[dict]) -> bytes:
    """Returns the rows in the format JSON Lines, as bytes."""
    return b"".join(map(_line, rows))


def to_rows(data: Any, columns: Columns, of_tuples: Columns | None = None,
            argument: str = "data") -> tuple[list[dict], Columns]:
    """Converts data in memory to rows. Returns (list of dicts, names of the columns as `Columns`). For the
    arguments and errors, see `prepare`."""
    if is_frame(data):
        rows = _frame_rows(data, argument)
    elif isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        rows = [_with_names_as_text(row, f"{argument}[{number}]") for number, row in enumerate(data)]
    elif isinstance(data, list) and data and all(isinstance(row, tuple) for row in data):
        rows, columns = _tuple_rows(data, columns, of_tuples, argument)
    elif isinstance(data, list) and not data:
        rows = []
    else:
        raise TypeError(f"{argument} is {_describe(data)}. Pass {_FORMS}.")
    if not rows:
        raise ValueError(f"{argument} has no rows. Pass at least one row.")
    for name in (*(columns.text or ()), *(columns.label or ())):
        if name not in rows[0]:
            raise ValueError(f"{argument} has no column {name!r}. Its columns are "
                             f"{', '.join(map(repr, rows[0]))}.")
    return rows, columns


def plain_value(value: Any) -> Any:
    """Converts a value to a type that JSON has. A missing value becomes None. Bytes in UTF-8 become the text
    that they encode. A value that JSON cannot represent, such as a date, becomes text."""
    if type(value).__name__ in _MISSING:
        return None
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:  # not a text, for example an image in a column that is not used
            return str(value)
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, dict):
        return {str(name): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((plain_value(inner) for inner in value), key=str)
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        # Dates and durations of NumPy. Their method `tolist` would convert nanoseconds to numbers.
        if value.ndim:
            return [plain_value(inner) for inner in value]
        return None if str(value) == "NaT" else str(value)
    if hasattr(value, "tolist"):  # a NumPy array or a NumPy number
        return plain_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    return value if isinstance(value, int) else str(value)


def _describe(data):
    """Returns the type of data in words, for error messages."""
    if isinstance(data, list):
        kinds = sorted({type(row).__name__ for row in data})
        return f"a list of {' and '.join(kinds)}"
    return f"of the type {type(data).__name__}"


def _frame_rows(frame, argument):
    names = frame.columns.map(str)
    if not names.is_unique:
        raise ValueError(f"{argument} has two columns with the name {names[names.duplicated()][0]!r}. Rename "
                         "one of them.")
    return list(map(plain_value, frame.to_dict("records")))


def _with_names_as_text(row, where):
    found = plain_value(row)
    if len(found) < len(row):
        raise ValueError(f"{where} has two keys with the same text, such as 1 and '1'. Rename one of "
                         "them.")
    return found


def _tuple_rows(data, columns, of_tuples, argument):
    widths = sorted({len(row) for row in data})
    if len(widths) > 1 or widths[0] not in _TEXTS_OF_TUPLES:
        raise ValueError(f"{argument} has tuples with {' and '.join(map(str, widths))} values. Pass (text, "
                         "label) for each row, or (text_a, text_b, label) for each row.")
    trained = of_tuples or Columns()
    found = Columns(columns.text or trained.text or _TEXTS_OF_TUPLES[widths[0]],
                    columns.label or trained.label or (_LABEL_OF_TUPLES,))
    names = [*found.text, *found.label]
    if len(names) != widths[0]:
        raise ValueError(f"{argument} has tuples with {widths[0]} values, but the columns are "
                         f"{', '.join(names)}. Pass one value for each of these columns.")
    return [dict(zip(names, map(plain_value, row))) for row in data], found


def _line(row):
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        # The row contains half of a surrogate pair. This half is written as an escape, so that the command
        # can read the file and name this line in its error message.
        return (json.dumps(row) + "\n").encode()
