"""Reads files of sentences. `conll_files` reads columns, and this module reads JSON Lines. Each line is an
object with the words and the tags of a sentence:

    {"tokens": ["Ana", "Ruiz", "sleeps"], "ner_tags": ["B-PER", "I-PER", "O"]}
"""

import json

from absl import logging

from bertlib.data import faults, tables
from bertlib.data.tables import RowError
from bertlib.runs.input_paths import require_file
from bertlib.system import terminal
from bertlib.tasks.tagging import conll_files, tag_schemes

# A JSON object has a list of words and a list of tags. These are the possible keys of the two lists.
WORD_KEYS, TAG_KEYS = ("tokens", "words"), ("ner_tags", "tags")
_MISSING_TAGS = f"the tags are missing. Add a list of tags with the key {' or '.join(map(repr, TAG_KEYS))}."


class JsonLinesFile(conll_files.ConllFile):
    """The content of a file with tagged sentences in JSON Lines.

    The attribute `lines` is a list of dict, one for each sentence. `width` is None, because JSON Lines have
    no columns. All words of a sentence are in one line of the file, so the attribute `lines` of a
    `conll_files.Sentence` contains this line number once for each word.
    """

    predictions_name = "test_predictions.jsonl"
    where_predicted = 'the predicted tags in the key "predicted_tags" of each line'

    def add_predictions(self, predictions):
        """Returns the text of the file with two additional keys in each line. "predicted_tags" contains the
        predicted tag of each word, and "tag_probabilities" contains the probability of each of these tags. If
        a line already has one of these keys, the value of the key is replaced.

        Args:
          predictions: list with a `tagging_windows.Prediction` for each sentence.
        """
        lines = ({**row, "predicted_tags": prediction.tags, "tag_probabilities": prediction.probabilities}
                 for row, prediction in zip(self.lines, predictions, strict=True))
        return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def read_sentences(path, token_column=1, tag_column=-1, needs_tags=True, width=None, bad_lines=None):
    """Reads a file of sentences. A file with an extension of JSON Lines is read as JSON Lines. Any other file
    is read as columns, see `conll_files.parse_conll`.

    Args:
      path: the file, which may be compressed with gzip.
      token_column, tag_column: int, the numbers of the columns of the words and of the tags, from 1. Negative
        numbers count from the last column, which is -1. They are ignored for JSON Lines.
      needs_tags: whether a file without tags is an error. If false, the file counts as tagged if it contains
        a valid tag other than "O".
      width: number of columns of the training file, or None. It is used only if `needs_tags` is false. A file
        with another number of columns counts as untagged. A file with this number of columns, but without any
        valid tag, is an error.
      bad_lines: the `faults.FileFaults` of the file. By default, a bad line is an error.

    Returns:
      a `JsonLinesFile` or a `conll_files.ConllFile`.

    Raises:
      FileNotFoundError, ValueError: the file is missing or blank, or its words or tags are not usable. The
        message names the lines.
    """
    if bad_lines is None:
        bad_lines = faults.FileFaults(str(path), is_skipping=None)
    with tables.open_table(path) as stream:
        if tables.is_json_lines(path):
            return _read_json_lines(stream, str(path), needs_tags, bad_lines)
        return conll_files.parse_conll(stream, path, token_column, tag_column, bad_lines, needs_tags, width)


def read_split(settings, split, width):
    """Reads the file of a split, which a flag names.

    Args:
      settings: a `Settings`.
      split: "train", "dev" or "test".
      width: number of columns of the training file, or None.

    Returns:
      (the file, list with a `faults.Fault` for each line that was left out).
    """
    path = require_file(settings, f"{split}_file")
    # Each line of the test file needs a prediction, so its bad lines are always an error.
    bad_lines = None if split == "test" else faults.FileFaults(path, settings.skip_bad_lines)
    file = read_sentences(path, settings.token_column, settings.tag_column, split != "test", width, bad_lines)
    if split == "test" and width and file.width not in (None, width):
        logging.info("%s: the file has %s instead of %d, so it counts as untagged. If the file has tags, "
                     "pass it as --dev_file with --do_eval=true. The predictions are then scored. For plain "
                     "sentences, use predict.py.", path, terminal.counted(file.width, "column"), width)
    return file, bad_lines.log_skipped(" together with their sentences") if bad_lines else []


def _read_json_lines(stream, path, needs_tags, bad_lines):
    """Reads JSON Lines; see `read_sentences`.

    The words are in "tokens" or "words", and the tags in "ner_tags" or "tags". Other keys are ignored.

    Args:
      stream: a binary stream of lines.
      path: name of the file, for error messages.
      needs_tags: whether a file without tags is an error.
      bad_lines: the `faults.FileFaults` of the file.
    """
    rows, read = list(tables.Table(stream, "jsonl")), []
    while rows and not rows[-1][1]:  # a blank line at the end
        rows.pop()
    for line, row in rows:
        if isinstance(row, RowError) or not row:
            bad_lines.add(row or RowError(line, "the line is blank; remove it.", "blank line"))
            continue
        try:
            read.append((row, _read_sentence(line, row)))
        except RowError as error:
            bad_lines.add(error, row)
    is_tagged = needs_tags or any(set(sentence.tags or ["O"]) - {"O"} for _, sentence in read)
    file = JsonLinesFile(path, [], None, [])
    for row, sentence in read:
        if is_tagged and sentence.tags is None:
            bad_lines.add(RowError(sentence.lines[0], _MISSING_TAGS, "missing label"), row)
            continue
        file.lines.append(row)
        file.sentences.append(sentence if is_tagged else sentence._replace(tags=None))
    bad_lines.check(len(file.sentences))
    if not file.sentences:
        raise ValueError(f'{path}: the file is blank; each line should be an object such as {{"tokens": '
                         '["Ana", "sleeps"], "ner_tags": ["B-PER", "O"]}.')
    return file


def _read_sentence(line, row):
    """Returns the `Sentence` in a row. Its tags are None if the row has no tags.

    Raises:
      RowError: the row cannot be used.
    """
    key = _find_key(line, row, WORD_KEYS)
    if key is None:
        raise RowError(line, "the words are missing. Add a list of words with the key "
                       f"{' or '.join(map(repr, WORD_KEYS))}. docs/howto/tagging.md converts "
                       "texts with spans of characters.", "missing words")
    words = _read_list(line, row, key)
    if not words:
        raise RowError(line, f"{key!r} is empty; remove the line.", "empty text")
    for word in words:
        if not conll_files.split_words(word):
            raise RowError(line, f"{key!r} contains the word {word!r}, which is empty. Remove this word and "
                           "its tag.", "empty text")
    tag_key = _find_key(line, row, TAG_KEYS)
    if row.get(tag_key) is None:
        return conll_files.Sentence(words, None, [line] * len(words))
    tags = _read_list(line, row, tag_key)
    if len(tags) != len(words):
        raise RowError(line, f"{key!r} has {terminal.counted(len(words), 'word')}, but {tag_key!r} has "
                       f"{terminal.counted(len(tags), 'tag')}. Each word needs one tag.", "bad tag")
    for tag in tags:
        if not tag_schemes.is_tag(tag):
            raise RowError(line, f"{tag!r} in {tag_key!r} is not a tag. A tag is O; or B-, I-, E- or S- with "
                           "the type of an entity, such as B-PER.", "bad tag")
    return conll_files.Sentence(words, tags, [line] * len(words))


def _find_key(line, row, keys):
    """Finds out which of `keys` a row has, and returns this key. Returns None if the row has none of `keys`.
    Raises a RowError if the row has several of them."""
    matches = [key for key in keys if key in row]
    if len(matches) > 1:
        raise RowError(line, f"the line has both {matches[0]!r} and {matches[1]!r}; remove one of them.",
                       "bad JSON")
    return matches[0] if matches else None


def _read_list(line, row, key):
    """Returns the value of a key in a row. Raises a RowError if the value is not a list of str."""
    values = row[key]
    if not isinstance(values, list):
        raise RowError(line, f"{key!r} is {json.dumps(values, ensure_ascii=False):.60}, but must be a list "
                       "of texts.", "bad JSON")
    for value in values:
        if key in TAG_KEYS and type(value) is int:
            raise RowError(line, f"{key!r} contains the number {value}. Write the name of each tag instead "
                           'of its number, such as "B-PER".', "bad tag")
        if not isinstance(value, str):
            raise RowError(line, f"{key!r} contains {json.dumps(value, ensure_ascii=False):.60}, which is "
                           "not a text. Write a text in quotes.", "bad JSON")
    return values
