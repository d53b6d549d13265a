"""Files of rows: comma-separated, semicolon-separated or tab-separated values, or JSON Lines.

Every command reads rows here, whether from a file or line by line from a pipe: a row is there as soon as its
last line is. A row that cannot be read is a `BadRow` among the others.
"""

import contextlib
import csv
import gzip
import io
import itertools
import json
import math
import re
from typing import NamedTuple
import zlib

from bertlib.system import files

# Each also with .gz; JSON Lines has two.
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}
FORMATS = ("csv", "tsv", "jsonl")
# Characters of a field at most. More is a quote that is not closed, or a file without line ends.
MAX_FIELD_CHARACTERS = 10**8
_PLURALS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
# Lines of a first row at most that are looked at for its delimiter.
_MAX_LINES = 1000


class BadRow(NamedTuple):
    """A row or line that cannot be read: what is wrong, a sentence."""

    problem: str


class RowError(ValueError):
    """A problem in a row, raised where the row's line is known and its file is not; see
    `name_file_in_errors`."""

    def __init__(self, line, problem):
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


@contextlib.contextmanager
def name_file_in_errors(path):
    """Adds the file to each `RowError` of the block.

    Raises:
      ValueError: in place of the `RowError`.
    """
    try:
        yield
    except RowError as error:
        raise ValueError(f"{path}:{error.line}: {error.problem}") from None


def parse_number(text):
    """Returns the number that a text is, a float: ASCII digits, at most one point, an exponent. None if it is
    none, or too large for a float.

    Python's own float() takes "1_000", "nan" and digits of any script too.
    """
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


# --- Lines -----------------------------------------------------------------------------------------------


def format_from_name(path):
    """Returns the format that the ending of a file's name says, one of `FORMATS`.

    Raises:
      ValueError: it says none.
    """
    name = str(path).lower().removesuffix(".gz")
    found = next((ENDINGS[ending] for ending in ENDINGS if name.endswith(ending)), None)
    if found is None:
        raise ValueError(f"{path}: the ending of its name should say the format: {', '.join(ENDINGS)} (JSON "
                         "Lines, both), each also with .gz.")
    return found


def is_compressed(path):
    """Whether the ending of a file's name says that it is compressed."""
    return str(path).lower().endswith(".gz")


@contextlib.contextmanager
def open_table(path):
    """Gives the binary stream of a file's lines, which may be compressed.

    Raises:
      FileNotFoundError, ValueError: the file is missing or damaged.
    """
    if not files.exists(path):
        raise FileNotFoundError(f"{path} does not exist")
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(files.open_file(path, "rb"))
        if is_compressed(path):
            stream = stack.enter_context(gzip.open(stream))
        try:
            yield stream
        except EOFError:
            raise ValueError(f"{path} is cut off: its compressed content goes on. Make or fetch it "
                             "again.") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is no gzip file, or is damaged: {error}.") from None


def read_lines(stream):
    """Yields (number from 1, the line as text with its end, or `BadRow`) of a binary stream of UTF-8. A
    byte-order mark at the start is dropped. Only a line feed ends a line."""
    offset = 0
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            text = BadRow(f"byte {line[error.start]:#04x} at offset {offset + error.start} is not UTF-8; "
                          "convert the file to UTF-8.")
        else:
            text = text.removeprefix("\ufeff") if number == 1 else text
            if "\0" in text:
                text = BadRow("there is a NUL character; if the file is UTF-16, convert it to UTF-8, else "
                              "remove the character.")
        yield number, text
        offset += len(line)


# --- Rows ------------------------------------------------------------------------------------------------


def split_rows(lines, delimiter, quotechar=None, strict=False):
    """Yields the rows of separated values: (the line that one begins in; list of str, or `BadRow`). A blank
    line is an empty list. The line of a `BadRow` is where the problem is.

    Args:
      lines: see `read_lines`.
      delimiter: the character between values.
      quotechar: character that encloses values, or None to take quotes as they come.
      strict: whether quotes that are not closed, or in the middle of a value, are errors.
    """
    quoting = csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL
    # A document may be longer than the module's limit for a field.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARACTERS))
    number, bad = 0, None

    def texts():
        nonlocal number, bad
        for number, text in lines:  # noqa: B007 (the closure's)
            if isinstance(text, BadRow):
                bad = bad or (number, text)
                text = "\n"
            yield text

    reader = csv.reader(texts(), delimiter=delimiter, quotechar=quotechar, quoting=quoting, strict=strict)
    while True:
        first = number + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line, row = _describe_csv_error(str(error), first, number, delimiter,
                                            quotechar if strict else None)
        else:
            line = first
        yield bad or (line, row)
        bad = None


def _describe_csv_error(error, first, last, delimiter, quotechar):
    """The problem of a row in words: (its line, a `BadRow`). The row is in the lines `first` to `last`."""
    plural = _PLURALS[delimiter]
    if "field limit" in error:
        return last, BadRow(f"a field has more than {csv.field_size_limit():,} characters; look for a quote "
                            f"that is not closed, lost {plural} and line ends, or shorten the text.")
    if quotechar and quotechar in error or "end of data" in error:
        return first, BadRow("a quote is not closed, or stands in the middle of a field; within quotes it "
                             "has to be doubled.")
    if "new-line" in error:
        return last, BadRow(f"cannot be split at {plural}: a carriage return (\\r) stands alone; let lines "
                            "end with \\n or \\r\\n.")
    return last, BadRow(f"cannot be split at {plural}; look for a stray control character in the line "
                        f"({error}).")


def _parse_objects(lines):
    """Yields (line, dict or `BadRow`) of JSON Lines; a blank line is an empty dict."""
    for line, text in lines:
        yield line, text if isinstance(text, BadRow) else _parse_object(text)


def _parse_object(text):
    """The object in a line of JSON Lines, or `BadRow`; an empty one for a blank line."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant,
                           parse_float=_parse_finite_float)
    except (ValueError, RecursionError) as error:
        return BadRow(f"this is no line of JSON: {error}. JSON Lines has an object a line.")
    if not isinstance(found, dict) or not found:
        return BadRow('JSON Lines has an object a line, such as {"text": "…", "label": "…"}, and this is '
                      f"{text.strip():.40}.")
    if "\\u" in text and _SURROGATE.search(json.dumps(found, ensure_ascii=False)):
        return BadRow("there is half of a surrogate pair (\\ud800 to \\udfff), which no file can hold; "
                      "correct the row or remove it.")
    return found


def _refuse_duplicate_keys(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _refuse_constant(name):
    raise ValueError(f"{name} is no value of JSON; write null for a missing value")


def _parse_finite_float(text):
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {text:.40} is too large")
    return float(text)


class Table:
    """The rows of a stream, an iterable of (line that a row begins in; list of str, or of JSON Lines a dict,
    or `BadRow`); a blank line is an empty row.

    Attributes:
      delimiter: the character between values; None of JSON Lines.
      is_ambiguous: whether commas and semicolons are both in the first row, outside of quotes, and no
        delimiter was given.
    """

    def __init__(self, stream, input_format, delimiter=None):
        """Reads the first row of a .csv, if no delimiter is given, to know what separates its values.

        A first row with semicolons, and without commas, outside of quotes is separated by semicolons.

        Args:
          stream: binary, iterated by lines.
          input_format: one of `FORMATS`.
          delimiter: "," or ";" for csv; None to find out.
        """
        lines, self.is_ambiguous = read_lines(stream), False
        if input_format == "jsonl":
            self.delimiter, self._rows = None, _parse_objects(lines)
            return
        if input_format == "tsv":
            self.delimiter, self._rows = "\t", split_rows(lines, "\t")
            return
        self.delimiter = delimiter
        if delimiter is None:
            first = list(_first_row(lines))
            found = [sign for sign in ",;" if sign in _drop_quoted(first)]
            self.delimiter, self.is_ambiguous = (found or [","])[0], len(found) == 2
            lines = itertools.chain(first, lines)
        self._rows = split_rows(lines, self.delimiter, '"', strict=True)

    def __iter__(self):
        return self._rows


def _first_row(lines):
    """Yields the lines of the first row: those up to one where all quotes are closed."""
    quotes = 0
    for number, text in itertools.islice(lines, _MAX_LINES):
        yield number, text
        if not isinstance(text, BadRow):
            quotes += text.count('"')
            if text.strip() and quotes % 2 == 0:
                return


def _drop_quoted(lines):
    """The text of lines without its quoted parts."""
    text = "".join(text for _, text in lines if not isinstance(text, BadRow))
    return re.sub(r'"[^"]*("|$)', "", text)


@contextlib.contextmanager
def text_writer(path, compressed):
    """Gives the stream of a text file, compressed if `compressed` is true. Equal texts make equal files."""
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(files.open_file(path, "wb" if compressed else "w"))
        if compressed:
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=writer, mtime=0))
            writer = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        yield writer
