"""The flags of replicas, and TF_CONFIG → what this process is: the only one of its command, the launcher of
replicas on this machine, or the evaluator of a cluster's checkpoints.
"""

import contextlib

from absl import flags, logging
import tensorflow.compat.v1 as tf

from bertlib.command_line import evaluator_process

from bertlib.replicas import cluster, replica_group, replica_launcher
from bertlib.system import network_namespace

FLAGS = flags.FLAGS


def launch(afterwards):
    """Does what a process does that computes nothing itself: starts replicas, or evaluations of a cluster's
    checkpoints, and waits for their end.

    Args:
      afterwards: sentence for the end of a message about a replica that was killed or lost.

    Returns:
      a `replica_launcher.End`; None if this process is to do the work itself, alone or as a replica.

    Raises:
      ValueError: the flags ask for more GPUs than there are, or for closed ports that cannot be closed,
        TF_CONFIG cannot be used, or the command cannot be a cluster's evaluator.
      OSError: the port of TF_CONFIG is taken.
    """
    if "num_replicas" not in FLAGS or replica_group.is_replica():
        return None
    machines = cluster.from_environment()
    if machines is not None and machines.is_evaluator:
        return evaluator_process.follow(machines.coordinator, FLAGS.replica_timeout)
    count = replica_launcher.count_here(FLAGS.num_replicas)
    if count == 1 and (machines is None or len(machines.addresses) == 1):
        return None
    with network_namespace.for_replicas(machines, FLAGS.open_ports, path_arguments(),
                                        lambda text: logging.warning("%s", text)) as namespace:
        plan = replica_launcher.Plan(count, FLAGS.replica_timeout, FLAGS.max_restarts, machines,
                                     afterwards=afterwards, namespace=namespace)
        return replica_launcher.run(plan, lambda text: logging.info("%s", text))


def path_arguments():
    """Returns the flags that may be paths, as on the command line: "--name=value"."""
    values = {name: FLAGS[name].value for name in FLAGS}
    # The address of a hub module is looked up in a directory, and not downloaded.
    return [f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for name, value in values.items() if isinstance(value, (str, list))
            and not (name.endswith("_handle") and value.startswith(("https://", "http://")))]


@contextlib.contextmanager
def join_replicas():
    """Meets the other replicas if this process is one, and takes leave of them after the block; listens at
    the port of TF_CONFIG if it is a cluster's only machine, by which its evaluator knows that it is there.

    Raises:
      replica_group.ReplicaError: another replica failed, whatever TensorFlow says of the operation that
        noticed it.
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
