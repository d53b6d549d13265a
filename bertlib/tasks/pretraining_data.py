"""Documents to instances of masked tokens and sentence pairs, and those to records.

    documents --shuffle--> chunks of sentences --pair, cut--> [CLS] a [SEP] b [SEP] --mask--> instances --shuffle--> records

Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A.1. Masks are static: each pass over the
documents (`dupe_factor`) draws them anew, and training then sees them as they are.

`create_training_instances` makes lists of token strings in memory, asking its random number generator in the published
order. For any amount of text, see `pretraining_stream`. Workers load this module without TensorFlow.
"""

import collections
import contextlib
import functools
import itertools

from absl import logging

from bertlib.runtime import example_encoding, files, record_files
from bertlib.tasks import corpus
import tokenization

LOGGED_INSTANCES = 2
_REMEMBERED_LENGTHS = 1 << 12

Recipe = collections.namedtuple(
    "Recipe",
    "max_seq_length dupe_factor short_seq_prob masked_lm_prob max_predictions_per_seq do_whole_word_mask next_sentence",
    defaults=[128, 10, 0.1, 0.15, 20, False, True])
Recipe.__doc__ = """How instances are made of documents; defaults are the published ones.

max_seq_length: tokens of an instance, [CLS] and [SEP] included.
dupe_factor: passes over the documents.
short_seq_prob: share of the passes over a document, or of the instances of full sentences, that aim at a random, shorter
  length.
masked_lm_prob: share of an instance's tokens to predict, of which there are at most max_predictions_per_seq.
do_whole_word_mask: mask all pieces of a word or none.
next_sentence: pairs for next-sentence prediction; else full sentences one after the other.
"""


def continues_word(tokenizer):
    """Returns the function that tells whether a token (str) of this tokenizer continues the word before it."""
    return getattr(tokenizer, "continues_word", _is_continuation)


def _is_continuation(token):
    return token.startswith(tokenization.CONTINUATION)


class TrainingInstance(object):
    """Tokens, some of them masked, and what they were.

    Attributes:
      tokens: list, [CLS] a [SEP] b [SEP] with the masks in it.
      segment_ids: list of int, 1 from the first token of b on.
      masked_lm_positions: list of int, ascending: where to predict.
      masked_lm_labels: list: the tokens that were there.
      is_random_next: bool: b does not follow a in a document.
    """

    def __init__(self, tokens, segment_ids, masked_lm_positions, masked_lm_labels, is_random_next):
        self.tokens = tokens
        self.segment_ids = segment_ids
        self.masked_lm_positions = masked_lm_positions
        self.masked_lm_labels = masked_lm_labels
        self.is_random_next = is_random_next

    def __str__(self):
        return "".join(f"{name}: {' '.join(map(str, value)) if isinstance(value, list) else value}\n"
                       for name, value in vars(self).items())

    def __repr__(self):
        return self.__str__()


# --- Instances -------------------------------------------------------------------------------------------


def create_training_instances(input_files, tokenizer, max_seq_length, dupe_factor, short_seq_prob, masked_lm_prob,
                              max_predictions_per_seq, rng, do_whole_word_mask=False, next_sentence=True):
    """Makes the instances of some text files, all in memory.

    As published, a document that a file ends with goes on in the next file unless a blank line divides them.

    Args:
      input_files: list of paths: one sentence a line, a blank line between documents; `.gz` too.
      tokenizer: has `tokenize(text)` and `vocab`.
      rng: a `random.Random`; it is asked in the published order.
      max_seq_length, dupe_factor, …: see `Recipe`.

    Returns:
      list of `TrainingInstance`, in random order; tokens are str.

    Raises:
      FileNotFoundError, ValueError: a file cannot be read.
    """
    documents = [[]]
    for path in input_files:
        for sentence in corpus.read_lines(path):
            tokens = tokenizer.tokenize(sentence)
            if tokens:
                documents[-1].append(tokens)
            elif not sentence:
                documents.append([])
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    arguments = (max_seq_length, short_seq_prob, masked_lm_prob, max_predictions_per_seq, list(tokenizer.vocab), rng,
                 do_whole_word_mask, continues_word(tokenizer))
    instances = []
    for _ in range(dupe_factor):
        if next_sentence:
            for index in range(len(documents)):
                instances += create_instances_from_document(documents, index, *arguments)
        else:
            instances += create_instances_from_full_sentences(documents, *arguments)
    rng.shuffle(instances)
    return instances


def create_instances_from_document(all_documents, document_index, max_seq_length, short_seq_prob, masked_lm_prob,
                                   max_predictions_per_seq, vocab_words, rng, do_whole_word_mask=False,
                                   continues_word=_is_continuation):
    """Makes sentence pairs of one document; see `sentence_pairs`. What is too long is cut; see `truncate_seq_pair`.

    Args:
      all_documents: list of documents: lists of sentences: lists of tokens; none is empty.
      document_index: which of them.
      vocab_words: list of what may stand in for a token.
      rng: a `random.Random`.
      continues_word: function of a token, see `continues_word`.
      max_seq_length, short_seq_prob, …: see `Recipe`.

    Returns:
      list of `TrainingInstance`.
    """
    instances = []
    room = max_seq_length - 3
    for sentences_a, sentences_b, is_random_next in sentence_pairs(all_documents, document_index, room, short_seq_prob, rng):
        tokens_a = list(itertools.chain.from_iterable(sentences_a))
        tokens_b = list(itertools.chain.from_iterable(sentences_b))
        truncate_seq_pair(tokens_a, tokens_b, room, rng)
        tokens, positions, labels = create_masked_lm_predictions(
            ["[CLS]", *tokens_a, "[SEP]", *tokens_b, "[SEP]"], masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
            do_whole_word_mask, continues_word)
        segment_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
        instances.append(TrainingInstance(tokens, segment_ids, positions, labels, is_random_next))
    return instances


def create_instances_from_full_sentences(all_documents, max_seq_length, short_seq_prob, masked_lm_prob,
                                         max_predictions_per_seq, vocab_words, rng, do_whole_word_mask=False,
                                         continues_word=_is_continuation):
    """Packs the sentences of all documents one after the other; see `full_sentences`.

    All segment ids are 0, and `is_random_next` is False. Arguments are those of `create_instances_from_document`.
    """
    instances = []
    for texts in full_sentences(all_documents, max_seq_length - 2, short_seq_prob, rng):
        tokens = ["[CLS]"]
        for sentences in texts:
            tokens += [*itertools.chain.from_iterable(sentences), "[SEP]"]
        masked = create_masked_lm_predictions(tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                              do_whole_word_mask, continues_word)
        instances.append(TrainingInstance(masked[0], [0] * len(tokens), *masked[1:], False))
    return instances


def sentence_pairs(documents, index, room, short_seq_prob, rng):
    """Yields (sentences of a, sentences of b, is_random_next) of a document. What it draws, and when, is as published.

    A chunk is as many sentences as fill an instance. a is a random number of the first of them. b is the rest, or in half of
    the cases, and wherever a chunk has one sentence only, a stretch of another document; the rest then starts the next chunk.

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
            yield sentences_a, _random_stretch(documents, index, target - sum(map(len, sentences_a)), rng), True
            stop = split
        else:
            yield sentences_a, document[split:stop], False
        start, length = stop, 0


def _target_length(room, short_seq_prob, rng):
    """The number of tokens to aim at: mostly all there is room for, to fit fine-tuning on short inputs sometimes fewer."""
    return rng.randint(2, room) if rng.random() < short_seq_prob else room


def _random_stretch(documents, but, length, rng):
    """Returns sentences of a random document from a random one on, until there are that many tokens."""
    for _ in range(10):
        index = rng.randint(0, len(documents) - 1)
        if index != but:
            break
    else:
        # Happens where documents are few. The published code would call a stretch of the same document random.
        index = (but + 1) % len(documents)
    document = documents[index]
    start = stop = rng.randint(0, len(document) - 1)
    while stop == start or stop < len(document) and length > 0:
        length -= len(document[stop])
        stop += 1
    return document[start:stop]


def full_sentences(documents, room, short_seq_prob, rng):
    """Yields the texts of each instance: lists of sentences, one list a document; a separator comes between them.

    FULL-SENTENCES of RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 4.2): as many sentences as it takes
    whole. One that is longer than an instance fills as many as it needs. Arguments are those of `sentence_pairs`.
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


def create_masked_lm_predictions(tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                 do_whole_word_mask=False, continues_word=_is_continuation):
    """Masks random tokens but [CLS] and [SEP]: of 10 chosen, 8 become [MASK], one stays, one becomes a random word.

    Args:
      tokens: list of tokens.
      vocab_words: list of what may stand in for a token.
      rng: a `random.Random`.
      continues_word: function of a token, see `continues_word`.
      masked_lm_prob, max_predictions_per_seq, do_whole_word_mask: see `Recipe`.

    Returns:
      (tokens with masks, positions of the chosen ones, the tokens that were there), lists.
    """
    words = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        if do_whole_word_mask and words and continues_word(token):
            words[-1].append(position)
        else:
            words.append([position])
    rng.shuffle(words)
    wanted = min(max_predictions_per_seq, max(1, round(len(tokens) * masked_lm_prob)))
    output, chosen = list(tokens), []
    for word in words:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(word) > wanted:
            continue
        chosen += word
        for position in word:
            if rng.random() < 0.8:
                output[position] = "[MASK]"
            elif rng.random() >= 0.5:
                output[position] = vocab_words[rng.randint(0, len(vocab_words) - 1)]
    chosen.sort()
    return output, chosen, [tokens[position] for position in chosen]


def truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng):
    """Shortens two lists in place until together they have at most `max_num_tokens` tokens.

    Each token goes from the longer list, b at a tie, and with even chances from its front or its end, so that no place is
    always cut.
    """
    length_a, length_b, front_a, front_b = len(tokens_a), len(tokens_b), 0, 0
    while length_a + length_b > max_num_tokens:
        from_front = rng.random() < 0.5
        if length_a > length_b:
            length_a -= 1
            front_a += from_front
        else:
            length_b -= 1
            front_b += from_front
    tokens_a[:] = tokens_a[front_a:front_a + length_a]
    tokens_b[:] = tokens_b[front_b:front_b + length_b]


# --- Features --------------------------------------------------------------------------------------------


def feature_fields(max_seq_length, max_predictions_per_seq):
    """Returns the fields of a stored instance, for `input_pipeline` to write and to read."""
    return [
        example_encoding.Field("input_ids", "int64", (max_seq_length,)),
        example_encoding.Field("input_mask", "int64", (max_seq_length,)),
        example_encoding.Field("segment_ids", "int64", (max_seq_length,)),
        example_encoding.Field("masked_lm_positions", "int64", (max_predictions_per_seq,)),
        example_encoding.Field("masked_lm_ids", "int64", (max_predictions_per_seq,)),
        example_encoding.Field("masked_lm_weights", "float32", (max_predictions_per_seq,)),
        example_encoding.Field("next_sentence_labels", "int64", (1,)),
    ]


def create_int_feature(values):
    """Returns a `tf.train.Feature` of ints."""
    return record_files.int_feature(values)


def create_float_feature(values):
    """Returns a `tf.train.Feature` of floats."""
    return record_files.float_feature(values)


class _Prefixes(dict):
    """{size: what precedes a field's packed varints of so many bytes in a record}."""

    def __init__(self, field):
        self._name, self._values = field.name, field.shape[0]
        self._part = example_encoding.Encoder([field]).part

    def __missing__(self, size):
        packed = b"\x80" * (size - self._values) + bytes(self._values)  # as good as any of that size
        self[size] = self._part({self._name: packed})[:-size]
        return self[size]


class Serializer:
    """Instances to serialized `tf.train.Example`s: what `example_encoding.Encoder` makes of all of `feature_fields`.

    What comes before and after the ids, positions and labels is put together once for each size.
    """

    def __init__(self, max_seq_length, max_predictions_per_seq):
        fields = {field.name: field for field in feature_fields(max_seq_length, max_predictions_per_seq)}
        self._ids, self._labels, self._positions = (
            _Prefixes(fields[name]) for name in ("input_ids", "masked_lm_ids", "masked_lm_positions"))
        self._mask = example_encoding.Encoder([fields["input_mask"]])
        self._weights_and_label = example_encoding.Encoder([fields["masked_lm_weights"], fields["next_sentence_labels"]])
        self._segments = example_encoding.Encoder([fields["segment_ids"]])
        remember = functools.lru_cache(_REMEMBERED_LENGTHS)
        self._mask_of, self._label_of, self._segments_of = map(remember, (self._mask_of, self._label_of, self._segments_of))

    def __call__(self, ids, first, second, positions, labels, predictions, is_random_next):
        """Returns a record.

        Args:
          ids, positions, labels: packed varints, padded.
          first, second: tokens of each segment.
          predictions: number of positions that are not padding.
          is_random_next: bool.
        """
        return example_encoding.example(  # in the order of the fields' names
            self._ids[len(ids)], ids, self._mask_of(first + second), self._labels[len(labels)], labels,
            self._positions[len(positions)], positions, self._label_of(predictions, is_random_next),
            self._segments_of(first, second))

    def _mask_of(self, length):
        return self._mask.part({"input_mask": b"\1" * length})

    def _label_of(self, predictions, is_random_next):
        return self._weights_and_label.part({"masked_lm_weights": [1.0] * predictions,
                                             "next_sentence_labels": [is_random_next]})

    def _segments_of(self, first, second):
        return self._segments.part({"segment_ids": bytes(first) + b"\1" * second})


def write_instance_to_example_files(instances, tokenizer, max_seq_length, max_predictions_per_seq, output_files):
    """Writes instances as TFRecords with the fields of `feature_fields`, in turn to each of the files.

    The files appear when all is written.

    Args:
      instances: list of `TrainingInstance` with tokens as str.
      tokenizer: has `convert_tokens_to_ids(tokens)`.
      max_seq_length, max_predictions_per_seq: what instances are padded to.
      output_files: list of paths.

    Raises:
      ValueError: an instance is longer.
    """
    serialize = Serializer(max_seq_length, max_predictions_per_seq)

    def pack(numbers, length):
        if len(numbers) > length:
            raise ValueError(f"An instance has {len(numbers)} tokens or predictions; there is room for {length}. Write with "
                             "the lengths it was made with.")
        return example_encoding.varints([*numbers, *[0] * (length - len(numbers))])

    def pack_tokens(tokens, length):
        return pack(tokenizer.convert_tokens_to_ids(tokens), length)

    with contextlib.ExitStack() as stack:
        partial = [stack.enter_context(files.replacing(path)) for path in output_files]
        writers = [stack.enter_context(record_files.writer(path)) for path in partial]
        for index, (instance, writer) in enumerate(zip(instances, itertools.cycle(writers))):
            if index < LOGGED_INSTANCES:
                logging.info("Instance %d:\n%s", index, instance)
            positions, second = instance.masked_lm_positions, sum(instance.segment_ids)
            writer.write(serialize(
                pack_tokens(instance.tokens, max_seq_length), len(instance.tokens) - second, second,
                pack(positions, max_predictions_per_seq), pack_tokens(instance.masked_lm_labels, max_predictions_per_seq),
                len(positions), bool(instance.is_random_next)))
    logging.info("Wrote %d instances.", len(instances))
