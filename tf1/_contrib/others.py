"""The parts of `tf.contrib` that have a few functions here."""

import tensorflow.compat.v1 as tf

from tf1._names.internals import lookup_ops as _lookup


def sequence_loss(logits, targets, weights, average_across_timesteps=True, average_across_batch=True,
                  softmax_loss_function=None, name=None):
    """Weighted cross-entropy of sequences (contrib.seq2seq).

    Args:
      logits: float [B, T, N].
      targets: integer [B, T].
      weights: float [B, T].
      average_across_timesteps, average_across_batch: divide by the sum of the weights along these dimensions.
      softmax_loss_function: function of labels and logits, instead of the sparse cross-entropy.
    """
    with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
        function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        # Functions for this argument were written for flat tensors.
        flat = function(labels=tf.reshape(targets, [-1]),
                        logits=tf.reshape(logits, [-1, logits.shape.as_list()[2]]))
        losses = tf.reshape(flat, tf.shape(weights)) * weights
        axes = [axis for axis, averaged in enumerate([average_across_batch, average_across_timesteps])
                if averaged]
        if not axes:
            return losses
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def batch_and_drop_remainder(batch_size):
    """Returns a transformation for `Dataset.apply`: batches of exactly that size."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
    """Returns a transformation for `Dataset.apply`: padded batches of exactly that size."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values,
                                                drop_remainder=True)


def transform_graph(input_graph_def, inputs, outputs, transforms):
    """tensorflow.tools.graph_transforms.TransformGraph, which TensorFlow removed.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError("TransformGraph: TensorFlow removed its graph transforms. Leave the call out, "
                              "or use tensorflow.python.tools.optimize_for_inference_lib.")


def _refused(name):
    """A class that can be imported and derived from, and cannot be made."""
    def refuse(self, *args, **kwargs):
        raise NotImplementedError(f"tf.contrib.seq2seq.{name}: tf.contrib is gone. Use tf.keras.layers.")
    return type(name, (), {"__init__": refuse})


# What encoder-decoder libraries import, of which BERT uses nothing.
SEQ2SEQ_CLASSES = {name: _refused(name) for name in (
    "AttentionMechanism", "AttentionWrapper", "AttentionWrapperState", "BahdanauAttention",
    "BahdanauMonotonicAttention", "BasicDecoder", "BasicDecoderOutput", "BeamSearchDecoder",
    "BeamSearchDecoderOutput", "BeamSearchDecoderState", "CustomHelper", "Decoder",
    "FinalBeamSearchDecoderOutput", "GreedyEmbeddingHelper", "Helper", "InferenceHelper", "LuongAttention",
    "LuongMonotonicAttention", "SampleEmbeddingHelper", "ScheduledEmbeddingTrainingHelper",
    "ScheduledOutputTrainingHelper", "TrainingHelper", "dynamic_decode")}


def tile_batch(t, multiplier, name=None):
    """Repeats each entry of a batch (contrib.seq2seq): tensors [B, …] become [B · multiplier, …].

    Args:
      t: tensor, or tensors in lists, tuples and dicts.
      multiplier: positive number of times.
      name: of the ops.
    """
    with tf.name_scope(name, "tile_batch"):
        return tf.nest.map_structure(lambda values: tf.repeat(values, multiplier, axis=0), t)


def hardmax(logits, name=None):
    """Returns one at the largest of the last dimension's values and zero elsewhere (contrib.seq2seq)."""
    with tf.name_scope(name, "Hardmax", [logits]):
        return tf.one_hot(tf.argmax(logits, -1), logits.shape.as_list()[-1] or tf.shape(logits)[-1],
                          dtype=logits.dtype)


def sparsemax(logits, name=None):
    """The point of the simplex nearest to the logits (Martins and Astudillo 2016, arXiv:1602.02068).

    Args:
      logits: float [B, N].
      name: of the ops.

    Returns:
      Float [B, N], rows of sum 1; many values are zero.
    """
    with tf.name_scope(name, "sparsemax", [logits]):
        # Equation 4: with z_1 ≥ z_2 ≥ …, the support has the k for which 1 + k z_k > z_1 + … + z_k.
        ordered = tf.sort(logits, direction="DESCENDING")
        sums = tf.cumsum(ordered, axis=-1)
        count = tf.cast(tf.range(1, tf.shape(logits)[-1] + 1), logits.dtype)
        support = tf.cast(1 + count * ordered > sums, logits.dtype)
        size = tf.reduce_sum(support, -1, keepdims=True)
        threshold = (tf.reduce_sum(support * ordered, -1, keepdims=True) - 1) / size
        return tf.maximum(logits - threshold, 0)


def sparsemax_loss(logits, sparsemax, labels, name=None):
    """The loss of `sparsemax` (equation 27 there).

    Args:
      logits: float [B, N].
      sparsemax: sparsemax(logits).
      labels: float [B, N], rows of sum 1.
      name: of the ops.

    Returns:
      Float [B].
    """
    with tf.name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        threshold_part = sparsemax * (logits - 0.5 * sparsemax)
        return tf.reduce_sum(threshold_part + labels * (0.5 * labels - logits), -1)


def print_model_analysis(graph, run_meta=None, op_log=None, tfprof_cmd="scope", tfprof_options=None):
    """tf.profiler.profile (contrib.tfprof.model_analyzer)."""
    return tf.profiler.profile(graph, run_meta, op_log, tfprof_cmd, tfprof_options or {})


class ModeKeys(object):
    """What contrib.learn called the modes of a model."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


# --- tf.contrib.lookup: tables of words and numbers -----------------------------------------------------


def index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1,
                            hasher_spec=_lookup.FastHashSpec, dtype=tf.string, name=None):
    """Returns a table from the elements of a vector to their positions in it.

    Args:
      mapping: the vector; no element twice.
      num_oov_buckets: buckets after these positions for what is not in it; 0 gives default_value.
      default_value: see there.
      hasher_spec: how buckets are chosen.
      dtype: of the keys.
      name: of the op.
    """
    return _lookup.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec, dtype, name)


def index_to_string_table_from_tensor(mapping, default_value="UNK", name=None):
    """Returns a table from positions in a vector of strings to its elements."""
    return _lookup.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(tensor, mapping, default_value=-1, name=None):
    """Returns the positions in `mapping` of the strings of a tensor."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor, mapping, default_value="UNK", name=None):
    """Returns the elements of `mapping` at the positions in a tensor, int64."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
