"""Defines the parts of `tf.contrib` that have only a few functions.

The docstring of a function names its part in brackets, such as contrib.seq2seq. The functions at the end of
this file belong to `tf.contrib.lookup`.
"""

import tensorflow.compat.v1 as tf

from tf1._names.internals import lookup_ops as _lookup


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


def transform_graph(input_graph_def, inputs, outputs, transforms):
    """Raises an error that says what to use instead. In TensorFlow 1, this function was
    tensorflow.tools.graph_transforms.TransformGraph. Newer versions of TensorFlow do not have it.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError("TransformGraph: TensorFlow removed the graph transforms. Remove the call, or "
                              "use tensorflow.python.tools.optimize_for_inference_lib.")


def _refused(name):
    """Returns a class that programs can import and subclass. The constructor of the class raises an error.
    The checker recognizes the class by its attribute `is_refused`."""
    def refuse(self, *args, **kwargs):
        raise NotImplementedError(f"tf.contrib.seq2seq.{name}: tf.contrib is gone. Use tf.keras.layers.")

    return type(name, (), {"__init__": refuse, "is_refused": True})


# Encoder-decoder libraries import these names, but BERT does not use them. So importing a name works, and
# only calling it raises an error.
SEQ2SEQ_CLASSES = {name: _refused(name) for name in (
    "AttentionMechanism", "AttentionWrapper", "AttentionWrapperState", "BahdanauAttention",
    "BahdanauMonotonicAttention", "BasicDecoder", "BasicDecoderOutput", "BeamSearchDecoder",
    "BeamSearchDecoderOutput", "BeamSearchDecoderState", "CustomHelper", "Decoder",
    "FinalBeamSearchDecoderOutput", "GreedyEmbeddingHelper", "Helper", "InferenceHelper", "LuongAttention",
    "LuongMonotonicAttention", "SampleEmbeddingHelper", "ScheduledEmbeddingTrainingHelper",
    "ScheduledOutputTrainingHelper", "TrainingHelper", "dynamic_decode")}


def tile_batch(t, multiplier, name=None):
    """Repeats each example of a batch (contrib.seq2seq): tensors [B, …] become [B · multiplier, …].

    Args:
      t: tensor, or tensors in lists, tuples and dicts.
      multiplier: number of copies of each example, at least 1.
      name: name scope of the ops.
    """
    with tf.name_scope(name, "tile_batch"):
        return tf.nest.map_structure(lambda values: tf.repeat(values, multiplier, axis=0), t)


def hardmax(logits, name=None):
    """Returns a tensor that is 1 at the maximum along the last dimension, and 0 elsewhere
    (contrib.seq2seq)."""
    with tf.name_scope(name, "Hardmax", [logits]):
        return tf.one_hot(tf.argmax(logits, -1), logits.shape.as_list()[-1] or tf.shape(logits)[-1],
                          dtype=logits.dtype)


def sparsemax(logits, name=None):
    """Projects the logits onto the simplex (contrib.sparsemax; Martins and Astudillo 2016, arXiv:1602.02068).

    Args:
      logits: float [B, N].
      name: name scope of the ops.

    Returns:
      float [B, N]. Each row is the point of the simplex that is nearest to the logits: its sum is 1, and many
      of its values are 0.
    """
    with tf.name_scope(name, "sparsemax", [logits]):
        # Equation 4 of the paper, for z_1 ≥ z_2 ≥ …: the result is above 0 at all k for which
        # 1 + k z_k > z_1 + … + z_k. These k are the support.
        ordered = tf.sort(logits, direction="DESCENDING")
        sums = tf.cumsum(ordered, axis=-1)
        count = tf.cast(tf.range(1, tf.shape(logits)[-1] + 1), logits.dtype)
        support = tf.cast(1 + count * ordered > sums, logits.dtype)
        size = tf.reduce_sum(support, -1, keepdims=True)
        threshold = (tf.reduce_sum(support * ordered, -1, keepdims=True) - 1) / size
        return tf.maximum(logits - threshold, 0)


def sparsemax_loss(logits, sparsemax, labels, name=None):
    """Returns the loss for the function `sparsemax` (contrib.sparsemax). It is equation 27 of the paper that
    the docstring of `sparsemax` names.

    Args:
      logits: float [B, N].
      sparsemax: the result of sparsemax(logits), float [B, N].
      labels: float [B, N]. The sum of each row is 1.
      name: name scope of the ops.

    Returns:
      float [B].
    """
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        threshold_part = sparsemax * (logits - 0.5 * sparsemax)
        return tf.reduce_sum(threshold_part + labels * (0.5 * labels - logits), -1)


def print_model_analysis(graph, run_meta=None, op_log=None, tfprof_cmd="scope", tfprof_options=None):
    """Replaces contrib.tfprof.model_analyzer.print_model_analysis: calls tf.profiler.profile."""
    return tf.profiler.profile(graph, run_meta, op_log, tfprof_cmd, tfprof_options or {})


class ModeKeys(object):
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


def string_to_index(tensor, mapping, default_value=-1, name=None):
    """Looks up each string of `tensor` in the vector `mapping`. Returns the positions in `mapping`; a string
    that `mapping` does not contain gets `default_value`."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    """Returns the elements of `mapping` at the positions in an int64 tensor."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
