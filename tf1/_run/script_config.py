"""Defines `tf.estimator.RunConfig`: the settings of a run, including those of clusters and devices."""

from bertlib.estimator import run_config
from bertlib.system import cluster


class RunConfig(run_config.RunConfig):
    """Extends bertlib's `RunConfig` by the arguments and attributes that only TensorFlow's RunConfig has."""

    task_type = "worker"
    num_ps_replicas = 0
    master = ""
    evaluation_master = ""

    def __init__(self, *arguments, train_distribute=None, device_fn=None, protocol=None, eval_distribute=None,
                 experimental_distribute=None, experimental_max_worker_delay_secs=None,
                 session_creation_timeout_secs=7200, **settings):
        """Creates a configuration. The arguments that are not listed below are described in
        `bertlib.estimator.run_config`.

        Args:
          train_distribute, eval_distribute: a tf.distribute strategy. A strategy with one replica has no
            effect. For a strategy with several replicas, start the script with `python -m tf1
            --num_replicas`.
          device_fn: function that takes an op and returns the device of this op.
          protocol, experimental_distribute, experimental_max_worker_delay_secs,
            session_creation_timeout_secs: settings of clusters. They are ignored.

        Raises:
          ValueError: this process was started alone, but a strategy has several replicas, or TF_CONFIG names
            several processes. The error is also raised if bertlib's RunConfig refuses an argument.
        """
        if not self.group:
            refuse_clusters()
        intervals = [settings[name] for name in ("save_checkpoints_steps", "save_checkpoints_secs")
                     if name in settings]
        super().__init__(*arguments, **settings)
        # In TensorFlow 1, a script says by a None that it saves no checkpoints.
        if set(intervals) == {None} and self.save_checkpoints_steps is None:
            self.save_checkpoints_secs = 0
        for name, strategy in (("train_distribute", train_distribute), ("eval_distribute", eval_distribute)):
            if not self.group and strategy is not None and strategy.num_replicas_in_sync > 1:
                count = strategy.num_replicas_in_sync
                raise ValueError(f"{name} has {count} replicas, but the script was started as one process. "
                                 f"Start it with python -m tf1 --num_replicas={count}, or leave {name} out "
                                 "to use one device.")
        self.train_distribute, self.eval_distribute = train_distribute, eval_distribute
        self.device_fn = device_fn

    @property
    def task_id(self):
        """The index of this replica."""
        return self.group.index if self.group else 0


def refuse_clusters():
    """Checks that the environment variable TF_CONFIG names only this process.

    In TensorFlow 1, `tf.estimator` read the addresses of other processes from TF_CONFIG. Under tf1, a process
    that was not started as a replica does not use these addresses. So each process of the cluster would
    train alone, and all of them would write into the same directory.

    Raises:
      ValueError: TF_CONFIG names several processes, makes this process an evaluator, or is malformed.
    """
    machines = cluster.from_environment()
    if machines and (len(machines.addresses) > 1 or machines.is_evaluator):
        raise ValueError("The environment variable TF_CONFIG names a cluster, but the script was started "
                         "without replicas: each process would train alone, in the same directory. Start the "
                         "script with python -m tf1 --num_replicas=1 SCRIPT, or unset TF_CONFIG.")
