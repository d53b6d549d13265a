"""`python -m tf1 --num_replicas`: starts the replicas of a script, and reports why a replica ends."""

import contextlib
import signal
import sys

from absl import logging

from bertlib.system import cluster, replica_group, replica_launcher
from bertlib.system.child_processes import Outcome, stopped_by
import tf1
from tf1._replicas import gradients, horovod


def launch(count, timeout, max_restarts, open_ports, arguments):
    """Starts the replicas of this machine and waits until they have ended.

    In a process that is already a replica, or if there is only one replica, the function starts nothing.

    Args:
      count: number of replicas on this machine. 0 means one replica for each GPU.
      timeout: number of seconds. After one replica has failed, all replicas end within this time.
      max_restarts: largest number of restarts of all replicas after failures.
      open_ports: whether other machines can reach the ports of the replicas; see
        `network_namespace.for_replicas`.
      arguments: the arguments of the script. If one of them is a remote path, the script needs the network.

    Returns:
      a `child_processes.Outcome`; None if this process has to run the script.

    Raises:
      ValueError: the machine has fewer GPUs than count, the ports cannot be closed although open_ports is
        false, or TF_CONFIG cannot be used.
      OSError: the port that TF_CONFIG names is in use.
    """
    if replica_group.is_replica():
        return None
    machines = cluster.from_environment()
    if machines is not None and machines.is_evaluator:
        raise ValueError("TF_CONFIG makes this machine an evaluator, but scripts have no separate "
                         "evaluator: replica 0 evaluates. Remove the evaluator from the cluster.")
    return replica_launcher.launch(count, timeout, max_restarts, machines, open_ports, arguments,
                                   logging.warning)


@contextlib.contextmanager
def joined():
    """Returns a context manager. If this process is a replica, the context manager joins the other replicas
    before the block, and leaves them after the block."""
    if not replica_group.is_replica():
        yield
        return
    try:
        group = replica_group.join()
        gradients.install(tf1)
        # An installed Horovod must not be imported, because it would not find the other replicas.
        sys.meta_path.insert(0, horovod.FINDER)
        yield
    except BaseException as error:
        _leave(replica_group.current(), error)
        raise
    group.leave()


def _leave(group, error):
    """Reports to the other replicas and to the launcher why this process ends. The launcher prints the
    reason. Then the caller raises `error` again, unless this function has raised SystemExit.

    Raises:
      SystemExit: another replica failed first.
    """
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        message = error.code if isinstance(error.code, str) else f"the script ended with exit code {code}."
        group.leave(Outcome("refused", code, message, has_traceback=True) if code else None)
    elif isinstance(error, KeyboardInterrupt):
        group.leave(stopped_by(signal.SIGINT))
    elif isinstance(error, replica_group.ReplicaError) or (
            group.failure and group.failure.about != group.index):
        group.leave(Outcome("failed", 1, str(group.failure or error)))
        sys.exit(1)
    else:
        first_line = str(error).strip().partition("\n")[0]
        group.leave(Outcome(replica_group.kind_of(error), 1, f"{type(error).__name__}: {first_line}",
                            has_traceback=True))
