"""Describes how many texts are longer than the sequences of the model."""

from bertlib.system import terminal


def count_longer(lengths, max_seq_length):
    """Returns the number of texts that are longer than `max_seq_length`; see `describe`."""
    return sum(length > max_seq_length for length in lengths)


def describe(lengths, noun, max_seq_length):
    """Returns a sentence for the log: how many texts are too long, and how long the longest text is.

    Args:
      lengths: list of int, the number of tokens of each text with [CLS] and [SEP], before truncation.
      noun: word in singular for one of the texts, such as "example".
      max_seq_length: the flag.
    """
    cut = count_longer(lengths, max_seq_length)
    return (f"{cut} of {terminal.counted(len(lengths), noun)} ({cut / max(1, len(lengths)):.1%}) are longer "
            f"than --max_seq_length={max_seq_length}; the longest has {max(lengths, default=0)} tokens.")
