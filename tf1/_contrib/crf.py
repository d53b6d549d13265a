"""tf.contrib.crf.crf_decode, with its op names; the rest of the part is in `bertlib.graph.crf`."""

import tensorflow.compat.v1 as tf

from bertlib.graph import crf

# The other ops of TensorFlow 1.15's crf_decode: later ops of the program are numbered after them.
_INNER_OPS = ("ExpandDims", "Slice", "Squeeze", "Slice", "Const", "sub", "Maximum", "ReverseSequence",
              "ArgMax", "Cast", "ExpandDims", "rnn", "Squeeze", "concat")
_INNER_OPS_OF_ONE = ("Squeeze", "ArgMax", "ExpandDims")


def crf_decode(potentials, transition_params, sequence_length):
    """Returns the best tags and their scores; see `crf.crf_decode`.

    The results have the op names of TensorFlow 1.15, because programs look them up by name in a graph that
    they read from a .meta or .pb file: "ReverseSequence_1" and "Max"; "cond/Merge" and "cond/Merge_1" where
    the length of the sequences is unknown; "Cast" and "Max" where it is 1.
    """
    potentials = tf.convert_to_tensor(potentials)
    length = tf.dimension_value(potentials.shape[1])
    tf.get_default_graph().unique_name("Equal")
    if length is not None:
        return _decode(potentials, transition_params, sequence_length, length == 1)
    with tf.name_scope("cond"):
        found = _decode(potentials, transition_params, sequence_length, False)
        return tuple(tf.identity(result, "Merge") for result in found)


def _decode(potentials, transition_params, sequence_length, of_one):
    """Returns what `crf_decode` does for a length that is known to be 1, or is not."""
    with tf.name_scope("rnn"):
        tags, scores = crf.crf_decode(potentials, transition_params, sequence_length)
    for name in _INNER_OPS_OF_ONE if of_one else _INNER_OPS:
        tf.get_default_graph().unique_name(name)
    return tf.identity(tags, "Cast" if of_one else "ReverseSequence"), tf.identity(scores, "Max")
