"""Files of sentences in CoNLL columns: reads them, checks the scheme of their tags, and adds predicted tags.

A file has one word in each line, and a blank line after each sentence. The word and its tag are in different
columns of the line. `sentence_files` reads the same sentences from JSON Lines.
"""

import collections
import itertools
import re
from typing import NamedTuple

from absl import logging

from bertlib.data import tables, text_keys
from bertlib.system import terminal
from bertlib.tasks.tagging import tag_schemes

# A line that begins a document has this text in its first column.
_DOCUMENT = "-DOCSTART-"


class Sentence(NamedTuple):
    """A sentence of a file.

    Attributes:
      words: list of str.
      tags: list of str in the scheme of the file; None if the file has no tags.
      lines: list of int, the number of the line of each word. The first line of a file has the number 1.
    """

    words: list
    tags: list | None
    lines: list


class ConllFile(NamedTuple):
    """The content of a file.

    Attributes:
      path: str.
      lines: list of str, without line ends.
      width: number of columns.
      sentences: list of `Sentence`.
    """

    path: str
    lines: list
    width: int
    sentences: list
    # Name of the file with the predictions, and the place of the predictions in it.
    predictions_name, where_predicted = "test_predictions.conll", "the predicted tags in the last column"

    @property
    def is_tagged(self):
        return self.sentences[0].tags is not None

    def error(self, line, problem):
        """Returns a ValueError that names the file and a line (a number from 1), and describes the `problem`
        (a str)."""
        return ValueError(f"{self.path}:{line}: {problem}")

    def add_predictions(self, predictions):
        """Returns the text of the file with an additional last column, the predicted tag of each word. In
        -DOCSTART- lines, this column contains "O".

        Args:
          predictions: list with a `tagging_windows.Prediction` for each sentence.
        """
        tags = {number: tag for sentence, prediction in zip(self.sentences, predictions, strict=True)
                for number, tag in zip(sentence.lines, prediction.tags, strict=True)}
        lines = []
        for number, line in enumerate(self.lines, 1):
            tag = tags.get(number, "O" if split_words(line)[:1] == [_DOCUMENT] else None)
            separator = "\t" if "\t" in line else " "
            lines.append(line if tag is None else line.rstrip(" \t") + separator + tag)
        return "".join(f"{line}\n" for line in lines)


def parse_conll(stream, path, token_column, tag_column, bad_lines, needs_tags=True, width=None):
    """Reads UTF-8 lines with columns that are separated by spaces or tabs.

    A line that begins with -DOCSTART- ends a sentence. A line that begins with "#" is a comment if two
    conditions are true. First, the line comes before the first word of a sentence. Second, the line has
    another number of columns than the lines with words, or its tag is not valid.

    Args:
      stream: a binary stream of lines.
      path: the file, or the name of the stream for error messages.
      token_column, tag_column: int, numbers of the columns, from 1; -1 is the last column.
      bad_lines: the `faults.FileFaults` of the file. Lines that cannot be used are added to this object. If
        the object skips bad lines, each sentence with a bad line is left out.
      needs_tags, width: see `sentence_files.read_sentences`.

    Returns:
      a `ConllFile`.

    Raises:
      ValueError: the file is blank, not UTF-8 or a table with another delimiter, its lines have different
        numbers of columns, or a tag is not valid. The message names the line.
    """
    lines = _read_lines(stream, bad_lines)
    _refuse_table(path, lines)
    try:
        file = _parse_lines(lines, path, token_column, tag_column, bad_lines, needs_tags, width)
    except ValueError:
        bad_lines.check()
        raise
    bad_lines.check(sum(len(sentence.words) for sentence in file.sentences))
    return file


def _refuse_table(path, lines):
    """Raises a ValueError if the lines of a file are rows of CSV: each of the first five has the same number
    of semicolons or commas outside of quotes. Lines with the same number of columns between white space are
    no CSV, such as "cat\tN,sg\tO", unless a delimiter is at the border of a column, such as "cat, O"."""
    first = list(itertools.islice(filter(str.strip, lines), 5))
    rows = [split_words(line) for line in first]
    has_columns = len(set(map(len, rows))) == 1 and len(rows[0]) > 1
    for delimiter in ";,":
        counts = {re.sub('"[^"]*"', "", line).count(delimiter) for line in first}
        is_conll = has_columns and all(value == delimiter or value.strip(delimiter) == value
                                       for row in rows for value in row)
        if len(first) > 1 and len(counts) == 1 and counts != {0} and not is_conll:
            raise ValueError(f"{path}: the file is a table whose columns are separated by {delimiter!r}. "
                             "Each line should have one word and its tag, separated by a space or a tab, "
                             "with a blank line after each sentence. To convert the table, see the section "
                             "\"Tables\" of docs/howto/tagging.md.")


def _parse_lines(lines, path, token_column, tag_column, bad_lines, needs_tags, width):
    """Returns the `ConllFile` of a list of lines. If a line cannot be used, it is added to `bad_lines`, a
    `faults.FileFaults`. For the other arguments, see `parse_conll`."""
    rows = [split_words(line) for line in lines]
    row_numbers = [number for number, row in enumerate(rows) if row and row[0] != _DOCUMENT]
    first = next((number for number in row_numbers if not rows[number][0].startswith("#")),
                 (row_numbers or [0])[0])
    if not row_numbers:
        raise ValueError(f"{path}: the file is blank; each line should have one word and its tag, with a "
                         "blank line after each sentence.")
    file = ConllFile(path, lines, len(rows[first]), [])
    token = _index(file, first + 1, token_column, "words")
    tag = (_tag_index(file, first + 1, token, tag_column) if needs_tags else
           _find_tags(file, first + 1, token, tag_column, width, [rows[number] for number in row_numbers]))
    file.sentences.extend(_sentences(file, rows, first + 1, token, tag, bad_lines))
    if not file.sentences and not bad_lines:
        raise ValueError(f"{path}: the file has only comments; each line should have one word and its tag, "
                         "with a blank line after each sentence.")
    return file


def _read_lines(stream, bad_lines):
    """Returns the lines of a stream as a list of str, without their line ends. A line that cannot be read is
    also in the list, and is added to `bad_lines`, a `faults.FileFaults`."""
    lines = []
    for number, line in tables.read_lines(stream):
        line = tables.refuse_old_line_ends(number, line)
        if isinstance(line, tables.RowError):
            bad_lines.add(line)
            line = line.text
        lines.append(line.removesuffix("\n").removesuffix("\r"))
    return lines


def split_words(line):
    """Splits a line into columns, or a text into words. Spaces, tabs and line ends are separators.

    Other white space of Unicode, such as the no-break space, is part of a word.
    """
    return re.findall(r"[^ \t\r\n]+", line)


def _index(file, line, column, what):
    """Returns the index of a column, from 0.

    Args:
      file: a `ConllFile`.
      line: int, the line that the error message names.
      column: int, number of the column from 1. Negative numbers count from the last column.
      what: str, the content of the column, for the error message.
    """
    index = column - 1 if column > 0 else file.width + column
    if not 0 <= index < file.width:
        raise file.error(line, f"there is no column {column} for the {what}. The columns have the numbers 1 "
                         f"to {file.width}; the last column also has the number -1.")
    return index


def _tag_index(file, line, token, column):
    """Returns the index of the column of the tags, which the file must have. For the arguments, see `_index`;
    `token` is the index of the column of the words."""
    if file.width == 1:
        raise file.error(line, "the line has only one column; each word needs a tag in another column.")
    index = _index(file, line, column, "tags")
    if index == token:
        raise file.error(line, f"column {index + 1} is named both for the words and for the tags. Pass "
                         "different columns as --token_column and --tag_column.")
    return index


def _find_tags(file, line, token, column, width, rows):
    """Returns the index of the column of the tags; None if the file has no tags.

    Args:
      file, line, token, column: see `_tag_index`.
      width: see `sentence_files.read_sentences`.
      rows: list with the list of columns of each line, without blank lines and -DOCSTART- lines. Some of the
        lines may be comments.
    """
    index = column - 1 if column > 0 else file.width + column
    if index == token or not 0 <= index < file.width or width not in (None, file.width):
        return None
    tags = [row[index] for row in rows if len(row) == file.width]
    # "_" means no tag
    if width and any(map(str.isalnum, "".join(tags))) and not any(map(tag_schemes.is_tag, tags)):
        raise file.error(line, f"{tags[0]!r} is not a tag. Column {index + 1} contains the tags in the "
                         "training file, but no tag in this file. For plain sentences, use predict.py. For "
                         "words without tags, remove this column.")
    return index if any(tag != "O" and tag_schemes.is_tag(tag) for tag in tags) else None


def _sentences(file, rows, first, token, tag, bad_lines):
    """Yields the `Sentence`s of a file. A sentence with a line that cannot be used is left out.

    Args:
      file: a `ConllFile` without sentences.
      rows: list with one element for each line: the list of the texts in the columns of the line.
      first: int, the line (from 1) that determines how many columns all lines must have. Error messages
        name this line.
      token, tag: indexes of the columns of words and tags. `tag` is None if the file has no tags.
      bad_lines: a `faults.FileFaults`. Lines that cannot be used are added to it.
    """
    words, tags, lines, is_usable = [], [], [], True
    unreadable = {fault.line for fault in bad_lines.faults}
    for number, row in enumerate([*rows, []], 1):
        if not row or row[0] == _DOCUMENT:
            if words and is_usable:
                yield Sentence(words, tags if tag is not None else None, lines)
            words, tags, lines, is_usable = [], [], [], True
            continue
        is_usable = is_usable and number not in unreadable
        fault = None
        if len(row) != file.width:
            fault = (f"the line has {terminal.counted(len(row), 'column')}, but line {first} has "
                     f"{file.width}; all lines with words must have the same number of columns.",
                     "wrong width")
        elif tag is not None and not tag_schemes.is_tag(row[tag]):
            fault = (f"{row[tag]!r} is not a tag. A tag is O; or B-, I-, E- or S- with the type of an "
                     "entity, such as B-PER. If the tags are in another column, pass its number with "
                     "--tag_column.", "bad tag")
        if fault:
            if words or not row[0].startswith("#"):  # not a comment
                bad_lines.add(tables.RowError(number, *fault, file.lines[number - 1]))
                is_usable = False
            continue
        words.append(row[token])
        lines.append(number)
        if tag is not None:
            tags.append(row[tag])


# --- The tags of a file ---------------------------------------------------------------------------------


def detect_scheme(file):
    """Returns the scheme of a tagged file. This is the scheme in which the fewest tags of the file are wrong.
    See `check_scheme`."""
    num_wrong = dict.fromkeys(tag_schemes.SCHEMES, 0)
    for sentence in file.sentences:
        entities = tag_schemes.entity_spans(sentence.tags)
        for scheme in tag_schemes.SCHEMES if entities else ():
            scheme_tags = tag_schemes.tags_from_spans(entities, len(sentence.tags), scheme)
            num_wrong[scheme] += sum(map(str.__ne__, scheme_tags, sentence.tags))
    return min(tag_schemes.SCHEMES, key=num_wrong.get)


def check_scheme(file, scheme, why):
    """Raises a ValueError if the tags of a file are not valid in a scheme. The message names the line.

    Args:
      file: a `ConllFile` with tags.
      scheme: one of `tag_schemes.SCHEMES`.
      why: str, the reason for this scheme. It completes the sentence "the tag is not valid in the scheme
        IOB2, which …", for example with "fits most of train.txt".
    """
    for sentence in file.sentences:
        right_tags = tag_schemes.convert_scheme(sentence.tags, scheme)
        for place, (tag, right) in enumerate(zip(sentence.tags, right_tags)):
            if tag != right:
                previous = sentence.tags[place - 1] if place else ""
                before = f"after {previous}" if previous else "at the start of a sentence"
                advice = f"the right tag is {right}"
                if previous[2:] not in ("", tag[2:]) and all(
                        right not in other.tags for other in file.sentences):
                    # A misspelled type within an entity, such as I-PRODCUT after B-PRODUCT.
                    advice = f"the file has no tag {right}, so {tag} may be misspelled"
                raise file.error(sentence.lines[place], f"the tag {tag} {before} is not valid in the scheme "
                                 f"{scheme}, which {why}; {advice}. Correct the file.")


def collect_labels(sentences):
    """Returns the labels of a model: the sorted list of all tags in some sentences, converted to IOB2."""
    return sorted({tag for sentence in sentences for tag in tag_schemes.convert_scheme(sentence.tags)})


def count_types(sentences):
    """Counts the entities of each type; returns {type: number}, sorted by type."""
    counts = collections.Counter(kind for sentence in sentences
                                 for _, _, kind in tag_schemes.entity_spans(sentence.tags))
    return dict(sorted(counts.items()))


def log_file(file, scheme, labels):
    """Logs the numbers of sentences, words and entities in a file. Warns about entity types that look like
    misspellings, and about tags that the model does not know."""
    words = sum(len(sentence.words) for sentence in file.sentences)
    sizes = f"{terminal.counted(len(file.sentences), 'sentence')}, {terminal.counted(words, 'word')}"
    if not file.is_tagged:
        logging.info("%s: %s, without tags.", file.path, sizes)
        return
    counts = count_types(file.sentences)
    logging.info("%s: %s, %s: %s.", file.path, sizes, scheme,
                 ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no entities")
    for rare, frequent in text_keys.find_misspellings(counts).items():
        logging.warning("%s: the entity type %r occurs %d times, and looks like a misspelling of %r, which "
                        "occurs %d times. If it is a misspelling, correct it in the file. Otherwise ignore "
                        "this warning.", file.path, rare, counts[rare], frequent, counts[frequent])
    unknown_tags = sorted(set(collect_labels(file.sentences)) - set(labels))
    if unknown_tags:
        logging.warning("%s has tags that the training data does not have. The model never predicts these "
                        "tags, so they count as wrong: %s.", file.path, ", ".join(unknown_tags))
