"""Defines the modes in which a `model_fn` is called, the class of its result, and the class that describes
the inputs of an exported model."""

import collections

import tensorflow.compat.v1 as tf


class ModeKeys:
    """The modes in which a `model_fn` is called: training, evaluation, prediction."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class ServingInputReceiver(collections.namedtuple("ServingInputReceiver",
                                                  ["features", "receiver_tensors",
                                                   "receiver_tensors_alternatives"])):
    """The result of a serving_input_receiver_fn.

    Attributes:
      features: tensor or dict of tensors that the model_fn gets.
      receiver_tensors: placeholder, or dict of placeholders, for the values of a request.
      receiver_tensors_alternatives: {name: placeholder, or dict of placeholders}, or None. For each name, the
        exported model gets additional signatures. A request with such a signature feeds these placeholders
        instead of `receiver_tensors`.
    """

    def __new__(cls, features, receiver_tensors, receiver_tensors_alternatives=None):
        if isinstance(receiver_tensors, tf.Tensor):
            receiver_tensors = {"input": receiver_tensors}
        return super().__new__(cls, features, receiver_tensors, receiver_tensors_alternatives)


_SPEC_FIELDS = ["mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs",
                "training_chief_hooks", "training_hooks", "scaffold", "evaluation_hooks", "prediction_hooks",
                "eval_metrics"]


class EstimatorSpec(collections.namedtuple("EstimatorSpec", _SPEC_FIELDS)):
    """The result of a `model_fn`. It has the fields of tf.estimator's EstimatorSpec and TPUEstimatorSpec."""

    def __new__(cls, mode, predictions=None, loss=None, train_op=None, eval_metric_ops=None,
                export_outputs=None, training_chief_hooks=None, training_hooks=None, scaffold=None,
                evaluation_hooks=None, prediction_hooks=None, eval_metrics=None, host_call=None,
                scaffold_fn=None):
        """Creates a spec.

        Args:
          mode: a `ModeKeys`.
          predictions: dict of tensors, or a tensor; required in mode PREDICT.
          loss: scalar tensor; required in modes TRAIN and EVAL.
          train_op: op that does one training step and increments the global step; required in mode TRAIN.
          eval_metric_ops: {name: (value, update op)}.
          export_outputs: {signature: ExportOutput}.
          training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: lists of SessionRunHook.
          scaffold: tf.train.Scaffold.
          eval_metrics: pair (function, tensors), as in TPUEstimatorSpec. `tensors` is a list or a dict. The
            function is called with these tensors and returns further eval_metric_ops; see `metric_ops`.
          host_call: pair (function, tensors), as in TPUEstimatorSpec. There is no TPU host here, so the ops
            that the function returns run as a part of each training step.
          scaffold_fn: function that returns the scaffold, as in TPUEstimatorSpec.

        Raises:
          ValueError: a field that the mode requires is missing.
        """
        required = {ModeKeys.TRAIN: {"loss": loss, "train_op": train_op}, ModeKeys.EVAL: {"loss": loss},
                    ModeKeys.PREDICT: {"predictions": predictions}}
        if mode not in required:
            raise ValueError(f"Unknown mode {mode!r}; known: {', '.join(required)}.")
        missing_names = [name for name, value in required[mode].items() if value is None]
        if missing_names:
            raise ValueError(f"The model_fn returned no {' and no '.join(missing_names)}, "
                             f"which mode {mode!r} needs.")
        if mode == ModeKeys.TRAIN and host_call is not None:
            train_op = tf.group(train_op, *tf.nest.flatten(_call_with_tensors(*host_call)))
        if scaffold is None and scaffold_fn is not None:
            scaffold = scaffold_fn()
        return super().__new__(cls, mode, predictions, loss, train_op, eval_metric_ops or {}, export_outputs,
                               list(training_chief_hooks or []), list(training_hooks or []), scaffold,
                               list(evaluation_hooks or []), list(prediction_hooks or []), eval_metrics)

    def metric_ops(self):
        """Returns all metrics of the model_fn, {name: (value, update op)}: `eval_metric_ops`, and the result
        of `eval_metrics`, whose ops are added to the current graph.

        Raises:
          ValueError: a metric is not a pair, or has a name that the Estimator uses.
        """
        metrics = {**self.eval_metric_ops,
                   **(_call_with_tensors(*self.eval_metrics) if self.eval_metrics else {})}
        for name, metric in metrics.items():
            if name in ("loss", "global_step"):
                raise ValueError(f"The model_fn has a metric named {name!r}, but the Estimator uses this "
                                 "name for another value. Rename the metric.")
            if not (isinstance(metric, (tuple, list)) and len(metric) == 2):
                raise ValueError(f"The metric {name!r} of the model_fn is {metric!r:.80}, which is not a "
                                 "pair (value, update op). Use a function of tf.metrics, which returns such "
                                 "a pair: for example tf.metrics.mean.")
        return metrics


def _call_with_tensors(function, tensors):
    return function(**tensors) if isinstance(tensors, dict) else function(*tensors)


def select_predictions(predictions, keys):
    """Returns the predictions that have a name in `keys`; all predictions if `keys` is None."""
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError("predict_keys needs predictions that are a dict, but the model_fn returned a single "
                         "tensor. Leave predict_keys out.")
    selection = {key: value for key, value in predictions.items() if key in keys}
    if not selection:
        raise ValueError(f"None of predict_keys={list(keys)} is predicted. The predictions are "
                         f"{sorted(predictions)}. Pass some of these names, or leave predict_keys out.")
    return selection
