"""Lines to questions: plain text, separated values, JSON Lines or sentences in CoNLL's columns, as they come.

Rows and columns are read by `bertlib.rows.columns`, as in a training.
"""

import itertools
import json
from typing import Any, NamedTuple

from bertlib.rows import columns, tables
from bertlib.serving import answers
from bertlib.tasks.classification import row_examples
from bertlib.tasks.tagging import tagging_data

FORMATS = ("text", *tables.FORMATS, "conll")
PAIR = " ||| "  # between two texts of a line of plain text
_ENDINGS = {**tables.ENDINGS, ".conll": "conll", ".iob": "conll", ".bio": "conll"}
# Flags that say where the texts of a file are, see `QuestionReader`.
COLUMN_FLAGS = ("text_column", "label_column", "header", "delimiter", "token_column", "tag_column")


class Question(NamedTuple):
    """What a line asks.

    line: its number, from 1. fields: {name: value} of all that it holds. values: those that are asked about,
    in the order of the task's fields. problem: what is wrong with the line, in words, or None.
    """

    line: int
    fields: dict
    values: tuple = ()
    problem: str | None = None


def format_from_name(path):
    """Returns the format that the ending of a file's name says; "text" if it says none."""
    name = path.lower().removesuffix(".gz")
    return next((input_format for ending, input_format in _ENDINGS.items() if name.endswith(ending)), "text")


class QuestionReader:
    """Reads the questions to a model from files and streams, by the columns of its training."""

    def __init__(self, model, fields, required, flags=None):
        """Says where the texts are.

        Args:
          model: a `model_directory.ModelDirectory`.
          fields, required: see `answers`.
          flags: {name: value} of `COLUMN_FLAGS` that were given, and override the training's.

        Raises:
          ValueError: they contradict each other.
        """
        flags = dict(flags or {})
        self._fields, self._required, self._labels = list(fields), required, model.labels
        self._is_tagger = fields == answers.Tagging.fields and model.kind == "tagging"
        given = flags.get("text_column") is not None
        if given:  # a file with other columns than the training's, which may lack labels and a header row
            flags = {"label_column": None, "header": "auto", **flags}

        def setting(name, default):
            return flags[name] if name in flags else model.setting(name, default)

        self._token_column, self._tag_column = setting("token_column", 1), setting("tag_column", -1)
        said = row_examples.column_arguments(setting)
        if given:
            _check_count(flags["text_column"], len(said["text"]), fields, required)
        columns.check_header_flag(said["header"], said["text"], "--text_column")
        processor = model.processor
        names = [*(processor.names_of_texts() if processor else ()), self._fields,
                 *([self._fields[:required]] if required < len(fields) else ())]
        self._reader = columns.TextReader(
            **said, task_type=model.kind if model.kind in row_examples.TASK_TYPES else "classification",
            separator=model.setting("label_separator", ","), choices=() if given else names,
            find_layout=processor and processor.columns_in, takes_lists=self._is_tagger)

    def read(self, stream, name, input_format, ahead=columns.LOOKAHEAD_ROWS):
        """Yields the `Question` of each line, as soon as it is there.

        Args:
          stream: binary, iterated by lines.
          name: of the file, for errors.
          input_format: one of `FORMATS`. A file of CoNLL's columns is read as a whole first.
          ahead: rows that may be looked at before the first one is yielded; see `columns.TextReader`.

        Raises:
          ValueError: the columns are not there, or it is not certain which they are.
        """
        if input_format == "text":
            return self._read_text(stream)
        if input_format == "conll":
            if not self._is_tagger:
                raise ValueError("--input_format=conll: sentences in CoNLL's columns are for a model that "
                                 f"tags words. This one takes {' and '.join(self._fields)}.")
            return self._read_conll(stream, name)
        return self._read_rows(stream, name, input_format, ahead)

    def _read_text(self, stream):
        for number, line in tables.read_lines(stream):
            if isinstance(line, tables.BadRow):
                yield Question(number, {}, problem=line.problem)
                continue
            text = line.rstrip("\r\n")
            values = text.split(PAIR, 1) if len(self._fields) > 1 else [text]
            fields = dict(zip(self._fields, values))
            problem = None
            if len(values) < self._required:
                problem = (f"there is one text; the model takes {' and '.join(self._fields)}, "
                           f"with{PAIR}between them.")
            yield Question(number, fields, tuple(values), problem)

    def _read_conll(self, stream, name):
        found = tagging_data.parse_conll(stream, name, self._token_column, self._tag_column, tagged=None)
        for sentence in found.sentences:
            yield Question(sentence.lines[0], {}, (sentence.words,))

    def _read_rows(self, stream, name, input_format, ahead):
        reader, names = self._reader, {}
        for row in reader.rows(stream, name, input_format, self._labels, ahead):
            if row.values is None:
                yield Question(row.line, {}, problem=row.problem)
                continue
            fields, width = row.values, len(row.values)
            if isinstance(row.values, list):
                if width not in names:
                    texts = dict(zip(reader.text_places, self._fields))
                    names[width] = _names(reader.place.names, texts, width)
                fields = dict(zip(names[width], row.values))
            problem = row.problem
            if problem is None and self._has_second_text(fields):
                problem = "there is a text_b, and the model was trained on single texts; remove it."
            yield Question(row.line, fields, row.texts, problem)

    def _has_second_text(self, fields):
        """Whether the row of a model of single texts was found by the name text_a, and has a text_b."""
        place, chosen = self._reader.place, self._reader.text_places
        return self._fields == ["text_a"] and "text_b" in fields and place.names is not None and (
            [place.name_of(chosen[0])] == self._fields)


def _check_count(flag, number, fields, required):
    """Raises a ValueError if --text_column names more or fewer columns than a task takes."""
    if not required <= number <= len(fields):
        raise ValueError(f"--text_column={flag} names {number} column{'s' * (number != 1)}, and the model "
                         f"takes {' and '.join(fields)}.")


def _names(header, texts, width):
    """The names of a row's fields, all different.

    A field is called as in the header, or without one {place: name} `texts`; without a name column_3, say. A
    name that another field has gets a number: text, text_2.
    """
    found, taken = [], set(header or ())
    for place in range(width):
        own = (header[place] if place < len(header) else "") if header is not None else texts.get(place)
        plain = own or f"column_{place + 1}"
        choices = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        found.append(next(name for name in choices
                          if name not in found and (name == own or name not in taken)))
    return found


def format_answer(question, answer):
    """Returns the line of an answer, as JSON has it: the answer, then the input's fields.

    A field of an answer's name is written as "input_" and that name; if the input has a field of that name
    too, with "input_" once more.

    Raises:
      ValueError: a number of the answer is NaN or infinite, which JSON has not.
    """
    fields: dict[str, Any] = {}
    for name, value in question.fields.items():
        new = name
        while new in answer or new in fields or new != name and new in question.fields:
            new = f"input_{new}"
        fields[new] = value
    try:
        return json.dumps({**answer, **fields}, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ValueError(f"the answer to line {question.line} has a number that is not finite: the model's "
                         "weights are damaged, or its training diverged.") from None
