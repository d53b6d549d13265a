"""The heads of text models and their targets: losses agree with NumPy, and labels are read as written."""

import types

from helpers import FixedEncoder, WordTokenizer
import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks import head
from bertlib.tasks.classification import classification_head, classification_target, classifier_features
import modeling
import run_classifier

NAMES = ["blue", "green", "red"]
WEIGHTS, SMOOTHING = [0.5, 1.25, 2.0], 0.1
POOLED = np.random.RandomState(5).standard_normal((7, 4))
CLASSES = np.random.RandomState(6).randint(0, 3, 7).astype(np.int32)


@pytest.fixture(autouse=True)
def without_dropout(monkeypatch):
    monkeypatch.setattr(head, "_DROPOUT", 0.0)


def built(text_head, labels=CLASSES, mode=estimator.ModeKeys.EVAL):
    """Returns (loss, prediction, logits [7, outputs] by NumPy) of a head on `POOLED`."""
    with tf.Graph().as_default(), tf.Session() as session:
        outputs = text_head.build(None, FixedEncoder(POOLED), {"label_ids": tf.constant(labels)}, mode, 1)
        variables = {variable.op.name: variable for variable in tf.trainable_variables()}
        shapes = {name: tuple(variable.shape.as_list()) for name, variable in variables.items()}
        assert shapes == text_head.shapes(modeling.BertConfig(9, hidden_size=4))
        values = {name: np.random.RandomState(7).standard_normal(shape) for name, shape in shapes.items()}
        for name, value in values.items():
            variables[name].load(value, session)
        loss, prediction = session.run([outputs.loss, outputs.predictions[text_head.output]])
    return loss, prediction, POOLED @ values["output_weights"].T + values["output_bias"]


# --- Losses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode, weights, smoothing", [
    (estimator.ModeKeys.TRAIN, None, 0.0), (estimator.ModeKeys.TRAIN, WEIGHTS, SMOOTHING),
    (estimator.ModeKeys.EVAL, WEIGHTS, SMOOTHING)])
def test_the_loss_of_classes_is_weighted_and_smoothed_in_training(mode, weights, smoothing):
    loss, _, logits = built(classification_head.Classifier(3, weights, smoothing), mode=mode)
    if mode == estimator.ModeKeys.EVAL:  # the plain cross-entropy
        weights, smoothing = None, 0.0
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = (1 - smoothing) * np.eye(3)[CLASSES] + smoothing / 3
    losses = -(targets * logs).sum(axis=1) * (np.array(weights)[CLASSES] if weights else 1)
    np.testing.assert_allclose(loss, losses.sum() / len(CLASSES), rtol=1e-5)


def test_the_loss_of_several_labels_is_the_mean_binary_cross_entropy():
    labels = np.random.RandomState(0).randint(0, 2, (7, 3)).astype(np.int32)
    loss, probabilities, logits = built(classification_head.MultilabelClassifier(3), labels)
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    losses = [sklearn_metrics.log_loss(*columns, labels=[0, 1]) for columns in zip(labels.T, expected.T)]
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-5)


def test_the_loss_of_scores_is_the_mean_squared_error():
    labels = np.linspace(0, 5, 7, dtype=np.float32)
    loss, scores, logits = built(classification_head.Regressor(), labels)
    np.testing.assert_allclose(scores, logits[:, 0], rtol=1e-5)
    np.testing.assert_allclose(loss, np.square(logits[:, 0] - labels).mean(), rtol=1e-5)


# --- Labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target, labels, expected", [
    (classification_target.MultiLabel(NAMES), [("red",), (), ("red", "blue")],
     [[0, 0, 1], [0, 0, 0], [1, 0, 1]]),
    (classification_target.Score(), [0.0, 2.6, 5.0], np.float32([0.0, 2.6, 5.0]).tolist())])
def test_labels_are_read_from_files_as_they_were_written(target, labels, expected, tmp_path, graph):
    examples = [classifier_features.InputExample(f"train-{index}", "a b", "c", label)
                for index, label in enumerate(labels)]
    path = str(tmp_path / "eval.tf_record")
    classifier_features.file_based_convert_examples_to_features(examples, target, 8, WordTokenizer(), path)
    input_fn = run_classifier.file_based_input_fn_builder(path, 8, False, False, target=target)
    batch = tf.data.make_one_shot_iterator(input_fn({"batch_size": 3})).get_next()
    with tf.Session() as session:
        assert session.run(batch)["label_ids"].tolist() == expected
    padding = classifier_features.convert_single_example(
        9, classifier_features.PaddingInputExample(), target, 8, WordTokenizer())
    assert padding.label_id == np.zeros_like(expected[0]).tolist() and not padding.is_real_example


def test_features_of_an_own_class_need_no_is_real_example(graph):
    features = [types.SimpleNamespace(input_ids=[1, 2], input_mask=[1, 1], segment_ids=[0, 0], label_id=0)]
    dataset = run_classifier.input_fn_builder(features * 2, 2, False, False)({"batch_size": 2})
    with tf.Session() as session:
        batch = session.run(tf.data.make_one_shot_iterator(dataset).get_next())
    assert batch["is_real_example"].tolist() == [1, 1]


@pytest.mark.parametrize("target, label, expected", [
    (classification_target.MultiLabel(NAMES), ("red", "pink"), "label 'pink' is not one of blue, green, red"),
    (classification_target.create_target(None), "pink", "the label 'pink' is not a finite number")])
def test_a_label_that_is_none_of_the_target_is_refused(target, label, expected):
    example = classifier_features.InputExample("train-3", "a", "b", label)
    with pytest.raises(ValueError, match=f"example train-3: {expected}"):
        classifier_features.convert_single_example(9, example, target, 8, WordTokenizer())
