"""Class weights and label smoothing: the loss agrees with NumPy, and does not depend on the micro-batches."""

import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks.classification import classification_head

WEIGHTS, SMOOTHING = [0.5, 1.25, 2.0], 0.1


class FixedModel:
    """A fake BERT with a fixed pooled output."""

    def __init__(self, pooled):
        self._pooled = tf.constant(pooled, tf.float32)

    def get_pooled_output(self):
        return self._pooled


def built(mode, **arguments):
    """Returns (loss, logits, labels, graph) of a head on random outputs. Dropout is off."""
    generator = np.random.RandomState(5)
    labels = generator.randint(0, 3, 7).astype(np.int32)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        pooled = generator.standard_normal((7, 4))
        outputs = classification_head.Classifier(3, **arguments).build(
            None, FixedModel(pooled), {"label_ids": tf.constant(labels)}, mode, 1)
        session.run(tf.global_variables_initializer())
        weights = tf.trainable_variables()[0]
        weights.load(generator.standard_normal((3, 4)), session)
        loss, kernel = session.run([outputs.loss, weights])
    return loss, pooled @ kernel.T, labels, graph


@pytest.fixture(autouse=True)
def without_dropout(monkeypatch):
    monkeypatch.setattr(classification_head, "_HEAD_DROPOUT", 0.0)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, SMOOTHING])
def test_the_loss_of_training_is_weighted_and_smoothed(weights, smoothing):
    loss, logits, labels, _ = built(estimator.ModeKeys.TRAIN, class_weights=weights,
                                    label_smoothing=smoothing)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = (1 - smoothing) * np.eye(3)[labels] + smoothing / 3
    losses = -(targets * logs).sum(axis=1)
    if weights:
        losses *= np.array(weights)[labels]
    np.testing.assert_allclose(loss, losses.sum() / len(labels), rtol=1e-5)


def test_the_loss_of_an_evaluation_is_the_plain_cross_entropy():
    loss, logits, labels, _ = built(estimator.ModeKeys.EVAL, class_weights=WEIGHTS, label_smoothing=SMOOTHING)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(loss, -logs[np.arange(len(labels)), labels].mean(), rtol=1e-5)


def test_without_them_the_graph_is_the_published_one():
    graphs = [built(estimator.ModeKeys.TRAIN, **arguments)[3].as_graph_def() for arguments in (
        {}, dict(class_weights=None, label_smoothing=0.0), dict(label_smoothing=SMOOTHING))]
    assert graphs[0] == graphs[1] != graphs[2]
    with tf.Graph().as_default() as graph:
        classification_head.classify(tf.constant(np.zeros((7, 4), np.float32)), tf.constant([0] * 7), 3, True)
    published = [node.op for node in graph.as_graph_def().node]
    # The graph begins with the published ops. After them, it has ops for the evaluation: which examples are
    # real.
    assert [node.op for node in graphs[0].node][:len(published)] == published


def test_features_of_an_own_class_need_no_is_real_example():
    features = [types.SimpleNamespace(input_ids=[1, 2], input_mask=[1, 1], segment_ids=[0, 0], label_id=0)]
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = classification_head.input_fn_builder(features * 2, 2, False, False)({"batch_size": 2})
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        assert session.run(batch["is_real_example"]).tolist() == [1, 1]
