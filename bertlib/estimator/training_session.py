"""Implements one session of a training: `TrainingSession.run` builds the graph and runs the training steps.

Each part of `run` is a short method. A subclass can change the training by overriding one of these methods.
`tf1/_run/script_training.py` contains such a subclass for scripts whose `input_fn`, variables or hooks are
not from this project.
"""

import collections
import contextlib
import functools

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_files, checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.estimator import session_hooks, sessions
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import collectives, graph_keys
from bertlib.system import files, stopping


class BuiltStep(collections.namedtuple("BuiltStep", ["spec", "input_hooks", "accumulation"])):
    """The ops of a training step in the current graph.

    Attributes:
      spec: the `EstimatorSpec`. Its loss is the loss of the effective batch. Its train_op adds the gradient
        of the last micro-batch and updates the weights.
      input_hooks: list of SessionRunHook.
      accumulation: the `optimization.Accumulation` of the train_op; None if it adds up no gradients.
    """

    @property
    def gradient_accumulation_steps(self):
        """Number of micro-batches of this replica in a step of the graph."""
        return self.accumulation.num_micro_batches if self.accumulation else 1


class TrainingSession:
    """Trains a model_fn in one graph and one session."""

    def __init__(self, builder, config, input_fn, hooks, saving_listeners, checkpoint, last_step):
        """Stores the arguments of a session. `run` builds the graph and opens the session.

        Args:
          builder: the `model_graph.Builder`.
          config: the `RunConfig`.
          input_fn, hooks, saving_listeners: see `estimator.Estimator.train`.
          checkpoint: prefix of the checkpoint to restore; None to start a new training.
          last_step: int, the global step at which a hook ends the training; None if the input ends it.
        """
        self.builder, self.config = builder, config
        self.input_fn, self.hooks, self.saving_listeners = input_fn, hooks, list(saving_listeners or [])
        self.checkpoint, self.last_step = checkpoint, last_step

    @property
    def group(self):
        """The `replica_group.Group` of the replicas that train together, or None."""
        return self.config.group

    @property
    def exchange_dtype(self):
        """The dtype in which replicas exchange gradients. None: each gradient is sent in its own dtype."""
        step_config = self.config.step_config
        return tf.bfloat16 if step_config and step_config.gradient_dtype == "bf16" else None

    def run(self):
        """Trains until the input ends, a hook ends the session, or the configuration's stop_request is set.

        Raises:
          stopping.Stopped: the stop_request was set. The last complete step is saved. The message names its
            checkpoint.
        """
        model_dir = self.config.model_dir
        with (explaining_disk(model_dir), session_hooks.quiet_event_writers(),
              collectives.translate_connection_errors(self.group)):
            try:
                self.run_graph()
            except stopping.Stopped:
                last = checkpoint_formats.latest_checkpoint(model_dir)
                raise stopping.Stopped(*[f"The last step is saved in {last}"] if last else []) from None
            finally:
                session_hooks.close_event_files()

    def run_graph(self):
        """Builds the graph, opens the session and runs the steps; see `run`."""
        with tf.Graph().as_default(), tf.device(collectives.replica_device(self.group) if self.group else ""):
            built = self.build_step()
            scaffold = sessions.create_checked_scaffold(built.spec, self.checkpoint, self.config)
            vote = self.make_vote() if self.group else None
            hooks = self.make_hooks(built, scaffold, [vote.listener] if vote else [])
            if self.config.is_chief:
                checkpoint_files.remove_leftovers(self.config.model_dir)
            with (input_pipeline.translate_record_errors(), self.config.stop_request.being_awaited(),
                  sessions.open_session(scaffold, self.checkpoint, self.config, hooks, is_training=True,
                                      group=self.group) as session,
                  vote.reporting_errors() if vote else contextlib.nullcontext()):
                if self.group:
                    collectives.check_sums(self.group, self.exchange_dtype, self.config.session_config)
                self.take_steps(session, built, vote)
        # `StopRequest.check` is not used here, because it raises `Stopped` only when it is called for the
        # first time after the request. If a hook has already made this first call, `check` raises no error.
        if self.config.stop_request.is_set:
            raise stopping.Stopped

    # --- The graph

    def prepare_input(self):
        """Calls the input_fn, before the model is built; returns (features, labels, hooks)."""
        features, labels, hooks = self.builder.call_input_fn(self.input_fn, ModeKeys.TRAIN)
        if not input_pipeline.starts_at_global_step():
            hooks = [*hooks, *self.make_position_hooks()]
        return features, labels, hooks

    def make_position_hooks(self):
        """Returns hooks that make the input start at the batch of the global step. The session calls this
        method only if the input does not start at this batch without hooks.

        A subclass can override this method. The method of this class returns no hooks. If the training is
        resumed, the method warns that the input starts at its first batch again.

        Raises:
          ValueError: there are several replicas, and each of them would train on the whole input.
        """
        remedy = ("Make the input with bertlib.data.input_pipeline, or train with tf.estimator of "
                  "`import tf1 as tf`.")
        if self.group:
            raise ValueError("The input_fn does not divide its batches among replicas: each replica would "
                             f"train on all batches. {remedy}")
        if self.checkpoint:
            logging.warning("The input starts from its beginning, because %s does not contain the position "
                            "of the input. %s", self.checkpoint, remedy)
        return []

    def build_step(self):
        """Builds the input, the model and the update of the weights in the current graph; returns a
        `BuiltStep`."""
        if self.group:
            tf.add_to_collection(graph_keys.ALL_REDUCE,
                                 collectives.AllReduce(self.group, self.exchange_dtype))
        spec, input_hooks = self.builder.build(self.prepare_input, ModeKeys.TRAIN)
        accumulation = next(iter(tf.get_collection(graph_keys.GRADIENT_ACCUMULATION)), None)
        spec = self._with_effective_batch_loss(spec, accumulation)
        # The tag of this summary is always "loss", even if a variable scope has this name.
        if not any(summary.op.name == "loss" for summary in tf.get_collection(tf.GraphKeys.SUMMARIES)):
            tf.add_to_collection(tf.GraphKeys.SUMMARIES,
                                 tf.raw_ops.ScalarSummary(tags="loss", values=spec.loss))
        return BuiltStep(spec, input_hooks, accumulation)

    def _with_effective_batch_loss(self, spec, accumulation):
        """Replaces the loss in a spec. The given spec contains the loss of a micro-batch, and the returned
        spec contains the loss of the effective batch. `accumulation` is that of `BuiltStep`.

        The accumulate op adds the gradients of a micro-batch to their sums. The train op adds the gradients
        of the last micro-batch and updates the weights. If the session ends between two micro-batches, the
        unfinished step has no effect: the sums are local variables, which are not saved.
        """
        configured = self.config.gradient_accumulation_steps
        steps = accumulation.num_micro_batches if accumulation else 1
        if configured not in (1, steps):
            raise ValueError(f"The RunConfig says gradient_accumulation_steps={configured}, but the "
                             f"model_fn's train_op accumulates {steps} micro-batches. Pass "
                             "params[\"gradient_accumulation_steps\"] to "
                             "optimization.create_optimizer.")
        all_reduce = collectives.current_all_reduce()
        if all_reduce and not all_reduce.unconditional_ops:
            raise ValueError(self.not_averaged_message(all_reduce.num_replicas))
        if accumulation:
            return spec._replace(loss=accumulation.loss)
        if all_reduce:
            # There are several replicas, but no `Accumulation`. With several replicas,
            # `optimization.create_optimizer` would have made an `Accumulation`. So the model_fn did not call
            # this function. It uses another optimizer, which averages the gradients itself.
            loss = all_reduce.sum(spec.loss) / all_reduce.num_replicas
            # A sum over the replicas ends only when every replica takes part in it. So each replica must run
            # each of these sums, even if only replica 0 uses the result, for example in a summary.
            spec = spec._replace(loss=loss, train_op=tf.group(spec.train_op, *all_reduce.unconditional_ops))
        return spec

    def not_averaged_message(self, replicas):
        """Returns the error message for a model_fn whose gradients are not averaged over the replicas."""
        return (f"The model_fn trains {replicas} replicas whose gradients are not averaged: each replica "
                "would train by itself. Create the train_op with optimization.create_optimizer.")

    # --- Hooks

    def make_hooks(self, built, scaffold, listeners):
        """Returns all hooks of the session.

        After a step, the hooks run in the order of the list. This order is the same as in `tf.estimator`,
        with one exception: the hook that checks and logs the loss is the first one. Otherwise, a checkpoint
        could contain broken weights. In addition, if the process is killed right after a checkpoint is saved,
        the history already contains the line of its step. A training that continues from an earlier
        checkpoint removes this line.

        Args:
          built: the `BuiltStep`.
          scaffold: tf.train.Scaffold.
          listeners: list of CheckpointSaverListener, in addition to the caller's `saving_listeners`.
        """
        config, spec = self.config, built.spec
        other_hooks = [*built.input_hooks, *self.hooks, *spec.training_hooks]
        progress = session_hooks.ProgressHook(
            config.model_dir if config.is_chief else None, spec.loss, config.log_step_count_steps,
            self.last_step, self.examples_of_step(built),
            config.metrics_history if config.is_chief else None)
        if not config.is_chief:
            return [progress, *other_hooks]
        summaries = [tf.train.SummarySaverHook(
            save_steps=config.save_summary_steps, output_dir=config.model_dir, scaffold=scaffold,
        )] if config.save_summary_steps else []
        savers = self.make_saving_hooks(built, scaffold, [*self.saving_listeners, *listeners])
        return [progress, *savers, *spec.training_chief_hooks, *summaries, *other_hooks]

    def make_saving_hooks(self, built, scaffold, listeners):
        """Returns the hooks that save checkpoints and call the listeners; see `make_hooks`."""
        if not (self.config.save_checkpoints_steps or self.config.save_checkpoints_secs):
            return []
        return [session_hooks.SaveWholeHook(
            self.config.model_dir, save_secs=self.config.save_checkpoints_secs,
            save_steps=self.config.save_checkpoints_steps, scaffold=scaffold, listeners=listeners,
            restored=self.checkpoint)]

    def examples_of_step(self, built):
        """Returns the number of examples in the effective batch; None if it is unknown."""
        batch = self.builder.train_batch()
        if batch:
            return batch.size
        # Other people's params contain the size of a micro-batch.
        examples = self.builder.batch_size(ModeKeys.TRAIN)
        return examples and examples * built.gradient_accumulation_steps * collectives.num_replicas()

    # --- Steps

    def make_vote(self):
        """Returns the `replica_sync.StepVote` by which the replicas vote before each step."""
        # Only a training with several replicas loads this module.
        from bertlib.estimator import replica_sync
        return replica_sync.StepVote(self.group)

    def take_steps(self, session, built, vote):
        """Runs training steps until the session ends or the stop_request is set.

        Args:
          session: tf.train.SingularMonitoredSession.
          built: the `BuiltStep`.
          vote: the `replica_sync.StepVote`. The votes make all replicas end after the same step. None if this
            process trains alone.
        """
        while not (vote.synchronize(session, self.config.stop_request) if vote else session.should_stop()):
            session.run_step_fn(functools.partial(self._take_step, built))

    def ends_before(self, micro_batch):
        """Returns whether the training ends before the micro-batch with this index. If so, the unfinished
        step is dropped. Replicas end only between two steps."""
        return self.config.stop_request.is_set and not self.group

    def _take_step(self, built, step_context):
        for micro_batch in range(built.gradient_accumulation_steps):
            if self.ends_before(micro_batch):
                # `request_stop` raises an error, so the rest of the step does not run. The session ends, and
                # saves the last complete step.
                step_context.request_stop()
            if micro_batch < built.gradient_accumulation_steps - 1:
                step_context.session.run(built.accumulation.accumulate_op)
        # If a file becomes larger than the allowed file size, TensorFlow raises an OutOfRangeError. The
        # session would take this error for the end of the input, so it is translated to a different error.
        with explaining_disk(self.config.model_dir):
            step_context.run_with_hooks([built.spec.train_op, built.spec.loss])


def explaining_disk(model_dir):
    """Returns a context manager. It adds the name of the last complete checkpoint to the messages of disk
    errors in its block."""
    return files.translate_disk_errors(model_dir, lambda: "The last complete checkpoint is "
                                       f"{checkpoint_formats.latest_checkpoint(model_dir) or 'none'}.")
