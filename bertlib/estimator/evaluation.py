"""Evaluates and predicts with given weights. Each evaluation has a separate graph and session.

The commands compute all metrics from predictions, with functions of NumPy arrays:

- `predicted_batches` yields predictions, for heads without the mode EVAL.
- `EvaluatedBatches` yields the predictions of an evaluation, and knows the loss of each batch.

Other people's programs call `evaluate`. It computes the metrics that the model_fn builds, or those of a
function that takes the `EvaluatedBatches`.

All of them can also run during a training; docs/development/paths.md#evaluation-during-a-training lists the
callers.

Evaluations do not affect the training: with and without evaluations, a training ends with the same weights,
bit for bit. For this reason each evaluation has a separate graph, reads the weights from a checkpoint, and
writes separate event files. `SessionWeights` can write the current weights of an open training session as a
checkpoint for an evaluation.
"""

import collections
import contextlib
import itertools
import os
import random

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.estimator import estimator_spec, replica_sync, session_hooks, sessions
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import tensorflow_internals
from bertlib.system import stopping


class InferencePass(collections.namedtuple(
        "InferencePass", ["builder", "checkpoint", "input_fn", "hooks", "steps", "group"])):
    """What one evaluation or prediction computes: a model with certain weights, over an input.

    Attributes:
      builder: the `model_graph.Builder` of the model.
      checkpoint: path of the weights; None for the weights with which a new training would start.
      input_fn: function that returns a dataset of features or (features, labels), or the tensors of a batch.
      hooks: list of SessionRunHook.
      steps: number of batches; None for all.
      group: the `replica_group.Group` of the replicas that compute the batches together. All of them must
        make the same pass. None if only this process computes.
    """


def evaluate(inference_pass, metrics=None):
    """Returns the metrics of an `InferencePass`, {name: number or array}, with "loss" and "global_step".

    Args:
      inference_pass: the `InferencePass`.
      metrics: function that computes the metrics from an iterator over the predictions for the batches, which
        the replicas then share. None for the metrics of the model_fn; replica 0 then evaluates alone.
    """
    group, results = inference_pass.group, None
    with _unchanged_generators():
        if metrics:
            batches = EvaluatedBatches(inference_pass)
            results = batches.complete(metrics(iter(batches)))
        elif not group or group.is_first:
            results = _evaluate_ops(inference_pass._replace(group=None))
    return group.broadcast(results) if group else results


class EvaluatedBatches:
    """Iterable of the predictions for each batch of an evaluation, {name: NumPy array [B, …]}. A batch is
    computed when it is requested. If there are replicas, they share the batches."""

    def __init__(self, inference_pass):
        """Creates the iterable over the batches of an `InferencePass`."""
        self._pass, self._losses = inference_pass, []

    def __iter__(self):
        self._losses = []
        with session_hooks.progress_bar(self._pass.steps, "evaluating", "batch") as progress:
            for loss, batch in _fetched_batches(self._pass, ModeKeys.EVAL,
                                                lambda spec: [spec.loss, spec.predictions]):
                self._losses.append(loss)
                progress.update()
                yield batch

    def complete(self, metrics):
        """Returns metrics of the predictions, {name: number or array}, with two further ones, unless they are
        given: "loss", the mean over the batches, and "global_step". All batches must have been read."""
        return {"loss": np.mean(self._losses, dtype=np.float64),
                "global_step": checkpoint_formats.read_global_step(self._pass.checkpoint), **metrics}


def _evaluate_ops(inference_pass):
    """Returns the results of an `InferencePass` with the metrics of the model_fn."""
    final = None

    def update_ops(spec):
        nonlocal final
        values, update = _metric_ops(spec)
        # The metrics are read once, after the last batch. Reading the metrics with each batch would take
        # time, and could happen before the updates of the same batch are finished.
        final = tf.train.FinalOpsHook({**values, "global_step": tf.train.get_global_step()})
        spec.evaluation_hooks.append(final)
        return [update]

    with session_hooks.progress_bar(inference_pass.steps, "evaluating", "batch") as progress:
        for _ in _fetched_batches(inference_pass, ModeKeys.EVAL, update_ops):
            progress.update()
    return final.final_ops_values


def _metric_ops(spec):
    """Returns ({name: value tensor}, update op) for the model_fn's metrics and the mean loss."""
    metrics = {**spec.metric_ops(), "loss": tf.metrics.mean(spec.loss)}
    return ({name: value for name, (value, _) in metrics.items()},
            tf.group(*[update for _, update in metrics.values()]))


def predicted_batches(inference_pass, predict_keys):
    """Yields the predictions of each batch of an `InferencePass`. A batch is computed when its predictions
    are requested. `predict_keys` are the names of the predictions to compute; None for all.

    If `input_pipeline` makes the batches, the replicas divide the batches among themselves. For any other
    input, replica 0 computes all predictions and broadcasts them.
    """
    return _fetched_batches(
        inference_pass, ModeKeys.PREDICT,
        lambda spec: estimator_spec.select_predictions(spec.predictions, predict_keys))


def _fetched_batches(inference_pass, mode, fetches):
    """Yields the values of tensors for each batch of an `InferencePass`.

    Args:
      inference_pass: the `InferencePass`.
      mode: a `ModeKeys`.
      fetches: function that takes the `EstimatorSpec` and returns the tensors or ops, in a dict or list. It
        may add hooks to the spec.
    """
    builder, checkpoint, input_fn, hooks, steps, group = inference_pass
    # After each `yield`, code of the caller runs. While this code runs, `graph` must not be the default
    # graph. So the block `with graph.as_default()` ends before the first `yield`.
    graph = tf.Graph()
    with graph.as_default():
        shard = input_pipeline.shard_input(group) if group else None
        spec, input_hooks = builder.build(lambda: builder.call_input_fn(input_fn, mode), mode)
        tensors = fetches(spec)
        spec_hooks = [*(hooks or []),
                      *(spec.evaluation_hooks if mode == ModeKeys.EVAL else spec.prediction_hooks)]
        # A hook could read any weight.
        scaffold = None if spec_hooks else sessions.create_inference_scaffold(spec, checkpoint, tensors)
        restored = None if scaffold else checkpoint
        # The session runs only in this process, even if this process is one of several replicas.
        session = sessions.open_session(
            scaffold or sessions.create_checked_scaffold(spec, checkpoint, builder.config), restored,
            builder.config, [*input_hooks, *spec_hooks])
    with session:
        batches = itertools.islice(replica_sync.gather_batches(
            group, session, tensors, builder.config.stop_request.check,
            shard and shard.is_used), steps)
        while True:
            with input_pipeline.translate_record_errors(graph):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


@contextlib.contextmanager
def _unchanged_generators():
    """Returns a context manager. At the end of its block, it resets the global random generators of Python
    and NumPy to the states from before the block.

    An input_fn may draw random numbers while an evaluation builds or reads the input. Without this context
    manager, an evaluation would change the next random numbers of a training in the same process.
    """
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


class SessionWeights:
    """Writes the current weights of an open session as a checkpoint, for `evaluate`."""

    def __init__(self, variables=None):
        """Adds ops that save variables. The ops are added to the current graph, which must not be finalized.

        Args:
          variables: list of variables; None for all global variables.
        """
        self._saver = sessions.Saver(tf.global_variables() if variables is None else variables)

    def save(self, session, directory, step):
        """Saves the values of the session's variables as the checkpoint of a step. Creates the directory if
        it does not exist. Returns the prefix of the checkpoint."""
        tf.gfile.MakeDirs(directory)
        return self._saver.save(session, os.path.join(directory, f"model.ckpt-{step}"),
                                write_meta_graph=False, write_state=False)


class EvaluationHook(tf.train.SessionRunHook):
    """Calls a function after each step, which can evaluate the weights of the session and end the session."""

    def __init__(self, after_step, saves_weights):
        """Creates the hook.

        Args:
          after_step: function of a step that the session has just completed, and of a function `save`. The
            result is true if the training has to end. `save` writes the weights of the session as a
            checkpoint into the directory that it takes, and returns the prefix of the checkpoint.
          saves_weights: whether `after_step` calls `save`, for which the graph needs additional ops.
        """
        self._after_step, self._saves_weights = after_step, saves_weights

    def begin(self):
        self._global_step = tf.train.get_global_step()
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        if self._saves_weights:
            self._weights = SessionWeights([variable for name, variable in variables.items()
                                            if not checkpoint_formats.is_slot(name, variables)])

    def after_run(self, run_context, run_values):
        session = run_context.session
        step = int(session.run(self._global_step))
        try:
            ends = self._after_step(step, lambda directory: self._weights.save(session, directory, step))
        except stopping.Stopped:
            # The exception is not raised here. So the session ends normally and saves its last step. After
            # that, the training raises the exception again.
            ends = True
        if ends:
            run_context.request_stop()


class SavedCheckpoints(tf.train.CheckpointSaverListener):
    """Calls a function with the step of each checkpoint that the training saves."""

    def __init__(self, evaluate):
        self._evaluate = evaluate

    def after_save(self, session, global_step_value):
        self._evaluate(global_step_value)


def write_summary(directory, results):
    """Writes the scalars of an evaluation for TensorBoard.

    Args:
      directory: directory of the event files. It must not be the directory of the training's event files.
      results: the return value of `evaluate`.
    """
    scalars = {key: float(value) for key, value in results.items() if np.ndim(value) == 0
               and key != "global_step"}

    with session_hooks.quiet_event_writers():
        try:
            session_hooks.add_summary(directory, scalars, results["global_step"]).flush()
        except session_hooks.EVENT_ERRORS as error:
            tensorflow_internals.forget_summary_writers(directory)
            session_hooks.warn_of_events(error)
