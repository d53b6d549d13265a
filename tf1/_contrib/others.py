"""Defines the parts of `tf.contrib` that have only a few functions.

The docstring of a function names its part in brackets, such as contrib.seq2seq. Groups of functions of
other parts have a heading.
"""

import collections
import pickle
import re

import numpy as np
import tensorflow.compat.v1 as tf

from tf1._names.internals import lookup_ops as _lookup
from tf1._names.namespace import refused


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  softmax_loss_function=None, name=None):
    """Returns the weighted cross-entropy of sequences (contrib.seq2seq).

    Args:
      logits: float [B, T, N].
      targets: integer [B, T].
      weights: float [B, T].
      average_across_timesteps, average_across_batch: whether to compute the weighted mean over T and over B.
      softmax_loss_function: function that takes the keyword arguments labels and logits, and replaces the
        sparse cross-entropy.
      name: name scope.

    Returns:
      float tensor of shape [B, T], without the dimensions over which the mean is computed.
    """
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        # Functions that programs pass as softmax_loss_function expect labels [B · T] and logits [B · T, N].
        flat = function(labels=tf.reshape(targets, [-1]),
                        logits=tf.reshape(logits, [-1, logits.shape.as_list()[2]]))
        losses = tf.reshape(flat, tf.shape(weights)) * weights
        axes = [axis for axis, averaged in enumerate([average_across_batch, average_across_timesteps])
                if averaged]
        if not axes:
            return losses
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def batch_and_drop_remainder(batch_size):
    """Returns a function for `Dataset.apply` that makes batches of equal size (contrib.data).

    Examples that do not fill the last batch are dropped.
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
    """Returns a function for `Dataset.apply` that makes padded batches of equal size (contrib.data).

    If the last batch is smaller than the other batches, it is dropped.
    """
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values,
                                                drop_remainder=True)


# In TensorFlow 1, this was tensorflow.tools.graph_transforms.TransformGraph.
TransformGraph = refused("TransformGraph", "TensorFlow removed the graph transforms. Remove the call, or use "
                         "tensorflow.python.tools.optimize_for_inference_lib.")
# Encoder-decoder libraries import these names, but BERT does not use them. So importing a name works, and
# only calling it raises an error.
_CLASSES = """
    AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention BahdanauMonotonicAttention
    BasicDecoder BasicDecoderOutput BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
    CustomHelper Decoder FinalBeamSearchDecoderOutput GreedyEmbeddingHelper Helper InferenceHelper
    LuongAttention LuongMonotonicAttention SampleEmbeddingHelper ScheduledEmbeddingTrainingHelper
    ScheduledOutputTrainingHelper TrainingHelper dynamic_decode
"""
SEQ2SEQ_CLASSES = {name: refused(f"tf.contrib.seq2seq.{name}", "tf.contrib is gone, without a replacement.")
                   for name in _CLASSES.split()}


def tile_batch(t, multiplier, name=None):
    """Repeats each example of a batch (contrib.seq2seq): tensors [B, …] become [B · multiplier, …].

    Args:
      t: tensor, or tensors in lists, tuples and dicts.
      multiplier: number of copies of each example, at least 1.
      name: name scope of the ops.
    """
    with tf.name_scope(name, "tile_batch"):
        return tf.nest.map_structure(lambda values: tf.repeat(values, multiplier, axis=0), t)


class ModeKeys:
    """Lists the modes of a model, with the names that contrib.learn uses."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


# --- tf.contrib.lookup: tables of words and numbers -----------------------------------------------------


def index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1,
                            hasher_spec=_lookup.FastHashSpec, dtype=tf.string, name=None):
    """Returns a table that maps the elements of a vector to their positions.

    Args:
      mapping: the vector, without duplicates.
      num_oov_buckets: number of buckets for keys that are not in the vector. Such a key is mapped to the
        number of its bucket; the first bucket has the number after the last position. With 0 buckets, such a
        key is mapped to default_value.
      default_value: see num_oov_buckets.
      hasher_spec: hash function that chooses the bucket of a key.
      dtype: dtype of the keys.
      name: name of the op.
    """
    return _lookup.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def index_to_string_table_from_tensor(mapping, default_value="UNK", name=None):
    """Returns a table that maps each position in a vector of strings to the string at this position."""
    return _lookup.index_to_string_table_from_tensor(mapping, default_value, name)


# --- learn.preprocessing ----------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|['\w\-]+")


def tokenizer(iterator):
    """Yields a list of the words of each text."""
    for text in iterator:
        yield _WORD.findall(text)


class CategoricalVocabulary:
    """Maps words to ids. The word "<UNK>" has the id 0."""

    def __init__(self, unknown_token="<UNK>", support_reverse=True):
        """Creates a vocabulary. The argument support_reverse is ignored: `reverse` always works."""
        self._words, self._mapping, self._frozen = [unknown_token], {unknown_token: 0}, False

    def __len__(self):
        return len(self._words)

    def freeze(self, freeze=True):
        """Decides whether unknown words get the id 0. Otherwise they are added to the vocabulary."""
        self._frozen = freeze

    def get(self, category):
        """Returns the id of a word."""
        if category not in self._mapping and not self._frozen:
            self._mapping[category] = len(self._words)
            self._words.append(category)
        return self._mapping.get(category, 0)

    add = get

    def reverse(self, class_id):
        """Returns the word with an id."""
        return self._words[class_id]


class VocabularyProcessor:
    """Turns texts into arrays of word ids of a fixed length."""

    def __init__(self, max_document_length, min_frequency=0, vocabulary=None, tokenizer_fn=None):
        """Creates a processor.

        Args:
          max_document_length: length of the arrays. Longer texts are truncated, shorter ones padded with 0.
          min_frequency: words that occur this number of times, or less often, are unknown words.
          vocabulary: a `CategoricalVocabulary`; None for a new one.
          tokenizer_fn: function like `tokenizer`, the default.
        """
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents, unused_y=None):
        """Adds the words of all texts to the vocabulary, and freezes the vocabulary. With min_frequency, the
        most frequent word gets the id 1, and words with the same frequency are sorted."""
        counts = collections.Counter(word for words in self._tokenizer(raw_documents) for word in words)
        if self.min_frequency > 0:
            counts = sorted((word for word, count in counts.items() if count > self.min_frequency),
                            key=lambda word: (-counts[word], word))
        for word in counts:
            self.vocabulary_.add(word)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents, unused_y=None):
        """Calls `fit`, and then returns the result of `transform`."""
        return self.fit(raw_documents).transform(raw_documents)

    def transform(self, raw_documents):
        """Yields an int64 array [max_document_length] of word ids for each text."""
        for words in self._tokenizer(raw_documents):
            ids = [self.vocabulary_.get(word) for word in words[:self.max_document_length]]
            yield np.pad(np.array(ids, np.int64), [0, self.max_document_length - len(ids)])

    def reverse(self, documents):
        """Yields the text of each array of word ids."""
        for ids in documents:
            yield " ".join(self.vocabulary_.reverse(word_id) for word_id in ids)

    def save(self, filename):
        """Writes the processor to a file."""
        with tf.gfile.GFile(filename, "wb") as file:
            file.write(pickle.dumps(self))

    @classmethod
    def restore(cls, filename):
        """Returns the processor in a file that `save` wrote. The file is a pickle, which can run any code
        while it is read: read only your own files."""
        with tf.gfile.GFile(filename, "rb") as file:
            return pickle.loads(file.read())


# --- legacy_seq2seq: sequences are lists of tensors --------------------------------------------------------


def rnn_decoder(decoder_inputs, initial_state, cell, loop_function=None, scope=None):
    """Runs a cell over a list of inputs.

    Args:
      decoder_inputs: list of tensors [B, D].
      initial_state: state of the cell before the first input.
      cell: an RNN cell.
      loop_function: function that takes the previous output and the index of the step. If it is given, its
        results replace all inputs after the first.
      scope: scope of the variables, by default rnn_decoder.

    Returns:
      (list of the outputs, state after the last input).
    """
    outputs, state = [], initial_state
    with tf.variable_scope(scope or "rnn_decoder"):
        for step, inputs in enumerate(decoder_inputs):
            if loop_function is not None and outputs:
                with tf.variable_scope("loop_function", reuse=True):
                    inputs = loop_function(outputs[-1], step)
            if step:
                tf.get_variable_scope().reuse_variables()
            output, state = cell(inputs, state)
            outputs.append(output)
    return outputs, state


def sequence_loss_by_example(logits, targets, weights, average_across_timesteps=True,
                             softmax_loss_function=None, name=None):
    """Returns the cross-entropy of each sequence, [B].

    Args:
      logits: list of tensors [B, number of classes], one for each position.
      targets: list of integer tensors [B].
      weights: list of float tensors [B].
      average_across_timesteps: whether to divide by the sum of the weights of the sequence.
      softmax_loss_function: see `sequence_loss`.
      name: name of the ops.

    Raises:
      ValueError: the lists have different lengths.
    """
    if not len(logits) == len(targets) == len(weights):
        raise ValueError("sequence_loss_by_example: logits, targets and weights must have the same length; "
                         f"they have {len(logits)}, {len(targets)} and {len(weights)}.")
    with tf.name_scope(name, "sequence_loss_by_example"):
        losses = sequence_loss(*(tf.stack(values, 1) for values in (logits, targets, weights)),
                               average_across_timesteps, False, softmax_loss_function)
        return losses if average_across_timesteps else tf.reduce_sum(losses, 1)


def sequence_loss_of_lists(logits, targets, weights, average_across_timesteps=True,
                           average_across_batch=True, softmax_loss_function=None, name=None):
    """Returns the sum of `sequence_loss_by_example` over the batch, or its mean if average_across_batch is
    true."""
    with tf.name_scope(name, "sequence_loss"):
        losses = sequence_loss_by_example(logits, targets, weights, average_across_timesteps,
                                          softmax_loss_function)
        return tf.reduce_mean(losses) if average_across_batch else tf.reduce_sum(losses)
