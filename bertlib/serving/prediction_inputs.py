"""Reads the inputs of predictions from a file or stream: plain text, CSV, TSV, JSON Lines or CoNLL columns.

An input is, for example, a text to classify. Each input is yielded as soon as its line has arrived.
`bertlib.data.columns` reads the rows and columns, in the same way as for a training.
"""

import itertools
from typing import NamedTuple

from bertlib.data import columns, faults, row_fields, tables

FORMATS = ("text", *tables.FORMATS, "conll")
PAIR = " ||| "  # separates the two texts in a line of plain text
_ENDINGS = {**tables.ENDINGS, ".conll": "conll", ".iob": "conll", ".bio": "conll"}
# Names of the flags for the columns of a file, see `InputReader`.
COLUMN_FLAGS = ("text_column", "label_column", "header", "delimiter", "encoding", "token_column",
                "tag_column")


class Input(NamedTuple):
    """The input of one prediction, from one line of a file.

    Attributes:
      line: number of the line, counted from 1.
      fields: {name: value} of all columns or keys of the line.
      values: the texts for the model, in the order of `Predictor.fields`.
      problem: a sentence that says why the line cannot be used; None if the line can be used.
      kind: the kind of the problem, see `faults.Fault`.
    """

    line: int
    fields: dict
    values: tuple = ()
    problem: str | None = None
    kind: str = "bad text"


def format_from_name(path):
    """Returns the format of a file, one of `FORMATS`, according to the file extension. Returns "text" if the
    extension is unknown."""
    return tables.find_format(path, _ENDINGS) or "text"


class InputReader:
    """Reads the inputs for a model from files and streams. The texts are read from the columns that the
    training used, unless flags name other columns.

    Attributes:
      dialect: the `tables.Dialect` for a CSV file with the answers. It is set when the first row has been
        read.
    """

    def __init__(self, model, answers, flags=None):
        """Creates the reader.

        Args:
          model: a `trained_model.TrainedModel`.
          answers: the `Answers` of the model.
          flags: {name of a flag in `COLUMN_FLAGS`: value}. These values replace the values that the training
            used.

        Raises:
          TypeError: a flag is unknown.
          ValueError: flags contradict each other.
        """
        self.dialect = tables.PLAIN
        flags = dict(flags or {})
        unknown_flags = [name for name in flags if name not in COLUMN_FLAGS]
        if unknown_flags:
            raise TypeError(f"The flag {unknown_flags[0]!r} is unknown. The flags for the columns are "
                            f"{columns.join_names(COLUMN_FLAGS)}.")
        self._fields, self._labels, self._answers = answers.fields, model.labels, answers
        self._has_text_column = has_text_column = flags.get("text_column") is not None
        # If --text_column was passed, the columns of this file differ from the columns of the training file.
        # So this file may also lack the labels or the header row.
        if has_text_column:
            flags = {"label_column": None, "header": "auto", **flags}

        def setting(name, default):
            return flags[name] if name in flags else model.setting(name, default)

        # Lines of plain text come from a terminal or a program. So their encoding is not the encoding of the
        # training file, but UTF-8, unless --encoding was passed.
        self._text_encoding = flags.get("encoding", "utf-8")
        self._token_column, self._tag_column = setting("token_column", 1), setting("tag_column", -1)
        arguments = columns.column_arguments(
            setting, lambda flag: flag not in flags and model.has_named_columns)
        if has_text_column and not (
                answers.required <= (number := len(arguments["text"])) <= len(answers.fields)):
            raise ValueError(f"--text_column={flags['text_column']} names {number} "
                             f"column{'s' * (number != 1)}, but the texts of the model are "
                             f"{columns.join_names(self._fields)}. Name one column for each text.")
        columns.check_header_flag(arguments["header"], arguments["text"], "--text_column")
        self._reader = columns.TextReader(
            **arguments, takes_lists=answers.takes_words,
            label_kind=model.target.label_kind(model.setting),
            other_names=[] if has_text_column else _other_names(model, answers),
            find_unread=answers.find_unread, text_origin="" if has_text_column else " of the training")

    def read(self, stream, name, input_format, ahead=columns.LOOKAHEAD_ROWS):
        """Yields the `Input` of each line as soon as the line has arrived.

        Args:
          stream: a binary stream that yields lines.
          name: name of the file, for error messages.
          input_format: one of `FORMATS`, or None for the format that `name` suggests. Sentences in CoNLL's
            columns are yielded after the whole file is read.
          ahead: number of rows that may be read before the first row is yielded; see `columns.TextReader`.

        Raises:
          ValueError: the columns of the texts are missing, or cannot be determined; a table is empty, or its
            first row cannot be read; or `input_format` is None, and a tagger would read columns of CoNLL as
            plain text.
        """
        is_named, input_format = bool(input_format), input_format or format_from_name(name)
        if input_format == "text":
            lines = tables.read_lines(stream, self._text_encoding, marks := [])
            if self._answers.takes_words and not is_named:
                lines = self._refuse_conll(lines, name)
            return self._read_text(lines, marks, ahead > 0)
        if input_format == "conll":
            if not self._answers.takes_words:
                raise ValueError("--input_format=conll is only for models that tag words. This model takes "
                                 f"{columns.join_names(self._fields)}. Pass another --input_format.")
            if not tables.is_utf8(self._text_encoding):
                raise ValueError(f"--encoding={self._text_encoding}: sentences in CoNLL's columns are always "
                                 "read as UTF-8. Convert the file to UTF-8, and leave the flag out.")
            return self._read_conll(stream, name)
        return self._read_rows(stream, name, input_format, ahead)

    def _refuse_conll(self, lines, name):
        """Yields lines of plain text, pairs (number, line). Raises a ValueError if the first two lines that
        are not blank have the columns of a tagger's training file."""
        num_rows = 0
        for number, line in lines:
            is_text = isinstance(line, str) and bool(line.strip())
            if is_text and num_rows is not None:
                num_rows = num_rows + 1 if self._answers.is_row(line) else None
            if num_rows == 2:
                raise ValueError(f"{name}:{number}: the first lines have the columns of the training file, "
                                 "with a tag of the model. If each line has one word, pass "
                                 "--input_format=conll. If each line is a text, pass --input_format=text.")
            yield number, line

    def _read_text(self, lines, marks, waits):
        """Yields the `Input` of each line of plain text. `lines` has pairs (number, line). For `marks`, see
        `tables.read_lines`.

        If `waits` is true, blank lines at the end of the file are no inputs: a blank line is yielded when a
        later line has arrived. If it is false, each line is yielded at once, because the program that writes
        the lines may wait for the answer to a blank line.
        """
        blank = []
        for number, line in lines:
            self.dialect = tables.Dialect(has_mark=tables.needs_mark(marks, self._text_encoding))
            line = tables.refuse_old_line_ends(number, line)
            if waits and isinstance(line, str) and not line.strip():
                blank.append((number, line))
                continue
            yield from itertools.starmap(self._read_line, [*blank, (number, line)])
            blank.clear()

    def _read_line(self, number, line):
        """Returns the `Input` of a line with plain text, a str or a `tables.RowError`."""
        if isinstance(line, tables.RowError):
            return Input(number, {}, problem=line.problem, kind=line.kind)
        text = line.rstrip("\r\n")
        values = text.split(PAIR, len(self._fields) - 1) if len(self._fields) > 1 else [text]
        fields = dict(zip(self._fields, values))
        problem = None
        if len(values) < self._answers.required:
            count = "one text" if len(values) == 1 else f"{len(values)} texts"
            problem = (f"the line has only {count}, but the model takes "
                       f"{columns.join_names(self._fields)}, with{PAIR}between them.")
        elif self._answers.refuses_more and PAIR in values[-1]:
            problem = (f"the line has more than the {len(self._fields)} texts "
                       f"{columns.join_names(self._fields)}.")
        elif self._answers.takes_words and not text.strip(" \t"):
            problem = "the text is empty. If each line has one word, pass --input_format=conll."
        return Input(number, fields, tuple(values), problem)

    def _read_conll(self, stream, name):
        bad_lines = faults.FileFaults(name, is_skipping=True)
        sentences = self._answers.read_words(stream, name, self._token_column, self._tag_column, bad_lines)
        inputs = [*(Input(line, {}, (words,)) for line, words in sentences),
                  *(Input(fault.line, {}, problem=fault.problem, kind=fault.kind)
                    for fault in bad_lines.faults)]
        yield from sorted(inputs, key=lambda item: item.line)

    def _read_rows(self, stream, name, input_format, ahead):
        reader, read_fields = self._reader, None
        if self._has_text_column and input_format == "jsonl":
            reader.text = list(map(str, reader.text))  # the user named the columns of these rows
        rows = columns.TextFile(reader, stream, name, input_format, self._labels, ahead)
        self.dialect = rows.dialect
        for row in rows:
            problem = row.bad and row.problem + tables.row_in_words(rows.row_of(row.line))
            if row.values is None:
                yield Input(row.line, {}, problem=problem, kind=row.bad.kind)
                continue
            fields = row.values
            if isinstance(fields, list):
                read_fields = read_fields or row_fields.field_reader(
                    rows.place.names, dict(zip(rows.text_places, self._fields)))
                fields = read_fields(fields)
            yield Input(row.line, fields, row.texts, problem, *([row.bad.kind] if row.bad else ()))
        if rows.place is None and input_format != "jsonl":
            raise ValueError(f"{name}: the file is empty; it should begin with a header row.")


def _other_names(model, answers):
    """Returns the names that the columns of the texts may have in a file without the columns of the training:
    those of the task's own files, then those of the model's fields. Each item is a list of names."""
    fields, processor = list(answers.fields), model.processor
    return [*(processor.names_of_texts() if processor else ()), fields,
            *(fields[:number] for number in range(len(fields) - 1, answers.required - 1, -1)),
            *([key] for key in answers.word_keys)]
