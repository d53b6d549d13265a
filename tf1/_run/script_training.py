"""The training of a script's own model.

`bertlib` trains on its own input with its own optimizers. `Builder` and `TrainingSession` override steps of
its classes of these names, because a script may bring

- an input_fn that does not start at the global step by itself: its position is saved with each checkpoint,
  and replicas share its batches;
- params of any class, a device_fn, hooks that save checkpoints, a checkpoint to start from;
- an optimizer that leaves open whether the global step is read before it is counted;
- starting weights drawn at random, which replicas have to have in common;
- Horovod, with which it divides the work among the replicas itself.
"""

import contextlib
import copy
import os

import tensorflow.compat.v1 as tf

from bertlib.estimator import model_graph, replica_sync, training_session
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import tensorflow_internals
from tf1._replicas import broadcast, scatter
from tf1._replicas.horovod_mode import script_divides_work
from tf1._run import input_position, step_order

# Hooks that write files: only replica 0 runs them.
_WRITING_HOOKS = tf.train.CheckpointSaverHook, tf.train.SummarySaverHook, tf.train.StepCounterHook


class Builder(model_graph.Builder):
    """Calls the input_fn and the model_fn of a script."""

    def copied(self, params):
        return super().copied(params) if isinstance(params or {}, dict) else copy.deepcopy(params)

    def check_params(self):
        if not isinstance(self.params, dict) and not hasattr(self.params, "set_hparam"):
            raise TypeError(f"params is a {type(self.params).__name__}; the Estimator puts batch_size "
                            "there, for which it has to be a dict.")
        super().check_params()

    def batch_size(self, mode):
        if isinstance(self.params, dict):
            return super().batch_size(mode)
        return self.added_params(mode).get("batch_size")

    def params_for(self, mode):
        if isinstance(self.params, dict):
            return super().params_for(mode)
        params = copy.deepcopy(self.params)
        if hasattr(params, "set_hparam"):  # tf.contrib.training.HParams
            for name, value in self.added_params(mode).items():
                if name not in params:
                    params.add_hparam(name, value)
        return params

    @property
    def replicas_sharing_a_batch(self):
        return 1 if script_divides_work() else super().replicas_sharing_a_batch

    def tensors_of(self, result, mode):
        group = self._config.replicas
        if (mode != ModeKeys.TRAIN or not group or script_divides_work()
                or training_session.starts_at_global_step()):
            return super().tensors_of(result, mode)
        batches, hooks = super().tensors_of(scatter.scatter_batches(result, group), mode)
        return batches[group.index], hooks

    def call_model_fn(self, features, labels, mode):
        device = getattr(self._config, "device_fn", None)
        with tf.device(device) if device else contextlib.nullcontext():
            return super().call_model_fn(features, labels, mode)


class TrainingSession(training_session.TrainingSession):
    """One session of a script's training."""

    def __init__(self, *arguments, warm_start_from=None):
        """Takes the arguments of the core's session, and those of `tf.train.warm_start` or a checkpoint."""
        super().__init__(*arguments)
        self._warm_start_from = warm_start_from
        self._position = None  # `input_position.InputPosition`, unless the input starts at the global step
        self._continues_input = not script_divides_work()  # with Horovod each process reads its own input

    def run(self):
        super().run()
        if self._position and self._position.moved and not self._position.has_trained:
            # The checkpoint was written at the end of the input: the input begins anew.
            self._continues_input = False
            super().run()

    def make_position_hooks(self):
        self._position = input_position.InputPosition(tf.get_default_graph())
        if self.group and not script_divides_work() and self.checkpoint is None:
            return [self._position, broadcast.BroadcastHook(self.group)]
        return [self._position]

    def build_step(self):
        step = super().build_step()
        step_order.order_reads(tf.train.get_global_step(), step.spec.train_op)
        if self._warm_start_from is not None and self.checkpoint is None:
            given = self._warm_start_from  # a path, or `estimator_parts.WarmStartSettings`
            tf.train.warm_start(**({"ckpt_to_initialize_from": given} if isinstance(given, (str, os.PathLike))
                                   else vars(given)))
        return step

    def not_averaged_message(self, replicas):
        return (f"The model_fn trains {replicas} replicas whose gradients are not averaged: each would train "
                "by itself. Make its train_op by tf.gradients, or by minimize or compute_gradients of a "
                "tf.train.Optimizer, in a script that python -m tf1 starts; with Horovod by "
                "hvd.DistributedOptimizer.")

    def make_hooks(self, step, scaffold, listeners):
        hooks = super().make_hooks(step, scaffold, listeners)
        return hooks if self.config.is_chief else [
            hook for hook in hooks if not isinstance(hook, _WRITING_HOOKS)]

    def make_saving_hooks(self, step, scaffold, listeners):
        if self._position:
            listeners = [*listeners, input_position.Listener(self._position, self.config.model_dir)]
        given = [*step.input_hooks, *self.hooks, *step.spec.training_chief_hooks, *step.spec.training_hooks]
        savers = [hook for hook in given if isinstance(hook, tf.train.CheckpointSaverHook)]
        if not savers:
            return super().make_saving_hooks(step, scaffold, listeners)
        # A hook may serve several calls of train; the position of a graph's input ends with that graph.
        kept = [listener for listener in tensorflow_internals.saving_listeners(savers[0])
                if not isinstance(listener, input_position.Listener)]
        tensorflow_internals.set_saving_listeners(savers[0], [*kept, *listeners])
        return []

    def make_vote(self):
        return replica_sync.StopVote(self.group, compares_weights=not script_divides_work())

    def take_steps(self, session, step, vote):
        if self._position:
            raw_session = session.raw_session()
            self._position.restore(raw_session, self.checkpoint if self._continues_input else None,
                                   int(raw_session.run(tf.train.get_global_step())), step.micro_batches)
        super().take_steps(session, step, vote)

    def ends_before(self, micro_batch):
        # The position is saved where the input stands: after whole steps.
        return super().ends_before(micro_batch) and not (self._position and micro_batch)
