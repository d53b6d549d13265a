"""The head with one output: its loss, and its metrics, which agree with SciPy for any size of batches."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics
import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks.classification import classification_head, classifier_features, regression_head, targets
import modeling


def evaluated(metric_fn, arrays, batch_size):
    """Returns {name: value} of streaming metrics after all batches."""
    with tf.Graph().as_default():
        placeholders = [tf.placeholder(array.dtype, [None, *array.shape[1:]]) for array in arrays]
        metrics = metric_fn(*placeholders)
        with tf.Session() as session:
            session.run(tf.local_variables_initializer())
            for start in range(0, len(arrays[0]), batch_size):
                session.run([update for _, update in metrics.values()],
                            dict(zip(placeholders, [array[start:start + batch_size] for array in arrays])))
            return session.run({name: value for name, (value, _) in metrics.items()})


def scored(examples, ties):
    """Returns (labels, scores, weights). Many labels are equal, and the scores are near the labels.

    A fifth of the examples is padding.
    """
    generator = np.random.RandomState(examples)
    labels = generator.randint(0, 26, examples).astype(np.float32) / 5
    scores = (labels + generator.standard_normal(examples)).astype(np.float32)
    if ties:
        scores = np.round(scores)
    return labels, scores, (generator.random_sample(examples) < 0.8).astype(np.float32)


@pytest.mark.parametrize("scores, said", [
    ([2.0, 2.0, 2.001], True), ([2.0] * 3, True), ([2.0, 2.1, 2.2], False), ([np.nan] * 3, False)])
def test_it_is_said_if_scores_are_almost_constant(scores, said):
    warning = regression_head.constant_scores_warning([0.0, 1.0, 5.0], scores)
    assert (warning is not None) == said
    assert not said or "but the labels are between 0 and 5" in warning
    assert regression_head.constant_scores_warning([3.0] * 3, [2.0] * 3) is None


@pytest.mark.parametrize("batch_size", [1, 7, 40])
@pytest.mark.parametrize("ties", [False, True])
def test_correlations_are_those_of_scipy_whatever_the_batches(batch_size, ties):
    labels, scores, weights = scored(40, ties)
    found = evaluated(regression_head.metric_fn, [np.square(scores - labels), labels, scores, weights],
                      batch_size)
    real = weights > 0
    expected = {"eval_pearson": stats.pearsonr(labels[real].astype(float), scores[real].astype(float))[0],
                "eval_spearman": stats.spearmanr(labels[real], scores[real])[0],
                "eval_loss": sklearn_metrics.mean_squared_error(labels[real], scores[real])}
    assert set(found) == set(expected)
    for name in ("eval_pearson", "eval_spearman"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)
    np.testing.assert_allclose(found["eval_loss"], expected["eval_loss"], rtol=1e-6)


def test_constant_scores_correlate_with_nothing():
    labels = np.arange(5, dtype=np.float32)
    found = evaluated(regression_head.metric_fn,
                      [labels, labels, np.full_like(labels, 2.5), np.ones_like(labels)],
                      2)
    assert found["eval_pearson"] == found["eval_spearman"] == 0


def test_ranks_are_those_of_scipy(graph):
    values = np.array([3, 1, 3, 3, -2, 1, 9], np.float64)
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(regression_head.ranks(tf.constant(values))),
                                      stats.rankdata(values))


class FixedModel:
    """A fake BERT with a fixed pooled output."""

    def __init__(self, pooled):
        self._pooled = tf.constant(pooled, tf.float32)

    def get_pooled_output(self):
        return self._pooled


def test_the_loss_is_the_mean_squared_error_of_one_linear_output(graph):
    pooled = np.random.RandomState(0).standard_normal((3, 4))
    labels = np.array([0.0, 2.5, 5.0], np.float32)
    head = regression_head.Regressor()
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
                                                                   target=targets.Score())
    else:
        features = classifier_features.convert_examples_to_features(examples, None, 8, Words())
        input_fn = classification_head.input_fn_builder(features, 8, False, False)
    batch = tf.data.make_one_shot_iterator(input_fn({"batch_size": 3})).get_next()
    with tf.Session() as session:
        labels = session.run(batch)["label_ids"]
    assert labels.dtype == np.float32 and labels.tolist() == np.float32([0.0, 2.6, 5.0]).tolist()


def test_a_label_that_is_no_number_is_refused():
    example = classifier_features.InputExample("train-3", "a", "b", "much")
    with pytest.raises(ValueError, match=r"example train-3: the label 'much' is not a number"):
        classifier_features.convert_single_example(9, example, None, 8, Words())
    padding = classifier_features.convert_single_example(
        9, classifier_features.PaddingInputExample(), None, 8, Words())
    assert isinstance(padding.label_id, float) and not padding.is_real_example
