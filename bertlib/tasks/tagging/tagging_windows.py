"""Windows: parts of sentences that fit into one sequence of the model. Makes their features, and merges their
predictions."""

import bisect
import contextlib
import functools
import itertools
from typing import NamedTuple

from bertlib.data import example_encoding, features_cache, tfrecord_files
from bertlib.system import files, workers
from bertlib.tasks.tagging.tag_schemes import convert_scheme, entity_spans
import tokenization


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
    # The number of tokens before each word, and in the whole sentence.
    totals, start, ends = [0, *itertools.accumulate(sizes)], 0, []
    while True:
        end = bisect.bisect_right(totals, totals[start] + room) - 1
        ends.append((start, end))
        if end == len(sizes):
            break
        # The new window begins with the last words of the previous window. These words have at most
        # `room // 2` tokens. If the next word of the sentence would not fit, fewer words are repeated. So
        # each window has a word that is not in the previous window.
        start = bisect.bisect_left(totals, max(totals[end] - room // 2, totals[end + 1] - room))
    borders = [0, *[(start + end + 1) // 2 for (_, end), (start, _) in zip(ends, ends[1:])], len(sizes)]
    return [(*window, *tagged_range) for window, tagged_range in zip(ends, zip(borders, borders[1:]))]


def _windows_of_sentence(item, tokenizer, ids, room, label_all_pieces):
    """Returns the list of a sentence's `Window`s. Worker processes call this function.

    Args:
      item: the words of the sentence, and its tags in IOB2 (None if it has no tags).
      ids: {tag: its id}. The id of an unknown tag is 0.
      room: largest number of tokens in a window, not including special tokens.
      tokenizer, label_all_pieces: see `make_windows`.
    """
    words, tags = item
    # A word that consists of control characters has no pieces. It gets the piece [UNK], because it also needs
    # a tag.
    pieces = [list(tokenizer.tokenize(word))[:room] or ["[UNK]"] for word in words]
    windows = []
    for start, end, first, last in window_bounds(list(map(len, pieces)), room):
        tokens, tag_ids, tag_mask, word_mask = ["[CLS]"], [0], [0], [0]
        for place in range(start, end):
            more = len(pieces[place]) - 1
            is_tagged = int(first <= place < last)
            tokens += pieces[place]
            tag_ids += _tag_ids(ids, tags[place], more) if tags and is_tagged else [0] * (more + 1)
            tag_mask += [is_tagged, *[is_tagged if label_all_pieces else 0] * more]
            word_mask += [is_tagged, *[0] * more]
        windows.append(Window(list(tokenizer.convert_tokens_to_ids([*tokens, "[SEP]"])), [*tag_ids, 0],
                              [*tag_mask, 0], [*word_mask, 0]))
    return windows


def _tag_ids(ids, tag, more):
    """Returns the tag id of each piece of a word. The first piece has the tag `tag`. It is followed by `more`
    other pieces, which have the I- tag of the same type: if `tag` is B-PER, they have I-PER."""
    tag_id = ids.get(tag, 0)
    return [tag_id, *[ids.get(tag.replace("B-", "I-", 1), tag_id)] * more]


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
    make = functools.partial(
        _windows_of_sentence, tokenizer=tokenizer, ids={label: index for index, label in enumerate(labels)},
        room=max_seq_length - 2, label_all_pieces=label_all_pieces)
    items = [(sentence.words, sentence.tags and convert_scheme(sentence.tags)) for sentence in sentences]
    processes = num_workers if type(tokenizer) in tokenization.TOKENIZERS else 1
    with contextlib.closing(workers.ordered_map(make, items, processes)) as windows:
        return list(files.with_progress(windows, len(items), "Converting sentence"))


# Names of the fields. Each field has a value for each token.
TRIMMED_FIELDS = (*example_encoding.TRIMMED_FIELDS, "tag_ids", "tag_mask", "word_mask")


def feature_fields(seq_length):
    """Returns the fields of a stored window. `tfrecord_files` writes these fields, and `input_pipeline` reads
    them.

    tag_mask is 1 at the tokens whose tags are used in the loss. word_mask is 1 at the first token of each
    word that is tagged in this window.

    Args:
      seq_length: int, number of tokens in a window, including padding.

    Returns:
      list of `example_encoding.Field`.
    """
    return example_encoding.token_fields((seq_length,), TRIMMED_FIELDS)


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
        return tfrecord_files.write_records(file, feature_fields(max_seq_length), map(padded, windows))

    features_cache.write(path, cache, [max_seq_length, windows], [], convert)


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
