"""The head with one output: its loss and its labels."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks.classification import classification_head, classifier_features, text_targets
import modeling


class FixedModel:
    """A fake BERT with a fixed pooled output."""

    def __init__(self, pooled):
        self._pooled = tf.constant(pooled, tf.float32)

    def get_pooled_output(self):
        return self._pooled


def test_the_loss_is_the_mean_squared_error_of_one_linear_output(graph):
    pooled = np.random.RandomState(0).standard_normal((3, 4))
    labels = np.array([0.0, 2.5, 5.0], np.float32)
    head = classification_head.Regressor()
    outputs = head.build(None, FixedModel(pooled), {"label_ids": tf.constant(labels)},
                         estimator.ModeKeys.EVAL, 1)
    config = modeling.BertConfig(9, hidden_size=4)
    variables = {variable.op.name: variable for variable in tf.trainable_variables()}
    shapes = {name: tuple(variable.shape.as_list()) for name, variable in variables.items()}
    assert shapes == head.shapes(config)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        variables["output_bias"].load([1.5], session)
        weights, loss, scores = session.run([variables["output_weights"], outputs.loss,
                                             outputs.predictions["scores"]])
    expected = pooled @ weights[0] + 1.5
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    np.testing.assert_allclose(loss, np.square(expected - labels).mean(), rtol=1e-6)


class Words:
    """A tokenizer that splits at spaces. The id of a token is its length."""

    def tokenize(self, text):
        return text.split()

    def convert_tokens_to_ids(self, tokens):
        return [len(token) for token in tokens]


@pytest.mark.parametrize("in_files", [True, False])
def test_labels_are_read_as_the_numbers_that_they_are(in_files, tmp_path, graph):
    examples = [classifier_features.InputExample(f"train-{index}", "a b", "c", label)
                for index, label in enumerate([0.0, 2.6, 5.0])]
    if in_files:
        path = str(tmp_path / "eval.tf_record")
        classifier_features.file_based_convert_examples_to_features(examples, None, 8, Words(), path)
        input_fn = classification_head.file_based_input_fn_builder(path, 8, False, False,
                                                                   target=text_targets.Score())
    else:
        features = classifier_features.convert_examples_to_features(examples, None, 8, Words())
        input_fn = classification_head.input_fn_builder(features, 8, False, False)
    batch = tf.data.make_one_shot_iterator(input_fn({"batch_size": 3})).get_next()
    with tf.Session() as session:
        labels = session.run(batch)["label_ids"]
    assert labels.dtype == np.float32 and labels.tolist() == np.float32([0.0, 2.6, 5.0]).tolist()


def test_a_label_that_is_no_number_is_refused():
    example = classifier_features.InputExample("train-3", "a", "b", "much")
    with pytest.raises(ValueError, match=r"example train-3: the label 'much' is not a finite number"):
        classifier_features.convert_single_example(9, example, None, 8, Words())
    padding = classifier_features.convert_single_example(
        9, classifier_features.PaddingInputExample(), None, 8, Words())
    assert isinstance(padding.label_id, float) and not padding.is_real_example
