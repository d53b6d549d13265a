"""The head with a sigmoid for each label, and the targets, which convert labels and predictions."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
import tensorflow.compat.v1 as tf
from test_regression import FixedModel, Words

from bertlib.estimator import estimator
from bertlib.tasks.classification import classification_head, classifier_features, text_targets
import modeling

NAMES = ["blue", "green", "red"]


def test_the_loss_is_the_mean_binary_cross_entropy_and_variables_are_called_as_a_classifiers(graph):
    pooled = np.random.RandomState(0).standard_normal((4, 5))
    labels = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], np.int32)
    head = classification_head.MultilabelClassifier(3)
    outputs = head.build(None, FixedModel(pooled), {"label_ids": tf.constant(labels)},
                         estimator.ModeKeys.EVAL, 1)
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    shapes = {name: tuple(variable.shape.as_list()) for name, variable in variables.items()}
    config = modeling.BertConfig(9, hidden_size=5)
    assert shapes == head.shapes(config) == classification_head.Classifier(3).shapes(config)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        variables["output_bias"].load([1.5, 0, -1], session)
        weights, loss, probabilities = session.run([variables["output_weights"], outputs.loss,
                                                    outputs.predictions["probabilities"]])
    expected = 1 / (1 + np.exp(-(pooled @ weights.T + [1.5, 0, -1])))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)
    losses = [sklearn_metrics.log_loss(labels[:, label], expected[:, label], labels=[0, 1])
              for label in range(3)]
    np.testing.assert_allclose(loss, np.mean(losses), rtol=1e-6)


# --- Targets ---------------------------------------------------------------------------------------------


def test_labels_are_read_as_a_0_or_1_for_each(tmp_path, graph):
    target = text_targets.MultiLabel(NAMES)
    examples = [classifier_features.InputExample(f"train-{index}", "a b", None, label)
                for index, label in enumerate([("red",), (), ("red", "blue")])]
    path = str(tmp_path / "eval.tf_record")
    classifier_features.file_based_convert_examples_to_features(examples, target, 8, Words(), path)
    input_fn = classification_head.file_based_input_fn_builder(path, 8, False, False, target=target)
    batch = tf.data.make_one_shot_iterator(input_fn({"batch_size": 3})).get_next()
    with tf.Session() as session:
        assert session.run(batch)["label_ids"].tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 1]]
    padding = classifier_features.convert_single_example(
        9, classifier_features.PaddingInputExample(), target, 8, Words())
    assert padding.label_id == [0, 0, 0] and not padding.is_real_example


def test_the_best_of_a_prediction():
    probabilities = np.array([0.25, 0.5, 0.3], np.float32)
    assert text_targets.create_target(NAMES).predicted_label(probabilities) == "green"
    assert text_targets.MultiLabel(NAMES, 0.3, "|").predicted_label(probabilities) == "green|red"
    assert text_targets.MultiLabel(NAMES, 0.6).predicted_label(probabilities) == ""
    assert text_targets.create_target(None).predicted_label(np.float32(2.5)) == 2.5
    target = text_targets.MultiLabel(NAMES)
    assert text_targets.create_target(target) is target
    assert target.encode_label(["red", "red"]) == [0, 0, 1]
    assert text_targets.create_target(NAMES).default_label == "blue"


@pytest.mark.parametrize("target, label, expected", [
    (text_targets.create_target(NAMES), "pink", "label 'pink' is not one of blue, green, red"),
    (text_targets.MultiLabel(NAMES), ("red", "pink"), "label 'pink' is not one of blue, green, red"),
    (text_targets.create_target(None), "pink", "the label 'pink' is not a finite number")])
def test_a_label_that_is_none_of_the_target_is_refused(target, label, expected):
    with pytest.raises(ValueError, match=expected):
        target.encode_label(label)
