"""Predicts a tag for each word of a sentence. The model is BERT with a linear layer on each token, and
optionally a CRF."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.graph import crf
from bertlib.tasks import head
import modeling

# Name of a feature. The loss of an effective batch is divided by the sum of this feature over the batch.
BATCH_TOTALS = ("tag_mask",)


class Tagger(head.Head):
    """Head that predicts one of `num_tags` tags for each word. See the module `head`.

    The features are int32 [B, F]. tag_ids contains the tags of the tokens, and is not needed in prediction.
    tag_mask is 1 at the tokens whose tags are used in the loss. word_mask is 1 at the first token of each
    word. The tag of a word is the tag of the word's first token.

    The predictions for a sequence are num_words, tags and probabilities. num_words is the number of words W
    in the sequence. Only the first W values of tags and probabilities have a meaning. The probability of a
    tag is computed from the scores of all tags with a softmax. With a CRF, it is the marginal probability of
    the tag.

    With `use_crf`, the loss is computed for the whole sequence of tags (Lample et al. 2016, arXiv:1603.01360,
    section 2.2). The variable "crf/transitions" [N, N] contains the score of each transition from one tag
    (the row) to the next tag (the column).
    """

    batch_totals, padding_is_removable = BATCH_TOTALS, True

    def __init__(self, num_tags, use_crf=False):
        self._num_tags, self._use_crf = num_tags, use_crf

    def shapes(self, bert_config):
        size = self._num_tags
        shapes = {"output_weights": (size, bert_config.hidden_size), "output_bias": (size,)}
        return {**shapes, "crf/transitions": (size, size)} if self._use_crf else shapes

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        sequence = head.apply_dropout(encoder.get_sequence_output(), mode == estimator.ModeKeys.TRAIN,
                                      encoder)
        logits = head.token_logits(sequence, self._num_tags)
        tag = _tag_with_crf if self._use_crf else _tag_independently
        predicts = mode == estimator.ModeKeys.PREDICT
        losses, tags, probabilities = tag(logits, features.get("tag_ids"), features["tag_mask"], predicts)
        if predicts:
            words = features["word_mask"]
            order = _order(words)
            loss = {} if losses is None else {"loss": losses}
            return head.HeadOutputs(predictions={
                "tags": tf.gather(tags, order, batch_dims=1), "num_words": tf.reduce_sum(words, axis=1),
                "probabilities": tf.gather(probabilities, order, batch_dims=1), **loss})
        # The loss is divided by the number of tags in the effective batch, because the number of tags may
        # differ between micro-batches.
        total = features.get("tag_mask_total", tf.reduce_sum(features["tag_mask"]))
        total = tf.maximum(tf.cast(total, tf.float32), 1.0)
        return head.HeadOutputs(num_micro_batches * tf.reduce_sum(losses) / total, is_divided_by_total=True)

    def simulated(self):
        # The loops of a CRF need almost no memory compared with the encoder.
        return Tagger(self._num_tags)

    def exported_features(self, features):
        # Every token counts as a word, so the head predicts a tag for every token.
        every_token = tf.ones_like(features["input_ids"])
        return {**features, "tag_mask": features.get("word_mask", every_token), "word_mask": every_token}

    def exported_outputs(self, model, predictions, features):
        return {"tags": tf.where(features["input_mask"] * features["tag_mask"] > 0,
                                 tf.gather(tf.constant(model.labels), predictions["tags"]),
                                 tf.fill(tf.shape(predictions["tags"]), ""))}


def _tag_independently(logits, tag_ids, tag_mask, with_probabilities):
    """Predicts the tag of each token independently of the tags of the other tokens.

    Args:
      logits: float32 [B, F, N].
      tag_ids: int32 [B, F], the right tags, or None.
      tag_mask: int32 [B, F].
      with_probabilities: whether to compute the probabilities.

    Returns:
      three values: the loss of each sequence, summed over its tokens, float32 [B] (None if tag_ids is None);
      the predicted tags, int32 [B, F]; and the probabilities of these tags, float32 [B, F] (None without
      `with_probabilities`).
    """
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    probabilities = tf.gather(tf.nn.softmax(logits), best, batch_dims=2) if with_probabilities else None
    if tag_ids is None:
        return None, best, probabilities
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tag_ids, logits=logits)
    return tf.reduce_sum(losses * tf.cast(tag_mask, tf.float32), axis=1), best, probabilities


def _tag_with_crf(logits, tag_ids, tag_mask, with_probabilities):
    """Predicts the best sequence of tags with a CRF; see `_tag_independently`.

    The chain of the CRF contains only the tokens at which tag_mask is 1. For example, if tag_mask is 1 only
    at the first piece of each word, a transition leads from the first piece of a word to the first piece of
    the next word.
    """
    num_tags = modeling.get_shape_list(logits)[2]
    with tf.variable_scope("crf"):
        transitions = tf.get_variable("transitions", [num_tags, num_tags], initializer=tf.zeros_initializer())
    order = _order(tag_mask)
    scores, lengths = tf.gather(logits, order, batch_dims=1), tf.reduce_sum(tag_mask, axis=1)
    tags, _ = crf.crf_decode(scores, transitions, lengths)
    in_place, probabilities = tf.argsort(order), None
    if with_probabilities:
        marginals = crf.crf_marginals(scores, lengths, transitions)
        probabilities = tf.gather(tf.gather(marginals, tags, batch_dims=2), in_place, batch_dims=1)
    tags = tf.gather(tags, in_place, batch_dims=1)
    if tag_ids is None:
        return None, tags, probabilities
    chain = tf.gather(tag_ids, order, batch_dims=1)
    likelihood, _ = crf.crf_log_likelihood(scores, chain, lengths, transitions)
    return -likelihood, tags, probabilities


def _order(mask):
    """Sorts the positions of each row of a mask: first the positions of the ones, then the positions of the
    zeros. Returns the positions as int32 [B, F]."""
    return tf.argsort(1 - mask, axis=1, stable=True)
