"""Class weights and label smoothing: the loss agrees with NumPy, and does not depend on the micro-batches."""

import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
import tiny

from bertlib.data import input_pipeline
from bertlib.estimator import estimator
from bertlib.estimator.step_config import StepConfig
from bertlib.tasks import head
from bertlib.tasks.classification import classification_head
import modeling

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


def trained(directory, **changes):
    """Returns the weights after two steps of 8 examples. Their lengths and labels differ."""
    generator = np.random.RandomState(1)
    lengths = generator.randint(3, 13, 24)
    mask = (np.arange(12) < lengths[:, None]).astype(np.int32)
    arrays = {"input_ids": generator.randint(5, len(tiny.VOCABULARY), (24, 12)).astype(np.int32) * mask,
              "input_mask": mask, "segment_ids": np.zeros_like(mask),
              "label_ids": (np.arange(24) % 3).astype(np.int32)}
    step = StepConfig(train_batch_size=8, max_seq_length=12, trims_training=True, **changes)
    config = modeling.BertConfig.from_dict({**tiny.CONFIG, "num_hidden_layers": 1, "hidden_dropout_prob": 0.0,
                                            "attention_probs_dropout_prob": 0.0})
    model_fn = head.model_fn_builder(classification_head.Classifier(3, WEIGHTS, SMOOTHING), config, None,
                                     0.01, 2, 0, False, False)

    def input_fn(params):
        return input_pipeline.array_dataset(
            arrays, params["batch_size"], True, True, params["gradient_accumulation_steps"],
            trimmed_fields=("input_mask", "input_ids", "segment_ids"),
            unequal_micro_batches=step.unequal_micro_batches)

    model = estimator.Estimator(model_fn, config=estimator.RunConfig(model_dir=str(directory),
                                                                     step_config=step), train_batch_size=8)
    model.train(input_fn, max_steps=2)
    return {name: model.get_variable_value(name) for name in model.get_variable_names()
            if name.startswith("output") or name.endswith("query/kernel")}


@pytest.mark.slow(reason="trains twice; test_accumulation.py has equal parts, test_token_batches.py unequal "
                         "ones")
@pytest.mark.parametrize("changes", [
    pytest.param({}, marks=pytest.mark.soak(reason="trains twice more")),
    {"tokens_per_micro_batch": 60}], ids=["equal", "unequal"])
def test_a_step_is_the_same_one_in_parts(changes, tmp_path):
    whole = trained(tmp_path / "whole")
    parts = trained(tmp_path / "parts", gradient_accumulation_steps=2, **changes)
    assert len(parts) > 4
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_features_of_an_own_class_need_no_is_real_example():
    features = [types.SimpleNamespace(input_ids=[1, 2], input_mask=[1, 1], segment_ids=[0, 0], label_id=0)]
    with tf.Graph().as_default(), tf.Session() as session:
        dataset = classification_head.input_fn_builder(features * 2, 2, False, False)({"batch_size": 2})
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
        assert session.run(batch["is_real_example"]).tolist() == [1, 1]
