"""Text to pre-training data: documents → instances of masked tokens and sentence pairs → TFRecords.

    documents --shuffle--> chunks of sentences --pair, cut--> [CLS] a [SEP] b [SEP] --mask--> instances --shuffle--> records

Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and appendix A.1. Masks are static: each pass over the
documents (`dupe_factor`) draws them anew, and training then sees them as they are.

There are two ways through this. `create_training_instances` makes lists of token strings in memory, asking its random
number generator in the published order. `write_training_data` makes records of any amount of text, with random choices of
the same distribution, but on arrays of ids, many instances at once. Workers load this module without TensorFlow.
"""

import collections
import contextlib
import functools
import glob
import gzip
import hashlib
import itertools
import json
import os
import random
import shutil
import zlib

import numpy as np
from absl import logging

import example_encoding
import tokenization
import workers

MANIFEST_SUFFIX = ".manifest.json"
_LOGGED_INSTANCES = 2
_REMEMBERED_LENGTHS = 1 << 12
# Instances that are masked at once; what is drawn depends on it.
_BATCH = 512
_NO_WORD = 1 << 48
# Share of a file's documents that have one sentence only, from which on the file is reported.
_SUSPICIOUS_SHARE = 0.9

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
    """Makes the instances of some text files, all in memory. `write_training_data` needs less of it.

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
        for sentence in read_lines(path):
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
    """Makes sentence pairs of one document; see `_sentence_pairs`. What is too long is cut; see `truncate_seq_pair`.

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
    for sentences_a, sentences_b, is_random_next in _sentence_pairs(all_documents, document_index, room, short_seq_prob, rng):
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
    """Packs the sentences of all documents one after the other; see `_full_sentences`.

    All segment ids are 0, and `is_random_next` is False. Arguments are those of `create_instances_from_document`.
    """
    instances = []
    for texts in _full_sentences(all_documents, max_seq_length - 2, short_seq_prob, rng):
        tokens = ["[CLS]"]
        for sentences in texts:
            tokens += [*itertools.chain.from_iterable(sentences), "[SEP]"]
        masked = create_masked_lm_predictions(tokens, masked_lm_prob, max_predictions_per_seq, vocab_words, rng,
                                              do_whole_word_mask, continues_word)
        instances.append(TrainingInstance(masked[0], [0] * len(tokens), *masked[1:], False))
    return instances


def _sentence_pairs(documents, index, room, short_seq_prob, rng):
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


def _full_sentences(documents, room, short_seq_prob, rng):
    """Yields the texts of each instance: lists of sentences, one list a document; a separator comes between them.

    FULL-SENTENCES of RoBERTa (Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 4.2): as many sentences as it takes
    whole. One that is longer than an instance fills as many as it needs. Arguments are those of `_sentence_pairs`.
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
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def create_float_feature(values):
    """Returns a `tf.train.Feature` of floats."""
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))


class _Prefixes(dict):
    """{size: what precedes a field's packed varints of so many bytes in a record}."""

    def __init__(self, field):
        self._name, self._values = field.name, field.shape[0]
        self._part = example_encoding.Encoder([field]).part

    def __missing__(self, size):
        packed = b"\x80" * (size - self._values) + bytes(self._values)  # as good as any of that size
        self[size] = self._part({self._name: packed})[:-size]
        return self[size]


class _Serializer:
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
    import tensorflow as tf

    import input_pipeline

    serialize = _Serializer(max_seq_length, max_predictions_per_seq)

    def pack(numbers, length):
        if len(numbers) > length:
            raise ValueError(f"An instance has {len(numbers)} tokens or predictions; there is room for {length}. Write with "
                             "the lengths it was made with.")
        return example_encoding.varints([*numbers, *[0] * (length - len(numbers))])

    def pack_tokens(tokens, length):
        return pack(tokenizer.convert_tokens_to_ids(tokens), length)

    with contextlib.ExitStack() as files:
        partial = [files.enter_context(input_pipeline.replacing(path)) for path in output_files]
        writers = [files.enter_context(tf.io.TFRecordWriter(path)) for path in partial]
        for index, (instance, writer) in enumerate(zip(instances, itertools.cycle(writers))):
            if index < _LOGGED_INSTANCES:
                logging.info("Instance %d:\n%s", index, instance)
            positions, second = instance.masked_lm_positions, sum(instance.segment_ids)
            writer.write(serialize(
                pack_tokens(instance.tokens, max_seq_length), len(instance.tokens) - second, second,
                pack(positions, max_predictions_per_seq), pack_tokens(instance.masked_lm_labels, max_predictions_per_seq),
                len(positions), bool(instance.is_random_next)))
    logging.info("Wrote %d instances.", len(instances))


# --- Reading ---------------------------------------------------------------------------------------------


def find_input_files(patterns):
    """Returns the files (list of str) that paths and globs name: those of a glob sorted, each file once.

    Raises:
      FileNotFoundError: there is none of that name.
      IsADirectoryError: one is a directory.
    """
    found = []
    for pattern in patterns:
        if "://" in pattern:
            import tensorflow as tf

            paths = sorted(tf.io.gfile.glob(pattern))
        else:
            paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"There is no input file {pattern!r}.")
        for path in paths:
            if os.path.isdir(path):
                raise IsADirectoryError(f"{path} is a directory; name the files in it, as in {os.path.join(path, '*.txt')}")
        found += paths
    for path, count in collections.Counter(found).items():
        if count > 1:
            logging.warning("%s is named %d times; it is read once.", path, count)
    return list(dict.fromkeys(found))


def read_lines(path):
    """Yields the lines of a text file (`.gz` too), stripped."""
    with contextlib.ExitStack() as files:
        if "://" in path:
            import tensorflow as tf

            file = files.enter_context(tf.io.gfile.GFile(path, "rb"))
        else:
            file = files.enter_context(open(path, "rb"))
        if path.endswith(".gz"):
            file = files.enter_context(gzip.open(file))
        number = 0
        try:
            for line in file:
                number += 1
                yield line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: byte {error.start + 1} of it, {error.object[error.start]:#04x}, is not "
                             "UTF-8. Convert the file to UTF-8.") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: damaged or not gzip ({error}).") from error


def read_documents(path, tokenizer):
    """Yields the documents of a text file: lists of sentences (str), none empty. A document ends where its file does.

    What has no token, such as a line of control characters, is left out.
    """
    document = []
    for line in itertools.chain(read_lines(path), [""]):
        if not line:
            if document:
                yield document
            document = []
        # Letters and digits leave a token, and almost every line has one at its beginning.
        elif any(map(str.isalnum, line)) or tokenizer.tokenize(line):
            document.append(line)


Corpus = collections.namedtuple("Corpus", "documents sentences fingerprint")
Corpus.__doc__ = """How many documents and sentences some files have, and a hash (str) of them in their order."""


def survey(input_files, tokenizer):
    """Reads all input once, to find what is wrong with it before anything depends on it; returns the `Corpus`.

    Warns of a file in which each sentence is a document.

    Raises:
      ValueError: a file cannot be read, or there is no text at all.
    """
    documents, sentences, digest = 0, 0, hashlib.blake2b(digest_size=16)
    for path in input_files:
        found = single = 0
        for document in read_documents(path, tokenizer):
            found += 1
            single += len(document) == 1
            sentences += len(document)
            digest.update("\n".join([*document, "\n"]).encode())
        documents += found
        if not found:
            logging.warning("%s has no text.", path)
        elif found > 1 and single >= _SUSPICIOUS_SHARE * found:
            logging.warning("%s: %d of its %d documents have one sentence only. If a blank line stands after each sentence, "
                            "remove it: blank lines divide documents, and without a second sentence in the document no pair "
                            "can have a real next sentence.", path, single, found)
    if not documents:
        raise ValueError(f"There is no text in {', '.join(input_files)}. Expected is one sentence a line, a blank line "
                         "between documents.")
    return Corpus(documents, sentences, digest.hexdigest())


def blocks_of(documents, size):
    """Yields lists of `size` documents; the last one has from 2 to size + 1, or all there are."""
    block = []
    for document in documents:
        block.append(document)
        if len(block) == size + 2:  # so that none is left alone: it would have no other for a random next sentence
            yield block[:size]
            block = block[size:]
    if block:
        yield block


# --- Streaming -------------------------------------------------------------------------------------------


class _BlockMaker:
    """Makes the records of a block of documents, as `create_training_instances` and `write_instance_to_example_files` would.

    All the block's tokens are ids in one array, and a sentence is a range of it.
    """

    def __init__(self, tokenizer, recipe, random_seed):
        self._arguments = tokenizer, recipe, random_seed
        self._to_ids = tokenizer.convert_tokens_to_ids
        self._chunks = tokenizer.chunks(self._to_ids) if tokenization.is_unchanged(tokenizer) else None
        words, continues = list(tokenizer.vocab), continues_word(tokenizer)
        self._word_ids = np.array(self._to_ids(words), np.int32)
        self._cls, self._sep, self._mask = self._to_ids(["[CLS]", "[SEP]", "[MASK]"])
        by_id = np.zeros((2, self._word_ids.max() + 1), bool)
        self._is_special, self._continues = by_id
        self._is_special[[self._cls, self._sep]] = True
        if recipe.do_whole_word_mask:
            self._continues[self._word_ids] = list(map(continues, words))
        self._pack_rows = _RowPacker(max(by_id.shape[1], recipe.max_seq_length))
        self._serialize = _Serializer(recipe.max_seq_length, recipe.max_predictions_per_seq)

    def __reduce__(self):
        return _BlockMaker, self._arguments

    def __call__(self, block):
        """Returns (records, statistics) of (index, documents)."""
        index, texts = block
        _, recipe, random_seed = self._arguments
        rng = random.Random(f"{random_seed}/{index}")
        tokens, documents = self._tokenize(texts)
        rng.shuffle(documents)
        lengths = [len(sentence) for document in documents for sentence in document]
        longest = recipe.max_seq_length - (3 if recipe.next_sentence else 2)
        statistics = collections.Counter(documents=len(documents), sentences=len(lengths),
                                         long_sentences=sum(length > longest for length in lengths))
        records = []
        spans = self._spans(documents, rng)
        while batch := list(itertools.islice(spans, _BATCH)):
            records += self._records(tokens, batch, rng, statistics)
        rng.shuffle(records)
        return records, statistics

    def _tokenize(self, texts):
        """Returns the tokens of all documents (ids [tokens], the first is [SEP]), and the documents, lists of ranges."""
        ids, documents = [self._sep], []
        for text in texts:
            documents.append([])
            for sentence in text:
                start = len(ids)
                if self._chunks is None:
                    ids += self._to_ids(self._arguments[0].tokenize(sentence))
                else:
                    ids.extend(itertools.chain.from_iterable(self._chunks.of(sentence)))
                documents[-1].append(range(start, len(ids)))
        return np.array(ids, np.int32), documents

    def _spans(self, documents, rng):
        """Yields ([start, stop, of each text], is_random_next) of each instance. The texts may be too long."""
        recipe = self._arguments[1]
        for _ in range(recipe.dupe_factor):
            if not recipe.next_sentence:
                for texts in _full_sentences(documents, recipe.max_seq_length - 2, recipe.short_seq_prob, rng):
                    yield [end for text in texts for end in (text[0].start, text[-1].stop)], False
                continue
            for index in range(len(documents)):
                for a, b, is_random_next in _sentence_pairs(documents, index, recipe.max_seq_length - 3, recipe.short_seq_prob,
                                                            rng):
                    yield [a[0].start, a[-1].stop, b[0].start, b[-1].stop], is_random_next

    def _records(self, tokens, batch, rng, statistics):
        """Returns the records of what `_spans` yielded, and counts them."""
        recipe = self._arguments[1]
        batch, is_random_next = zip(*batch)
        texts = np.array([len(spans) // 2 for spans in batch])
        spans = np.array(list(itertools.chain.from_iterable(batch))).reshape(-1, 2)
        if recipe.next_sentence:
            _truncate(spans.reshape(-1, 2, 2), recipe.max_seq_length - 3, rng)
        lengths = spans[:, 1] - spans[:, 0]
        ends = np.cumsum(texts)
        totals = np.add.reduceat(lengths + 1, ends - texts) + 1  # with [CLS], and [SEP] after each text
        present = np.arange(recipe.max_seq_length) < totals[:, None]  # [instances, max_seq_length]
        ids = np.zeros(present.shape, np.int32)
        ids[:, 0] = self._cls
        ids[:, 1:][present[:, 1:]] = tokens[_ranges(np.stack([spans[:, 0], np.zeros_like(lengths)], 1).reshape(-1),
                                                    np.stack([lengths, np.ones_like(lengths)], 1).reshape(-1))]
        rows, positions = np.nonzero(self._choose(ids, present, totals, rng))
        labels = ids[rows, positions]
        chance = _random_numbers(rng, len(rows))
        ids[rows, positions] = np.where(chance < 0.8 * 2**32, self._mask, np.where(
            chance < 0.9 * 2**32, labels, self._word_ids[_random_numbers(rng, len(rows)) % len(self._word_ids)]))
        predictions = np.bincount(rows, minlength=len(batch))
        there = np.arange(recipe.max_predictions_per_seq) < predictions[:, None]
        padded = np.zeros((2, *there.shape), int)
        padded[:, there] = positions, labels

        outputs = ids[rows, positions]
        masked = int(np.sum(outputs == self._mask))
        kept = int(np.sum(outputs == labels))
        statistics.update(instances=len(batch), random_next=sum(is_random_next), tokens=int(totals.sum()),
                          predictions=len(rows), masked=masked, kept=kept, replaced=len(rows) - masked - kept)
        if recipe.next_sentence:
            second = lengths[1::2] + 1
        else:
            second = np.zeros_like(totals)
        return list(map(self._serialize, self._pack_rows(ids), (totals - second).tolist(), second.tolist(),
                        *map(self._pack_rows, padded), predictions.tolist(), is_random_next))

    def _choose(self, ids, present, totals, rng):
        """Returns what to predict, bool [instances, max_seq_length]; see `create_masked_lm_predictions`."""
        recipe = self._arguments[1]
        wanted = np.minimum(np.maximum(np.rint(totals * recipe.masked_lm_prob).astype(int), 1), recipe.max_predictions_per_seq)
        candidates = present & ~self._is_special[ids]
        # The order of the keys is that in which words are chosen; the position makes each different.
        keys = _random_numbers(rng, ids.size).reshape(ids.shape).astype(np.int64) << 16 | np.arange(ids.shape[1])
        everyone = np.arange(len(ids))
        if not recipe.do_whole_word_mask:
            keys[~candidates] = _NO_WORD
            return candidates & (keys <= np.sort(keys)[everyone, wanted - 1][:, None])
        starts = candidates & ~self._continues[ids]
        starts[everyone, candidates.argmax(1)] |= candidates.any(1)  # no word before it to continue
        keys[~starts] = _NO_WORD
        word = np.cumsum(starts).reshape(ids.shape) - 1  # of all the instances' words
        sizes = np.bincount(word[candidates], minlength=1)
        taken, count = np.zeros(len(sizes), bool), np.zeros(len(ids), int)
        for key in np.sort(keys).T:
            there = key < _NO_WORD
            if not there.any() or (count == wanted).all():
                break
            words = word[everyone, key & 0xFFFF]
            fits = there & (count + sizes[words] <= wanted)
            count += fits * sizes[words]
            taken[words[fits]] = True
        return candidates & taken[word]


def _truncate(spans, room, rng):
    """`truncate_seq_pair` for many: changes spans, [instances, a and b, start and stop]."""
    a, b = np.diff(spans)[..., 0].T
    excess = np.maximum(a + b - room, 0)
    from_longer = np.minimum(excess, abs(a - b))
    rest = excess - from_longer
    cuts = np.stack([(a > b) * from_longer + rest // 2, (a <= b) * from_longer + (rest + 1) // 2], 1)
    fronts = np.array([rng.getrandbits(cut).bit_count() for cut in cuts.reshape(-1).tolist()]).reshape(cuts.shape)
    spans[..., 0] += fronts
    spans[..., 1] -= cuts - fronts


def _ranges(starts, lengths):
    """Returns the numbers of all ranges, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1])


def _random_numbers(rng, count):
    """Returns that many random numbers below 2**32, uint32."""
    return np.frombuffer(rng.randbytes(4 * count), "<u4")


class _RowPacker:
    """Makes packed varints of rows of numbers."""

    def __init__(self, limit):
        """Prepares the numbers below the limit."""
        shifts = np.arange(0, max(1, (limit - 1).bit_length()), 7)[:, None]
        goes_on = np.arange(limit) >> shifts + 7 > 0
        self._bytes = (np.arange(limit) >> shifts & 0x7F | goes_on << 7).astype(np.uint8)  # [most bytes, limit]
        self._sizes = 1 + goes_on.sum(0)

    def __call__(self, numbers):
        """Returns a list of bytes, one for each row of an array."""
        flat = numbers.reshape(-1)
        ends = np.cumsum(self._sizes.take(flat))
        starts = ends - self._sizes.take(flat)
        packed = np.empty(ends[-1] + len(self._bytes), np.uint8)
        for place in reversed(range(len(self._bytes))):  # what is beyond a number's last byte, the next ones overwrite
            packed[starts + place] = self._bytes[place].take(flat)
        packed, ends = packed.tobytes(), ends[numbers.shape[1] - 1::numbers.shape[1]].tolist()
        return [packed[start:end] for start, end in zip([0, *ends], ends)]


def write_training_data(input_files, output_files, tokenizer, recipe, random_seed=12345, shuffle_buffer_documents=1000,
                        num_workers=1, tokenizer_settings=None):
    """Writes pre-training data of any amount of text, and goes on where a killed run of the same arguments ended.

    The text is cut into blocks of documents. Each is by itself what `create_training_instances` works on: documents are
    shuffled and random next sentences drawn within it, and its instances shuffled. Instances go to the output files in turn,
    as published, in the order of the blocks. So files grow together and are complete together; until then their names end
    in ".partial", and a manifest says after each block how long they are, which is where the next run goes on.

    Args:
      input_files: list of paths, see `find_input_files`.
      output_files: list of local paths. Beside the first one is the manifest, a JSON file.
      tokenizer: a `tokenization.FullTokenizer`, or another that can be pickled.
      recipe: a `Recipe`.
      random_seed: int; what is written depends on it, on the input and on the recipe.
      shuffle_buffer_documents: documents of a block, at least 2. Each process holds a block in memory.
      num_workers: number of processes, 0 for one a core; what is written is the same.
      tokenizer_settings: {name: value} of what tokens depend on besides the vocabulary, to notice a change.

    Returns:
      The manifest: {"statistics": {name: count}, "documents": …}.

    Raises:
      ValueError: there is no text, only one document for pairs, or the manifest is of other settings or input.
      OSError: a file cannot be read or written.
    """
    import input_pipeline

    _check_output_files(input_files, output_files)
    corpus = survey(input_files, tokenizer)
    if recipe.next_sentence and corpus.documents == 1:
        raise ValueError(f"{', '.join(input_files)}: one document only, so that there is no other to take a random next "
                         "sentence from. Put blank lines between documents, or pass --next_sentence=false.")
    blocks = max(0, (corpus.documents - 2) // shuffle_buffer_documents) + 1
    logging.info("Input: %d files, %d documents, %d sentences; %d blocks of at most %d documents.", len(input_files),
                 corpus.documents, corpus.sentences, blocks, min(corpus.documents, shuffle_buffer_documents + 1))
    vocabulary = hashlib.blake2b("\n".join(tokenizer.vocab).encode(errors="surrogatepass"), digest_size=16).hexdigest()
    settings = {**recipe._asdict(), "random_seed": random_seed, "shuffle_buffer_documents": shuffle_buffer_documents,
                "vocabulary": vocabulary, **(tokenizer_settings or {})}
    output = _Output(output_files, {"settings": settings, **corpus._asdict(), "blocks": blocks})
    if output.done < blocks:
        documents = itertools.chain.from_iterable(read_documents(path, tokenizer) for path in input_files)
        rest = itertools.islice(enumerate(blocks_of(documents, shuffle_buffer_documents)), output.done, None)
        results = workers.ordered_map(_BlockMaker(tokenizer, recipe, random_seed), rest,
                                      min(num_workers or workers.available_cores(), blocks - output.done), chunk_size=1)
        with contextlib.closing(results):
            left = blocks - output.done
            for records, statistics in input_pipeline.with_progress(results, left, "Making block", max(1, left // 20)):
                if not output.done:
                    for record in records[:_LOGGED_INSTANCES]:
                        _log(record, tokenizer)
                output.append(records, statistics)
    return output.finish()


def _log(record, tokenizer):
    import tensorflow as tf

    features = tf.train.Example.FromString(record).features.feature
    ids, mask, labels, weights = (features[name].int64_list.value or features[name].float_list.value for name in (
        "input_ids", "input_mask", "masked_lm_ids", "masked_lm_weights"))
    logging.info("Instance, %s: %s; to predict: %s",
                 "random next sentence" if features["next_sentence_labels"].int64_list.value[0] else "no random next sentence",
                 " ".join(tokenizer.convert_ids_to_tokens(ids[:sum(mask)])),
                 " ".join(tokenizer.convert_ids_to_tokens(labels[:int(sum(weights))])))


def _check_output_files(input_files, output_files):
    """Finds out before the work whether its result could be written."""
    for path in output_files:
        directory = os.path.dirname(path) or "."
        if "://" in path:
            raise ValueError(f"Output file {path}: only local files, as they are written in parts. Copy them afterwards.")
        if output_files.count(path) > 1 or path in input_files:
            raise ValueError(f"Output file {path} is named twice, or is an input file too.")
        if os.path.isdir(path):
            raise IsADirectoryError(f"Output file {path} is a directory; name a file in it.")
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise type(error)(f"Output file {path} cannot be written: {directory} is no directory and cannot become one "
                              f"({error.strerror}).") from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"Output file {path} cannot be written: no permission to write in {directory}.")


class _Output:
    """The output files while they grow.

    The manifest is replaced after each block, when the files have it. What a killed run wrote after that is cut off.
    """

    def __init__(self, paths, manifest):
        """Goes on with what there is, or starts anew.

        Args:
          paths: the output files.
          manifest: {"settings": {name: value}, "blocks": their number, …}: all that decides what is written.
        """
        self._paths = paths
        self._manifest_path = paths[0] + MANIFEST_SUFFIX
        self._manifest = {**manifest, "files": [os.path.basename(path) for path in paths], "blocks_done": 0,
                          "sizes": [0] * len(paths), "statistics": {}}
        if os.path.exists(self._manifest_path):
            with open(self._manifest_path, encoding="utf-8") as reader:
                found = json.load(reader)
            self._check_same(found)
            complete = found["blocks_done"] == found["blocks"]
            if all(_has(path, size, complete) for path, size in zip(paths, found["sizes"])):
                self._manifest = found
                logging.info("%s: %d of %d blocks are there already.", self._manifest_path, self.done, found["blocks"])
                for path, size in zip(paths, found["sizes"]):
                    if os.path.exists(_partial(path)):
                        os.truncate(_partial(path), size)
                return
            logging.warning("The files of %s are not as it left them; they are written anew.", self._manifest_path)
        for path in paths:
            with open(_partial(path), "wb"):
                pass

    @property
    def done(self):
        """The number of blocks that are written."""
        return self._manifest["blocks_done"]

    def _check_same(self, found):
        changed = [f"{name} was {found['settings'].get(name)!r}, is {value!r}"
                   for name, value in self._manifest["settings"].items() if found["settings"].get(name) != value]
        if found["files"] != self._manifest["files"]:
            changed.append(f"the output files were {', '.join(found['files'])}")
        if found["fingerprint"] != self._manifest["fingerprint"]:
            changed.append(f"the input had {found['documents']} documents with {found['sentences']} sentences, and is not the "
                           "same text")
        if changed:
            raise ValueError(f"{self._paths[0]} is, or begins, the output of another run: {'; '.join(changed)}. Choose other "
                             f"output files, or remove {self._manifest_path} to write these anew.")

    def append(self, records, statistics):
        """Adds the records of the next block."""
        import tensorflow as tf

        import input_pipeline

        total = collections.Counter(self._manifest["statistics"])
        first, sizes = total["instances"], []
        for index, path in enumerate(self._paths):
            block = _partial(path) + ".block"
            with tf.io.TFRecordWriter(block) as writer:  # it cannot append; files of records can be put together
                for record in records[(index - first) % len(self._paths)::len(self._paths)]:
                    writer.write(record)
            with open(block, "rb") as source, open(_partial(path), "ab") as target:
                shutil.copyfileobj(source, target)
                sizes.append(target.tell())
            os.remove(block)
        total.update(statistics)
        self._manifest.update(blocks_done=self.done + 1, sizes=sizes, statistics=dict(total))
        input_pipeline.write_text(self._manifest_path, json.dumps(self._manifest, indent=1) + "\n")

    def finish(self):
        """Gives the files their names; returns the manifest."""
        for path in self._paths:
            if os.path.exists(_partial(path)):
                os.replace(_partial(path), path)
        return self._manifest


def _partial(path):
    return path + ".partial"


def _has(path, size, complete):
    """Whether so many bytes of a file are there, under the one name or the other."""
    if os.path.exists(_partial(path)):
        return os.path.getsize(_partial(path)) >= size
    return complete and os.path.exists(path) and os.path.getsize(path) == size


# --- Report ----------------------------------------------------------------------------------------------


def describe(statistics):
    """Returns the statistics of `write_training_data`'s manifest as text, with the shares the paper gives."""
    found = collections.Counter(statistics)
    instances, predictions = max(1, found["instances"]), max(1, found["predictions"])

    def share(name, of):
        return f"{found[name]:,} ({100 * found[name] / of:.1f} %)"

    return "\n".join([
        f"{found['instances']:,} instances of {found['documents']:,} documents, {found['sentences']:,} sentences",
        f"  random next sentence {share('random_next', instances)}",
        f"  tokens               {found['tokens']:,}, {found['tokens'] / instances:.1f} an instance",
        f"  to predict           {share('predictions', max(1, found['tokens']))} of the tokens",
        f"    [MASK]             {share('masked', predictions)}",
        f"    unchanged          {share('kept', predictions)}",
        f"    random word        {share('replaced', predictions)}",
        f"  sentences longer than an instance: {found['long_sentences']:,}",
    ])
