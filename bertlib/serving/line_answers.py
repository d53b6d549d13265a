"""Answers the lines of a file or stream, in chunks, and formats the answers as CSV or JSON Lines."""

import collections
import contextlib
import json
import os
import queue
import sys
import threading

from absl import logging

from bertlib.data import columns, faults, row_fields, tables
from bertlib.data.prediction_files import format_csv_header, format_csv_row
from bertlib.serving import prediction_inputs
from bertlib.system import files, locks, replica_group, shared_work
from bertlib.tasks import answers

# Largest number of batches in a chunk. The lines of a chunk are sorted by length before they are cut into
# batches.
_BATCHES = 16
# {file extension: "csv", or "other" for tables that are not written}. Other files get JSON Lines.
_OUTPUT_ENDINGS = {".csv": "csv", **dict.fromkeys((".tsv", ".xlsx", ".xls", ".ods", ".parquet"), "other")}


# --- Answers ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_streams(settings):
    """Returns a context manager that yields the stream of the lines (binary) and the stream of the answers
    (text).

    The output file appears only when all answers are written. Only replica 0 writes the output file.
    """
    with contextlib.ExitStack() as stack:
        lines = sys.stdin.buffer
        output = sys.stdout if replica_group.is_first() else stack.enter_context(open(os.devnull, "w"))
        if settings.input_file != "-":
            lines = stack.enter_context(tables.open_table(settings.input_file))
        if settings.output_file != "-" and replica_group.is_first():
            files.make_parent(settings.output_file)
            stack.enter_context(locks.lock_file(settings.output_file))
            partial = stack.enter_context(files.atomic_replacement(settings.output_file))
            compressed = tables.is_compressed(settings.output_file)
            output = stack.enter_context(tables.text_writer(partial, compressed))
        yield lines, output


def chunks_as_they_arrive(items, most, waits):
    """Yields lists of 1 to `most` items. If `waits` is false, a list contains only the items that have
    already arrived.

    A thread iterates over the items. If the thread raises an error, this function first yields the items that
    came before the error, and then raises the error.

    Args:
      items: iterable.
      most: int, maximum length of a list.
      waits: bool, whether to wait until a list has its maximum length or the items end. If it is true, the
        batches are the same in each run. So the answers are also the same in each run: in a different batch,
        an answer could be rounded differently.
    """
    buffer = queue.Queue(2 * most)

    def fill():
        # Puts a pair (item, None) into the queue for each item. The last pair is (None, the exception that
        # ended the iteration).
        try:
            for item in items:
                buffer.put((item, None))
            buffer.put((None, StopIteration()))
        except Exception as error:  # noqa: BLE001 (raised below)
            buffer.put((None, error))

    threading.Thread(target=fill, daemon=True).start()
    end = None
    while end is None:
        chunk = []
        item, end = buffer.get()
        with contextlib.suppress(queue.Empty):  # if no further input is waiting, the chunk is complete
            while end is None:
                chunk.append(item)
                if len(chunk) == most:
                    break
                item, end = buffer.get(block=waits)
        if chunk:
            yield chunk
    if not isinstance(end, StopIteration):
        raise end


def answer_chunk(predictor, chunk, table, skip_bad_lines):
    """Answers the inputs of a chunk.

    Args:
      predictor: a `serving.Predictor`.
      chunk: list of `prediction_inputs.Input`, the inputs.
      table: an `AnswerTable` or an `AnswerLines`, which formats the answers.
      skip_bad_lines: bool. If true, the answer to an unusable input describes the problem of this input. If
        false, only the inputs before the first unusable input are answered.

    Returns:
      a triple: a list with the text of each answer; a list of the unusable inputs among those that are
      answered; the unusable input at which answering stopped, or None.
    """
    items, stop = [], None
    for item in chunk:
        windows = None
        if item.problem is None:
            try:
                windows = predictor.prepare(*item.values)
                item = item._replace(problem=table.find_problem(item))
            except ValueError as error:
                item = item._replace(problem=str(error))
        if item.problem is not None and not skip_bad_lines:
            stop = item
            break
        items.append((item, windows))
    results = iter(predictor.answer([windows for item, windows in items if item.problem is None]))
    texts = [table.format(item, next(results) if item.problem is None else
                          {"error": f"line {item.line}: {item.problem}"}) for item, _ in items]
    return texts, [item for item, _ in items if item.problem is not None], stop


def find_output_format(settings):
    """Returns --output_format, or the format that the name of --output_file suggests.

    Raises:
      ValueError: the file's name is that of another sort of table.
    """
    found = settings.output_format or tables.find_format(settings.output_file, _OUTPUT_ENDINGS) or "jsonl"
    if found == "other":
        raise ValueError(f"--output_file={settings.output_file}: answers are written as CSV or JSON Lines. "
                         "Name a file that ends in .csv or .jsonl, or pass --output_format.")
    return found


def _create_table(settings, predictor, input_format, reader):
    """Returns an `AnswerTable` for CSV output, or an `AnswerLines` for JSON Lines. `reader` is the
    `prediction_inputs.InputReader`."""
    if find_output_format(settings) == "jsonl":
        return AnswerLines()
    # The first answer determines the columns of the table. In plain text, a later line may have more texts
    # than the first line. So the names of all columns are passed.
    fields = predictor.fields if input_format == "text" else ()
    labels = predictor.answers.probability_labels() if fields else ()
    trained_sign = tables.DECIMAL_SIGNS[predictor.answers.model.setting("output_decimal", "auto")]
    return AnswerTable(fields, settings.skip_bad_lines, settings.csv_safe,
                       predictor.label_separator, labels,
                       lambda: reader.dialect._replace(decimal=trained_sign or ".").of_output(settings))


def _broadcast(replicas, chunks):
    """Broadcasts the chunks that replica 0 reads. On every replica, yields the same lists of
    `prediction_inputs.Input`."""
    for chunk in shared_work.broadcast_items(
            replicas, ([tuple(item) for item in chunk] for chunk in chunks)):
        yield [prediction_inputs.Input(*item) for item in chunk]


def answer_file(settings, predictor):
    """Answers all lines of the input file.

    Raises:
      ValueError: a line is not usable, see `_refuse`; or more than half of the lines are not usable.
      BrokenPipeError: the program that reads the answers has ended.
    """
    num_answered = 0
    column_flags = {name: getattr(settings, name) for name in prediction_inputs.COLUMN_FLAGS
                    if settings.is_given(name)}
    reader = predictor.input_reader(column_flags)
    replicas = replica_group.current()
    with open_streams(settings) as (lines, output):
        name = "standard input" if settings.input_file == "-" else settings.input_file
        # From a pipe, no lines are read ahead: the program that writes to the pipe may wait for the answer to
        # a line before it writes the next line.
        is_whole = files.is_remote(settings.input_file) or os.path.isfile(settings.input_file)
        input_format = settings.input_format or prediction_inputs.format_from_name(settings.input_file)
        table = _create_table(settings, predictor, input_format, reader)
        inputs = reader.read(lines, name, settings.input_format, columns.LOOKAHEAD_ROWS if is_whole else 0)
        kinds, first = collections.Counter(), None  # the kinds of unusable lines, and the first such line
        chunks = chunks_as_they_arrive(inputs, settings.batch_size * _BATCHES, is_whole)
        for chunk in _broadcast(replicas, chunks):
            texts, unusable, bad_input = answer_chunk(predictor, chunk, table, settings.skip_bad_lines)
            output.write("".join(texts))
            output.flush()
            num_answered += len(texts) - len(unusable)
            kinds.update(item.kind for item in unusable)
            first = first or next(iter(unusable), None)
            if bad_input is not None:
                _refuse(bad_input, name, settings.output_file, num_answered)
        output.write(table.finish())
        output.flush()
        # The reader of CoNLL's columns has compared the bad lines with the words, and not with the sentences.
        excess = None if input_format == "conll" else faults.find_excess(name, kinds, num_answered)
        if excess:  # before the output file appears
            raise ValueError(f"{name}:{first.line}: {first.problem}\n{excess}")
    if not num_answered:
        logging.warning("%s has no lines to answer, so the output is empty.", name)
    if num_truncated := predictor.answers.num_truncated:
        logging.warning("%d of %d inputs were truncated, because they have more tokens than the training's "
                        "--max_seq_length=%d. To use more of their text, train with a larger "
                        "--max_seq_length.", num_truncated, num_answered,
                        predictor.answers.model.max_seq_length)
    logging.info("Lines answered: %d%s.", num_answered, f"; lines that could not be used: {kinds.total()} "
                 f"({faults.summarize(kinds)})" if kinds else "")


def _refuse(bad_input, name, output_file, num_answered):
    """Raises the ValueError for an unusable line. A stream already contains the answers to the lines before
    this line. A file is written only when all lines are answered.

    Args:
      bad_input: the `prediction_inputs.Input`.
      name: name of the input.
      output_file: the value of --output_file.
      num_answered: number of lines that are answered.
    """
    if output_file != "-" and not files.is_special(output_file):
        outcome = f"Nothing was written to {output_file}. "
    else:
        outcome = "The lines before this line are answered. " if num_answered else ""
    raise ValueError(f"{name}:{bad_input.line}: {bad_input.problem} {outcome}To write an error instead of "
                     "the answer and continue, pass --skip_bad_lines=true.")


# --- Formats ---------------------------------------------------------------------------------------------


class AnswerTable:
    """Formats answers as rows of CSV. The columns of the input come before the columns of the answer.

    The first usable line determines the columns, because the table may be written before all lines are read.
    If the first lines of the input cannot be used, their rows are kept in memory until the first answer.
    """

    def __init__(self, fields=(), has_errors=False, csv_safe=False, label_separator=",", labels=(),
                 find_dialect=tables.Dialect):
        """Creates a table without rows.

        Args:
          fields: names of fields that get a column even if the first line lacks them.
          has_errors: whether the table has a column "error", for lines that could not be used.
          csv_safe: whether texts that a spreadsheet program would execute get an apostrophe.
          label_separator: text between the labels of a multi-label answer.
          labels: labels whose probability gets a column even if the first answer lacks it.
          find_dialect: function that returns the `tables.Dialect` of the table. It is called when the first
            row of the input has been read.
        """
        self._fields, self._has_errors = list(fields), has_errors
        self._csv_safe, self._label_separator = csv_safe, label_separator
        self._find_dialect, self._dialect = find_dialect, None
        self._probabilities = [f"probability_{label}" for label in labels]
        self._is_first = True  # whether no usable line has been checked yet, see `find_problem`
        self._columns = None  # columns that contain the answer; None before the first answer
        self._early_rows = []  # unusable lines before the first answer; not written yet

    def find_problem(self, item):
        """Returns a sentence that says why an input cannot have a row in the table; None if it can.

        The fields of the first input become columns of the table. A later input cannot have other fields.

        Args:
          item: a `prediction_inputs.Input` that can be used.
        """
        more = [name for name in item.fields if name not in self._fields]
        if more and not self._is_first:
            return (f"the line has the field {more[0]!r}, which the first line lacks. All rows of a CSV "
                    "table have the same columns. Pass --output_format=jsonl.")
        self._fields += more
        self._is_first = False
        return None

    def format(self, item, answer):
        """Returns the text to write for an answer: one row with its line end.

        The columns are known only after the first answer. So the rows of unusable lines before the first
        answer have to wait: for such a line, the returned text is empty. The text for the first answer begins
        with the header row and the waiting rows.

        Args:
          item: a `prediction_inputs.Input`. If it can be used, `find_problem` has been called.
          answer: a dict, see `Predictor`; {"error": text} if the input cannot be used.
        """
        is_bad = item.problem is not None
        if self._columns is None and is_bad:
            self._early_rows.append((item, answer))
            return ""
        answer = answer if is_bad else self._flatten(answer)
        start = self._start(item, answer) if self._columns is None else ""
        fields = row_fields.to_texts(item.fields)
        values = [*map(fields.get, self._fields), *map(answer.get, self._columns)]
        return start + format_csv_row(values, self._csv_safe, self._dialect)

    def finish(self):
        """Returns the text to write after the last call of `format`.

        If no line could be used, `format` has returned only empty texts, and has kept the lines. In this
        case, the text contains the header row and the rows of all lines. Otherwise, the text is empty.
        """
        if not self._early_rows:
            return ""
        item, answer = next((pair for pair in self._early_rows if pair[0].fields), self._early_rows[0])
        return self._start(item, answer)

    def _flatten(self, answer):
        """Converts an answer to the values of a row. Returns a dict: {name of a column: text or number}."""
        values = {}
        for name, value in answers.columns(answer).items():
            if name == "prediction" and "labels" in answer:
                values[name] = self._label_separator.join(value)
            elif isinstance(value, dict | list):
                values[name] = json.dumps(value, ensure_ascii=False)
            else:
                values[name] = value
        return values

    def _start(self, item, answer):
        """Sets the columns of the table to the keys of the first answer. Returns the header row, followed by
        one row for each unusable line that was read earlier and is not written yet."""
        names = [name for name in dict.fromkeys([*answer, *self._probabilities]) if name != "error"]
        self._columns = [*names, *["error"] * self._has_errors]
        self._fields += [name for name in item.fields if name not in self._fields]
        new_names = row_fields.rename_fields(self._fields, self._columns)
        early_rows, self._early_rows = self._early_rows, []
        self._dialect = self._find_dialect()
        names = [*new_names.values(), *self._columns]
        return format_csv_header(names, self._csv_safe, self._dialect) + "".join(
            self.format(*pair) for pair in early_rows)


class AnswerLines:
    """Formats answers as JSON Lines, with the keys of the answer before the fields of the input. This class
    has the same methods as `AnswerTable`."""

    def find_problem(self, item):
        del item

    def format(self, item, answer):
        new_names = row_fields.rename_fields(item.fields, answer)
        fields = {new_names[name]: value for name, value in item.fields.items()}
        return json.dumps({**answer, **fields}, ensure_ascii=False) + "\n"

    def finish(self):
        return ""
