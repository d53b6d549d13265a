"""Metrics of the pre-training, computed from NumPy arrays."""

import numpy as np


def evaluate(batches, vocab_size):
    """Returns the metrics of both heads, {name: number}.

    The published metrics are masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and
    next_sentence_loss. An additional metric is masked_lm_baseline, the accuracy of a model that always
    predicts the most frequent masked word. Only sums are kept, so the memory does not depend on the number of
    batches.

    Args:
      batches: iterable of the predictions of `pretraining_head.PretrainingHead` for each batch.
      vocab_size: int.
    """
    counts, hits, loss = np.zeros(vocab_size), 0.0, 0.0  # counts: weights of the masked words, by word
    examples, right, next_sentence_loss = 0, 0, 0.0
    for batch in batches:
        ids, weights = batch["masked_lm_ids"], batch["masked_lm_weights"].astype(np.float64)
        counts += np.bincount(ids.ravel(), weights.ravel(), vocab_size)
        hits += weights[batch["masked_lm_words"] == ids].sum()
        loss += (weights * batch["masked_lm_losses"]).sum()
        examples += len(ids)
        right += np.count_nonzero(batch["next_sentence_predictions"] == batch["next_sentence_labels"].ravel())
        next_sentence_loss += batch["next_sentence_losses"].sum(dtype=np.float64)
    masked = counts.sum() or 1.0
    return {"masked_lm_accuracy": hits / masked, "masked_lm_baseline": counts.max() / masked,
            "masked_lm_loss": loss / masked, "next_sentence_accuracy": right / examples,
            "next_sentence_loss": next_sentence_loss / examples}
