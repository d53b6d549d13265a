"""Predicts a tag for each word of a sentence: BERT with a linear layer on each token, optionally with a
CRF."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.graph import crf
from bertlib.tasks import head
from bertlib.tasks.tagging.tagging_data import SEQUENCES, feature_fields
import modeling

# Dropout probability before the head, as in the published classifier. It does not depend on the model's
# configuration.
_HEAD_DROPOUT = 0.1
# Names of the features by whose sums over the effective batch the loss is divided.
BATCH_TOTALS = ("tag_mask",)


class Tagger:
    """Head that predicts one of `num_tags` tags for each word. See the module `head`.

    Features, int32 [B, F]: tag_ids, the tags of the tokens (not needed in prediction); tag_mask, 1 at the
    tokens whose tags are trained; word_mask, 1 at the first token of each word. The tag of a word is the tag
    of the word's first token.

    With `use_crf`, the loss is computed for the whole sequence of tags (Lample et al. 2016, arXiv:1603.01360,
    section 2.2). The variable "crf/transitions" [N, N] has the scores of the transitions from one tag (row)
    to the next (column).
    """

    modes = (estimator.ModeKeys.TRAIN, estimator.ModeKeys.PREDICT)
    first_token_only = False

    def __init__(self, num_tags, use_crf=False):
        self._num_tags, self._use_crf = num_tags, use_crf

    def shapes(self, bert_config):
        return head_shapes(bert_config, self._num_tags, self._use_crf)

    def build(self, bert_config, model, features, mode, micro_batches):
        del bert_config
        logits = head.token_logits(model.get_sequence_output(), self._num_tags, dropout_prob=(
            _HEAD_DROPOUT if mode == estimator.ModeKeys.TRAIN else 0.0))
        tag = _tag_with_crf if self._use_crf else _tag_independently
        losses, tags = tag(logits, features.get("tag_ids"), features["tag_mask"])
        if mode == estimator.ModeKeys.PREDICT:
            words, tags = _move_to_front(features["word_mask"], tags)
            loss = {} if losses is None else {"loss": losses}
            return head.HeadOutputs(predictions={"tags": tags, "num_words": words, **loss})
        # Divide by the number of tags in the effective batch, because micro-batches may differ in this
        # number.
        total = features.get("tag_mask_total", tf.reduce_sum(features["tag_mask"]))
        total = tf.maximum(tf.cast(total, tf.float32), 1.0)
        return head.HeadOutputs(micro_batches * tf.reduce_sum(losses) / total, is_divided_by_total=True)


def head_shapes(bert_config, num_tags, use_crf=False):
    """Returns the variables that a tagger adds to the encoder: {name: shape}."""
    shapes = {"output_weights": (num_tags, bert_config.hidden_size), "output_bias": (num_tags,)}
    return {**shapes, "crf/transitions": (num_tags, num_tags)} if use_crf else shapes


def _tag_independently(logits, tag_ids, tag_mask):
    """Predicts the tag of each token independently of the others.

    Args:
      logits: float32 [B, F, N].
      tag_ids: int32 [B, F], the right tags, or None.
      tag_mask: int32 [B, F].

    Returns:
      (losses, float32 [B], summed over the tokens of a sequence, or None without tag_ids; predicted tags,
      int32 [B, F]).
    """
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    if tag_ids is None:
        return None, best
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tag_ids, logits=logits)
    return tf.reduce_sum(losses * tf.cast(tag_mask, tf.float32), axis=1), best


def _tag_with_crf(logits, tag_ids, tag_mask):
    """Predicts the best sequence of tags with a CRF; see `_tag_independently`.

    The chain of the CRF contains only the tokens of the mask. For example, the transition from one word to
    the next skips the other pieces of the first word.
    """
    num_tags = modeling.get_shape_list(logits)[2]
    with tf.variable_scope("crf"):
        transitions = tf.get_variable("transitions", [num_tags, num_tags], initializer=tf.zeros_initializer())
    order = _order(tag_mask)
    scores, lengths = tf.gather(logits, order, batch_dims=1), tf.reduce_sum(tag_mask, axis=1)
    tags, _ = crf.crf_decode(scores, transitions, lengths)
    tags = tf.gather(tags, tf.argsort(order), batch_dims=1)
    if tag_ids is None:
        return None, tags
    chain = tf.gather(tag_ids, order, batch_dims=1)
    likelihood, _ = crf.crf_log_likelihood(scores, chain, lengths, transitions)
    return -likelihood, tags


def _order(mask):
    """Returns the positions of the ones of a mask in each row, then the positions of its zeros: int32 [B,
    F]."""
    return tf.argsort(1 - mask, axis=1, stable=True)


def _move_to_front(mask, values):
    """Moves the values at the ones of a mask to the front of each row.

    Returns:
      (number of ones in each row, int32 [B]; the reordered values, [B, F]).
    """
    return tf.reduce_sum(mask, axis=1), tf.gather(values, _order(mask), batch_dims=1)


def model_fn_builder(bert_config, num_tags, use_crf, init_checkpoint, learning_rate, num_train_steps,
                     num_warmup_steps, use_tpu, use_one_hot_embeddings, step=None):
    """Returns a model_fn for `estimator.Estimator`; see `head.model_fn_builder`."""
    return head.model_fn_builder(Tagger(num_tags, use_crf), bert_config, init_checkpoint, learning_rate,
                                 num_train_steps, num_warmup_steps, use_tpu, use_one_hot_embeddings, step)


def input_fn_builder(input_file, seq_length, is_training, drop_remainder, trim=False,
                     unequal_micro_batches=False):
    """Returns an input_fn that reads a TFRecord file of `tagging_data.write_windows`; the arguments are those
    of `classification_head.file_based_input_fn_builder`."""
    return head.input_fn_builder(input_file, feature_fields(seq_length), is_training, drop_remainder,
                                 SEQUENCES if trim else (), unequal_micro_batches,
                                 BATCH_TOTALS if is_training else ())
