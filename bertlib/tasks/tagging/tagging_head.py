"""A tag for each word of a sentence: BERT with a linear layer on each token, or with a CRF above that."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.graph import crf
from bertlib.tasks import head
from bertlib.tasks.tagging.tagging_data import SEQUENCES, feature_fields
import modeling

# As in the published classifier, whatever the configuration says.
_HEAD_DROPOUT = 0.1
# Counts whose sum over the effective batch the loss is divided by.
BATCH_TOTALS = ("tag_mask",)


class Tagger:
    """A tag of `num_tags`; see `head`. Features, int32 [B, F]: tag_ids, which prediction does without;
    tag_mask, 1 at the tokens that have a tag in training; word_mask, 1 at the first token of each word, whose
    tag is the word's.

    With `use_crf` the loss is that of a sequence's tags together (Lample et al. 2016, arXiv:1603.01360,
    section 2.2): "crf/transitions" [N, N] has the score of the tag of its column right after that of its row.
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
        find = _chained if self._use_crf else _each_by_itself
        losses, tags = find(logits, features.get("tag_ids"), features["tag_mask"])
        if mode == estimator.ModeKeys.PREDICT:
            words, tags = _at_the_front(features["word_mask"], tags)
            loss = {} if losses is None else {"loss": losses}
            return head.HeadOutputs(predictions={"tags": tags, "num_words": words, **loss})
        # The sum over the whole step: its micro-batches may differ in their numbers of words.
        total = features.get("tag_mask_total", tf.reduce_sum(features["tag_mask"]))
        total = tf.maximum(tf.cast(total, tf.float32), 1.0)
        return head.HeadOutputs(micro_batches * tf.reduce_sum(losses) / total, is_divided_by_total=True)


def head_shapes(bert_config, num_tags, use_crf=False):
    """The variables that a tagger adds to the encoder: {name: shape}."""
    found = {"output_weights": (num_tags, bert_config.hidden_size), "output_bias": (num_tags,)}
    return {**found, "crf/transitions": (num_tags, num_tags)} if use_crf else found


def _each_by_itself(logits, tag_ids, tag_mask):
    """Scores [B, F, N], tags and mask [B, F] to (losses, sums over a sequence's tokens [B]; tags [B, F]).
    Without tags there are no losses."""
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    if tag_ids is None:
        return None, best
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tag_ids, logits=logits)
    return tf.reduce_sum(losses * tf.cast(tag_mask, tf.float32), axis=1), best


def _chained(logits, tag_ids, tag_mask):
    """Like `_each_by_itself`, with a chain through the tokens of the mask, past those between them."""
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
    """The places of a mask's ones in each row, then those of its zeros: int32 [B, F]."""
    return tf.argsort(1 - mask, axis=1, stable=True)


def _at_the_front(mask, values):
    """Returns (how many places of each row a mask has [B], the values with those there first [B, F])."""
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
