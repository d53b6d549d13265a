"""Warns if many tokens of the texts are [UNK], because the vocabulary does not contain their words. Also
warns if markers in the texts, such as [E1], are split at their brackets.

Only a sample of the texts is tokenized for this check, so it costs less than a second.
"""

import collections
import re

from absl import logging

SAMPLE = 1000  # number of examples in a sample
_CHARACTERS = 500  # of each text, at most this number of characters is tokenized
# A warning is logged if at least `_FEWEST` tokens, and at least this share, are [UNK]. Fewer may be symbols,
# such as an emoji in one of four short texts. In the samples of this
# project and in the data of GLUE, SQuAD and CoNLL-2003, the share is below 0.001. If their texts are not
# lower-cased for an uncased vocabulary, it is from 0.05 to 0.35.
_SHARE, _FEWEST = 0.05, 5
_EXAMPLES, _SHOWN_CHARACTERS = 3, 30
# A word in brackets is probably a marker if the same word is in at least this share of the texts, and in at
# least `_FEWEST_TEXTS` of them. Ordinary words in brackets, such as "[sic]", are rarer.
_MARKER_SHARE, _FEWEST_TEXTS, _SHOWN_TEXT = 0.05, 3, 80
_BRACKETED = re.compile(r"\[/?[^\W\d][\w:-]*\]")
_SPECIAL = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")


class UnknownTokens:
    """Counts [UNK] and words in brackets in the texts of the first examples that it gets. Logs one warning if
    there are many [UNK], and one warning if words in brackets are probably markers."""

    def __init__(self, tokenizer, source, size=SAMPLE):
        """Creates the counter.

        Args:
          tokenizer: an object with `tokenize(text)`.
          source: str that names the texts in the warning.
          size: number of examples that are counted. Later examples are ignored.
        """
        self._tokenizer, self._source, self._room = tokenizer, source, size
        self._tokens = self._num_unknown = self._texts = 0
        self._examples = []
        self._bracketed = collections.defaultdict(list)  # {word in brackets: texts with this word}

    def add(self, *texts):
        """Counts the tokens in the texts of an example. A text is a str, or a list of words. None is ignored.
        """
        if not self._room:
            return
        for text in filter(None, texts):
            text = (text if isinstance(text, str) else " ".join(map(str, text)))[:_CHARACTERS]
            tokens = list(self._tokenizer.tokenize(text))
            num_unknown = tokens.count("[UNK]")
            self._tokens, self._num_unknown = self._tokens + len(tokens), self._num_unknown + num_unknown
            self._texts += 1
            for word in set(_BRACKETED.findall(text)) if "[" in text else ():
                self._bracketed[word].append(text)
            for word in text.split() if num_unknown and len(self._examples) < _EXAMPLES else ():
                if word not in self._examples and "[UNK]" in self._tokenizer.tokenize(word):
                    self._examples = [*self._examples, word][:_EXAMPLES]
        self._room -= 1
        if not self._room:
            self.warn()

    def warn(self):
        """Logs the warnings if the share of [UNK] or of probable markers is high. Later texts are ignored."""
        self._room = 0
        num_unknown, self._num_unknown = self._num_unknown, 0
        share = num_unknown / max(1, self._tokens)
        if num_unknown >= _FEWEST and share >= _SHARE:
            words = ", ".join(repr(word if len(word) <= _SHOWN_CHARACTERS else f"{word[:_SHOWN_CHARACTERS]}…")
                              for word in self._examples)
            logging.warning(
                "%s: %.0f %% of the tokens are [UNK], for example in %s. (This share is from a sample of %d "
                "texts.) The model cannot distinguish these words. The usual reasons: the vocabulary is for "
                "another language, or --do_lower_case=false is passed for a vocabulary of lower-case words.",
                self._source, 100 * share, words, self._texts)
        fewest = max(_FEWEST_TEXTS, _MARKER_SHARE * self._texts)
        split_markers = sorted(word for word, texts in self._bracketed.items()
                               if len(texts) >= fewest and self._tokenizer.tokenize(word) != [word])
        if split_markers:
            texts = self._bracketed[split_markers[0]]
            # The value of the flag must also have the markers that are kept whole already.
            whole_markers = sorted(word for word in self._bracketed
                                   if word not in _SPECIAL and self._tokenizer.tokenize(word) == [word])
            logging.warning(
                "%s: %s is split at the brackets in %d of %d texts, first in %r. If it is a marker, pass "
                "--marker_tokens='%s' (with further markers of your texts) to the training, or to the "
                "command that makes its records.", self._source, split_markers[0], len(texts), self._texts,
                texts[0][:_SHOWN_TEXT], ",".join(whole_markers + split_markers))
        self._bracketed.clear()


def warn_if_many(splits, texts_of, tokenizer):
    """Counts [UNK] in examples that are spread over the data of a run. Logs one warning if there are many.

    Args:
      splits: {name of a split, such as "train": list of examples}.
      texts_of: function that takes an example and returns its texts, see `UnknownTokens.add`.
      tokenizer: see `UnknownTokens`.
    """
    size = SAMPLE // max(1, len(splits))
    counter = UnknownTokens(tokenizer, ", ".join(splits))
    for examples in splits.values():
        for example in examples[::-(-len(examples) // size) or 1]:
            counter.add(*texts_of(example))
    counter.warn()
