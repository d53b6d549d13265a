"""tagging_head.py: the loss over tagged tokens with and without a CRF, micro-batches, and predictions."""

import itertools
import types

from helpers import FixedEncoder
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.estimator import estimator
from bertlib.tasks.tagging import tagging_head, tagging_target
import modeling

LABELS = ["B-A", "B-B", "O"]
CONFIG = modeling.BertConfig.from_dict({**tiny.CONFIG, "num_hidden_layers": 1, "hidden_dropout_prob": 0.0,
                                        "attention_probs_dropout_prob": 0.0})
both = pytest.mark.parametrize("use_crf", [False, True], ids=["each", "crf"])

# --- Loss and predictions of one batch -------------------------------------------------------------------


BATCH, LENGTH, WIDTH = 3, 6, 5


def example():
    """Returns (last layer, weights, transitions, features)."""
    chance = np.random.RandomState(2)
    mask = np.array([[0, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0]], np.int32)
    features = {"tag_ids": chance.randint(0, 3, [BATCH, LENGTH]).astype(np.int32), "tag_mask": mask,
                "word_mask": mask * np.array([1, 1, 1, 1, 0, 1], np.int32)}
    return (*(chance.standard_normal(shape).astype(np.float32)
              for shape in ([BATCH, LENGTH, WIDTH], [3, WIDTH], [3, 3])), features)


def built(mode, use_crf, micro_batches=1, **more):
    """Returns (values of the head's outputs for `example`, {variable of the head: shape})."""
    sequence, weights, transitions, features = example()
    with tf.Graph().as_default(), tf.Session() as session:
        features = {name: tf.constant(value) for name, value in {**features, **more}.items()}
        outputs = tagging_head.Tagger(3, use_crf).build(CONFIG, FixedEncoder(sequence=sequence), features,
                                                        mode, micro_batches)
        session.run(tf.global_variables_initializer())
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        variables["output_weights"].load(weights, session)
        if use_crf:
            variables["crf/transitions"].load(transitions, session)
        found = dict(outputs.predictions) if outputs.loss is None else {"loss": outputs.loss}
        shapes = {name: tuple(variable.shape.as_list()) for name, variable in variables.items()}
        return session.run(found), shapes


def by_counting(use_crf):
    """Yields, for each sequence, its loss, and {place of a tagged token: (best tag, its probability)}.

    They are found by enumerating all sequences of tags. The best tag is that of the best sequence.
    """
    sequence, weights, transitions, features = example()
    for row in range(BATCH):
        places = np.flatnonzero(features["tag_mask"][row])
        scores = (sequence[row] @ weights.T)[places].astype(np.float64)
        totals, sums = {}, np.zeros([len(places), 3])
        for tags in itertools.product(range(3), repeat=len(places)):
            score = scores[np.arange(len(places)), tags].sum()
            score += sum(transitions[pair] for pair in zip(tags, tags[1:])) if use_crf else 0
            totals[tags] = score
            sums[np.arange(len(places)), tags] += np.exp(score)
        right = tuple(features["tag_ids"][row, places].tolist())
        norm, best = sums[0].sum(), max(totals, key=totals.get)
        yield np.log(norm) - totals[right], {place: (tag, shares[tag] / norm)
                                             for place, tag, shares in zip(places.tolist(), best, sums)}


@both
def test_predictions_are_the_best_tags_of_the_words_and_their_probabilities(use_crf):
    found, shapes = built(estimator.ModeKeys.PREDICT, use_crf)
    assert shapes == tagging_head.Tagger(3, use_crf).shapes(modeling.BertConfig(9, hidden_size=WIDTH))
    for row, (loss, best) in enumerate(by_counting(use_crf)):
        words = np.flatnonzero(example()[3]["word_mask"][row]).tolist()
        assert found["num_words"][row] == len(words)
        assert found["tags"][row, :len(words)].tolist() == [best[place][0] for place in words]
        np.testing.assert_allclose(found["probabilities"][row, :len(words)],
                                   [best[place][1] for place in words], rtol=1e-5)
        assert found["loss"][row] == pytest.approx(loss, rel=1e-5)


def test_the_tags_of_an_export_have_the_scheme_of_the_model():
    model = types.SimpleNamespace(setting={"tag_scheme": "IOB1"}.get)
    tags = tagging_target.TaggedText(model).complete_tags(["B-PER", "I-PER", "B-PER", "O"])
    assert tags == ["I-PER", "I-PER", "B-PER", "O"]


@both
def test_the_loss_is_a_mean_over_the_tagged_tokens_of_the_step(use_crf, monkeypatch):
    monkeypatch.setattr(modeling, "dropout", lambda tensor, *_: tensor)
    losses = [loss for loss, _ in by_counting(use_crf)]
    found, _ = built(estimator.ModeKeys.TRAIN, use_crf)
    assert found["loss"] == pytest.approx(sum(losses) / example()[3]["tag_mask"].sum(), rel=1e-5)
    found, _ = built(estimator.ModeKeys.TRAIN, use_crf, 4, tag_mask_total=np.int32(30))
    assert found["loss"] == pytest.approx(4 * sum(losses) / 30, rel=1e-5)
