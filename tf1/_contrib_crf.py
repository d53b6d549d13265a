"""tf.contrib.crf: the functions of `bertlib.runtime.crf` under their names of TensorFlow 1."""

from bertlib.runtime.crf import (  # noqa: F401  the names of this module
    crf_binary_score,
    crf_decode,
    crf_log_likelihood,
    crf_log_norm,
    crf_sequence_score,
    crf_unary_score,
    viterbi_decode,
)
