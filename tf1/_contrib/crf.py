"""Defines tf.contrib.crf.crf_decode with the op names of TensorFlow 1.15, and viterbi_decode.

All other names of tf.contrib.crf are defined in `bertlib.graph.crf`.
"""

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.graph import crf

# Names of the inner ops that crf_decode creates in TensorFlow 1.15. `_decode` reserves these names, so that
# later ops get the same numbers as in TensorFlow 1.15, such as the 1 in "Squeeze_1".
_INNER_OPS = ("ExpandDims", "Slice", "Squeeze", "Slice", "Const", "sub", "Maximum", "ReverseSequence",
              "ArgMax", "Cast", "ExpandDims", "rnn", "Squeeze", "concat")


def crf_decode(potentials, transition_params, sequence_length):
    """Returns the best tags and their scores; see `crf.crf_decode`.

    The ops of the results have the names of TensorFlow 1.15, because programs look them up by name in a graph
    from a .meta or .pb file. These names are "ReverseSequence_1" and "Max". If the length of the sequences is
    unknown, they are "cond/Merge" and "cond/Merge_1".
    """
    potentials = tf.convert_to_tensor(potentials)
    tf.get_default_graph().unique_name("Equal")
    if tf.dimension_value(potentials.shape[1]) is not None:
        return _decode(potentials, transition_params, sequence_length)
    with tf.name_scope("cond"):
        results = _decode(potentials, transition_params, sequence_length)
        return tuple(tf.identity(result, "Merge") for result in results)


def _decode(potentials, transition_params, sequence_length):
    """Returns the best tags and their scores; see `crf.crf_decode`.

    The ops are added to the current name scope. If the length of the sequences is known, the ops get the same
    names as in TensorFlow 1.15.
    """
    with tf.name_scope("rnn"):
        tags, scores = crf.crf_decode(potentials, transition_params, sequence_length)
    for name in _INNER_OPS:
        tf.get_default_graph().unique_name(name)
    return tf.identity(tags, "ReverseSequence"), tf.identity(scores, "Max")


def viterbi_decode(score, transition_params):
    """Finds the tags with the highest score for one sequence, in NumPy.

    Args:
      score: float [T, N], the score of each tag at each position.
      transition_params: float [N, N], the score of the transition from each tag to each tag.

    Returns:
      a pair: the list of T tags, and the score of this list.
    """
    state, pointers = np.array(score[0]), []
    for scores in score[1:]:
        paths = state[:, None] + transition_params
        pointers.append(np.argmax(paths, axis=0))
        state = scores + np.max(paths, axis=0)
    tags = [int(np.argmax(state))]
    for pointer in reversed(pointers):
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], np.max(state)
