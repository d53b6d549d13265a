"""Token tagging: files of CoNLL's columns, schemes of tags, scores of entities, windows of long sentences.

A file has a word a line, in columns, and a blank line after each sentence. Entities are spans of words with a
type; a scheme writes them as a tag a word: "O" outside of entities, else a letter and a type, B-PER. In

    words   Ana   Ruiz  Oslo  Bergen  is
    IOB2    B-PER I-PER B-LOC B-LOC   O      each entity begins with B
    IOB1    I-PER I-PER I-LOC B-LOC   O      B only where one of the same type ends right before
    BIOES   B-PER E-PER S-LOC S-LOC   O      E ends an entity, S is one by itself

The model learns IOB2; what it predicts is written in the scheme of the data.
"""

import collections
import contextlib
import re
from typing import NamedTuple

from bertlib.data import example_encoding, record_files
from bertlib.rows import tables
from bertlib.system import files, workers
import tokenization

SCHEMES = ("IOB2", "IOB1", "BIOES")
_TAG = re.compile(r"O|[BIES]-\S.*")
_DOCUMENT = "-DOCSTART-"


def is_iob2(tag):
    """Whether a text is a tag of IOB2, whatever stands before it."""
    return tag == "O" or tag.startswith(("B-", "I-")) and bool(_TAG.fullmatch(tag))


# --- Files -----------------------------------------------------------------------------------------------


class Sentence(NamedTuple):
    """`words` and `tags`, lists of str as the file has them (tags None if it has none), and the number of
    each word's line."""

    words: list
    tags: list | None
    lines: list


class ConllFile(NamedTuple):
    """A file that was read: its `path`, `lines` without their ends, `width` in columns, and `sentences`."""

    path: str
    lines: list
    width: int
    sentences: list

    @property
    def is_tagged(self):
        return self.sentences[0].tags is not None

    def error(self, line, problem):
        """Returns the ValueError of a problem in a line, counted from 1."""
        return ValueError(f"{self.path}:{line}: {problem}")


def read_conll(path, token_column=1, tag_column=-1, tagged=True):
    """Reads a UTF-8 file of columns that spaces or tabs separate.

    Lines that begin with -DOCSTART- end a sentence. A line that begins with "#" before a sentence's first
    word is a comment if it has another number of columns than the others, or no tag where they have one.

    Args:
      path: the file.
      token_column, tag_column: where the words and the tags are, counted from 1; below 0, from the end.
      tagged: True if there have to be tags. A number of columns: there are tags if the file has as many, and
        not only "O". None: there are if some are found.

    Returns:
      a `ConllFile`.

    Raises:
      FileNotFoundError, ValueError: the file is missing, blank or not UTF-8, its columns vary, or a tag is
        none; with the line.
    """
    with tables.open_table(path) as stream:
        return parse_conll(stream, path, token_column, tag_column, tagged)


def parse_conll(stream, path, token_column=1, tag_column=-1, tagged=True):
    """Returns the `ConllFile` of a binary stream of lines; see `read_conll`. `path` is its name."""
    lines = _read_lines(stream, path)
    rows = [split_words(line) for line in lines]
    counted = [number for number, row in enumerate(rows) if row and row[0] != _DOCUMENT]
    first = next((number for number in counted if not rows[number][0].startswith("#")), (counted or [0])[0])
    if not counted:
        raise ValueError(f"{path}: the file is blank; it should have a word and its tag a line, and a blank "
                         "line after each sentence.")
    found = ConllFile(path, lines, len(rows[first]), [])
    token = _index(found, first + 1, token_column, "words")
    tag = _tag_index(found, first + 1, token, tag_column, tagged, [rows[number] for number in counted])
    found.sentences.extend(_sentences(found, rows, first + 1, token, tag))
    if not found.sentences:
        raise ValueError(f"{path}: there are only comments; it should have a word and its tag a line, and a "
                         "blank line after each sentence.")
    return found


def _read_lines(stream, path):
    """The lines of a stream, without their ends: list of str."""
    lines = []
    for number, line in tables.read_lines(stream):
        if isinstance(line, tables.BadRow):
            raise ValueError(f"{path}:{number}: {line.problem}")
        lines.append(line.removesuffix("\n").removesuffix("\r"))
    return lines


def split_words(line):
    """Returns the columns of a line, or the words of a text: what is between spaces, tabs and line ends. What
    else Unicode calls a space is part of a word."""
    return [word for word in re.split(r"[ \t\r\n]+", line) if word]


def _index(file, line, column, what):
    """The index of a column that is counted from 1, or from the end."""
    index = column - 1 if column > 0 else file.width + column
    if column == 0 or not 0 <= index < file.width:
        raise file.error(line, f"there is no column {column} for the {what}, but columns 1 to {file.width}; "
                         "the last one is also -1.")
    return index


def _tag_index(file, line, token, column, tagged, rows):
    """The index of the tags' column; None if there are no tags. `rows` may have comments among them."""
    if tagged is not True:
        index = column - 1 if column > 0 else file.width + column
        if index == token or not 0 <= index < file.width or tagged not in (None, file.width):
            return None
        tags = {row[index] for row in rows if len(row) == file.width}
        return index if any(tag != "O" and _TAG.fullmatch(tag) for tag in tags) else None
    if file.width == 1:
        raise file.error(line, "there is one column only; a tag is needed beside each word.")
    index = _index(file, line, column, "tags")
    if index == token:
        raise file.error(line, f"column {index + 1} is to be that of the words and that of the tags.")
    return index


def _sentences(file, rows, first, token, tag):
    """Yields the `Sentence`s; `first` is the line that has as many columns as all should."""
    words, tags, lines = [], [], []
    for number, row in enumerate([*rows, []], 1):
        if not row or row[0] == _DOCUMENT:
            if words:
                yield Sentence(words, tags if tag is not None else None, lines)
            words, tags, lines = [], [], []
            continue
        fits = len(row) == file.width and (tag is None or _TAG.fullmatch(row[tag]))
        if not fits and not words and row[0].startswith("#"):
            continue
        if len(row) != file.width:
            raise file.error(number, f"{len(row)} columns, but line {first} has {file.width}; all lines of "
                             "words should have as many.")
        if not fits:
            raise file.error(number, f"{row[tag]!r} is no tag: it is to be O, or B-, I-, E- or S- and the "
                             "type of an entity, such as B-PER. If the tags are in another column, say so "
                             "with --tag_column.")
        words.append(row[token])
        lines.append(number)
        if tag is not None:
            tags.append(row[tag])


def add_prediction_column(file, predictions):
    """Returns the text of a file with one column more, a tag for each word; -DOCSTART- lines get "O".

    Args:
      file: a `ConllFile`.
      predictions: for each sentence its words' tags.
    """
    added = {number: tag for sentence, tags in zip(file.sentences, predictions, strict=True)
             for number, tag in zip(sentence.lines, tags, strict=True)}
    lines = []
    for number, line in enumerate(file.lines, 1):
        tag = added.get(number, "O" if split_words(line)[:1] == [_DOCUMENT] else None)
        separator = "\t" if "\t" in line else " "
        lines.append(line if tag is None else line.rstrip(" \t") + separator + tag)
    return "".join(f"{line}\n" for line in lines)


# --- Schemes ---------------------------------------------------------------------------------------------


def entity_spans(tags):
    """Returns the entities in a sentence's tags of any scheme: list of (first word, word after, type).

    As conlleval counts them: one begins with B or S, after O, E or S, or where the type changes.
    """
    found, before, ended = [], None, True
    for place, tag in enumerate(tags):
        letter, _, kind = tag.partition("-")
        if letter == "O":
            before = None
            continue
        if letter in "BS" or kind != before or ended:
            found.append((place, place + 1, kind))
        else:
            found[-1] = (found[-1][0], place + 1, kind)
        before, ended = kind, letter in "ES"
    return found


def tags_from_spans(entities, length, scheme="IOB2"):
    """Returns the tags of a sentence of some length that has these `entity_spans`, in one of `SCHEMES`."""
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
    """Returns the tags that mean the same in a scheme; see `entity_spans` for what those mean that fit no
    scheme."""
    return tags_from_spans(entity_spans(tags), len(tags), scheme)


def detect_scheme(file):
    """Returns the scheme of a tagged file: the one that most of its tags fit; see `check_scheme`."""
    wrong = dict.fromkeys(SCHEMES, 0)
    for sentence in file.sentences:
        entities = entity_spans(sentence.tags)
        for scheme in SCHEMES if entities else ():
            expected = tags_from_spans(entities, len(sentence.tags), scheme)
            wrong[scheme] += sum(map(str.__ne__, expected, sentence.tags))
    return min(SCHEMES, key=wrong.get)


def check_scheme(file, scheme, why):
    """Raises a ValueError, with the line, if the tags of a file are no sequences of a scheme.

    Args:
      file: a `ConllFile`, tagged.
      scheme: one of `SCHEMES`.
      why: where the scheme is from, in words.
    """
    for sentence in file.sentences:
        expected = convert_scheme(sentence.tags, scheme)
        for place, (tag, right) in enumerate(zip(sentence.tags, expected)):
            if tag != right:
                before = f"after {sentence.tags[place - 1]}" if place else "at the start of a sentence"
                raise file.error(sentence.lines[place], f"the tag {tag} {before} is no {scheme}, which "
                                 f"{why}; it would be {right}. Correct the file.")


def collect_labels(sentences):
    """Returns the tags of sentences in IOB2, sorted: what a model of them tells apart."""
    return sorted({tag for sentence in sentences for tag in convert_scheme(sentence.tags)})


def count_types(sentences):
    """Returns how many entities of each type there are, {type: number}, sorted by type."""
    counts = collections.Counter(kind for sentence in sentences for _, _, kind in entity_spans(sentence.tags))
    return dict(sorted(counts.items()))


# --- Scores ----------------------------------------------------------------------------------------------


def score_tags(right, predicted):
    """Scores predicted tags, as conlleval of CoNLL-2000 does: an entity counts if both its ends and its type
    are right.

    Args:
      right, predicted: for each sentence its tags, in the same scheme.

    Returns:
      {name: float}: accuracy (of tags), precision, recall and f1 (of entities), and the latter three of each
      type, precision_PER and so on. What has nothing to count is 0.
    """
    hits, found, real = (collections.Counter() for _ in range(3))
    words = equal = 0
    for tags, others in zip(right, predicted, strict=True):
        ours, theirs = set(entity_spans(tags)), set(entity_spans(others))
        for counter, entities in ((hits, ours & theirs), (found, theirs), (real, ours)):
            counter.update(kind for _, _, kind in entities)
        words += len(tags)
        equal += sum(map(str.__eq__, tags, others))
    results = {"accuracy": equal / words if words else 0.0}
    totals = [counter.total() for counter in (hits, found, real)]
    results.update(_precision_recall_f1("", *totals))
    for kind in sorted({*found, *real}):
        results.update(_precision_recall_f1(f"_{kind}", hits[kind], found[kind], real[kind]))
    return results


def _precision_recall_f1(ending, hits, found, real):
    """Precision, recall and F1 of so many entities."""
    return {f"precision{ending}": hits / found if found else 0.0,
            f"recall{ending}": hits / real if real else 0.0,
            f"f1{ending}": 2 * hits / (found + real) if hits else 0.0}


# --- Windows ---------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """What the model is fed, without padding; lists of ints, one for each token. See `feature_fields`."""

    input_ids: list
    tag_ids: list
    tag_mask: list
    word_mask: list


def window_bounds(sizes, room):
    """Cuts a sentence into windows that overlap by about half, at the borders of words.

    Each word is tagged in one window, the one in which it is farther from an end that cuts the sentence.

    Args:
      sizes: the tokens of each word, positive ints, none above `room`.
      room: tokens of a window at most.

    Returns:
      list of (first word, word after the last, first word to tag, word after the last to tag).
    """
    ends = [(0, _last_word_that_fits(sizes, 0, room))]
    while ends[-1][1] < len(sizes):
        start, end = ends[-1]
        tokens = sum(sizes[start:end])
        # The next word fits: it is not in the window before, so that windows move on.
        while tokens > room // 2 or tokens + sizes[end] > room:
            tokens -= sizes[start]
            start += 1
        ends.append((start, _last_word_that_fits(sizes, start, room)))
    borders = [0, *[(start + end + 1) // 2 for (_, end), (start, _) in zip(ends, ends[1:])], len(sizes)]
    return [(*window, *tagged) for window, tagged in zip(ends, zip(borders, borders[1:]))]


def _last_word_that_fits(sizes, start, room):
    """The word after the last that fits beside those from `start` on."""
    end, tokens = start, 0
    while end < len(sizes) and tokens + sizes[end] <= room:
        tokens += sizes[end]
        end += 1
    return end


class _Windows:
    """Makes the windows of (words, their tags in IOB2 or None); for worker processes."""

    def __init__(self, tokenizer, labels, max_seq_length, label_all_pieces):
        self._tokenizer, self._room, self._all = tokenizer, max_seq_length - 2, label_all_pieces
        self._ids = {label: index for index, label in enumerate(labels)}

    def __call__(self, item):
        """Returns a list of `Window`."""
        words, tags = item
        # A word of control characters alone has no pieces, but a tag.
        pieces = [list(self._tokenizer.tokenize(word))[:self._room] or ["[UNK]"] for word in words]
        return [self._window(pieces, tags, *places) for places in window_bounds(list(map(len, pieces)),
                                                                                self._room)]

    def _window(self, pieces, tags, start, end, first, last):
        tokens = ["[CLS]", *[piece for word in pieces[start:end] for piece in word], "[SEP]"]
        tag_ids, tag_mask, word_mask = [0], [0], [0]
        for place in range(start, end):
            more = len(pieces[place]) - 1
            here = int(first <= place < last)
            tag_ids += self._tag_ids(tags[place], more) if tags and here else [0] * (more + 1)
            tag_mask += [here, *[here if self._all else 0] * more]
            word_mask += [here, *[0] * more]
        return Window(list(self._tokenizer.convert_tokens_to_ids(tokens)), [*tag_ids, 0], [*tag_mask, 0],
                      [*word_mask, 0])

    def _tag_ids(self, tag, more):
        """Of a word's first piece and so many more, which are inside of its entity. Unknown tags are 0."""
        inside = tag.replace("B-", "I-", 1)
        return [self._ids.get(tag, 0), *[self._ids.get(inside, self._ids.get(tag, 0))] * more]


def make_windows(sentences, labels, tokenizer, max_seq_length, label_all_pieces=False, num_workers=1):
    """Turns sentences into what the model is fed.

    A sentence that is too long is cut into several windows; see `window_bounds`. The words that windows tag
    are, window after window, those of the sentences in order.

    Args:
      sentences: list of `Sentence`.
      labels: the tags in IOB2 that the model knows; a tag's place is its id.
      tokenizer: has `tokenize(text)` and `convert_tokens_to_ids(tokens)`. With one that is not of
        `tokenization.TOKENIZERS` all is done in this process.
      max_seq_length: int, tokens of a window at most, [CLS] and [SEP] included.
      label_all_pieces: whether the pieces of a word after the first are tagged too, in training.
      num_workers: number of processes, 0 for one a core.

    Returns:
      list of lists of `Window`, one for each sentence.
    """
    make = _Windows(tokenizer, labels, max_seq_length, label_all_pieces)
    items = [(sentence.words, sentence.tags and convert_scheme(sentence.tags)) for sentence in sentences]
    processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
    with contextlib.closing(workers.ordered_map(make, items, processes)) as made:
        return list(files.with_progress(made, len(items), "Converting sentence"))


# Of the fields below those [F], the mask first.
SEQUENCES = ("input_mask", "input_ids", "segment_ids", "tag_ids", "tag_mask", "word_mask")


def feature_fields(seq_length):
    """Returns the fields of a stored window, for `record_files` to write and `input_pipeline` to read.

    tag_mask is 1 at the tokens whose tag_ids training learns, word_mask at the first token of each word that
    the window tags.

    Args:
      seq_length: int, tokens per window.
    """
    return [example_encoding.Field(name, "int64", (seq_length,),
                                   (0, 1) if name.endswith("mask") else example_encoding.ANY_ID)
            for name in SEQUENCES]


def write_windows(windows, max_seq_length, path):
    """Writes windows to a TFRecord file, which appears when complete.

    Args:
      windows: list of `Window`.
      max_seq_length: int, the length that they are padded to.
      path: of the file.
    """
    def padded(window):
        padding = [0] * (max_seq_length - len(window.input_ids))
        rows = {name: values + padding for name, values in window._asdict().items()}
        return {**rows, "segment_ids": [0] * max_seq_length,
                "input_mask": [1] * len(window.input_ids) + padding}

    record_files.write_records(path, feature_fields(max_seq_length), map(padded, windows))
