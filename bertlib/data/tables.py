"""Reads rows of comma-separated, semicolon-separated or tab-separated values, and of JSON Lines.

All commands read rows with this module, from a file or from a pipe. The readers yield a row as soon as the
last line of the row has been read. Instead of a row that cannot be read, the readers yield a `RowError`.
"""

import array
import bisect
import codecs
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

# {file extension: format}. Each file extension may be followed by .gz.
ENDINGS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}
FORMATS = ("csv", "tsv", "jsonl")
# Maps each name that --delimiter accepts to the character that separates columns. With None, the reader
# determines the character from the first row. The flag also accepts the character itself.
DELIMITERS = {"auto": None, "comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
# Maps each value of --output_decimal to a decimal sign. With None, the input determines it.
DECIMAL_SIGNS = {"auto": None, "comma": ",", "point": "."}
# Largest number of characters in a field. A longer field is an error: probably a quote is not closed, or the
# file has no line ends.
MAX_FIELD_CHARACTERS = 10**8
_PLURALS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "pipes"}
# This character replaces bytes that cannot be decoded. It is half of a surrogate pair, and correctly decoded
# text does not contain it. So it shows where such bytes were.
_UNDECODABLE = "\udc80"
_UTF8_MARK = b"\xef\xbb\xbf"
_ZIP_MARK = b"PK\x03\x04"  # the first bytes of .zip, .xlsx and .ods files
# Excel writes this line before the rows of a CSV file. It names the delimiter.
_EXCEL_SEPARATOR = re.compile(r"""(["']?)sep=(\\t|[^"'\r\n])\1\s*""", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
# A number with a decimal comma as a value between semicolons.
_DECIMAL_COMMA = re.compile(r"(?<![^;\n])[^\S\n]*[+-]?\d*,\d+([eE][+-]?\d+)?\s*(?=;|$)")
# The delimiter is determined from the first row. A row may have several lines; at most `_MAX_LINES` of them
# are searched.
_MAX_LINES = 1000


class RowError(ValueError):
    """The error for a problem in a row of a file. The message names the line, and `name_file_in_errors` adds
    the name of the file. The readers do not raise this error for a row that cannot be read, but yield it.

    Attributes:
      line: number of the line, from 1.
      problem: a sentence that describes the problem.
      kind: see `faults.Fault`; None if the problem is not in a single row.
      text: the text of the line, if the row cannot be read; characters that cannot be decoded are replaced.
      value: see `faults.Fault`.
    """

    def __init__(self, line, problem, kind=None, text="", value=None):
        super().__init__(f"line {line}: {problem}")
        self.line, self.problem, self.kind, self.text, self.value = line, problem, kind, text, value


@contextlib.contextmanager
def name_file_in_errors(path):
    """Returns a context manager. It translates each `RowError` in its block into a ValueError that also names
    the file.

    Raises:
      ValueError: the block raised a `RowError`.
    """
    try:
        yield
    except RowError as error:
        raise ValueError(f"{path}:{error.line}: {error.problem}") from None


MAX_SCORE = 3.4e38  # slightly below the largest float32, because scores are stored as float32


def parse_number(text):
    """Returns the number (float) in a text; None if the text is not a number, or if the number is too large
    for a float.

    A number consists of an optional sign, ASCII digits with at most one point, and an optional exponent.
    Python's float() would also accept "1_000", "nan" and digits of other scripts.
    """
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


# --- Lines -----------------------------------------------------------------------------------------------


def format_from_name(path):
    """Returns the format of a file, one of `FORMATS`, according to the extension of the file's name.

    Raises:
      ValueError: the name has none of the extensions in `ENDINGS`.
    """
    input_format = find_format(path)
    if input_format is None:
        advice = _advise_utf_16(_first_line(path))
        raise ValueError(f"{path}: the format is unknown. Give the file a name that ends in one of "
                         f"{', '.join(ENDINGS)}. If the file is compressed with gzip, add .gz to this name. "
                         "(.jsonl and .json both mean JSON Lines.) Save the sheet of a workbook as CSV in "
                         f"UTF-8.{advice and f' The file is UTF-16: {advice}'}")
    return input_format


def is_json_lines(path):
    """Returns whether a file is in JSON Lines, according to its name. `path` may be None."""
    return find_format(path) == "jsonl"


def find_format(path, endings=ENDINGS):
    """Returns the format of a file according to the extension of its name; None if the extension is unknown.
    `endings` is {file extension: format}."""
    name = str(path).lower().removesuffix(".gz")
    return next((input_format for ending, input_format in endings.items() if name.endswith(ending)), None)


def is_compressed(path):
    """Returns whether the name of a file ends in .gz, the extension of a compressed file."""
    return str(path).lower().endswith(".gz")


@contextlib.contextmanager
def open_table(path):
    """Opens a file, which may be compressed; yields a binary stream of its lines.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: the file is damaged, or the block raised a `RowError`, see `name_file_in_errors`.
    """
    if not files.exists(path):
        raise FileNotFoundError(f"{path} does not exist")
    with contextlib.ExitStack() as stack:
        stack.enter_context(name_file_in_errors(path))
        stream = stack.enter_context(files.open_file(path, "rb"))
        if is_compressed(path):
            stream = stack.enter_context(gzip.open(stream))
        try:
            yield stream
        except EOFError:
            raise ValueError(f"{path} is truncated: the end of its compressed content is missing. Write or "
                             "download the file again.") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a gzip file, or is damaged: {error}.") from None


def is_delimiter(text):
    """Returns whether a text is a valid value of --delimiter."""
    return text in DELIMITERS or len(text) == 1 and text not in '"\r\n\0'


def check_encoding(name):
    """Returns whether Python has a text encoding of this name."""
    try:
        return "a\n".encode(name).decode(name) == "a\n" and codecs.getincrementaldecoder(name) is not None
    except (LookupError, ValueError):
        return False


def is_utf8(encoding):
    """Returns whether the name of an encoding is one of the names of UTF-8."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def read_lines(stream, encoding=None, marks=None):
    """Yields (line number, line) for a binary stream of text.

    Line numbers begin at 1. A line is a str that includes its line end, or a `RowError`. A byte-order mark at
    the start is removed. A stream with the byte-order mark of UTF-8 is read as UTF-8 with any `encoding`.
    Only a line feed ends a line.

    Args:
      stream: binary stream, iterated by lines.
      encoding: name of the encoding, from --encoding. None for commands without this flag: the stream is read
        as UTF-8, and error messages do not mention --encoding.
      marks: list to which the byte-order mark is appended if a stream in UTF-8 begins with it; or None.
    """
    if encoding is not None and not is_utf8(encoding):
        stream = _peekable(stream)
        if not stream.peek(len(_ZIP_MARK)).startswith((_UTF8_MARK, _ZIP_MARK)):
            yield from _decode_lines(stream, encoding)
            return
        encoding = None
    offset = 0
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            advice = number == 1 and _advise_utf_16(line) or "pass --encoding=cp1252."
            text = RowError(number, f"byte {line[error.start]:#04x} at offset {offset + error.start} is not "
                            f"UTF-8; convert the file to UTF-8{f', or {advice}' if encoding else '.'}",
                            "bad encoding",
                            line.decode("utf-8", "replace"))
        else:
            if number == 1 and line.startswith(_UTF8_MARK):
                text = text.removeprefix("\ufeff")
                if marks is not None:
                    marks.append(_UTF8_MARK)
            if "\0" in text:
                text = _nul_error(number, text, encoding)
        if number == 1 and line.startswith(_ZIP_MARK):
            text = RowError(number, "the file is a ZIP archive or the workbook of a spreadsheet program, and "
                            "not text. Extract the archive, or save the sheet of the workbook as CSV in "
                            "UTF-8.", "bad encoding", line.decode("utf-8", "replace"))
        yield number, text
        offset += len(line)


def _first_line(path):
    """Returns the first line of a file, bytes; b"" if it cannot be read."""
    with contextlib.suppress(OSError, ValueError), files.open_file(path, "rb") as stream:
        return next(iter(stream), b"")
    return b""


def _advise_utf_16(line):
    """Returns the advice for a file that begins with a line in UTF-16, bytes; "" for another line."""
    if not line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ""
    tabs = (" The columns are separated by tabs: give the file a name that ends in .tsv, or pass "
            "--delimiter=tab." if b"\t" in line else "")
    return f"pass --encoding=utf-16.{tabs}"


def refuse_old_line_ends(number, line):
    """Returns a line of `read_lines`. Returns a `RowError` instead if it is the first line of a file with the
    line ends of old Macs, which are carriage returns: the whole file would be one line."""
    if number == 1 and isinstance(line, str) and "\r" in line.rstrip("\r\n"):
        return RowError(number, "the line contains a carriage return (\\r) without \\n. End all lines with "
                        "\\n or \\r\\n.", "wrong line end", line)
    return line


def decode_as_utf8(text, encoding):
    """Decodes the bytes of a text again, as UTF-8, and returns the new text. Returns None if the text was
    probably decoded correctly.

    If a text has characters that are not ASCII, its bytes in an encoding other than UTF-8 are rarely valid
    UTF-8. So if these bytes are valid UTF-8, the text was probably decoded with a wrong encoding. For
    example, the text "cafÃ©" in the encoding cp1252 consists of the same bytes as "café" in UTF-8.

    Args:
      text: str.
      encoding: name of the encoding with which the text was decoded.
    """
    if text.isascii():
        return None
    try:
        new_text = text.encode(encoding).decode("utf-8")
    except UnicodeError:
        return None
    return None if new_text == text else new_text


def _nul_error(number, text, encoding):
    advice = "convert it to UTF-8" if encoding is None else "convert it to UTF-8 or pass --encoding=utf-16"
    return RowError(number, f"the line contains a NUL character. If the file is UTF-16, {advice}; otherwise "
                    "remove the character.", "NUL character", text)


def _peekable(stream):
    """Returns a binary stream with the content of a binary stream, and with the method `peek`."""
    if not isinstance(stream, io.BufferedIOBase):  # a remote file
        stream = io.BytesIO(b"".join(stream))
    return stream if hasattr(stream, "peek") else io.BufferedReader(stream)


def _decode_lines(stream, encoding):
    """Yields (line number, line) for a result of `_peekable` with an encoding other than UTF-8; see
    `read_lines`."""
    codecs.register_error("bertlib.mark", lambda error: (_UNDECODABLE, error.end))
    start = stream.peek(len(_UTF8_MARK))[:len(_UTF8_MARK)]
    # The text is split into lines after the decoding, because a line feed may have several bytes: in UTF-16,
    # for example, the byte 0x0a may be half of another character.
    lines = io.TextIOWrapper(stream, encoding, "bertlib.mark", newline="\n")
    try:
        for number, text in enumerate(lines, 1):
            text = text.removeprefix("\ufeff") if number == 1 else text
            if _SURROGATE.search(text):
                text = RowError(number, f"the line cannot be decoded with --encoding={encoding}. Correct the "
                                "line, or pass the encoding of the file.", "bad encoding",
                                _SURROGATE.sub("\ufffd", text))
            elif "\0" in text:
                text = _nul_error(number, text, encoding)
            yield number, text
    except UnicodeError:  # happens only with utf-16 and utf-32, if the file lacks a byte-order mark
        yield 1, RowError(1, f"the file has no byte-order mark of {encoding}, but --encoding={encoding}. "
                          f"Pass the encoding of the file, such as utf-8 or {encoding}-le.", "bad encoding",
                          start.decode("latin-1"))
    finally:
        with contextlib.suppress(ValueError):  # after an error, the caller may have closed the stream already
            lines.detach()  # otherwise, the stream would be closed with its wrapper


# --- Rows ------------------------------------------------------------------------------------------------


def split_rows(lines, delimiter, quotechar=None, strict=False, lines_before=0):
    """Yields (line number, row) for separated values. A row is a list of str, or a `RowError`.

    The line number is the number of the row's first line. For a `RowError`, it is the number of the line with
    the problem. For a blank line, the row is an empty list.

    Args:
      lines: iterable of (line number, line), see `read_lines`.
      delimiter: the character between values.
      quotechar: the character that encloses values; None if quotes have no special meaning.
      strict: whether a quote that is not closed, or is in the middle of a value, is an error.
      lines_before: number of lines that were read before `lines`.
    """
    quoting = csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL
    # A field may contain a long document. The csv module would refuse a document above its default limit, so
    # the limit is raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARACTERS))
    number, text, bad = lines_before, "", None

    def texts():
        nonlocal number, text, bad
        for number, text in lines:  # noqa: B007 (the enclosing function reads `number`)
            if isinstance(text, RowError):
                bad = bad or text
                text = text.text or "\n"  # `reader` needs bad lines, too: they may end a quoted value
            yield text

    reader = csv.reader(texts(), delimiter=delimiter, quotechar=quotechar, quoting=quoting, strict=strict)
    while True:
        first = number + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = _csv_error(str(error), first, number, text, delimiter, quotechar if strict else None)
        is_error = isinstance(row, RowError)
        if bad:
            yield bad.line, bad
            bad = None
            if not is_error or row.kind != "unclosed quote":
                continue
        yield row.line if is_error else first, row


def _csv_error(error, first, last, text, delimiter, quotechar):
    """Returns the `RowError` for an error of the csv module.

    Args:
      error: message of the error.
      first, last: numbers of the first and the last line of the row.
      text: the last line of the row.
      delimiter: the character between values.
      quotechar: the quote character if wrong quotes are errors, otherwise None.
    """
    plural = _PLURALS.get(delimiter, repr(delimiter))
    if "field limit" in error:
        return RowError(last, f"a field has more than {csv.field_size_limit():,} characters. Look for a "
                        f"quote that is not closed and for missing {plural} and line ends, or shorten the "
                        "text.", "unclosed quote", text)
    if quotechar and quotechar in error or "end of data" in error:
        # If the closing quote of a field is missing, the field continues in the next lines. The csv module
        # notices this only later, in line `last`, because it may take the opening quote of a later field for
        # the closing quote. So the error message names line `first`, where the row begins. If the row has
        # several lines, a closing quote is probably missing. Then the kind of the error is "unclosed quote".
        return RowError(first, "a quote is not closed, or is in the middle of a field. Within a quoted "
                        "field, each quote must be doubled.",
                        "wrong quote" if first == last else "unclosed quote", text)
    if "new-line" in error:
        return RowError(last, f"the line cannot be split at {plural}: it contains a carriage return (\\r) "
                        "without \\n. End all lines with \\n or \\r\\n.", "wrong line end", text)
    return RowError(last, f"the line cannot be split at {plural} ({error}). Look for a wrong control "
                    "character in the line.", "wrong line end", text)


def _parse_objects(lines):
    """Yields (line number, dict or `RowError`) for JSON Lines. A blank line is an empty dict."""
    for line, text in lines:
        yield line, text if isinstance(text, RowError) else _parse_object(line, text)


def parse_json(text):
    """Returns the value of a text in JSON.

    Raises:
      ValueError: the text is not valid JSON or is nested too deeply, a key of an object occurs twice, or a
        number is NaN, infinite or too large.
    """
    try:
        return json.loads(text, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant,
                          parse_float=_parse_finite_float)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def has_half_surrogate(text, value):
    """Returns whether a JSON text, whose value is `value`, contains half of a surrogate pair. A string with
    half of a surrogate pair cannot be written as UTF-8."""
    return "\\u" in text and bool(_SURROGATE.search(json.dumps(value, ensure_ascii=False)))


def _parse_object(line, text):
    """Returns the object in a line of JSON Lines as a dict. Returns a `RowError` if the line cannot be read,
    and an empty dict for a blank line."""
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        return RowError(line, f"the line is not valid JSON: {error}. In JSON Lines, each line is a JSON "
                        "object.", "bad JSON", text)
    if not isinstance(value, dict) or not value:
        return RowError(
            line, 'in JSON Lines, each line is a JSON object, such as {"text": "…", "label": "…"}, but this '
            f"line is {text.strip():.40}.", "bad JSON", text)
    if has_half_surrogate(text, value):
        return RowError(line, "the line contains half of a surrogate pair (\\ud800 to \\udfff), which cannot "
                        "be written as UTF-8; correct the row or remove it.", "bad encoding", text)
    return value


def _refuse_duplicate_keys(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return result


def _refuse_constant(name):
    raise ValueError(f"{name} is not a JSON value; write null for a missing value")


def _parse_finite_float(text):
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {text:.40} is too large")
    return float(text)


class Dialect(NamedTuple):
    """The form of a CSV file.

    Attributes:
      delimiter: the character between values.
      has_mark: whether a file with results begins with the byte-order mark of UTF-8; see `needs_mark`.
      decimal: the decimal sign of numbers, "." or ",".
    """

    delimiter: str = ","
    has_mark: bool = False
    decimal: str = "."

    def of_output(self, settings):
        """Returns the form of a CSV file that is written for an input file of this form. `settings` has the
        values of --output_delimiter and --output_decimal."""
        name = settings.output_delimiter
        return self._replace(delimiter=DELIMITERS.get(name, name) or self.delimiter,
                             decimal=DECIMAL_SIGNS[settings.output_decimal] or self.decimal)


def needs_mark(marks, encoding):
    """Returns whether a CSV file with results begins with a byte-order mark. Without this mark, Excel would
    read the file in the encoding of Windows.

    Args:
      marks, encoding: see `read_lines`. At least one line has been read.
    """
    return bool(marks) or not is_utf8(encoding)


PLAIN = Dialect()  # commas, without a byte-order mark


class Table:
    """The rows of a stream: an iterable of (line number, row), see `split_rows`.

    A row of JSON Lines is a dict instead of a list.

    Attributes:
      delimiter: the character between values; None for JSON Lines.
      dialect: the `Dialect` for CSV files with results for these rows. Only a CSV file has its own delimiter
        there.
      is_declared: whether the first line of a CSV file names the delimiter, as in "sep=;". Excel writes such
        a line. It is not a row.
    """

    def __init__(self, stream, input_format, delimiter=None, encoding="utf-8"):
        """Creates a table.

        If the format is csv and no delimiter is passed, the first row determines the delimiter. It is a
        semicolon if the row contains a semicolon but no comma, otherwise a comma. Semicolons and commas
        inside of quotes are ignored, and so is the decimal comma of a value between semicolons, such as 3,5.

        Args:
          stream: binary stream, iterated by lines.
          input_format: one of `FORMATS`.
          delimiter: the character between values for csv; None to determine it from the first row. In the
            format tsv, values are always separated by tabs.
          encoding: see `read_lines`. JSON Lines is always UTF-8 (RFC 8259).
        """
        self._lines = array.array("q")  # the number of the first line of each row that was read
        marks = []  # filled when the first line is read
        lines = read_lines(stream, None if input_format == "jsonl" else encoding, marks)
        self.is_declared = False
        self.dialect = PLAIN
        if input_format == "jsonl":
            self.delimiter, self._rows = None, _parse_objects(lines)
            return
        declared, lines = self._read_declaration(lines)
        is_csv = input_format == "csv"
        self.delimiter = (delimiter or declared) if is_csv else "\t"
        if self.delimiter is None:
            self.delimiter, first = _find_delimiter(lines)
            lines = itertools.chain(first, lines)
        self._rows = split_rows(lines, self.delimiter, '"' if is_csv else None, is_csv, int(self.is_declared))
        self.dialect = Dialect(self.delimiter if is_csv else ",",
                               self.is_declared or needs_mark(marks, encoding))

    def _read_declaration(self, lines):
        """Reads the line with which Excel names the delimiter. Returns (delimiter, the lines after it).
        If the first line is a row, the delimiter is None, and all lines are returned."""
        first = list(itertools.islice(lines, 1))
        match = first and isinstance(first[0][1], str) and _EXCEL_SEPARATOR.fullmatch(first[0][1])
        if not match:
            return None, itertools.chain(first, lines)
        self.is_declared = True
        return "\t" if match[2] == "\\t" else match[2], lines

    def __iter__(self):
        for line, row in self._rows:
            self._lines.append(line)
            yield line, row

    def row_of(self, line):
        """Returns the number of a row in a spreadsheet program, which counts a field of several lines as one
        row. Returns None if this number is the number of the line, an int."""
        row = bisect.bisect(self._lines, line)
        return None if row == line else row


def row_in_words(row):
    """Returns the sentence about a result of `Table.row_of`; "" for None."""
    return "" if row is None else f" In a spreadsheet, this is row {row}."


def _find_delimiter(lines):
    """Reads the first row from an iterator of lines. The row ends with the first line after which all quotes
    are closed. Returns (the delimiter of the row, list of its lines)."""
    first, texts, quotes = [], [], 0
    for number, text in itertools.islice(lines, _MAX_LINES):
        first.append((number, text))
        if not isinstance(text, RowError):
            texts.append(text)
            quotes += text.count('"')
            if text.strip() and quotes % 2 == 0:
                break
    unquoted = _DECIMAL_COMMA.sub("", re.sub(r'"[^"]*("|$)', "", "".join(texts)))
    return ";" if ";" in unquoted and "," not in unquoted else ",", first


@contextlib.contextmanager
def text_writer(path, compressed):
    """Returns a context manager that opens a text file for writing and yields its stream. The file is
    compressed if `compressed` is true.

    Equal texts result in equal files. For this reason, a compressed file does not contain the time of
    writing, which gzip usually stores.
    """
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(files.open_file(path, "wb" if compressed else "w"))
        if compressed:
            packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=writer, mtime=0))
            writer = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        yield writer
