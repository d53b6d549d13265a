"""Estimators with a built-in model: names of their variables, and losses, metrics and logits in NumPy."""

import numpy as np
from numpy.testing import assert_allclose
import pytest

import tf1 as tf

estimator = tf.estimator
RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 3)).astype(np.float32)
WEIGHTS = RNG.uniform(0.5, 2.0, 12).astype(np.float32)
CATEGORY = np.arange(12) % 3
COMBINED = estimator.DNNLinearCombinedClassifier
NAMES = {2: ["no", "yes"], 3: ["a", "b", "c"]}


def labels_of(n_classes):
    return (X[:, 0] > 0).astype(np.int64) + (n_classes > 2) * (X[:, 1] > 0.5)


def classifier(directory, n_classes, **more):
    columns = [tf.feature_column.numeric_column("x", shape=(3,))]
    return estimator.DNNClassifier([4, 5], columns, directory, n_classes, weight_column="weight",
                                   **more)


def inputs(n_classes, names=None):
    labels = labels_of(n_classes)
    labels = labels if names is None else np.array(names)[labels]
    return estimator.inputs.numpy_input_fn({"x": X, "weight": WEIGHTS}, labels, batch_size=6,
                                           num_epochs=None, shuffle=False)


def dnn_logits(model):
    value, h = model.get_variable_value, X
    for layer in ("hiddenlayer_0", "hiddenlayer_1"):
        h = np.maximum(h @ value(f"dnn/{layer}/kernel") + value(f"dnn/{layer}/bias"), 0)
    return h @ value("dnn/logits/kernel") + value("dnn/logits/bias")


def linear_logits(model):
    weights, bias = (model.get_variable_value(f"linear/linear_model/{name}")
                     for name in ("x/weights", "bias_weights"))
    return X @ weights + model.get_variable_value("linear/linear_model/c/weights")[CATEGORY] + bias


def test_it_learns_and_its_loss_and_metrics_are_those_of_its_weights(tmp_path):
    names = NAMES[2]
    model = classifier(tmp_path, 2, label_vocabulary=names, dropout=0.1)
    model.train(inputs(2, names), steps=60)
    assert set(model.get_variable_names()) == {"global_step", *(
        f"dnn/{layer}/{kind}{slot}" for layer in ("hiddenlayer_0", "hiddenlayer_1", "logits")
        for kind in ("kernel", "bias") for slot in ("", "/Adagrad"))}
    logits = np.hstack([np.zeros([12, 1]), dnn_logits(model)])
    truth, guess = labels_of(2), logits.argmax(1)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(12), truth]
    found = model.evaluate(inputs(2, names), steps=2)
    assert_allclose(found["accuracy"], np.average(guess == truth, weights=WEIGHTS), rtol=1e-5)
    assert_allclose(found["average_loss"], np.average(losses, weights=WEIGHTS), rtol=1e-4)
    # The loss of a batch is the sum over its examples, and the loss of the evaluation is the mean over the
    # batches.
    assert_allclose(found["loss"], (losses * WEIGHTS).sum() / 2, rtol=1e-4)
    assert found["accuracy"] > 0.8
    share = np.average(truth, weights=WEIGHTS)
    assert_allclose([found[name] for name in ("label/mean", "accuracy_baseline")],
                    [share, max(share, 1 - share)], rtol=1e-5)
    assert {"precision", "recall", "auc", "auc_precision_recall", "prediction/mean"} < set(found)
    predicted = list(model.predict(estimator.inputs.numpy_input_fn({"x": X}, shuffle=False)))
    assert [row["classes"].tolist() for row in predicted] == [[names[number].encode()] for number in guess]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert_allclose([row["probabilities"] for row in predicted], chances, rtol=1e-4)


@pytest.mark.slow(reason="trains once more")
def test_without_names_classes_are_numbers_and_it_is_exported(tmp_path):
    model = classifier(tmp_path / "model", 3, optimizer=lambda: tf.train.AdamOptimizer(0.01))
    model.train(inputs(3), steps=2)
    receiver = estimator.export.build_parsing_serving_input_receiver_fn(
        {"x": tf.FixedLenFeature([3], tf.float32)})
    path = model.export_saved_model(str(tmp_path / "export"), receiver).decode()
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend(X[0])
    found = tf.contrib.predictor.from_saved_model(path)({"inputs": [example.SerializeToString()] * 2})
    assert found["classes"].tolist() == [[b"0", b"1", b"2"]] * 2
    assert_allclose(found["scores"].sum(1), 1, rtol=1e-6)


def wide_columns():
    return [tf.feature_column.numeric_column("x", shape=(3,)),
            tf.feature_column.categorical_column_with_identity("c", 3)]


def trained_wide(model, n_classes, steps):
    x = {"x": X, "c": CATEGORY}
    model.train(estimator.inputs.numpy_input_fn(x, labels_of(n_classes), 12, None, shuffle=False),
                steps=steps)
    return np.array([row["logits"] for row in model.predict(
        estimator.inputs.numpy_input_fn(x, shuffle=False))])


LINEAR = {f"linear/linear_model/{name}{slot}" for name in ("x/weights", "c/weights", "bias_weights")
          for slot in ("", "/Ftrl", "/Ftrl_1")}


def test_a_linear_model_learns():
    model = estimator.LinearClassifier(wide_columns(), n_classes=3)
    logits = trained_wide(model, 3, 60)
    assert set(model.get_variable_names()) == {"global_step", *LINEAR}
    assert_allclose(logits, linear_logits(model), atol=1e-5)
    assert (logits.argmax(1) == labels_of(3)).mean() > 0.8


def test_a_wide_and_deep_model_adds_both_logits_and_trains_each_part_with_its_optimizer():
    wide, (deep, _) = wide_columns(), wide_columns()
    model = COMBINED(
        linear_feature_columns=wide, dnn_feature_columns=[deep], dnn_hidden_units=[4, 5])
    logits = trained_wide(model, 2, 1)
    assert set(model.get_variable_names()) == {"global_step", *LINEAR, *(
        f"dnn/{layer}/{kind}{slot}" for layer in ("hiddenlayer_0", "hiddenlayer_1", "logits")
        for kind in ("kernel", "bias") for slot in ("", "/Adagrad"))}
    assert_allclose(logits, dnn_logits(model) + linear_logits(model), atol=1e-5)
    # Both biases have the same gradient g. The first step of both optimizers is rate * g / sqrt(0.1 + g^2).
    bias = model.get_variable_value("dnn/logits/bias")
    assert bias != 0 and model.get_variable_value("global_step") == 1
    found = model.get_variable_value("linear/linear_model/bias_weights")
    assert_allclose(found, 5 * bias, rtol=1e-4)


@pytest.mark.parametrize(("make", "message"), [
    (COMBINED, "pass linear_feature_columns, dnn_feature_columns or both"),
    (lambda: COMBINED(dnn_feature_columns=["x"]), "needs dnn_hidden_units"),
    (lambda: COMBINED(linear_feature_columns=["x"], linear_optimizer="Adamax"), "unknown optimizer 'Adamax'"),
    (lambda: classifier(None, 3, label_vocabulary=["a"]), "n_classes is 3, but label_vocabulary has 1 names"),
    (lambda: classifier(None, 3, optimizer="Adamax"), "unknown optimizer 'Adamax'; the known names")])
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("n_classes", "names", "message"), [
    (2, None, "not less than n_classes"), (3, ["a", "b", "d"], "label_vocabulary lacks one of the labels")])
def test_a_label_that_is_no_class_is_named(tmp_path, n_classes, names, message):
    model = classifier(tmp_path, n_classes, label_vocabulary=names)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.train(inputs(3, names and NAMES[3]), steps=2)
