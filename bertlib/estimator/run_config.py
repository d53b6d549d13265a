"""Defines `RunConfig`: the settings of a run that do not concern the model."""

import copy
import inspect
import os

import tensorflow.compat.v1 as tf

from bertlib.estimator.step_config import StepConfig
from bertlib.system import replica_group, stopping


def step_config_of(params, config):
    """Returns the `StepConfig` of a training, from the arguments that an Estimator passes to a model_fn.

    Args:
      params: used if `config` has no `StepConfig`, as in other people's programs. The entry
        "gradient_accumulation_steps" is the number of micro-batches of a replica. All other attributes of the
        result then have default values.
      config: a `RunConfig`, or None.
    """
    return config and config.step_config or StepConfig(
        gradient_accumulation_steps=params.get("gradient_accumulation_steps", 1))


class RunConfig:
    """Settings of a run that do not concern the model: seed, checkpoints, logging, session."""

    def __init__(self, model_dir=None, tf_random_seed=12345, save_summary_steps=100,
                 save_checkpoints_steps=None, save_checkpoints_secs=None, session_config=None,
                 keep_checkpoint_max=5, keep_checkpoint_every_n_hours=10000, log_step_count_steps=100, *,
                 gradient_accumulation_steps=1, step_config=None, stop_request=None,
                 metrics_history=None):
        """Creates a configuration.

        Args:
          model_dir: directory of checkpoints and summaries.
          tf_random_seed: the seed of the graph. Unlike in tf.estimator, the default is a fixed number, so
            runs are repeatable by default.
          save_summary_steps: number of steps between summaries; None or 0 for no summaries.
          save_checkpoints_steps: number of steps between checkpoints; 0 for no checkpoints.
          save_checkpoints_secs: seconds between checkpoints; 0 for no checkpoints. If neither
            save_checkpoints_steps nor this argument is given, the value is 600.
          session_config: tf.ConfigProto; None for a ConfigProto with allow_soft_placement=True.
          keep_checkpoint_max: number of checkpoints to keep; None or 0 for all.
          keep_checkpoint_every_n_hours: number n. One more checkpoint is kept for every n hours of training.
          log_step_count_steps: number of steps between log lines; None or 0 for no lines.
          gradient_accumulation_steps: for programs without a `step_config`, the number of micro-batches that
            each replica computes in a training step. The model_fn gets this number in its params and passes
            it to `optimization.create_optimizer`.
          step_config: a `StepConfig`. Its number of micro-batches is then also the attribute
            gradient_accumulation_steps. If the micro-batches differ in their numbers of examples, the
            input_fn cuts the training batch into micro-batches, and params["batch_size"] is the size of the
            whole training batch.
          stop_request: a `stopping.StopRequest`. When it is set, a training saves its last complete step and
            ends.
          metrics_history: a `metrics_history.MetricsHistory`, to which a training adds its log lines; None
            for no history.

        Raises:
          ValueError: both save_checkpoints_steps and save_checkpoints_secs are given, one of them is
            negative, or gradient_accumulation_steps is not positive.
        """
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("Give save_checkpoints_steps or save_checkpoints_secs, not both.")
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            save_checkpoints_secs = 600
        for name, value, least in (("save_checkpoints_steps", save_checkpoints_steps, 0),
                                   ("save_checkpoints_secs", save_checkpoints_secs, 0),
                                   ("gradient_accumulation_steps", gradient_accumulation_steps, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}.")
        self.gradient_accumulation_steps = (gradient_accumulation_steps if step_config is None
                                            else step_config.gradient_accumulation_steps)
        self.step_config = step_config
        self.stop_request = stop_request or stopping.StopRequest()
        self.metrics_history = metrics_history
        self.model_dir = model_dir and os.fspath(model_dir)
        self.tf_random_seed = tf_random_seed
        self.save_summary_steps = save_summary_steps
        self.save_checkpoints_steps = save_checkpoints_steps
        self.save_checkpoints_secs = save_checkpoints_secs
        # With soft placement, an op without a kernel for GPUs runs on the CPU. On a machine without a GPU,
        # tf.device("/gpu:0") has no effect. tf.estimator has the same default.
        self.session_config = session_config or tf.ConfigProto(allow_soft_placement=True)
        self.keep_checkpoint_max = keep_checkpoint_max
        self.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self.log_step_count_steps = log_step_count_steps

    @property
    def group(self):
        """The `replica_group.Group` to which this process belongs; None if it is the only one. All
        configurations of a process have the same group: `replica_group.current`."""
        return replica_group.current()

    @property
    def is_chief(self):
        """Whether this process writes the files of the run."""
        return not self.group or self.group.is_first

    @property
    def num_worker_replicas(self):
        """Number of replicas, including this process."""
        return self.group.count if self.group else 1

    def replace(self, **changes):
        """Returns a copy with some settings changed.

        Raises:
          TypeError: a setting is unknown.
          ValueError: a new value is not allowed; see `RunConfig`.
        """
        unknown = [name for name in changes if name not in vars(self)]
        if unknown:
            raise TypeError(f"RunConfig has no setting {unknown[0]!r}.")
        settings = {**vars(self), **changes}
        for name, other in (("save_checkpoints_steps", "save_checkpoints_secs"),
                            ("save_checkpoints_secs", "save_checkpoints_steps")):
            if changes.get(name) is not None and other not in changes:
                settings[other] = None
        # The copy keeps its class, and the attributes that a subclass or a script has added.
        copied = copy.copy(self)
        vars(copied).update(changes)
        RunConfig.__init__(copied, **{name: settings[name] for name in _SETTINGS})
        return copied


_SETTINGS = [name for name in inspect.signature(RunConfig.__init__).parameters if name != "self"]
