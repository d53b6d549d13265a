"""Draws a subset of the examples by a hash of their content (--max_train_examples, --max_eval_examples)."""

from absl import logging

# Maps the first word of a set's name to (flag, name of the examples in the log). For example, the first word
# of "dev_mismatched" is "dev". Test sets have no limit.
_LIMITS = {"train": ("max_train_examples", "training examples"),
           "dev": ("max_eval_examples", "examples of the development set")}


def draw_examples(settings, split, examples, digest):
    """Draws examples for --max_train_examples or --max_eval_examples, and logs their number. Returns the
    drawn examples in the order that they have in `examples`.

    The choice depends only on the content of the examples, not on their order. If you raise the number in the
    flag, the result contains the same examples as before and further examples.

    Args:
      settings: a `Settings`.
      split: name of the set, such as "train" or "dev_mismatched". A test set is returned unchanged.
      examples: list.
      digest: function that returns the digest of an example's content as a str.
    """
    first, _, further = split.partition("_")
    flag, words = _LIMITS.get(first, (None, None))
    number = getattr(settings, flag) if flag else None
    if number is None or len(examples) <= number:
        return examples
    logging.info("Drawn: %s of %s %s%s (--%s=%d).", f"{number:,}", f"{len(examples):,}", words,
                 f" {further}".rstrip(), flag, number)
    digests = list(map(digest, examples))
    chosen = set(sorted(range(len(examples)), key=digests.__getitem__)[:number])
    return [example for index, example in enumerate(examples) if index in chosen]
