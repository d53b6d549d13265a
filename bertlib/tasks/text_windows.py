"""Truncates texts, or cuts them into windows, which are short enough for the model. Also combines the
predictions for the windows of a text into one prediction for the text."""

import numpy as np

from bertlib.data import example_encoding
from bertlib.system import terminal


def make_windows(text_a, text_b, max_seq_length, tokenizer, doc_stride=0):
    """Cuts a text, or a pair of texts, into windows.

    Args:
      text_a, text_b: str; text_b may be None or "".
      max_seq_length: largest number of tokens in a window, including special tokens.
      tokenizer: an object with `tokenize(text)`.
      doc_stride: see `cut_into_windows`.

    Returns:
      a pair: a list with (tokens of segment 0, tokens of segment 1) for each window; and an int, the number
      of tokens before truncation, including special tokens.
    """
    tokens_a = list(tokenizer.tokenize(text_a))
    # A number is an error. The number 0 must not count as a missing text.
    tokens_b = [] if text_b in (None, "") else list(tokenizer.tokenize(text_b))
    special = 3 if tokens_b else 2
    if max_seq_length < special:
        raise ValueError(f"--max_seq_length={max_seq_length} is too low: [CLS] and [SEP] alone need "
                         f"{special} tokens")
    num_tokens = len(tokens_a) + len(tokens_b) + special
    windows = cut_into_windows(tokens_a, tokens_b, max_seq_length - special, doc_stride)
    return [(["[CLS]", *a, "[SEP]"], [*b, "[SEP]"] if b else []) for a, b in windows], num_tokens


def cut_into_windows(tokens_a, tokens_b, room, doc_stride):
    """Cuts a text, or a pair of texts, into windows that are short enough for the model.

    In a pair, the longer text is cut into windows. If both texts are equally long, the second text is cut.
    The other text is not cut into windows: `_truncate_seq_pair` truncates it if necessary, and each window
    contains it. The first window is equal to the result of `_truncate_seq_pair` for the whole pair.

    Args:
      tokens_a, tokens_b: lists of tokens; tokens_b is empty for a single text.
      room: int, the largest number of tokens in a window, not including special tokens.
      doc_stride: int, number of tokens from the start of a window to the start of the next window. No token
        is skipped: if this number is larger than a window, each window begins directly after the previous
        window. With 0, only the first window is made.

    Returns:
      list of (tokens of the first text, tokens of the second text).
    """
    a, b = list(tokens_a), list(tokens_b)
    _truncate_seq_pair(a, b, room)
    longer, size = (tokens_a, len(a)) if len(tokens_a) > len(tokens_b) else (tokens_b, len(b))
    if not doc_stride or not size:
        return [(a, b)]
    stride = min(doc_stride, size)
    windows = [longer[start:start + size] for start in range(0, len(longer) - size + stride, stride)]
    return [(window, b) if longer is tokens_a else (a, window) for window in windows]


def _truncate_seq_pair(tokens_a, tokens_b, max_length):
    """Truncates two lists of tokens in place, until their total length is at most `max_length`.

    Each step removes one token from the end of the longer list. If both lists are equally long, the step
    removes the last token of `tokens_b`. A short question therefore stays complete, and the long passage is
    truncated.
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop()


def window_inputs(first, second, tokenizer, length=None):
    """Returns the input of the model for the tokens of segment 0 and of segment 1, two lists of str. For
    `length` and the result, see `example_encoding.model_inputs`."""
    ids = list(tokenizer.convert_tokens_to_ids(first + second))
    return example_encoding.model_inputs(ids, len(second), length)


def mean_over_windows(rows, counts):
    """Averages the predictions for the windows of each text.

    Args:
      rows: list of {name: array or number}, a prediction for each window. First come all windows of the first
        text, then all windows of the second text, and so on.
      counts: list of positive ints, the number of windows of each text.

    Returns:
      list of {name: array or number}, with the dtypes of `rows`: for each text, the mean over its windows. If
      a text has only one window, the mean is equal to the prediction for this window, bit for bit.
    """
    if not rows:
        return []
    starts = np.cumsum([0, *counts[:-1]])
    means = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        sums = np.add.reduceat(values.astype(np.float64), starts)
        means[name] = (sums.T / counts).T.astype(values.dtype)
    return [{name: values[index] for name, values in means.items()} for index in range(len(counts))]


def describe_lengths(lengths, noun, max_seq_length, num_windows=None, advice="raise --max_seq_length"):
    """Returns a message for the log: how many examples are too long, and how long the longest one is.

    Args:
      lengths: list of int, the number of tokens of each example with [CLS] and [SEP], before truncation.
      noun: word in singular for an example, such as "question".
      max_seq_length: the flag.
      num_windows: number of windows of all examples; None if long examples were truncated.
      advice: what the user can do if examples were truncated.
    """
    cut = sum(length > max_seq_length for length in lengths)
    text = (f"{cut} of {terminal.counted(len(lengths), noun)} ({cut / max(1, len(lengths)):.1%}) are longer "
            f"than --max_seq_length={max_seq_length}; the longest has {max(lengths, default=0)} tokens.")
    if num_windows is not None:
        return f"{text} With --doc_stride, all {noun}s together have {num_windows} windows."
    return f"{text} These {noun}s were truncated. To use more of their text, {advice}." if cut else text
