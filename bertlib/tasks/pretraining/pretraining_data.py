"""Makes pre-training instances (sentence pairs with masked tokens) from documents, and converts the instances
to records.

    documents --shuffle--> chunks of sentences --pair, cut--> [CLS] a [SEP] b [SEP]
              --mask--> instances --shuffle--> records

The method is described in Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A.1.
The masks are static: they are drawn when the records are made, and the training does not change them. The
documents are processed `dupe_factor` times, each time with new masks.

Two implementations share this module. `create_pretraining_data.create_training_instances` is the published
implementation, which makes lists of token strings in memory. `pretraining_stream` can process any amount of
text. Worker processes import this module, so it does not load TensorFlow.
"""

import collections

from bertlib.data import example_encoding
import tokenization

# Number of instances that are written to the log: the first instances of a run.
LOGGED_INSTANCES = 2

Recipe = collections.namedtuple(
    "Recipe",
    "max_seq_length dupe_factor short_seq_prob masked_lm_prob "
    "max_predictions_per_seq do_whole_word_mask next_sentence random_seed shuffle_buffer_documents",
    defaults=[128, 10, 0.1, 0.15, 20, False, True, 12345, 1000])
Recipe.__doc__ = """Settings by which instances are made from documents. The defaults are the published
values.

max_seq_length: largest number of tokens in an instance, [CLS] and [SEP] included.
dupe_factor: number of passes over the documents.
short_seq_prob: probability of using a random, shorter target length. The target length is drawn once
  for each pass over a document; without next_sentence, it is drawn once for each instance.
masked_lm_prob: fraction of an instance's tokens that are to be predicted.
max_predictions_per_seq: largest number of tokens to predict in an instance.
do_whole_word_mask: whether all pieces of a word are masked together.
next_sentence: True for instances that are pairs for next-sentence prediction; False for instances of
  consecutive full sentences, see `full_sentences`.
random_seed: seed of all random choices.
shuffle_buffer_documents: number of documents in a block of `pretraining_stream`, at least 2. Each
  process has one block in memory.
"""


def continuation_function(tokenizer):
    """Returns a function that takes a token (str) of a tokenizer and returns whether the token continues a
    word."""
    return getattr(tokenizer, "continues_word", is_continuation)


def is_continuation(token):
    """Returns whether a WordPiece (str) continues the word of the piece before it."""
    return token.startswith(tokenization.CONTINUATION)


# --- Instances -------------------------------------------------------------------------------------------


def sentence_pairs(documents, index, room, short_seq_prob, rng):
    """Yields (sentences of text a, sentences of text b, is_random_next) for each pair of texts that is made
    from a document.

    A document is cut into chunks of consecutive sentences. Each chunk is long enough for an instance; only
    the last chunk of a document may be shorter. Text a consists of a random number of sentences at the
    beginning of a chunk. Text b is either the rest of the chunk, or consecutive sentences of a different,
    random document. A random document is used with probability 0.5, and always if the chunk has only one
    sentence. If a random document is used, the sentences of the chunk that follow text a are not lost: the
    next chunk begins with them. Random numbers are drawn in the same order as in the published code.

    Args:
      documents: list of non-empty lists of sentences. A sentence is any object whose `len()` is its number of
        tokens.
      index: int, index of the document.
      room: largest number of tokens in texts a and b together, not including special tokens.
      short_seq_prob: probability of a random, shorter target length.
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
    """Returns the target length of an instance, in tokens.

    The target length is usually `room`. Because the inputs in fine-tuning are often short, some instances are
    shorter: with probability `short_seq_prob`, the target length is a random number from 2 to `room`.
    """
    return rng.randint(2, room) if rng.random() < short_seq_prob else room


def _random_sentences(documents, excluded, length, rng):
    """Returns consecutive sentences of a random document. The first of them is drawn at random, too. The
    sentences have at least `length` tokens in total, unless the document ends earlier. The document with the
    index `excluded` is not used."""
    for _ in range(10):
        index = rng.randint(0, len(documents) - 1)
        if index != excluded:
            break
    else:
        # If there are few documents, all ten draws may return the excluded document. The published code would
        # use the excluded document. Here, the next document is used instead.
        index = (excluded + 1) % len(documents)
    document = documents[index]
    start = stop = rng.randint(0, len(document) - 1)
    while stop == start or stop < len(document) and length > 0:
        length -= len(document[stop])
        stop += 1
    return document[start:stop]


def full_sentences(documents, room, short_seq_prob, rng):
    """Yields the texts of each instance, for a training without next-sentence prediction.

    Each instance is yielded as a list of texts, one for each document in the instance. A text is a list of
    sentences. The caller puts a separator between the texts. This is the format FULL-SENTENCES of RoBERTa
    (Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 4.2): an instance contains as many whole
    sentences as fit. A sentence that is longer than an instance is divided among several instances.

    Args:
      documents, room, short_seq_prob, rng: see `sentence_pairs`.
    """
    texts, length = [], 0
    target = _target_length(room, short_seq_prob, rng)
    for document in documents:
        continues = False
        for sentence in document:
            for start in range(0, len(sentence), room):
                part = sentence[start:start + room]
                if texts and (length >= target or length + len(part) + (not continues) > room):
                    yield texts
                    texts, length, continues = [], 0, False
                    target = _target_length(room, short_seq_prob, rng)
                if not continues:
                    length += bool(texts)
                    texts.append([])
                    continues = True
                texts[-1].append(part)
                length += len(part)
    yield texts


# --- Features --------------------------------------------------------------------------------------------


# Names of the fields whose values are positions in the sequences.
POSITIONS = ("masked_lm_positions",)


def feature_fields(max_seq_length, max_predictions_per_seq, vocab_size=None, type_vocab_size=None):
    """Returns the fields of a stored instance. Records are written and read with these fields.

    Args:
      max_seq_length: largest number of tokens in an instance.
      max_predictions_per_seq: largest number of tokens to predict in an instance.
      vocab_size: number of entries in the vocabulary of the model that reads the records. The ids of words
        must be below this number. None if the number is unknown: any id from 0 is accepted.
      type_vocab_size: number of segment ids of this model. The segment ids must be below this number. None if
        the number is unknown: any segment id from 0 is accepted.

    Returns:
      list of `example_encoding.Field`.
    """
    word, segment = ((0, size - 1) if size else example_encoding.ANY_ID
                     for size in (vocab_size, type_vocab_size))
    position = 0, max_seq_length - 1
    return [
        *example_encoding.token_fields((max_seq_length,),
                                       bounds={"input_ids": word, "segment_ids": segment}),
        example_encoding.Field("masked_lm_positions", "int64", (max_predictions_per_seq,), position),
        example_encoding.Field("masked_lm_ids", "int64", (max_predictions_per_seq,), word),
        example_encoding.Field("masked_lm_weights", "float32", (max_predictions_per_seq,), (0, float("inf"))),
        example_encoding.Field("next_sentence_labels", "int64", (1,), (0, 1)),
    ]
