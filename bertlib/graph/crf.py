"""Implements linear-chain conditional random fields, with the function signatures of tf.contrib.crf."""

import tensorflow.compat.v1 as tf

# Linear-chain conditional random fields are described in Lafferty, McCallum and Pereira 2001. In this
# module, B is the number of examples, T the number of positions, and N the number of tags. s[t, j] is the
# score of tag j at position t. A[i, j] is the score of the transition from tag i to tag j. y_t is the given
# tag at position t.


def _mask(lengths, inputs):
    return tf.sequence_mask(lengths, tf.shape(inputs)[1], inputs.dtype)


def crf_unary_score(tag_indices, sequence_lengths, inputs):
    """Returns Σ_t s[t, y_t] as float [B]. For the arguments, see `crf_log_likelihood`."""
    tags = tf.one_hot(tag_indices, tf.shape(inputs)[2], dtype=inputs.dtype)
    return tf.reduce_sum(tf.reduce_sum(inputs * tags, axis=2) * _mask(sequence_lengths, inputs), axis=1)


def crf_binary_score(tag_indices, sequence_lengths, transition_params):
    """Returns Σ_t A[y_(t-1), y_t] as float [B]. For the arguments, see `crf_log_likelihood`."""
    steps = tf.gather_nd(transition_params, tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=-1))
    mask = tf.sequence_mask(sequence_lengths, tf.shape(tag_indices)[1], transition_params.dtype.base_dtype)
    return tf.reduce_sum(steps * mask[:, 1:], axis=1)


def crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params):
    """Returns the unnormalized score of the tags as float [B]. For the arguments, see
    `crf_log_likelihood`."""
    return (crf_unary_score(tag_indices, sequence_lengths, inputs)
            + crf_binary_score(tag_indices, sequence_lengths, transition_params))


def crf_log_norm(inputs, sequence_lengths, transition_params):
    """Returns the log partition function (0 for length 0) as float [B]. See `crf_log_likelihood`."""
    def forward(state, position):
        scores, mask = position
        next_state = tf.reduce_logsumexp(state[:, :, None] + transition_params[None], axis=1) + scores
        return tf.where(mask > 0, next_state, state)

    mask = _mask(sequence_lengths, inputs)
    # The loop also includes the first position. In `later`, the mask of this position is 0, so the result
    # does not change. Without this position the loop would be empty for T = 1, and an empty loop has no
    # gradient.
    later = tf.concat([tf.zeros_like(mask[:, :1]), mask[:, 1:]], axis=1)
    wide = tf.tile(later[:, :, None], [1, 1, tf.shape(inputs)[2]])
    final = tf.foldl(forward, (tf.transpose(inputs, [1, 0, 2]), tf.transpose(wide, [1, 0, 2])), inputs[:, 0])
    return tf.reduce_logsumexp(final, axis=1) * mask[:, 0]


def crf_marginals(inputs, sequence_lengths, transition_params):
    """Returns the probability of each tag at each position as float [B, T, N], 0 after the end of a sequence.

    The probability of a tag at a position is the sum of the probabilities of all sequences with this tag at
    this position. Usually, the forward-backward algorithm computes this sum. But the sum is also the gradient
    of the log partition function with respect to `inputs` (Wainwright and Jordan 2008, Graphical Models,
    Exponential Families, and Variational Inference, proposition 3.1). So this function lets TensorFlow
    compute the gradient.

    For the arguments, see `crf_log_likelihood`.
    """
    marginals, = tf.gradients(crf_log_norm(inputs, sequence_lengths, transition_params), [inputs])
    return marginals


def crf_log_likelihood(inputs, tag_indices, sequence_lengths, transition_params=None):
    """Returns the log-likelihood of the given tags of each example, and the transition scores.

    Args:
      inputs: s, the score of each tag at each position, float [B, T, N].
      tag_indices: y, the given tag at each position, integer [B, T].
      sequence_lengths: the number of positions of each example, integer [B].
      transition_params: A, the score of each transition from one tag to another, float [N, N]. None to use
        the variable "transitions".

    Returns:
      a pair: the log-likelihoods (float [B]), and A.
    """
    if transition_params is None:
        size = inputs.shape.as_list()[2]
        transition_params = tf.get_variable("transitions", [size, size])
    tag_indices = tf.cast(tag_indices, tf.int32)
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials, transition_params, sequence_length):
    """Finds the tags with the highest score by the Viterbi algorithm.

    Args:
      potentials: s, the score of each tag at each position, float [B, T, N].
      transition_params: A, the score of each transition from one tag to another, float [N, N].
      sequence_length: the number of positions of each example, integer [B].

    Returns:
      a pair: the tags (int32 [B, T], 0 after the end of a sequence), and their scores (float [B]).
    """
    def forward(state, position):
        scores, mask = position
        paths = state[0][:, :, None] + transition_params[None]
        best = tf.where(mask > 0, tf.reduce_max(paths, axis=1) + scores, state[0])
        # After the end of a sequence, each tag is its own predecessor. So backtracking keeps the last tag.
        return best, tf.where(mask > 0, tf.argmax(paths, axis=1, output_type=tf.int32), itself)

    size = tf.shape(potentials)[2]
    itself = tf.tile(tf.range(size)[None], [tf.shape(potentials)[0], 1])
    mask = _mask(sequence_length, potentials)
    wide = tf.transpose(tf.tile(mask[:, :, None], [1, 1, size]), [1, 0, 2])
    first = potentials[:, 0]
    scores, pointers = tf.scan(forward, (tf.transpose(potentials, [1, 0, 2])[1:], wide[1:]), (first, itself))
    final = tf.concat([first[None], scores], axis=0)[-1]
    last = tf.argmax(final, axis=1, output_type=tf.int32)
    earlier = tf.scan(lambda tags, pointer: tf.gather(pointer, tags, batch_dims=1), pointers, last,
                      reverse=True)
    tags = tf.transpose(tf.concat([earlier, last[None]], axis=0))
    return tags * tf.cast(mask, tf.int32), tf.reduce_max(final, axis=1)
