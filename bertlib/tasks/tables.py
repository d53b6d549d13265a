"""Files of rows: comma-separated or tab-separated values, or JSON Lines; compressed ones too."""

import collections
import csv
import gzip
import io
import json
import zlib

from bertlib.runtime import files

# Each also with .gz.
ENDINGS = (".csv", ".tsv", ".jsonl", ".json")


def split_rows(text, path, delimiter, quotechar=None, strict=False):
    """Yields the rows of a file of separated values: (the line that one begins in, from 1; list of str).

    Args:
      text: the file's content.
      path: its name, for errors.
      delimiter: the character between values.
      quotechar: character that encloses values, or None to take quotes as they come.
      strict: whether quotes that are not closed, or in the middle of a value, are errors.

    Raises:
      ValueError: it is not separable into values.
    """
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path}:{line}: there is a NUL character; if the file is UTF-16, convert it to "
                         "UTF-8, else remove the character")
    quoting = csv.QUOTE_NONE if quotechar is None else csv.QUOTE_MINIMAL
    # Split at "\n" alone: sentences may contain what else Unicode calls a line break.
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, quotechar=quotechar,
                        quoting=quoting, strict=strict)
    line = 1
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        characters = {"\t": "tabs", ",": "commas"}[delimiter]
        if "field limit" in str(error):
            raise ValueError(f"{path}:{reader.line_num}: a field has more than {csv.field_size_limit():,} "
                             f"characters; look for lost {characters} and line ends, or shorten the "
                             "text") from None
        if strict and quotechar in str(error) or "end of data" in str(error):
            raise ValueError(f"{path}:{line}: a quote is not closed, or stands in the middle of a field; "
                             "within quotes it has to be doubled") from None
        if "new-line" in str(error):
            raise ValueError(f"{path}:{reader.line_num}: cannot be split at {characters}: a carriage return "
                             "(\\r) stands alone; let lines end with \\n or \\r\\n") from None
        raise ValueError(f"{path}:{reader.line_num}: cannot be split at {characters}; look for a stray "
                         f"control character in the line ({error})") from None


def _ending_of(path):
    """Returns the ending that says a file's format.

    Raises:
      ValueError: none does.
    """
    name = str(path).lower().removesuffix(".gz")
    found = next((ending for ending in ENDINGS if name.endswith(ending)), None)
    if found is None:
        raise ValueError(f"{path}: the ending of its name should say the format: {', '.join(ENDINGS)} (JSON "
                         "Lines, both), each also with .gz.")
    return found


def read_rows(path):
    """Reads the rows of a file; blank lines at its end are left out.

    Returns:
      list of (line that the row begins in, from 1; its values): a list of str, or of JSON Lines a dict.

    Raises:
      FileNotFoundError, ValueError: it is missing, empty, of no known format or damaged; with the line.
    """
    ending = _ending_of(path)
    text = _text_of(path)
    # A document may be longer than the module's limit for a field. A lost quote is found by what follows it.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    if ending == ".csv":
        rows = list(split_rows(text, path, ",", '"', strict=True))
    elif ending == ".tsv":
        rows = list(split_rows(text, path, "\t"))
    else:
        rows = [(line, _json_row(content, path, line)) for line, content in enumerate(text.split("\n"), 1)]
    while rows and not rows[-1][1]:
        rows.pop()
    if not rows:
        raise ValueError(f"{path}: the file is empty; it should hold examples.")
    width = len(rows[0][1])
    for line, row in rows:
        if not row:
            raise ValueError(f"{path}:{line}: the line is blank; remove it.")
        if isinstance(row, list) and len(row) != width:
            quoted = " A text with a comma has to be in quotes." if ending == ".csv" else ""
            raise ValueError(f"{path}:{line}: {len(row)} columns, but line {rows[0][0]} has {width}; all "
                             f"rows should have as many.{quoted}")
    return rows


def _text_of(path):
    """The text of a file, which may be compressed."""
    if not str(path).lower().endswith(".gz"):
        return files.read_text(path)
    try:
        return files.decoded(gzip.decompress(files.read_bytes(path)), path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist") from None
    except EOFError:
        raise ValueError(f"{path} is cut off: its compressed content goes on. Make or fetch it "
                         "again.") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is no gzip file, or is damaged: {error}.") from None


def _json_row(content, path, line):
    """The object in a line of JSON Lines; an empty one for a blank line."""
    if not content.strip():
        return {}
    try:
        found = json.loads(content, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}:{line}: this is no line of JSON: {error}. JSON Lines has an object a "
                         "line.") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{path}:{line}: JSON Lines has an object a line, such as {{\"text\": \"…\", "
                         f"\"label\": \"…\"}}, and this is {content.strip():.40}.")
    return found


def _without_twins(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        twins = [name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1]
        raise ValueError(f"{twins[0]!r} is there twice")
    return found
