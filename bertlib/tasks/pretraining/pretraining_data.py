"""Documents to instances of masked tokens and sentence pairs, and those to records.

    documents --shuffle--> chunks of sentences --pair, cut--> [CLS] a [SEP] b [SEP]
              --mask--> instances --shuffle--> records

Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A.1. Masks are static: each
pass over the documents (`dupe_factor`) draws them anew, and training then sees them as they are.

Here is what two ways have in common: `create_pretraining_data.create_training_instances`, the published one,
which makes lists of token strings in memory, and `pretraining_stream`, for any amount of text. Workers load
this module without TensorFlow.
"""

import collections
import functools

from bertlib.data import example_encoding
import tokenization

LOGGED_INSTANCES = 2
_CACHED_LENGTHS = 1 << 12

Recipe = collections.namedtuple(
    "Recipe",
    "max_seq_length dupe_factor short_seq_prob masked_lm_prob "
    "max_predictions_per_seq do_whole_word_mask next_sentence",
    defaults=[128, 10, 0.1, 0.15, 20, False, True])
Recipe.__doc__ = """How instances are made of documents; defaults are the published ones.

max_seq_length: tokens of an instance, [CLS] and [SEP] included.
dupe_factor: passes over the documents.
short_seq_prob: fraction of the passes over a document, or of the instances of full sentences, that aim at a
  random, shorter length.
masked_lm_prob: fraction of an instance's tokens to predict, at most max_predictions_per_seq of them.
do_whole_word_mask: mask all pieces of a word or none.
next_sentence: pairs for next-sentence prediction; else full sentences one after the other.
"""


def continuation_function(tokenizer):
    """Returns the function that tells if a token (str) of this tokenizer continues the word before it."""
    return getattr(tokenizer, "continues_word", is_continuation)


def is_continuation(token):
    """Whether a WordPiece (str) continues the word before it."""
    return token.startswith(tokenization.CONTINUATION)


# --- Instances -------------------------------------------------------------------------------------------


def sentence_pairs(documents, index, room, short_seq_prob, rng):
    """Yields (sentences of a, sentences of b, is_random_next) of a document. Draws numbers as published.

    A chunk is as many sentences as fill an instance. a is a random number of the first of them. b is the
    rest, or in half of the cases, and wherever a chunk has one sentence only, a stretch of another document;
    the rest then starts the next chunk.

    Args:
      documents: list of lists of sentences, which need only have a length; none is empty.
      index: which of them.
      room: tokens of an instance.
      short_seq_prob: see `Recipe`.
      rng: a `random.Random`.
    """
    document = documents[index]
    target = _target_length(room, short_seq_prob, rng)
    start, length = 0, 0
    stop = 0
    while stop < len(document):
        length += len(document[stop])
        stop += 1
        if stop < len(document) and length < target:
            continue
        split = start + (rng.randint(1, stop - start - 1) if stop - start > 1 else 1)
        sentences_a = document[start:split]
        if stop - start == 1 or rng.random() < 0.5:
            yield sentences_a, _random_sentences(documents, index, target - sum(map(len, sentences_a)),
                                                 rng), True
            stop = split
        else:
            yield sentences_a, document[split:stop], False
        start, length = stop, 0


def _target_length(room, short_seq_prob, rng):
    """The number of tokens to aim at: mostly all that fit, at times fewer, as in fine-tuning."""
    return rng.randint(2, room) if rng.random() < short_seq_prob else room


def _random_sentences(documents, but, length, rng):
    """Returns sentences of a random document from a random one on, until there are that many tokens."""
    for _ in range(10):
        index = rng.randint(0, len(documents) - 1)
        if index != but:
            break
    else:
        # Happens where documents are few. The published code would call part of the same document random.
        index = (but + 1) % len(documents)
    document = documents[index]
    start = stop = rng.randint(0, len(document) - 1)
    while stop == start or stop < len(document) and length > 0:
        length -= len(document[stop])
        stop += 1
    return document[start:stop]


def full_sentences(documents, room, short_seq_prob, rng):
    """Yields each instance's texts: lists of sentences, one list a document; a separator comes between them.

    FULL-SENTENCES of RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 4.2): as many
    sentences as it takes whole. One that is longer than an instance fills as many as it needs. Arguments are
    those of `sentence_pairs`.
    """
    texts, length = [], 0
    target = _target_length(room, short_seq_prob, rng)
    for document in documents:
        goes_on = False
        for sentence in document:
            for start in range(0, len(sentence), room):
                part = sentence[start:start + room]
                if texts and (length >= target or length + len(part) + (not goes_on) > room):
                    yield texts
                    texts, length, goes_on = [], 0, False
                    target = _target_length(room, short_seq_prob, rng)
                if not goes_on:
                    length += bool(texts)
                    texts.append([])
                    goes_on = True
                texts[-1].append(part)
                length += len(part)
    yield texts


# --- Features --------------------------------------------------------------------------------------------


def feature_fields(max_seq_length, max_predictions_per_seq, vocab_size=None, type_vocab_size=None):
    """Returns the fields of a stored instance, for `input_pipeline` to write and to read.

    Args:
      max_seq_length, max_predictions_per_seq: tokens, and predictions, of an instance.
      vocab_size, type_vocab_size: of the model that reads them, for the bounds of the ids; None leaves these
        open.
    """
    word, segment = ((0, size - 1) if size else example_encoding.ANY_ID
                     for size in (vocab_size, type_vocab_size))
    position = 0, max_seq_length - 1
    return [
        example_encoding.Field("input_ids", "int64", (max_seq_length,), word),
        example_encoding.Field("input_mask", "int64", (max_seq_length,), (0, 1)),
        example_encoding.Field("segment_ids", "int64", (max_seq_length,), segment),
        example_encoding.Field("masked_lm_positions", "int64", (max_predictions_per_seq,), position),
        example_encoding.Field("masked_lm_ids", "int64", (max_predictions_per_seq,), word),
        example_encoding.Field("masked_lm_weights", "float32", (max_predictions_per_seq,), (0, float("inf"))),
        example_encoding.Field("next_sentence_labels", "int64", (1,), (0, 1)),
    ]


class Serializer:
    """Instances to serialized `tf.train.Example`s, as `example_encoding.Encoder` makes of `feature_fields`.

    What comes before and after the ids, positions and labels is put together once for each size.
    """

    def __init__(self, max_seq_length, max_predictions_per_seq):
        fields = {field.name: field for field in feature_fields(max_seq_length, max_predictions_per_seq)}
        self._ids, self._labels, self._positions = (
            example_encoding.Prefixes(fields[name])
            for name in ("input_ids", "masked_lm_ids", "masked_lm_positions"))
        self._mask = example_encoding.Encoder([fields["input_mask"]])
        self._weights_and_label = example_encoding.Encoder([fields["masked_lm_weights"],
                                                            fields["next_sentence_labels"]])
        self._segments = example_encoding.Encoder([fields["segment_ids"]])
        remember = functools.lru_cache(_CACHED_LENGTHS)
        self._mask_of, self._label_of, self._segments_of = map(
            remember, (self._mask_of, self._label_of, self._segments_of))

    def __call__(self, ids, first, second, positions, labels, predictions, is_random_next):
        """Returns a record.

        Args:
          ids, positions, labels: packed varints, padded.
          first, second: tokens of each segment.
          predictions: number of positions that are not padding.
          is_random_next: bool.
        """
        return example_encoding.join_encoded_fields(  # in the order of the fields' names
            self._ids[len(ids)], ids, self._mask_of(first + second), self._labels[len(labels)], labels,
            self._positions[len(positions)], positions, self._label_of(predictions, is_random_next),
            self._segments_of(first, second))

    def _mask_of(self, length):
        return self._mask.fields_part({"input_mask": b"\1" * length})

    def _label_of(self, predictions, is_random_next):
        return self._weights_and_label.fields_part({"masked_lm_weights": [1.0] * predictions,
                                                    "next_sentence_labels": [is_random_next]})

    def _segments_of(self, first, second):
        return self._segments.fields_part({"segment_ids": bytes(first) + b"\1" * second})
