"""Derives the role of this process from the replica flags and TF_CONFIG.

A process has one of four roles: it is the only process of its command, a replica, the launcher of the
replicas on this machine, or the evaluator of a cluster.
"""

import contextlib

from absl import flags, logging
import tensorflow.compat.v1 as tf

from bertlib.command_line import evaluator_process

from bertlib.replicas import cluster, replica_group, replica_launcher

FLAGS = flags.FLAGS


def launch(afterwards):
    """Starts the replicas if this process is a launcher, or the evaluations if it is an evaluator. Waits
    until they have ended.

    Args:
      afterwards: str, last sentence of a message about a replica that was killed or lost.

    Returns:
      a `child_processes.Outcome`; None if this process does the work itself, alone or as a replica.

    Raises:
      ValueError: the flags require more GPUs than this machine has; the flags require closed ports, but the
        ports cannot be closed; TF_CONFIG is invalid; or this machine is an evaluator, but the command cannot
        evaluate.
      OSError: another process uses the port that TF_CONFIG names, or this machine is an evaluator and never
        reached the chief.
    """
    if "num_replicas" not in FLAGS or replica_group.is_replica():
        return None
    machines = cluster.from_environment()
    if machines is not None and machines.is_evaluator:
        return evaluator_process.follow(machines.coordinator, FLAGS.replica_timeout)
    return replica_launcher.launch(
        FLAGS.num_replicas, FLAGS.replica_timeout, FLAGS.max_restarts, machines, FLAGS.open_ports,
        path_arguments(), logging.info, afterwards)


def path_arguments():
    """Returns the flags whose values can be paths, as a list of "--name=value"."""
    values = {name: FLAGS[name].value for name in FLAGS}
    # If the value of a flag is the address of a TF Hub module, the flag is left out. Such an address looks
    # like a remote path, but nothing is downloaded: the address only selects a directory in the cache of
    # modules.
    return [f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in values.items() if isinstance(value, (str, list))
            and not (name.endswith("_handle") and value.startswith(("https://", "http://")))]


@contextlib.contextmanager
def join_replicas():
    """Returns a context manager. If this process is a replica, it belongs to the group of replicas during the
    block.

    If this machine is the only training machine of a cluster, the process listens at the port of TF_CONFIG
    during the block. In this way, the evaluator sees that the training runs.

    Raises:
      replica_group.ReplicaError: another replica failed. This error is raised instead of the TensorFlow error
        of the op that noticed the failure.
    """
    if replica_group.is_replica():
        group = replica_group.join()
        try:
            yield
        except tf.errors.OpError as error:
            if group.failure and group.failure.about != group.index:
                raise group.failure from error
            raise
        group.leave()
        return
    with contextlib.ExitStack() as stack:
        machines = cluster.from_environment() if "num_replicas" in FLAGS else None
        if machines is not None:
            try:
                stack.enter_context(replica_launcher.listen(machines))
            except OSError as error:
                logging.warning("%s An evaluator will not see that this training runs.", error)
        yield
