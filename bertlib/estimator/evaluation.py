"""Evaluation and prediction with given weights, each in a separate graph and session.

`evaluate` is the only function that evaluates a model; `Estimator.evaluate` calls it. While a training runs,
a listener of the saver, a step hook or another process triggers it: docs/paths.md lists these. The training
is not affected: with and without evaluations it ends in the same weights, bit for bit. For this reason an
evaluation builds its own graph, reads the weights from a checkpoint and writes its own event files.
`SessionWeights` makes a checkpoint of the weights in a live session.
"""

import contextlib
import os
import random
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, resume
from bertlib.data import input_pipeline
from bertlib.estimator import estimator_spec, replica_sync, session_hooks
from bertlib.estimator.estimator_spec import ModeKeys


def evaluate(builder, config, checkpoint, input_fn, steps=None, hooks=(), revise=None, group=None):
    """Returns the metrics of a model with the weights of a checkpoint.

    Args:
      builder: the `model_graph.Builder`.
      config: the `RunConfig`.
      checkpoint: path of the weights; None for the weights that a training would start from.
      input_fn, steps, hooks, revise: see `Estimator.evaluate`.
      group: the `replica_group.Group` of the replicas that all call this and share the batches; None to
        evaluate in this process alone.

    Returns:
      dict with the model_fn's metrics, "loss" (mean over the batches) and "global_step".
    """
    arguments = builder, config, checkpoint, input_fn, steps, list(hooks or []), revise
    with _unchanged_generators():
        results = _evaluate(*arguments, group) if group else None
        if results is None and (not group or group.is_first):
            results = _evaluate(*arguments, None)
    return group.from_first(results) if group else results


def _evaluate(builder, config, checkpoint, input_fn, steps, hooks, revise, group):
    """`evaluate`; returns None if there is a group that cannot share the batches: they are not made by our
    input, or the model_fn does not name the tensors that its metrics are computed from."""
    with tf.Graph().as_default():
        if group:
            replica_sync.share_input(group)
        spec, input_hooks = builder.build_on(input_fn, ModeKeys.EVAL)
        if group and not (replica_sync.is_shared() and spec.gathered_metrics):
            return None
        check, keeps = config.stop_request.check, revise is not None
        metrics = _GatheredMetrics(spec, keeps, check, group) if group else _GraphMetrics(spec, keeps, check)
        predictions, batches = [], 0
        with (input_pipeline.explaining_faults(),
              _session(spec, checkpoint, config, [*input_hooks, *hooks, *spec.evaluation_hooks,
                                                  *metrics.hooks]) as session,
              session_hooks.progress_bar(steps, "evaluating", "batch") as progress):
            metrics.begin(session)
            while steps is None or batches < steps:
                batch = metrics.next_batch(session)
                if batch is None:
                    break
                predictions += estimator_spec.examples_of(batch) if revise else []
                batches += 1
                progress.update()
        results = metrics.results()
    return revise(results, predictions) if revise else results


class _GraphMetrics:
    """The metrics of a model_fn, updated in its graph by this process.

    Attributes:
      hooks: list of SessionRunHook that the session needs.
    """

    def __init__(self, spec, keeps_predictions, check):
        metrics = dict(spec.eval_metric_ops)
        for reserved in ("loss", "global_step"):
            if reserved in metrics:
                raise ValueError(f"The model_fn has a metric named {reserved!r}; that name is taken.")
        metrics["loss"] = tf.metrics.mean(spec.loss)
        self._fetches = [tf.group(*[update for _, update in metrics.values()]),
                         spec.predictions if keeps_predictions else {}]
        values = {key: value for key, (value, _) in metrics.items()}
        values["global_step"] = tf.train.get_global_step()
        # The values are read once, when the input has ended: reading is not free, and updates may still run.
        self._final = tf.train.FinalOpsHook(values)
        self.hooks, self._check = [self._final], check

    def begin(self, session):
        """Does nothing: all values are read at the end."""

    def next_batch(self, session):
        """Adds a batch; returns its predictions, {} if they are not kept, or None if there is no batch."""
        if session.should_stop():
            return None
        self._check()
        return session.run(self._fetches)[1]

    def results(self):
        """Returns {name: value}, after the session was closed."""
        return self._final.final_ops_values


class _GatheredMetrics:
    """The metrics of batches that replicas computed. It has the methods of `_GraphMetrics`."""

    hooks = ()

    def __init__(self, spec, keeps_predictions, check, group):
        self._metrics = replica_sync.Metrics(spec.gathered_metrics)
        self._fetches = [spec.loss, spec.gathered_metrics[1], spec.predictions if keeps_predictions else {}]
        self._check, self._group = check, group

    def begin(self, session):
        """Reads the step of the weights."""
        self._step = session.raw_session().run(tf.train.get_global_step())
        self._batches = replica_sync.gathered(self._group, session, self._fetches, self._check)

    def next_batch(self, session):
        """See `_GraphMetrics`."""
        loss, values, predictions = next(self._batches, (None, None, None))
        if loss is not None:
            self._metrics.add(loss, values)
        return predictions

    def results(self):
        """See `_GraphMetrics`."""
        return {**self._metrics.results(), "global_step": self._step}


def predicted_batches(builder, config, checkpoint, input_fn, predict_keys=None, hooks=(), group=None):
    """Yields the predictions of each batch, computed as they are asked for.

    Replicas share the batches of our input. Other input is read by replica 0, which broadcasts the
    predictions.

    Args:
      input_fn, predict_keys, hooks: see `Estimator.predict`.
      builder, config, checkpoint, group: see `evaluate`.
    """
    # The graph must not stay the default one while the caller has control.
    graph = tf.Graph()
    with graph.as_default():
        if group:
            replica_sync.share_input(group)
        spec, input_hooks = builder.build_on(input_fn, ModeKeys.PREDICT)
        shared = replica_sync.is_shared()
        predictions = estimator_spec.chosen(spec.predictions, predict_keys)
        session = _session(spec, checkpoint, config, [*input_hooks, *(hooks or []), *spec.prediction_hooks])
    check = config.stop_request.check
    with session:
        if group:
            batches = replica_sync.gathered(group, session, predictions, check, shared)
            while True:
                with input_pipeline.explaining_faults(graph):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        while not session.should_stop():
            check()
            with input_pipeline.explaining_faults(graph):
                batch = session.run(predictions)
            yield batch


def _session(spec, checkpoint, config, hooks):
    """Opens a session of this process on the current graph, with the weights of a checkpoint."""
    return resume.session(resume.scaffold_of(spec, checkpoint, config), checkpoint, config, hooks)


@contextlib.contextmanager
def _unchanged_generators():
    """Gives Python's and NumPy's global generators the state back that they had before the block.

    An input_fn may draw from them while its evaluation is built or read. Without this, the next numbers of a
    training in the same process would depend on whether it is evaluated.
    """
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


class SessionWeights:
    """The weights of a live session as a checkpoint that `evaluate` reads."""

    def __init__(self):
        """Adds the ops that save the global variables to the current graph, which must not be finalized."""
        self._saver = checkpoint_files.Saver(tf.global_variables())

    @contextlib.contextmanager
    def saved(self, session):
        """Yields the path of a checkpoint with the session's values. The block's end removes it."""
        with tempfile.TemporaryDirectory(prefix="evaluated_weights.") as directory:
            yield self._saver.save(session, os.path.join(directory, "model.ckpt"), write_meta_graph=False,
                                   write_state=False)


def write_summary(directory, results):
    """Writes the scalars of an evaluation for TensorBoard.

    Args:
      directory: of the event files; not that of the training's.
      results: see `evaluate`.
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
            tf.summary.FileWriterCache._cache.pop(directory, None)
            session_hooks.warn_of_events(error)
