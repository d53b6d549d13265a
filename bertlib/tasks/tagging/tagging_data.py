"""Token tagging: reads files in CoNLL format, converts tags between schemes, and makes windows.

A file has one word in each line, and a blank line after each sentence. The word and its tag are in different
columns of the line. An entity is a span of words with a type. A scheme encodes entities with a tag for each
word. The tag is "O" outside of entities, otherwise a letter and the type, such as B-PER. Examples:

    words   Ana   Ruiz  Oslo  Bergen  is
    IOB2    B-PER I-PER B-LOC B-LOC   O      each entity begins with B
    IOB1    I-PER I-PER I-LOC B-LOC   O      B only directly after an entity of the same type
    BIOES   B-PER E-PER S-LOC S-LOC   O      E ends an entity, S is an entity of a single word

The model is trained with IOB2. Its predictions are written in the scheme of the training data.
"""

import collections
import contextlib
import itertools
import re
from typing import NamedTuple

from absl import logging

from bertlib.data import example_encoding, features_cache, record_files, tables, text_keys
from bertlib.system import files, terminal, workers
import tokenization

SCHEMES = ("IOB2", "IOB1", "BIOES")
_TAG = re.compile(r"O|[BIES]-\S.*")
# A line that begins a document has this text in its first column.
_DOCUMENT = "-DOCSTART-"


def is_tag(text):
    """Returns whether a text has the form of a tag in one of the schemes."""
    return bool(_TAG.fullmatch(text))


def is_iob2(tag):
    """Returns whether a text has the form of an IOB2 tag. The tag of the previous word is not considered."""
    return is_tag(tag) and tag[0] in "OBI"


# --- Files -----------------------------------------------------------------------------------------------


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
          predictions: list with a `Prediction` for each sentence.
        """
        added = {number: tag for sentence, prediction in zip(self.sentences, predictions, strict=True)
                 for number, tag in zip(sentence.lines, prediction.tags, strict=True)}
        lines = []
        for number, line in enumerate(self.lines, 1):
            tag = added.get(number, "O" if split_words(line)[:1] == [_DOCUMENT] else None)
            separator = "\t" if "\t" in line else " "
            lines.append(line if tag is None else line.rstrip(" \t") + separator + tag)
        return "".join(f"{line}\n" for line in lines)


def parse_conll(stream, path, token_column, tag_column, tagged, bad_lines):
    """Reads UTF-8 lines with columns that are separated by spaces or tabs.

    A line that begins with -DOCSTART- ends a sentence. A line that begins with "#" is a comment if two
    conditions are true. First, the line comes before the first word of a sentence. Second, the line has
    another number of columns than the lines with words, or its tag is not valid.

    Args:
      stream: a binary stream of lines.
      path: the file, or the name of the stream for error messages.
      token_column, tag_column: int, numbers of the columns, from 1; -1 is the last column.
      tagged: True, None or an int; see `tagged_json_lines.read_tagged`.
      bad_lines: the `faults.FileFaults` of the file. Lines that cannot be used are added to this object. If
        the object skips bad lines, each sentence with a bad line is left out.

    Returns:
      a `ConllFile`.

    Raises:
      ValueError: the file is blank or not UTF-8, its lines have different numbers of columns, or a tag is not
        valid. The message names the line.
    """
    lines = _read_lines(stream, bad_lines)
    try:
        parsed = _parse_lines(lines, path, token_column, tag_column, tagged, bad_lines)
    except ValueError:
        bad_lines.check()
        raise
    bad_lines.check(sum(len(sentence.words) for sentence in parsed.sentences))
    return parsed


def _parse_lines(lines, path, token_column, tag_column, tagged, bad_lines):
    """Returns the `ConllFile` of a list of lines. If a line cannot be used, it is added to `bad_lines`, a
    `faults.FileFaults`. For the other arguments, see `parse_conll`."""
    rows = [split_words(line) for line in lines]
    counted = [number for number, row in enumerate(rows) if row and row[0] != _DOCUMENT]
    first = next((number for number in counted if not rows[number][0].startswith("#")), (counted or [0])[0])
    if not counted:
        raise ValueError(f"{path}: the file is blank; each line should have one word and its tag, with a "
                         "blank line after each sentence.")
    found = ConllFile(path, lines, len(rows[first]), [])
    token = _index(found, first + 1, token_column, "words")
    tag = _tag_index(found, first + 1, token, tag_column, tagged, [rows[number] for number in counted])
    found.sentences.extend(_sentences(found, rows, first + 1, token, tag, bad_lines))
    if not found.sentences and not bad_lines:
        raise ValueError(f"{path}: the file has only comments; each line should have one word and its tag, "
                         "with a blank line after each sentence.")
    return found


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
    return [word for word in re.split(r"[ \t\r\n]+", line) if word]


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


def _tag_index(file, line, token, column, tagged, rows):
    """Returns the index of the column of the tags; None if the file has no tags. `rows` contains a list of
    columns for each line, without blank lines and -DOCSTART- lines. Some of the lines may be comments."""
    if tagged is not True:
        index = column - 1 if column > 0 else file.width + column
        if index == token or not 0 <= index < file.width or tagged not in (None, file.width):
            return None
        tags = [row[index] for row in rows if len(row) == file.width]
        if tagged and any(map(str.isalnum, "".join(tags))) and not any(map(is_tag, tags)):  # "_" means no tag
            raise file.error(line, f"{tags[0]!r} is not a tag. Column {index + 1} contains the tags in the "
                             "training file, but no tag in this file. For plain sentences, use predict.py. "
                             "For words without tags, remove this column.")
        return index if any(tag != "O" and _TAG.fullmatch(tag) for tag in tags) else None
    if file.width == 1:
        raise file.error(line, "the line has only one column; each word needs a tag in another column.")
    index = _index(file, line, column, "tags")
    if index == token:
        raise file.error(line, f"column {index + 1} is named both for the words and for the tags. Pass "
                         "different columns as --token_column and --tag_column.")
    return index


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
    unreadable = {fault.line for fault in bad_lines.found}
    for number, row in enumerate([*rows, []], 1):
        if not row or row[0] == _DOCUMENT:
            if words and is_usable:
                yield Sentence(words, tags if tag is not None else None, lines)
            words, tags, lines, is_usable = [], [], [], True
            continue
        is_usable = is_usable and number not in unreadable
        fits = len(row) == file.width and (tag is None or _TAG.fullmatch(row[tag]))
        if not fits and not words and row[0].startswith("#"):
            continue
        if len(row) != file.width:
            width = terminal.counted(len(row), "column")
            bad_lines.add(tables.RowError(
                number, f"the line has {width}, but line {first} has {file.width}; all lines with words must "
                "have the same number of columns.", "wrong width", file.lines[number - 1]))
            is_usable = False
            continue
        if not fits:
            bad_lines.add(tables.RowError(
                number, f"{row[tag]!r} is not a tag. A tag is O; or B-, I-, E- or S- with the type of an "
                "entity, such as B-PER. If the tags are in another column, pass its number with "
                "--tag_column.", "bad tag", file.lines[number - 1]))
            is_usable = False
            continue
        words.append(row[token])
        lines.append(number)
        if tag is not None:
            tags.append(row[tag])


# --- Schemes ---------------------------------------------------------------------------------------------


def entity_spans(tags):
    """Returns the entities in a sentence. The tags may be in any scheme.

    The rules are those of the script conlleval: an entity begins at a tag with B or S, at the first tag after
    O, E or S, and at each change of the type.

    Args:
      tags: list of str.

    Returns:
      list of (index of the first word, index after the last word, type).
    """
    spans, before, ended = [], None, True
    for place, tag in enumerate(tags):
        letter, _, kind = tag.partition("-")
        if letter == "O":
            before = None
            continue
        if letter in "BS" or kind != before or ended:
            spans.append((place, place + 1, kind))
        else:
            spans[-1] = (spans[-1][0], place + 1, kind)
        before, ended = kind, letter in "ES"
    return spans


def tags_from_spans(entities, length, scheme):
    """Returns the tags of a sentence with given entities. This function is the inverse of `entity_spans`.

    Args:
      entities: list of (index of the first word, index after the last word, type).
      length: number of words in the sentence.
      scheme: one of `SCHEMES`.
    """
    tags, before = ["O"] * length, (None, None)
    for start, end, kind in entities:
        letters = ["B", *["I"] * (end - start - 1)]
        if scheme == "IOB1" and before != (start, kind):
            letters[0] = "I"
        if scheme == "BIOES":
            letters[-1] = "S" if end - start == 1 else "E"
        tags[start:end] = [f"{letter}-{kind}" for letter in letters]
        before = end, kind
    return tags


def convert_scheme(tags, scheme="IOB2"):
    """Converts tags of any scheme to the scheme `scheme`. The rules of `entity_spans` decide which entities
    an invalid sequence of tags has."""
    return tags_from_spans(entity_spans(tags), len(tags), scheme)


def detect_scheme(file):
    """Returns the scheme of a tagged file. This is the scheme in which the fewest tags of the file are wrong.
    See `check_scheme`."""
    wrong = dict.fromkeys(SCHEMES, 0)
    for sentence in file.sentences:
        entities = entity_spans(sentence.tags)
        for scheme in SCHEMES if entities else ():
            expected = tags_from_spans(entities, len(sentence.tags), scheme)
            wrong[scheme] += sum(map(str.__ne__, expected, sentence.tags))
    return min(SCHEMES, key=wrong.get)


def check_scheme(file, scheme, why):
    """Raises a ValueError if the tags of a file are not valid in a scheme. The message names the line.

    Args:
      file: a `ConllFile` with tags.
      scheme: one of `SCHEMES`.
      why: str, the reason for this scheme. It completes the sentence "the tag is not valid in the scheme
        IOB2, which …", for example with "fits most of train.txt".
    """
    for sentence in file.sentences:
        expected = convert_scheme(sentence.tags, scheme)
        for place, (tag, right) in enumerate(zip(sentence.tags, expected)):
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
    return sorted({tag for sentence in sentences for tag in convert_scheme(sentence.tags)})


def count_types(sentences):
    """Counts the entities of each type; returns {type: number}, sorted by type."""
    counts = collections.Counter(kind for sentence in sentences for _, _, kind in entity_spans(sentence.tags))
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
    unknown = sorted(set(collect_labels(file.sentences)) - set(labels))
    if unknown:
        logging.warning("%s has tags that the training data does not have. The model never predicts these "
                        "tags, so they count as wrong: %s.", file.path, ", ".join(unknown))


# --- Predictions -----------------------------------------------------------------------------------------


class Prediction(NamedTuple):
    """The predicted tags of a sentence.

    Attributes:
      tags: list of str, one for each word.
      probabilities: list of float, the probability of each tag.
    """

    tags: list
    probabilities: list

    def entities(self):
        """Returns the entities: list of (index of the first word, index after the last word, type, score).

        The score is the mean of the probabilities of the words' tags.
        """
        return [(start, end, kind, sum(self.probabilities[start:end]) / (end - start))
                for start, end, kind in entity_spans(self.tags)]


def merge_windows(rows, sentences, labels, scheme):
    """Merges the predictions for windows. Returns a list with the `Prediction` for each sentence.

    A predicted tag that is not valid after the tag of the previous word is replaced by a valid tag; see
    `convert_scheme`. The new tag gets the probability of the predicted tag.

    Args:
      rows: iterable of the predictions of `tagging_head.Tagger` for the windows, in the order of the windows.
      sentences: list of `Sentence`.
      labels: list of the model's tags in IOB2.
      scheme: scheme of the returned tags.
    """
    words = ((labels[tag], float(str(probability))) for row in rows for tag, probability in
             zip(row["tags"][:row["num_words"]], row["probabilities"][:row["num_words"]]))
    predictions = []
    for sentence in sentences:
        tags, probabilities = zip(*itertools.islice(words, len(sentence.words)))
        predictions.append(Prediction(convert_scheme(tags, scheme), list(probabilities)))
    return predictions


# --- Windows ---------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """The features of a window, which is a part of a sentence that fits into one sequence of the model.

    Each field is a list with an int for each token, without padding. See `feature_fields`.
    """

    input_ids: list
    tag_ids: list
    tag_mask: list
    word_mask: list


def window_bounds(sizes, room):
    """Cuts a sentence into windows of whole words. Consecutive windows overlap by about half.

    Each word is tagged in one window only. The overlap of two windows is divided in the middle: its first
    words are tagged in the first window, and its last words are tagged in the second window. So each word is
    tagged in the window that has more context around the word.

    Args:
      sizes: list of the number of tokens of each word. Each number is from 1 to `room`.
      room: largest number of tokens in a window, not including special tokens.

    Returns:
      list of (index of the first word, index after the last word, index of the first tagged word, index after
      the last tagged word), one for each window.
    """
    ends = [(0, _last_word_that_fits(sizes, 0, room))]
    while ends[-1][1] < len(sizes):
        start, end = ends[-1]
        tokens = sum(sizes[start:end])
        # The new window begins with the last words of the previous window. These words have at most
        # `room // 2` tokens. If the next word of the sentence would not fit, fewer words are repeated. So
        # each window has a word that is not in the previous window.
        while tokens > room // 2 or tokens + sizes[end] > room:
            tokens -= sizes[start]
            start += 1
        ends.append((start, _last_word_that_fits(sizes, start, room)))
    borders = [0, *[(start + end + 1) // 2 for (_, end), (start, _) in zip(ends, ends[1:])], len(sizes)]
    return [(*window, *tagged) for window, tagged in zip(ends, zip(borders, borders[1:]))]


def _last_word_that_fits(sizes, start, room):
    """Returns the end of the window that begins with the word `start`: the index after the last word that
    fits into the window. A window has at most `room` tokens."""
    end, tokens = start, 0
    while end < len(sizes) and tokens + sizes[end] <= room:
        tokens += sizes[end]
        end += 1
    return end


class _Windows:
    """Makes the windows of a sentence when it is called. A sentence is a pair: its words, and its tags in
    IOB2 (None if it has no tags). Worker processes call the object."""

    def __init__(self, tokenizer, labels, max_seq_length, label_all_pieces):
        self._tokenizer, self._room, self._all = tokenizer, max_seq_length - 2, label_all_pieces
        self._ids = {label: index for index, label in enumerate(labels)}

    def __call__(self, item):
        """Returns the list of the sentence's `Window`s."""
        words, tags = item
        # A word that consists of control characters has no pieces. It gets the piece [UNK], because it also
        # needs a tag.
        pieces = [list(self._tokenizer.tokenize(word))[:self._room] or ["[UNK]"] for word in words]
        return [self._window(pieces, tags, *places) for places in window_bounds(list(map(len, pieces)),
                                                                                self._room)]

    def _window(self, pieces, tags, start, end, first, last):
        tokens = ["[CLS]", *[piece for word in pieces[start:end] for piece in word], "[SEP]"]
        tag_ids, tag_mask, word_mask = [0], [0], [0]
        for place in range(start, end):
            more = len(pieces[place]) - 1
            is_tagged = int(first <= place < last)
            tag_ids += self._tag_ids(tags[place], more) if tags and is_tagged else [0] * (more + 1)
            tag_mask += [is_tagged, *[is_tagged if self._all else 0] * more]
            word_mask += [is_tagged, *[0] * more]
        return Window(list(self._tokenizer.convert_tokens_to_ids(tokens)), [*tag_ids, 0], [*tag_mask, 0],
                      [*word_mask, 0])

    def _tag_ids(self, tag, more):
        """Returns the tag id of each piece of a word. The first piece has the tag `tag`. It is followed by
        `more` other pieces, which have the I- tag of the same type: if `tag` is B-PER, they have I-PER. The
        id of an unknown tag is 0."""
        inside = tag.replace("B-", "I-", 1)
        return [self._ids.get(tag, 0), *[self._ids.get(inside, self._ids.get(tag, 0))] * more]


def make_windows(sentences, labels, tokenizer, max_seq_length, label_all_pieces=False, num_workers=1):
    """Converts sentences into windows, which are the input of the model.

    A sentence that is too long is cut into several windows; see `window_bounds`. Each word of the sentences
    is tagged in exactly one window, and the windows are in the order of the words.

    Args:
      sentences: list of `Sentence`.
      labels: list of the model's tags in IOB2. The id of a tag is its index in this list.
      tokenizer: an object with `tokenize(text)` and `convert_tokens_to_ids(tokens)`. If its class is not in
        `tokenization.TOKENIZERS`, a single process is used.
      max_seq_length: int, largest number of tokens in a window, including [CLS] and [SEP].
      label_all_pieces: whether all pieces of a word are used in training. If false, the training uses only
        the first piece of each word.
      num_workers: number of processes; 0 for one process per core.

    Returns:
      list with a list of `Window` for each sentence.
    """
    make = _Windows(tokenizer, labels, max_seq_length, label_all_pieces)
    items = [(sentence.words, sentence.tags and convert_scheme(sentence.tags)) for sentence in sentences]
    processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
    with contextlib.closing(workers.ordered_map(make, items, processes)) as windows:
        return list(files.with_progress(windows, len(items), "Converting sentence"))


# Names of the fields. Each field has a value for each token.
SEQUENCES = (*example_encoding.SEQUENCES, "tag_ids", "tag_mask", "word_mask")


def feature_fields(seq_length):
    """Returns the fields of a stored window. `record_files` writes these fields, and `input_pipeline` reads
    them.

    tag_mask is 1 at the tokens whose tags are used in the loss. word_mask is 1 at the first token of each
    word that is tagged in this window.

    Args:
      seq_length: int, number of tokens in a window, including padding.

    Returns:
      list of `example_encoding.Field`.
    """
    return example_encoding.token_fields((seq_length,), SEQUENCES)


def write_windows(windows, max_seq_length, path, cache):
    """Writes windows to a TFRecord file. The file appears only when it is complete.

    Args:
      windows: list of `Window`.
      max_seq_length: int, number of tokens to which the windows are padded.
      path: path of the file.
      cache: directory of a cache of features, see `features_cache`; None for no cache.
    """
    def padded(window):
        padding = [0] * (max_seq_length - len(window.input_ids))
        rows = {name: values + padding for name, values in window._asdict().items()}
        return {**rows, **example_encoding.model_inputs(window.input_ids, length=max_seq_length)}

    def convert(file):
        return record_files.write_records(file, feature_fields(max_seq_length), map(padded, windows))

    features_cache.write(path, cache, [max_seq_length, windows], [], convert)
