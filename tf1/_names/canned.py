"""Estimators with a built-in model: DNNClassifier, LinearClassifier, DNNLinearCombinedClassifier.

Each one adds the logits of its parts: a multilayer perceptron, a linear model, or both. Variables, loss,
metrics and default learning rates are those of TensorFlow 1.15.
"""

import functools
import math

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from tf1._names import internals, keyed_random
from tf1._run import script_estimator

OPTIMIZERS = {"Adagrad": tf.train.AdagradOptimizer, "Adam": tf.train.AdamOptimizer,
               "Ftrl": tf.train.FtrlOptimizer, "RMSProp": tf.train.RMSPropOptimizer,
               "SGD": tf.train.GradientDescentOptimizer}


class _Classifier(script_estimator.Estimator):
    """Classifies by the sum of the logits of its parts. The output is a softmax, or a sigmoid if there are
    two classes."""

    def __init__(self, parts, model_dir, n_classes, weight_column=None, label_vocabulary=None, config=None,
                 warm_start_from=None, loss_reduction=tf.losses.Reduction.SUM):
        """Creates the classifier.

        Args:
          parts: {scope of the variables: (function, optimizer, learning rate)}. The function takes the
            features, the number of logits, and whether the model is trained. It returns the logits. The
            optimizer is a tf.train.Optimizer, the name of an optimizer, or a function that returns an
            optimizer. The learning rate is used if the optimizer is given by its name.
          model_dir, config, warm_start_from: see `script_estimator.Estimator`.
          n_classes: number of classes.
          weight_column: name of the feature that contains the loss weight of each example, or None.
          label_vocabulary: names of the classes, if the labels are strings. If None, the labels are integers
            in [0, n_classes).
          loss_reduction: a tf.losses.Reduction, which combines the losses of the examples.

        Raises:
          ValueError: the length of label_vocabulary is not n_classes, or an optimizer has an unknown name.
        """
        kind = type(self).__name__
        if label_vocabulary is not None and len(label_vocabulary) != n_classes:
            raise ValueError(f"{kind}: n_classes is {n_classes}, but label_vocabulary has "
                             f"{len(label_vocabulary)} names.")
        for _, optimizer, _ in parts.values():
            if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
                raise ValueError(f"{kind}: unknown optimizer {optimizer!r}; the known names are "
                                 f"{', '.join(OPTIMIZERS)}.")

        def model_fn(features, labels, mode):
            training = mode == estimator.ModeKeys.TRAIN
            logits = []
            for scope, (part, _, _) in parts.items():
                with tf.variable_scope(scope, values=list(features.values())):
                    logits.append(part(features, 1 if n_classes == 2 else n_classes, training))
            logits = sum(logits[1:], logits[0])
            predictions = _predictions(logits, n_classes, label_vocabulary)
            if mode == estimator.ModeKeys.PREDICT:
                return estimator.EstimatorSpec(mode, predictions, export_outputs=_exported(
                    predictions, n_classes, label_vocabulary))
            labels = _ids(labels, label_vocabulary, n_classes, kind)
            weights = 1.0 if weight_column is None else tf.reshape(
                tf.cast(features[weight_column], tf.float32), [-1, 1])
            losses = _losses(logits, labels, n_classes)
            loss = tf.losses.compute_weighted_loss(losses, weights, reduction=loss_reduction)
            return estimator.EstimatorSpec(
                mode, predictions, loss, _train_op(loss, parts) if training else None,
                _metrics(losses, labels, predictions, weights, n_classes))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(_Classifier):
    """Classifies with dense layers over feature columns."""

    def __init__(self, hidden_units, feature_columns, model_dir=None, n_classes=2, *, optimizer="Adagrad",
                 activation_fn=tf.nn.relu, dropout=None, **settings):
        """Creates the classifier. The arguments that are missing here are those of `_Classifier`.

        Args:
          hidden_units: list with the width of each hidden layer.
          feature_columns: list of columns of tf.feature_column.
          activation_fn: activation function of the hidden layers.
          dropout: probability that a value of a hidden layer is dropped. None means no dropout.
        """
        logits = functools.partial(_dnn_logits, feature_columns, hidden_units, activation_fn, dropout)
        super().__init__({"dnn": (logits, optimizer, 0.05)}, model_dir, n_classes, **settings)


class LinearClassifier(_Classifier):
    """Classifies with one weight for each value of the feature columns and each logit."""

    def __init__(self, feature_columns, model_dir=None, n_classes=2, *, optimizer="Ftrl",
                 sparse_combiner="sum", **settings):
        """Creates the classifier. The arguments that are missing here are those of `_Classifier`.

        Args:
          feature_columns: list of columns of tf.feature_column.
          sparse_combiner: how several values of a categorical column are combined: sum, mean or sqrtn.
        """
        logits = functools.partial(_linear_logits, feature_columns, sparse_combiner)
        super().__init__({"linear": (logits, optimizer, 0.2)}, model_dir, n_classes, **settings)


class DNNLinearCombinedClassifier(_Classifier):
    """Classifies with a linear model and dense layers that are trained together ("wide and deep",
    arXiv:1606.07792)."""

    def __init__(self, model_dir=None, linear_feature_columns=None, linear_optimizer="Ftrl",
                 dnn_feature_columns=None, dnn_optimizer="Adagrad", dnn_hidden_units=None,
                 dnn_activation_fn=tf.nn.relu, dnn_dropout=None, n_classes=2, *, linear_sparse_combiner="sum",
                 **settings):
        """Creates the classifier. The arguments are those of `LinearClassifier` and `DNNClassifier`.

        Raises:
          ValueError: there are no feature columns, or there are columns for dense layers without a width.
        """
        parts = {}
        if dnn_feature_columns:
            if not dnn_hidden_units:
                raise ValueError("DNNLinearCombinedClassifier: dnn_feature_columns needs dnn_hidden_units, "
                                 "the widths of the hidden layers.")
            logits = functools.partial(_dnn_logits, dnn_feature_columns, dnn_hidden_units, dnn_activation_fn,
                                       dnn_dropout)
            parts["dnn"] = logits, dnn_optimizer, 0.001
        if linear_feature_columns:
            logits = functools.partial(_linear_logits, linear_feature_columns, linear_sparse_combiner)
            parts["linear"] = logits, linear_optimizer, min(0.005, 1 / math.sqrt(len(linear_feature_columns)))
        if not parts:
            raise ValueError("DNNLinearCombinedClassifier: pass linear_feature_columns, "
                             "dnn_feature_columns or both.")
        super().__init__(parts, model_dir, n_classes, **settings)


def _linear_logits(columns, sparse_combiner, features, width, training):
    del training  # a linear model has no dropout
    return tf.feature_column.linear_model(features, columns, width, sparse_combiner)


def _dnn_logits(columns, hidden_units, activation_fn, dropout, features, width, training):
    dense = functools.partial(tf.layers.dense, kernel_initializer=tf.glorot_uniform_initializer())
    with tf.variable_scope("input_from_feature_columns"):
        values = tf.feature_column.input_layer(features, columns)
    for number, units in enumerate(hidden_units):
        values = dense(values, units, activation_fn, name=f"hiddenlayer_{number}")
        if dropout is not None and training:
            values = keyed_random.layer_dropout(values, dropout, training=True)
    return dense(values, width, name="logits")


def _train_op(loss, parts):
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    gradients = []
    for scope, (_, optimizer, learning_rate) in parts.items():
        if isinstance(optimizer, str):
            optimizer = OPTIMIZERS[optimizer](learning_rate)
        elif callable(optimizer):
            optimizer = optimizer()
        gradients.append((optimizer, optimizer.compute_gradients(loss, tf.trainable_variables(f"{scope}/"))))
    *others, (last, pairs) = gradients
    with tf.control_dependencies(updates + [optimizer.apply_gradients(pairs) for optimizer, pairs in others]):
        return last.apply_gradients(pairs, tf.train.get_global_step())


def _ids(labels, vocabulary, n_classes, kind):
    """Returns labels as int64 [B, 1] in [0, n_classes).

    Args:
      labels: tensor [B] or [B, 1]. It contains class names if there is a vocabulary, and integers otherwise.
      vocabulary: the class names, or None.
      n_classes: number of classes.
      kind: name of the class that an error names.
    """
    labels = tf.reshape(labels, [-1, 1])
    if vocabulary is None:
        ids = tf.cast(labels, tf.int64)
        check = tf.debugging.assert_less(ids, tf.constant(n_classes, tf.int64),
                                         [f"{kind}: a label is not less than n_classes", ids])
    else:
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            list(vocabulary), tf.range(len(vocabulary), dtype=tf.int64)), -1)
        ids = table.lookup(labels)
        check = tf.debugging.assert_non_negative(
            ids, [f"{kind}: label_vocabulary lacks one of the labels", labels])
    with tf.control_dependencies([check]):
        return tf.identity(ids)


def _losses(logits, ids, n_classes):
    """Returns the cross-entropy of each example, [B, 1]."""
    if n_classes == 2:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(ids, tf.float32), logits=logits)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.squeeze(ids, 1), logits=logits)
    return tf.expand_dims(losses, 1)


def _predictions(logits, n_classes, vocabulary):
    predictions = {"logits": logits}
    if n_classes == 2:
        predictions["logistic"] = tf.sigmoid(logits)
        logits = tf.concat([tf.zeros_like(logits), logits], 1)
    ids = tf.expand_dims(tf.argmax(logits, 1), 1)
    predictions.update(probabilities=tf.nn.softmax(logits), class_ids=ids)
    predictions["classes"] = tf.as_string(ids) if vocabulary is None else tf.gather(list(vocabulary), ids)
    return predictions


def _metrics(losses, ids, predictions, weights, n_classes):
    """Returns the metrics, {name: (value, update op)}."""
    metrics = {"accuracy": tf.metrics.accuracy(ids, predictions["class_ids"], weights),
               "average_loss": tf.metrics.mean(losses, weights)}
    if n_classes == 2:
        targets, probability = tf.cast(ids, tf.float32), predictions["logistic"]
        label_mean, update = tf.metrics.mean(targets, weights)
        metrics.update({
            "precision": tf.metrics.precision(ids, predictions["class_ids"], weights),
            "recall": tf.metrics.recall(ids, predictions["class_ids"], weights),
            "auc": tf.metrics.auc(targets, probability, weights),
            "auc_precision_recall": tf.metrics.auc(targets, probability, weights, curve="PR"),
            "accuracy_baseline": (tf.maximum(label_mean, 1 - label_mean), update),
            "label/mean": (label_mean, update),
            "prediction/mean": tf.metrics.mean(probability, weights)})
    return metrics


def _exported(predictions, n_classes, vocabulary):
    names = tf.constant(list(vocabulary or map(str, range(n_classes))))
    probabilities = predictions["probabilities"]
    classes = tf.tile(tf.expand_dims(names, 0), [tf.shape(probabilities)[0], 1])
    scores = internals.export_output.ClassificationOutput(probabilities, classes)
    outputs = {"serving_default": scores, "classification": scores,
               "predict": internals.export_output.PredictOutput(predictions)}
    if n_classes == 2:
        outputs["regression"] = internals.export_output.RegressionOutput(predictions["logistic"])
    return outputs
