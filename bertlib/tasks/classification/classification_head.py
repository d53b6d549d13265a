"""Classifies texts or pairs of texts, or chooses one of several: BERT with a linear layer on the pooled
output."""

import tensorflow.compat.v1 as tf

from bertlib.estimator import estimator
from bertlib.tasks import head
import modeling

_CHOICE_WEIGHTS = "cls/multiple_choice/output_weights"

# --- Model -----------------------------------------------------------------------------------------------


class TextHead(head.Head):
    """Base class of the heads that classify or score texts and pairs of texts with a linear layer on the
    pooled output.

    Subclasses are `Classifier`, `Regressor` and `MultilabelClassifier`. The features are label_ids, [B] (or
    [B, L] for a multi-label task with L labels), and is_real_example, [B], which is 0 for padding examples.

    A subclass has these attributes and methods:

        output        name of the prediction. In an evaluation, the predictions also contain the loss of each
                      example, with the name "loss"
        apply(output, labels, is_training)
                      builds the layers after the result of `head_input`, [B, W]. Returns two values: the loss
                      of each example, [B], and the prediction. If labels is None, the first value is None
        metric_fn     the published metrics, see the function `metric_fn`; None if there are none. Only the
                      Estimators of other programs use them. The commands use `classification_metrics`
    """

    modes = (estimator.ModeKeys.TRAIN, estimator.ModeKeys.EVAL, estimator.ModeKeys.PREDICT)
    first_token_only = padding_is_removable = True
    metric_fn = None

    def __init__(self, num_outputs=1):
        """Creates a head. `num_outputs` is the number of outputs of the layer."""
        self.num_outputs = num_outputs

    def shapes(self, bert_config):
        return head_shapes(bert_config, self.num_outputs)

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        labels, is_training = features.get("label_ids"), mode == estimator.ModeKeys.TRAIN
        losses, prediction = self.apply(head_input(encoder, is_training), labels, is_training)
        predictions = {self.output: prediction}
        if labels is None:
            return head.HeadOutputs(predictions=predictions)
        if mode == estimator.ModeKeys.EVAL:
            predictions["loss"] = losses
        weights = tf.cast(features.get("is_real_example", tf.ones_like(losses)), tf.float32)
        return head.HeadOutputs(tf.reduce_mean(losses), predictions, self.metric_fn and (
            self.metric_fn, [losses, labels, prediction, weights]))


class Classifier(TextHead):
    """Head that predicts one of `num_labels` classes. The feature label_ids is int32 [B].

    Training minimizes the mean of this loss over the examples of a batch:

        w_y · ((1 - ε) · H(y) + ε/C · Σ_c H(c))

    y is the label of the example, and w_y is the weight of class y. H(c) is the cross-entropy -log p_c of
    class c. ε is the label smoothing factor (Szegedy et al. 2016, arXiv:1512.00567, section 7). The sum over
    a batch is divided by the number of examples, not by the sum of their weights, so that the gradient does
    not depend on the division into micro-batches. Evaluation uses neither class weights nor smoothing.
    """

    output = "probabilities"

    def __init__(self, num_labels, class_weights=None, label_smoothing=0.0):
        """Creates a head.

        Args:
          num_labels: number of classes, C.
          class_weights: list of the C weights w; None if all weights are 1. The weights must be scaled so
            that the mean of w_y over all training examples is 1.
          label_smoothing: ε, at least 0 and below 1.
        """
        super().__init__(num_labels)
        self._weights, self._smoothing = class_weights, label_smoothing

    def metric_fn(self, *values):
        return metric_fn(*values)

    def apply(self, output, labels, is_training):
        _, losses, logits, probabilities = classify(output, labels, self.num_outputs)
        if is_training:
            losses = self._training_losses(losses, logits, labels)
        return losses, probabilities

    def _training_losses(self, losses, logits, labels):
        """Returns the loss of each example with class weights and label smoothing, [B].

        Args:
          losses: float32 [B], the cross-entropy of each example without class weight and label smoothing.
          logits: float32 [B, C].
          labels: int32 [B].
        """
        if self._smoothing:
            mean_over_classes = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
            losses = (1 - self._smoothing) * losses + self._smoothing * mean_over_classes
        if self._weights is not None:
            losses *= tf.gather(tf.constant(self._weights, tf.float32), labels)
        return losses

    def exported_outputs(self, model, predictions, features):
        probabilities = predictions["probabilities"]
        return {"label": tf.gather(tf.constant(model.labels), tf.argmax(probabilities, axis=-1)),
                "probabilities": probabilities, "labels": head.repeat_names(model.labels, probabilities)}


class MultilabelClassifier(TextHead):
    """Head that predicts a probability for each label: a linear layer with a sigmoid for each label. The
    feature label_ids is int32 [B, L] and contains 0 or 1.

    Training minimizes the mean of the binary cross-entropy over examples and labels, in the same way as
    Hugging Face's models with problem_type="multi_label_classification".
    """

    output = "probabilities"

    def apply(self, output, labels, is_training):
        logits = head.linear(output, self.num_outputs)
        with tf.variable_scope("loss"):
            probabilities = tf.nn.sigmoid(logits)
            losses = None if labels is None else tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits),
                axis=-1)
            return losses, probabilities

    def exported_outputs(self, model, predictions, features):
        probabilities = predictions["probabilities"]
        return {"predicted": probabilities >= model.setting("threshold"), "probabilities": probabilities,
                "labels": head.repeat_names(model.labels, probabilities)}


class Regressor(TextHead):
    """Head that predicts one score. The feature label_ids is float32 [B]. Training minimizes the mean squared
    error. As in the code of XLNet and ALBERT, the variables have the same names as those of a classifier, and
    the weights have one row.
    """

    output = "scores"

    def apply(self, output, labels, is_training):
        scores = tf.squeeze(head.linear(output, 1), axis=-1)
        with tf.variable_scope("loss"):
            return None if labels is None else tf.square(scores - labels), scores

    def exported_outputs(self, model, predictions, features):
        return {"score": predictions["scores"]}


class Choice(head.Head):
    """Head that scores each sequence of a question. The probabilities of the sequences are the softmax of
    their scores. See the module `head`.

    The only variable is a vector. The score of a sequence is the product of this vector with the pooled
    output of the sequence (Devlin et al. 2019, section 4.4).

    The features of the encoder are int32 [B, C, F]: C sequences for each question. label_ids, int32 [B], is
    the number of the right sequence, and is not needed in prediction. In prediction, the features may also be
    single sequences [B, F].

    The predictions are "scores", float32 [B, C], or [B] for single sequences. If the features have labels,
    the predictions also contain "loss", float32 [B].
    """

    first_token_only = padding_is_removable = True

    def __init__(self, num_choices=1):
        self.sequences_per_example = num_choices

    def shapes(self, bert_config):
        return {_CHOICE_WEIGHTS: (1, bert_config.hidden_size)}

    def build(self, bert_config, encoder, features, mode, num_micro_batches):
        weights = tf.get_variable(_CHOICE_WEIGHTS, [1, bert_config.hidden_size],
                                  initializer=modeling.create_initializer(0.02))
        output = head.apply_dropout(encoder.get_pooled_output(), mode == estimator.ModeKeys.TRAIN, encoder)
        scores = tf.reshape(tf.matmul(output, weights, transpose_b=True),
                            modeling.get_shape_list(features["input_ids"])[:-1])
        labels = features.get("label_ids")
        if labels is None:
            return head.HeadOutputs(predictions={"scores": scores})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return head.HeadOutputs(tf.reduce_mean(losses), {"scores": scores, "loss": losses})

    def exported_outputs(self, model, predictions, features):
        # An input of the exported model is the sequence of a single ending, so the model cannot compare the
        # endings of a question. The client computes the softmax over the scores of these endings.
        return {"score": predictions["scores"]}


def head_shapes(bert_config, num_labels):
    """Returns the variables that a classifier adds to the encoder: {name: shape}."""
    return {"output_weights": (num_labels, bert_config.hidden_size), "output_bias": (num_labels,)}


def create_model(bert_config, is_training, input_ids, input_mask, segment_ids, labels, num_labels,
                 use_one_hot_embeddings, step_config=None):
    """Builds BERT with a linear classifier on the pooled output.

    Args:
      bert_config: a `modeling.BertConfig`.
      is_training: whether dropout is on.
      input_ids, input_mask, segment_ids: int32 [B, F].
      labels: int32 [B].
      num_labels: number of classes, C.
      use_one_hot_embeddings: whether words are looked up by a matrix product.
      step_config: a `StepConfig`; None for the published settings.

    Returns:
      four float32 tensors: the mean cross-entropy, a scalar; the cross-entropy of each example, [B]; the
      logits, [B, C]; and the probabilities, [B, C].
    """
    model = modeling.BertModel(bert_config, is_training, input_ids, input_mask, segment_ids,
                               use_one_hot_embeddings, step_config=step_config,
                               first_token_only=Classifier.first_token_only)
    return classify(head_input(model, is_training), labels, num_labels)


def head_input(encoder, is_training):
    """Returns the input of a head, [B, W]: the pooled output of an encoder, in training with dropout."""
    with tf.variable_scope("loss"):  # as in the published code; the dropout mask depends on this name
        return head.apply_dropout(encoder.get_pooled_output(), is_training, encoder)


def classify(output, labels, num_labels):
    """Builds the linear classifier on the result of `head_input`, [B, W].

    Returns:
      four tensors, see `create_model`. If labels is None, the first two values are None.
    """
    logits = head.linear(output, num_labels)
    with tf.variable_scope("loss"):
        if labels is None:
            return None, None, logits, tf.nn.softmax(logits)
        log_probabilities = tf.nn.log_softmax(logits)
        per_example_loss = -tf.reduce_sum(tf.one_hot(labels, depth=num_labels) * log_probabilities, axis=-1)
        return tf.reduce_mean(per_example_loss), per_example_loss, logits, tf.nn.softmax(logits)


def model_fn_builder(bert_config, num_labels, init_checkpoint, learning_rate, num_train_steps,
                     num_warmup_steps, use_tpu, use_one_hot_embeddings):
    """Returns a model_fn for `estimator.Estimator`; see `head.model_fn_builder` and
    `head.published_encoder`."""
    return head.model_fn_builder(Classifier(num_labels), bert_config, init_checkpoint, learning_rate,
                                 num_train_steps, num_warmup_steps, head.published_encoder(
                                     bert_config, use_tpu, use_one_hot_embeddings))


def metric_fn(per_example_loss, label_ids, logits, weights):
    """Returns the published metrics of a classifier; see eval_metrics of `estimator.EstimatorSpec`.

    Args:
      per_example_loss: float32 [B].
      label_ids: int32 [B].
      logits: float32 [B, C], the logits or the probabilities. Only the position of the highest value is used.
      weights: float32 [B], 0 for padding examples.

    Returns:
      {name: (value, update op)} with eval_accuracy and eval_loss.
    """
    predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
    return {"eval_accuracy": tf.metrics.accuracy(label_ids, predictions, weights),
            "eval_loss": tf.metrics.mean(per_example_loss, weights)}
