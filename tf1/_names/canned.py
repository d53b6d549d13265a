"""tf.estimator.DNNClassifier: a multilayer perceptron over feature columns.

A canned estimator is an Estimator with a built-in model. DNNClassifier is the only canned estimator that
programs for BERT use. These programs train a DNNClassifier on vectors that BERT computed. Variables, loss and
metrics have the names and values of TensorFlow 1.15.
"""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from tf1._names import internals, keyed_random
from tf1._run import script_estimator

_OPTIMIZERS = {"Adagrad": tf.train.AdagradOptimizer, "Adam": tf.train.AdamOptimizer,
               "Ftrl": tf.train.FtrlOptimizer, "RMSProp": tf.train.RMSPropOptimizer,
               "SGD": tf.train.GradientDescentOptimizer}
_LEARNING_RATE = 0.05  # used if the optimizer is given by its name


class DNNClassifier(script_estimator.Estimator):
    """Classifies with dense layers over feature columns. The output is a softmax, or a sigmoid if there are
    two classes."""

    def __init__(self, hidden_units, feature_columns, model_dir=None, n_classes=2, weight_column=None,
                 label_vocabulary=None, optimizer="Adagrad", activation_fn=tf.nn.relu, dropout=None,
                 input_layer_partitioner=None, config=None, warm_start_from=None,
                 loss_reduction=tf.losses.Reduction.SUM, batch_norm=False):
        """Creates the classifier.

        Args:
          hidden_units: list with the width of each hidden layer.
          feature_columns: list of columns of tf.feature_column.
          model_dir, config, warm_start_from: see `script_estimator.Estimator`.
          n_classes: number of classes.
          weight_column: name of the feature that contains the loss weight of each example, or None.
          label_vocabulary: names of the classes, if the labels are strings. If None, the labels are integers
            in [0, n_classes).
          optimizer: a tf.train.Optimizer, the name of an optimizer, or a function that returns an optimizer.
          activation_fn: activation function of the hidden layers.
          dropout: probability that a value of a hidden layer is dropped. None means no dropout.
          input_layer_partitioner: partitioner of the variables of the feature columns.
          loss_reduction: a tf.losses.Reduction, which combines the losses of the examples.
          batch_norm: whether batch normalization follows each hidden layer.

        Raises:
          ValueError: the length of label_vocabulary is not n_classes, or `optimizer` is an unknown name.
        """
        if label_vocabulary is not None and len(label_vocabulary) != n_classes:
            raise ValueError(f"DNNClassifier: n_classes is {n_classes}, but label_vocabulary has "
                             f"{len(label_vocabulary)} names.")
        if isinstance(optimizer, str) and optimizer not in _OPTIMIZERS:
            raise ValueError(f"DNNClassifier: unknown optimizer {optimizer!r}; the known names are "
                             f"{', '.join(_OPTIMIZERS)}.")

        def model_fn(features, labels, mode):
            training = mode == estimator.ModeKeys.TRAIN
            with tf.variable_scope("dnn", values=list(features.values())):
                with tf.variable_scope("input_from_feature_columns", partitioner=input_layer_partitioner):
                    values = tf.feature_column.input_layer(features, feature_columns)
                for number, width in enumerate(hidden_units):
                    values = _layer(values, number, width, activation_fn, dropout, batch_norm, training)
                logits = tf.layers.dense(values, 1 if n_classes == 2 else n_classes, name="logits",
                                         kernel_initializer=tf.glorot_uniform_initializer())
            predictions = _predictions(logits, n_classes, label_vocabulary)
            if mode == estimator.ModeKeys.PREDICT:
                return estimator.EstimatorSpec(mode, predictions, export_outputs=_exported(
                    predictions, n_classes, label_vocabulary))
            labels = _ids(labels, label_vocabulary, n_classes)
            weights = 1.0 if weight_column is None else tf.reshape(
                tf.cast(features[weight_column], tf.float32), [-1, 1])
            losses = _losses(logits, labels, n_classes)
            loss = tf.losses.compute_weighted_loss(losses, weights, reduction=loss_reduction)
            return estimator.EstimatorSpec(
                mode, predictions, loss, _train_op(loss, optimizer) if training else None,
                _metrics(losses, labels, predictions, weights, n_classes))

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _layer(values, number, width, activation_fn, dropout, batch_norm, training):
    name = f"hiddenlayer_{number}"
    values = tf.layers.dense(values, width, activation_fn, name=name,
                             kernel_initializer=tf.glorot_uniform_initializer())
    if dropout is not None and training:
        values = keyed_random.layer_dropout(values, dropout, training=True)
    if batch_norm:
        values = tf.layers.batch_normalization(values, momentum=0.999, training=training,
                                               name=f"{name}/batchnorm_{number}")
    return values


def _train_op(loss, optimizer):
    if isinstance(optimizer, str):
        optimizer = _OPTIMIZERS[optimizer](_LEARNING_RATE)
    elif callable(optimizer):
        optimizer = optimizer()
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        return optimizer.minimize(loss, tf.train.get_global_step())


def _ids(labels, vocabulary, n_classes):
    """Returns labels as int64 [B, 1] in [0, n_classes).

    Args:
      labels: tensor [B] or [B, 1]. It contains class names if there is a vocabulary, and integers otherwise.
      vocabulary: the class names, or None.
      n_classes: number of classes.
    """
    labels = tf.reshape(labels, [-1, 1])
    if vocabulary is None:
        labels = tf.cast(labels, tf.int64)
        in_range = tf.debugging.assert_less(labels, tf.constant(n_classes, tf.int64),
                                            ["DNNClassifier: a label is not less than n_classes", labels])
        with tf.control_dependencies([in_range]):
            return tf.identity(labels)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        list(vocabulary), tf.range(len(vocabulary), dtype=tf.int64)), -1)
    ids = table.lookup(labels)
    with tf.control_dependencies([tf.debugging.assert_non_negative(
            ids, ["DNNClassifier: label_vocabulary lacks one of the labels", labels])]):
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
