"""How an Estimator's runs behave besides their model."""

import os

import tensorflow.compat.v1 as tf

from bertlib.graph import tensorflow_internals
from bertlib.replicas import replica_group
from bertlib.system import stopping


class RunConfig(object):
    """How a run behaves besides its model: seed, checkpoints, logging, session."""

    def __init__(self, model_dir=None, tf_random_seed=12345, save_summary_steps=100,
                 save_checkpoints_steps=None, save_checkpoints_secs=None, session_config=None,
                 keep_checkpoint_max=5, keep_checkpoint_every_n_hours=10000, log_step_count_steps=100, *,
                 gradient_accumulation_steps=1, step_config=None, stop_request=None):
        """Creates a configuration.

        Args:
          model_dir: directory of checkpoints and summaries.
          tf_random_seed: the graph's seed. TensorFlow's default was none; here runs repeat unless asked
            otherwise.
          save_summary_steps: steps between summaries; None or 0 for none.
          save_checkpoints_steps: steps between checkpoints.
          save_checkpoints_secs: seconds between checkpoints; 600 if neither is given.
          session_config: tf.ConfigProto.
          keep_checkpoint_max: checkpoints kept; None or 0 for all.
          keep_checkpoint_every_n_hours: keep one more every n hours.
          log_step_count_steps: steps between log lines; None or 0 for none.
          gradient_accumulation_steps: micro-batches that make a training batch. The model_fn hands it on to
            `optimization.create_optimizer`; it is in params.
          step_config: a `StepConfig` that says more of it, in place of the number of micro-batches. If
            these differ in their numbers of examples, the input_fn cuts the training batch, and
            params["batch_size"] is that of the whole.
          stop_request: a `stopping.StopRequest`. When it is made, a training saves its last whole step.

        Raises:
          ValueError: both save_checkpoints_steps and save_checkpoints_secs are given, or one is not positive.
        """
        if save_checkpoints_steps is not None and save_checkpoints_secs is not None:
            raise ValueError("Give save_checkpoints_steps or save_checkpoints_secs, not both.")
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            save_checkpoints_secs = 600
        for name, value in (("save_checkpoints_steps", save_checkpoints_steps),
                            ("save_checkpoints_secs", save_checkpoints_secs),
                            ("gradient_accumulation_steps", gradient_accumulation_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be positive.")
        self.gradient_accumulation_steps = (gradient_accumulation_steps if step_config is None
                                            else step_config.gradient_accumulation_steps)
        self.step_config = step_config
        self.stop_request = stop_request or stopping.StopRequest()
        self.model_dir = model_dir and os.fspath(model_dir)
        self.tf_random_seed = tf_random_seed
        self.save_summary_steps = save_summary_steps
        self.save_checkpoints_steps = save_checkpoints_steps
        self.save_checkpoints_secs = save_checkpoints_secs
        self.session_config = _on_own_gpu(session_config, self.replicas)
        self.keep_checkpoint_max = keep_checkpoint_max
        self.keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self.log_step_count_steps = log_step_count_steps

    @property
    def unequal_micro_batches(self):
        """Whether micro-batches differ in their numbers of examples."""
        return self.step_config is not None and self.step_config.unequal_micro_batches

    @property
    def replicas(self):
        """The `replica_group.Group` of this process; None if it works alone."""
        return replica_group.current()

    @property
    def is_chief(self):
        """Whether this process writes."""
        return not self.replicas or self.replicas.is_first

    @property
    def num_worker_replicas(self):
        """How many replicas there are."""
        return self.replicas.count if self.replicas else 1

    def replace(self, **changes):
        """Returns a copy with some settings changed."""
        settings = {**vars(self), **changes}
        for given, other in (("save_checkpoints_steps", "save_checkpoints_secs"),
                             ("save_checkpoints_secs", "save_checkpoints_steps")):
            if changes.get(given) is not None and other not in changes:
                settings[other] = None
        return type(self)(**settings)


def _on_own_gpu(session_config, group):
    """A tf.ConfigProto that names the replica's GPU, if it sees others too and names none."""
    if group is None or group.gpu is None:
        return session_config
    found = tf.ConfigProto()
    if session_config is not None:
        found.CopyFrom(session_config)
    found.gpu_options.visible_device_list = found.gpu_options.visible_device_list or str(group.gpu)
    return found


def xla_session_config():
    """Returns a tf.ConfigProto with which XLA compiles whole graphs, on GPU and on CPU.

    On CPU that takes effect only if this is called before the process has run any session.
    """
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
    # It fuses some ops into others that XLA does not know.
    rewrites = config.graph_options.rewrite_options
    rewrites.remapping = rewrites.OFF
    if not tf.config.list_physical_devices("GPU"):
        # As --tf_xla_cpu_global_jit in TF_XLA_FLAGS, which would have to be there before devices are listed.
        tensorflow_internals.compile_clusters_for_cpu(True)
    return config
