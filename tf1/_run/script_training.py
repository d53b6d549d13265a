"""Trains a script's own model.

`bertlib` trains on its own input with its own optimizers. `Builder` and `TrainingSession` override methods of
the classes with the same names in `bertlib`, because a script may have

- an input_fn that cannot start at a given global step. Therefore the position of its input is saved with each
  checkpoint, and its batches are scattered over the replicas;
- params of any class, a device_fn, hooks that save checkpoints, or a checkpoint to start from;
- an optimizer that leaves open whether the global step is read before or after its increment;
- starting weights drawn at random, which must be the same in all replicas;
- calls of Horovod. In this case, the script itself divides the work among the replicas.
"""

import contextlib
import copy
import os

from absl import logging
import tensorflow.compat.v1 as tf

from bertlib.checkpoints import checkpoint_formats
from bertlib.data import input_pipeline
from bertlib.estimator import model_graph, replica_sync, training_session
from bertlib.estimator.estimator_spec import ModeKeys
from bertlib.graph import collectives
from tf1._names import internals, keyed_random
from tf1._replicas import broadcast, scatter
from tf1._replicas.horovod_mode import script_divides_work
from tf1._run import input_position, step_order

# These hooks write files. Only replica 0 runs them.
_WRITING_HOOKS = (tf.train.CheckpointSaverHook, tf.train.ProfilerHook, tf.train.StepCounterHook,
                  tf.train.SummarySaverHook)


class Builder(model_graph.Builder):
    """Calls the input_fn and the model_fn of a script.

    Attributes:
      input_cardinality: int64 scalar tensor, the cardinality of the dataset that the input_fn of the training
        returned; None if it returned tensors.
    """

    input_cardinality = None

    def __init__(self, model_fn, config, params, batch_sizes):
        """Creates a builder; see `model_graph.Builder`. params may be of any class."""
        is_dict = isinstance(params or {}, dict)
        super().__init__(model_fn, config, params if is_dict else None, batch_sizes)
        if is_dict:
            return
        self.params = copy.deepcopy(params)
        if any(size is not None for size in batch_sizes.values()):
            if not hasattr(params, "set_hparam"):
                raise TypeError(f"params is a {type(params).__name__}, but it must be a dict, because the "
                                "Estimator adds batch_size to params.")
            model_graph.refuse_batch_size(params)

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
        group = self.config.group
        if mode == ModeKeys.TRAIN:
            self.input_cardinality = (tf.data.experimental.cardinality(result)
                                      if isinstance(result, tf.compat.v2.data.Dataset) else None)
        if (mode != ModeKeys.TRAIN or not group or script_divides_work()
                or input_pipeline.starts_at_global_step()):
            return super().tensors_of(result, mode)
        batches, hooks = super().tensors_of(scatter.scatter_batches(result, group), mode)
        return batches[group.index], hooks

    def call_model_fn(self, features, labels, mode):
        device = getattr(self.config, "device_fn", None)
        with tf.device(device) if device else contextlib.nullcontext():
            return super().call_model_fn(features, labels, mode)


class InputHistory:
    """Tells a call of `Estimator.train` about the input of the calls before it.

    Attributes:
      is_endless: whether the input of the last call was endless; None before the first call.
    """

    is_endless = None


class TrainingSession(training_session.TrainingSession):
    """Runs one session of a training that a script for TensorFlow 1 defines."""

    def __init__(self, *arguments, warm_start_from, input_history):
        """Creates a session.

        Args:
          *arguments: the arguments of bertlib's `TrainingSession`.
          warm_start_from: see `script_estimator.Estimator`.
          input_history: the `InputHistory` of the Estimator.
        """
        super().__init__(*arguments)
        self._warm_start_from = warm_start_from
        # The `InputPosition` moves the input to the saved position when a training is resumed. The attribute
        # stays None for an input that starts at the batch of the global step by itself.
        self._position = None
        self._input_history = input_history
        # With Horovod, each process reads its own input. A resumed run reads this input from the beginning.
        # A script that calls `train` several times, for example in a loop over epochs, expects that each call
        # reads the input from its beginning. Only an endless input continues.
        self._continues_input = not script_divides_work() and self._input_history.is_endless is not False

    def run_graph(self):
        super().run_graph()
        if self._position and self._position.moved and not self._position.has_trained:
            # `restore` moved the input to the saved position, and no step followed. So this position is the
            # end of the input. Start the input from its beginning.
            self._continues_input = False
            super().run_graph()
        if self._position and not self._position.has_trained and not self.config.stop_request.is_set:
            logging.warning("The training made no steps. The input may be empty, or smaller than a batch.")

    def prepare_input(self):
        continues = self.checkpoint and self._continues_input
        # The fingerprint is not compared here, because the input is not built yet.
        start = input_position.read(self.checkpoint)[1] if continues else None
        if start is None:
            start = checkpoint_formats.read_global_step(self.checkpoint)
        keyed_random.set_input_start(start)
        return super().prepare_input()

    def make_position_hooks(self):
        self._position = input_position.InputPosition(tf.get_default_graph(),
                                                      self.builder.input_cardinality)
        if self.group and not script_divides_work() and self.checkpoint is None:
            return [self._position, broadcast.BroadcastHook(self.group)]
        return [self._position]

    def build_step(self):
        built = super().build_step()
        step_order.order_reads(tf.train.get_global_step(), built.spec.train_op)
        if self._warm_start_from is not None and self.checkpoint is None:
            source = self._warm_start_from
            is_path = isinstance(source, (str, os.PathLike))
            tf.train.warm_start(**({"ckpt_to_initialize_from": source} if is_path else vars(source)))
        return built

    def not_averaged_message(self, replicas):
        return (f"The gradients of the model_fn are not averaged over the {replicas} replicas, so each "
                "replica would train alone. Start the script with python -m tf1, and compute the gradients "
                "with tf.gradients, or with minimize or compute_gradients of a tf.train.Optimizer. With "
                "Horovod, use hvd.DistributedOptimizer.")

    def make_hooks(self, built, scaffold, listeners):
        hooks = super().make_hooks(built, scaffold, listeners)
        writing = [hook for hook in hooks if isinstance(hook, _WRITING_HOOKS)]
        return [hook if hook in writing else step_order.LateStepHook(hook, built.spec.train_op)
                for hook in hooks if self.config.is_chief or hook not in writing]

    def make_saving_hooks(self, built, scaffold, listeners):
        if self._position:
            listeners = [*listeners, input_position.Listener(self._position, self.config.model_dir)]
        spec = built.spec
        hooks = [*built.input_hooks, *self.hooks, *spec.training_chief_hooks, *spec.training_hooks]
        savers = [hook for hook in hooks if isinstance(hook, tf.train.CheckpointSaverHook)]
        if not savers:
            return super().make_saving_hooks(built, scaffold, listeners)
        # A script may pass one hook to several calls of train. The listener of an earlier call belongs to the
        # graph of that call, so it is removed.
        kept = [listener for listener in internals.saving_listeners(savers[0])
                if not isinstance(listener, input_position.Listener)]
        internals.set_saving_listeners(savers[0], [*kept, *listeners])
        return []

    def examples_of_step(self, built):
        # With Horovod, each process has its own batch.
        examples, batch = super().examples_of_step(built), self.builder.train_batch()
        return examples * collectives.num_replicas() // batch.num_replicas if batch else examples

    def make_vote(self):
        return replica_sync.StepVote(self.group, compares_weights=not script_divides_work())

    def take_steps(self, session, built, vote):
        if self._position:
            raw_session = session.raw_session()
            self._input_history.is_endless = self._position.is_endless(raw_session)
            self._position.restore(raw_session, self.checkpoint if self._continues_input else None,
                                   int(raw_session.run(tf.train.get_global_step())),
                                   built.gradient_accumulation_steps)
        super().take_steps(session, built, vote)

    def ends_before(self, micro_batch):
        # The position of the input can be saved only between two steps. So a training that saves this
        # position does not end between two micro-batches of a step.
        return super().ends_before(micro_batch) and not (self._position and micro_batch)
