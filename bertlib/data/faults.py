"""Collects the faults of a file: the lines that cannot be used, with the reason.

The error message counts the faults of a file by kind. It lists the first faults of the file, and the first
fault of each kind. With --skip_bad_lines=true, the program leaves the bad lines out instead of stopping, and
writes a table of these lines.
"""

import bisect
import collections
import csv
import io
import json
from typing import NamedTuple

from absl import logging

from bertlib.data import prediction_files
from bertlib.data.tables import PLAIN, row_in_words

# A fault of this kind ends the reading of a file: the rest of the file cannot be read with certainty.
_LAST = "unclosed quote"
_ENCODING = "bad encoding"
# An error message lists the first faults of a file, up to this number. Then it lists the first fault of each
# kind that is not yet listed.
MAX_LISTED = 20
# The table of skipped lines contains at most this number of characters of a line.
MAX_TEXT_CHARACTERS = 200
_COLUMNS = ("file", "line", "kind", "reason", "text")


class Fault(NamedTuple):
    """A line that cannot be used.

    Attributes:
      path: the file.
      line: number of the line, from 1.
      kind: the kind of the fault in words: bad encoding, NUL character, bad JSON, wrong quote, unclosed
        quote, wrong line end, blank line, wrong width, missing text, missing words, empty text, missing
        label, bad label, unknown label, bad score, bad tag, or in predict.py bad text.
      problem: a sentence that describes the fault. Faults with equal problems are listed together.
      text: the first characters of the row.
      value: the wrong value as text, if `problem` does not name it; otherwise None.
      row: number of the row in a spreadsheet program; None if it is the number of the line.
    """

    path: str
    line: int
    kind: str
    problem: str
    text: str
    value: str | None = None
    row: int | None = None

    @property
    def reason(self):
        """Sentences that describe the fault, with its value and its row."""
        value = "" if self.value is None else f" The value is {self.value}."
        return f"{self.problem}{value}{row_in_words(self.row)}"


class FileFaults:
    """The faults of one file.

    Attributes:
      faults: list of `Fault` in the order of the lines.
      counts: {kind: number of faults}.
    """

    def __init__(self, path, is_skipping, row_of=lambda line: None):
        """Creates an empty collection.

        Args:
          path: the file.
          is_skipping: whether bad lines are left out. If false, each bad line is an error. None: each bad
            line is an error, and the message does not advise --skip_bad_lines.
          row_of: function that returns the row of a line in a spreadsheet program, see `tables.Table.row_of`.
        """
        self.faults, self.counts = [], collections.Counter()
        self._path, self._is_skipping, self._row_of = path, is_skipping, row_of

    def __bool__(self):
        return bool(self.counts)

    def add(self, error, values=None, delimiter=None):
        """Adds a fault.

        Args:
          error: the `tables.RowError` of the line.
          values: the row, a list of str or a dict; None if it is the text of the error.
          delimiter: the character between the values of a list.

        Raises:
          ValueError: the rest of the file cannot be read.
        """
        if any(fault.line == error.line for fault in self.faults[-1:]):
            return  # Only the first fault of a line is added. An undecodable line often has several faults.
        self.counts[error.kind] += 1
        text = _shorten(error.text if values is None else values, delimiter)
        fault = Fault(self._path, error.line, error.kind, error.problem, text, error.value,
                      self._row_of(error.line))
        bisect.insort(self.faults, fault, key=lambda fault: fault.line)
        if error.kind == _LAST:
            raise self._error()

    def check(self, num_good=0):
        """Raises a ValueError if the faults make the file unusable. If bad lines are not left out, one fault
        makes the file unusable. If bad lines are left out, the file is unusable if more than half of the rows
        have faults.

        Args:
          num_good: number of rows without a fault; needed only if bad lines are left out.
        """
        if self and not self._is_skipping or self.counts[_LAST]:
            raise self._error()
        if reason := find_excess(self._path, self.counts, num_good):
            raise self._error(reason)

    def log_skipped(self, with_what=""):
        """Logs a warning about the lines that were left out, if there are any. Returns the list of these
        faults. Call `check` first. `with_what` says what was left out together with the lines."""
        if self:
            logging.warning("%s: %d bad lines are left out%s, because --skip_bad_lines=true: %s. The first "
                            "bad line is line %d.", self._path, len(self.faults), with_what,
                            summarize(self.counts), self.faults[0].line)
        return self.faults

    def _error(self, reason=None):
        """Returns a ValueError that counts the faults. It lists the first `MAX_LISTED` faults, and the first
        fault of each kind that does not occur among them.

        The message for a single fault is "path:line: problem".

        Args:
          reason: sentences that say why --skip_bad_lines=true does not help; None if it helps, or if a
            quote is not closed.
        """
        if self.counts[_LAST]:
            line = self.faults[-1].line
            reason = (f"The lines after line {line} cannot be read, not even with --skip_bad_lines=true. "
                      f"Correct line {line}.")
        number, examples = len(self.faults), self.faults[:MAX_LISTED]
        for fault in self.faults[MAX_LISTED:]:
            if all(fault.kind != other.kind for other in examples):
                examples.append(fault)
        texts = self._describe(examples)
        if number == 1 and not self._is_skipping:
            return ValueError(*texts)
        title = ""
        if number > 1:
            which = "they are" if number == len(examples) else (
                f"the first {MAX_LISTED} are" if len(examples) == MAX_LISTED else
                f"the first {MAX_LISTED}, and the first line of each kind that is not among them, are")
            title = f"{self._path}: {number:,} lines cannot be used ({summarize(self.counts)}); {which}:"
        decode = ""
        if self.counts[_ENCODING] > 1 and not reason:
            decode = (f"Begin with the encoding: {self.counts[_ENCODING]:,} lines cannot be decoded. When "
                      "you have corrected the encoding, the same lines may show other faults.")
        advice = "" if self._is_skipping is None else ", or pass --skip_bad_lines=true to leave them out"
        return ValueError("\n".join(filter(None, [title, *texts, decode,
                                                  reason or f"Correct these lines{advice}."])))

    def _describe(self, faults):
        """Returns a list of texts for some faults. Each problem occurs once, with the number of the other
        lines of the file that have it, and the first of these lines."""
        texts, groups = [], collections.defaultdict(list)
        for fault in self.faults:
            groups[fault.problem].append(fault)
        for problem in dict.fromkeys(fault.problem for fault in faults):
            first, *others = groups[problem]
            more = ", ".join(f"{fault.line} (row {fault.row})" if fault.row else str(fault.line)
                             for fault in others[:MAX_LISTED]) + ", …" * (len(others) > MAX_LISTED)
            same = f" The same problem in other lines ({len(others):,}): {more}" if others else ""
            texts.append(f"{self._path}:{first.line}: {first.reason}{same}")
        return texts


def summarize(counts):
    """Returns the number of faults of each kind as text, the most frequent kind first. `counts` is a Counter
    of the kinds."""
    return ", ".join(f"{kind} {number:,}" for kind, number in counts.most_common())


def find_excess(path, counts, num_good):
    """Returns a message if more than half of the rows of a file have faults; otherwise None.

    Args:
      path: the file.
      counts: Counter of the kinds of the faults.
      num_good: number of rows without a fault.
    """
    number = counts.total()
    if number <= num_good:
        return None
    return (f"More than half of the {number + num_good:,} rows of {path} cannot be used "
            f"({summarize(counts)}). This limit also applies with --skip_bad_lines=true. Correct the problem "
            "of these lines, or check --delimiter, --encoding and the columns.")


def _shorten(values, delimiter):
    """Returns the first characters of a row as text."""
    if isinstance(values, list):
        stream = io.StringIO()
        csv.writer(stream, delimiter=delimiter or ",", lineterminator="").writerow(values)
        values = stream.getvalue()
    elif isinstance(values, dict):
        values = json.dumps(values, ensure_ascii=False)
    # NUL characters are replaced, because many programs cannot read a table that contains them.
    return values.rstrip("\r\n")[:MAX_TEXT_CHARACTERS].replace("\0", "\ufffd")


def format_table(faults, dialect=PLAIN):
    """Returns the content of skipped_lines.csv, a str.

    Args:
      faults: list of `Fault`.
      dialect: the `tables.Dialect` of the table.
    """
    return prediction_files.format_csv_header(_COLUMNS, False, dialect) + "".join(
        prediction_files.format_csv_row([fault.path, fault.line, fault.kind, fault.reason, fault.text],
                                        dialect=dialect) for fault in faults)
