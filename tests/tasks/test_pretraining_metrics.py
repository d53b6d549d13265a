"""Metrics of the pre-training, which are sums over batches."""

import numpy as np

from bertlib.tasks.pretraining import pretraining_task

VOCAB_SIZE = 30


def batch(chance, size):
    """Returns the predictions for a batch. Half of its masked positions are padding."""
    return {"masked_lm_ids": chance.integers(0, VOCAB_SIZE, (size, 4), np.int32),
            "masked_lm_words": chance.integers(0, 2, (size, 4), np.int32),
            "masked_lm_weights": chance.integers(0, 2, (size, 4)).astype(np.float32),
            "masked_lm_losses": chance.random((size, 4), np.float32),
            "next_sentence_losses": chance.random(size, np.float32),
            "next_sentence_predictions": chance.integers(0, 2, size, np.int32),
            "next_sentence_labels": chance.integers(0, 2, (size, 1), np.int32)}


def test_metrics_of_batches_are_those_of_all_examples():
    chance = np.random.default_rng(0)
    batches = [batch(chance, size) for size in (8, 8, 3)]
    found = pretraining_task.evaluate(iter(batches), VOCAB_SIZE)
    every = {name: np.concatenate([part[name] for part in batches]) for name in batches[0]}
    real = every["masked_lm_weights"] > 0
    ids = every["masked_lm_ids"][real]
    np.testing.assert_allclose(list(found.values()), [
        np.mean(every["masked_lm_words"][real] == ids), np.bincount(ids).max() / len(ids),
        np.mean(every["masked_lm_losses"][real], dtype=np.float64),
        np.mean(every["next_sentence_predictions"] == every["next_sentence_labels"][:, 0]),
        np.bincount(every["next_sentence_labels"][:, 0]).max() / 19,
        np.mean(every["next_sentence_losses"], dtype=np.float64)], rtol=1e-12)
    assert list(found) == ["masked_lm_accuracy", "masked_lm_baseline", "masked_lm_loss",
                           "next_sentence_accuracy", "next_sentence_baseline", "next_sentence_loss"]


def test_examples_without_a_masked_word_have_the_metrics_0():
    part = batch(np.random.default_rng(0), 2)
    part["masked_lm_weights"][:] = 0
    found = pretraining_task.evaluate([part], VOCAB_SIZE)
    assert found["masked_lm_accuracy"] == found["masked_lm_baseline"] == found["masked_lm_loss"] == 0
