"""Evaluates and predicts with given weights. Each evaluation has a separate graph and session.

Metrics are computed in two ways:

- `evaluate` computes the loss and the metrics of the model_fn. `Estimator.evaluate` calls it. Classification
  and pre-training are evaluated in this way. The argument `revise` of `evaluate` can replace the metrics. For
  example, if texts are cut into windows, `revise` computes the metrics of whole texts.
- `predicted_batches` yields predictions, from which the caller computes metrics. `Estimator.predict` calls
  it. SQuAD and tagging are evaluated in this way, because their metrics compare texts and entities.

Both functions can also run during a training. docs/development/paths.md describes the four callers that start
an evaluation during a training: `bertlib.runs.learning_curve` (--eval_each_checkpoint), an evaluator process
(`bertlib.command_line.evaluator_process`), and `train_and_evaluate` and `InMemoryEvaluatorHook` of tf1.

Evaluations do not affect the training: with and without evaluations, a training ends with the same weights,
bit for bit. For this reason each evaluation has a separate graph, reads the weights from a checkpoint, and
writes separate event files. `SessionWeights` can write the current weights of an open training session as a
checkpoint for an evaluation.
"""

import contextlib
import itertools
import os
import random
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, resume
from bertlib.data import input_pipeline
from bertlib.estimator import estimator_spec, replica_sync, session_hooks
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import tensorflow_internals


def evaluate(builder, config, checkpoint, input_fn, steps=None, hooks=(), revise=None, group=None):
    """Returns the metrics of a model with the weights of a checkpoint.

    Args:
      builder: the `model_graph.Builder`.
      config: the `RunConfig`.
      checkpoint: path of the checkpoint; None for the weights with which a new training would start.
      input_fn, steps, hooks, revise: see `Estimator.evaluate`.
      group: the `replica_group.Group` of the replicas that share the batches. All these replicas must call
        this function. None if only this process evaluates.

    Returns:
      dict with the model_fn's metrics, "loss" (mean over the batches) and "global_step".
    """
    arguments = builder, config, checkpoint, input_fn, steps, list(hooks or []), revise
    with _unchanged_generators():
        results = _evaluate(*arguments, group) if group else None
        if results is None and (not group or group.is_first):
            results = _evaluate(*arguments, None)
    return group.broadcast(results) if group else results


def _evaluate(builder, config, checkpoint, input_fn, steps, hooks, revise, group):
    """Returns the metrics; None if the replicas of `group` cannot share the batches.

    For the arguments, see `evaluate`. The replicas can share the batches if two conditions are met:
    `input_pipeline` makes the batches, and the model_fn returns the tensors of its metrics (`eval_metrics` of
    the `EstimatorSpec`).
    """
    with tf.Graph().as_default():
        if group:
            replica_sync.shard_input(group)
        spec, input_hooks = builder.build_on(input_fn, ModeKeys.EVAL)
        if group and not (replica_sync.is_sharded() and spec.gathered_metrics):
            return None
        if group:
            gathered_metrics = replica_sync.GatheredMetrics(spec.gathered_metrics)
            values, fetches = {}, [spec.loss, spec.gathered_metrics[1]]
        else:
            values, update = _metric_ops(spec)
            fetches = [update]
        # The metrics are read once, after the last batch. Reading the metrics with each batch would take
        # time, and could happen before the updates of the same batch are finished.
        final = tf.train.FinalOpsHook({**values, "global_step": tf.train.get_global_step()})
        predictions = []
        with (input_pipeline.translate_record_errors(),
              _session(spec, checkpoint, config,
                       [*input_hooks, *hooks, *spec.evaluation_hooks, final]) as session,
              session_hooks.progress_bar(steps, "evaluating", "batch") as progress):
            batches = _batches(session, [*fetches, spec.predictions if revise else {}], config, group)
            for *fetched, batch in itertools.islice(batches, steps):
                if group:
                    gathered_metrics.add(*fetched)
                predictions += estimator_spec.split_batch(batch) if revise else []
                progress.update()
        results = {**final.final_ops_values, **(gathered_metrics.results() if group else {})}
    return revise(results, predictions) if revise else results


def _metric_ops(spec):
    """Returns ({name: value tensor}, update op) for the model_fn's metrics and the mean loss."""
    metrics = dict(spec.eval_metric_ops)
    for reserved in ("loss", "global_step"):
        if reserved in metrics:
            raise ValueError(f"The model_fn has a metric named {reserved!r}, but the Estimator uses this "
                             "name for another value. Rename the metric.")
    metrics["loss"] = tf.metrics.mean(spec.loss)
    return ({name: value for name, (value, _) in metrics.items()},
            tf.group(*[update for _, update in metrics.values()]))


def predicted_batches(builder, config, checkpoint, input_fn, predict_keys=None, hooks=(), group=None):
    """Yields the predictions of each batch. A batch is computed when its predictions are requested.

    If `input_pipeline` makes the batches, the replicas divide the batches among themselves. For any other
    input, replica 0 computes all predictions and broadcasts them.

    Args:
      input_fn, predict_keys, hooks: see `Estimator.predict`.
      builder, config, checkpoint, group: see `evaluate`.
    """
    # After each `yield`, code of the caller runs. While this code runs, `graph` must not be the default
    # graph. So the block `with graph.as_default()` ends before the first `yield`.
    graph = tf.Graph()
    with graph.as_default():
        if group:
            replica_sync.shard_input(group)
        spec, input_hooks = builder.build_on(input_fn, ModeKeys.PREDICT)
        sharded = replica_sync.is_sharded()
        predictions = estimator_spec.select_predictions(spec.predictions, predict_keys)
        session = _session(spec, checkpoint, config, [*input_hooks, *(hooks or []), *spec.prediction_hooks])
    with session:
        batches = _batches(session, predictions, config, group, sharded)
        while True:
            with input_pipeline.translate_record_errors(graph):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _batches(session, fetches, config, group, sharded=True):
    """Yields the values of `fetches` for each batch. If `group` is a group of replicas and not None, the
    function yields the values for the batches of all these replicas; see `replica_sync.gather_batches`."""
    check = config.stop_request.check
    if group:
        yield from replica_sync.gather_batches(group, session, fetches, check, sharded)
        return
    with contextlib.suppress(StopIteration):  # a hook may raise StopIteration to end the session
        while not session.should_stop():
            check()
            yield session.run(fetches)


def _session(spec, checkpoint, config, hooks):
    """Opens a session on the current graph, with the weights of a checkpoint. The session runs only in this
    process, even if this process is one of several replicas."""
    scaffold = resume.create_checked_scaffold(spec, checkpoint, config)
    return resume.open_session(scaffold, checkpoint, config, hooks)


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
        self._saver = checkpoint_files.Saver(tf.global_variables() if variables is None else variables)

    @contextlib.contextmanager
    def saved(self, session):
        """Returns a context manager that saves the variables of the session in a temporary checkpoint, and
        yields the path of this checkpoint. At the end of its block, it removes the checkpoint."""
        with tempfile.TemporaryDirectory(prefix="evaluated_weights.") as directory:
            yield self._save(session, os.path.join(directory, "model.ckpt"))

    def save(self, session, directory, step):
        """Saves the values of the session's variables as the checkpoint of a step. Creates the directory if
        it does not exist. Returns the prefix of the checkpoint."""
        tf.gfile.MakeDirs(directory)
        return self._save(session, os.path.join(directory, f"model.ckpt-{step}"))

    def _save(self, session, prefix):
        return self._saver.save(session, prefix, write_meta_graph=False, write_state=False)


def write_summary(directory, results):
    """Writes the scalars of an evaluation for TensorBoard.

    Args:
      directory: directory of the event files. It must not be the directory of the training's event files.
      results: the return value of `evaluate`.
    """
    scalars = {key: float(value) for key, value in results.items() if np.ndim(value) == 0
               and key != "global_step"}
    summary = tf.Summary(value=[tf.Summary.Value(tag=key, simple_value=value)
                                for key, value in scalars.items()])
    with session_hooks.quiet_event_writers():
        try:
            writer = tf.summary.FileWriterCache.get(directory)
            writer.add_summary(summary, results["global_step"])
            writer.flush()
        except session_hooks.EVENT_ERRORS as error:
            tensorflow_internals.forget_summary_writers(directory)
            session_hooks.warn_of_events(error)
